//! The timed part: rounds in which every cell has its turn, in an order that is shuffled anew from the seed, so that what the machine does
//! meanwhile falls on all alike. The round before the first fills caches and says how long each cell takes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::plan::{Plan, PlannedCell};
use super::prepare::{compile, differs, fresh_dir};
use super::progress::Progress;
use super::{Session, process::Outcome};
use crate::record::{Failure, FailureKind, Metric};
use crate::suite::Measure;

/// One thing that is measured round by round.
struct Entry {
    cell: usize,
    measure: Measure,
    /// How long its last turn took.
    took: Duration,
    /// How many timed rounds it still has.
    left: u32,
    /// What the warm-up measured; it is the only sample of an entry that gets no round.
    warm_up: Vec<(Metric, f64)>,
    failed: bool,
}

/// Measures every cell; gives what the reader of the report should know.
pub fn run(plan: &mut Plan, session: &Session<'_>, progress: &Progress) -> Result<Vec<String>> {
    let mut schedule = Schedule {
        entries: entries(plan, session.effort.rounds),
        session,
        progress,
        random: fastrand::Rng::with_seed(session.seed),
        warnings: Vec::new(),
    };
    schedule.warm_up(plan)?;
    schedule.slow_ones(plan);
    schedule.rounds(plan)?;
    schedule.keep_warm_ups(plan);
    Ok(schedule.warnings)
}

fn entries(plan: &Plan, rounds: u32) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (place, cell) in plan.cells.iter().enumerate().filter(|(_, cell)| cell.is_live()) {
        let measures = plan.units.get(cell.unit).map_or(&[][..], |unit| &unit.measures);
        let timed = measures.iter().filter(|measure| match measure {
            Measure::Run | Measure::Start => true,
            Measure::Compile => cell.compile.is_some(),
            Measure::Sleep | Measure::Size | Measure::Program => false,
        });
        entries.extend(timed.map(|measure| Entry {
            cell: place,
            measure: *measure,
            took: Duration::ZERO,
            left: rounds,
            warm_up: Vec::new(),
            failed: false,
        }));
    }
    entries
}

struct Schedule<'a> {
    entries: Vec<Entry>,
    session: &'a Session<'a>,
    progress: &'a Progress,
    random: fastrand::Rng,
    warnings: Vec<String>,
}

impl Schedule<'_> {
    fn warm_up(&mut self, plan: &mut Plan) -> Result<()> {
        self.progress.phase("warm-up", self.entries.len());
        for place in self.shuffled(plan, |_| true) {
            if self.session.runner.interrupted() {
                break;
            }
            if self.budget_is_spent() {
                self.give_up(plan, place);
                continue;
            }
            let samples = self.turn(plan, place)?;
            if let Some(entry) = self.entries.get_mut(place) {
                entry.warm_up = samples;
            }
        }
        let nothing_counted = plan.cells.iter().all(|cell| !cell.samples.contains_key(&Metric::Instructions));
        let counted = self
            .entries
            .iter()
            .any(|entry| entry.warm_up.iter().any(|(metric, _)| *metric == Metric::Instructions));
        if nothing_counted && !counted && self.entries.iter().any(|entry| entry.measure == Measure::Run) {
            self.warnings.push("this machine does not count instructions (or does not let us: /proc/sys/kernel/perf_event_paranoid)".into());
        }
        Ok(())
    }

    /// Fewer rounds for what takes long.
    fn slow_ones(&mut self, plan: &Plan) {
        let effort = self.session.effort;
        let limit = Duration::try_from_secs_f64(effort.slow_s).unwrap_or(Duration::MAX);
        let mut slow: BTreeMap<String, usize> = BTreeMap::new();
        for entry in self
            .entries
            .iter_mut()
            .filter(|entry| !entry.failed && entry.took > limit && entry.left > effort.slow_rounds)
        {
            entry.left = effort.slow_rounds;
            let name = plan
                .cells
                .get(entry.cell)
                .and_then(|cell| plan.participants.get(cell.participant))
                .map(|participant| participant.subject.name.clone());
            *slow.entry(name.unwrap_or_default()).or_default() += 1;
        }
        for (subject, count) in slow {
            let rounds = match effort.slow_rounds {
                0 => "one sample".into(),
                1 => "1 round".into(),
                rounds => format!("{rounds} rounds"),
            };
            self.warnings.push(format!(
                "{subject}: {rounds} instead of {} where a run takes more than {} s ({count} of its cells)",
                effort.rounds, effort.slow_s
            ));
        }
    }

    fn rounds(&mut self, plan: &mut Plan) -> Result<()> {
        let rounds = self.session.effort.rounds;
        for round in 1..=rounds {
            let order = self.shuffled(plan, |entry| entry.left > 0);
            let expected: Duration =
                order.iter().filter_map(|place| self.entries.get(*place)).map(|entry| entry.took).sum();
            if self.session.effort.budget_s.is_some_and(|budget| {
                self.session.budget_from.elapsed() + expected > Duration::from_secs(budget)
            }) {
                self.warnings
                    .push(format!("{} of {rounds} rounds: more would not have ended in time", round - 1));
                return Ok(());
            }
            self.progress.phase(&format!("round {round} of {rounds}"), order.len());
            for place in order {
                if self.session.runner.interrupted() {
                    return Ok(());
                }
                let samples = self.turn(plan, place)?;
                let Some(entry) = self.entries.get_mut(place) else { continue };
                entry.left = entry.left.saturating_sub(1);
                if let Some(cell) = plan.cells.get_mut(entry.cell).filter(|_| !entry.failed) {
                    for (metric, value) in samples {
                        cell.samples.entry(metric).or_default().push(value);
                    }
                }
            }
        }
        Ok(())
    }

    /// What had no round keeps the sample of its warm-up.
    fn keep_warm_ups(&self, plan: &mut Plan) {
        for entry in self.entries.iter().filter(|entry| !entry.failed) {
            let Some(cell) = plan.cells.get_mut(entry.cell) else { continue };
            for (metric, value) in &entry.warm_up {
                let samples = cell.samples.entry(*metric).or_default();
                if samples.is_empty() {
                    samples.push(*value);
                }
            }
        }
    }

    /// Workloads in random order, within them builds, within those subjects: what is compared with each other runs one after the other, so
    /// that a machine that drifts during a long round is as fast for all of them.
    fn shuffled(&mut self, plan: &Plan, wanted: impl Fn(&Entry) -> bool) -> Vec<usize> {
        let live = |entry: &&Entry| !entry.failed && wanted(entry);
        let mut order: Vec<usize> = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| live(entry))
            .map(|(place, _)| place)
            .collect();
        self.random.shuffle(&mut order);
        gather(&mut order, |place| {
            let unit =
                self.entries.get(place).and_then(|entry| plan.cells.get(entry.cell)).map(|cell| cell.unit);
            (unit.and_then(|unit| plan.units.get(unit)).map(|unit| unit.family), unit)
        });
        order
    }

    /// A cell without a sample is worse than some seconds more: the first run of each is given up later than the rounds.
    fn budget_is_spent(&self) -> bool {
        let Some(budget) = self.session.effort.budget_s else { return false };
        self.session.budget_from.elapsed() > Duration::from_secs(budget.saturating_add(budget / 5))
    }

    fn give_up(&mut self, plan: &mut Plan, place: usize) {
        let Some(entry) = self.entries.get_mut(place) else { return };
        entry.failed = true;
        if let Some(cell) = plan.cells.get_mut(entry.cell) {
            cell.failure =
                Some(Failure { kind: FailureKind::Timeout, reason: "no time was left for it".into() });
        }
    }

    /// One turn of one entry. A failure ends the cell.
    fn turn(&mut self, plan: &mut Plan, place: usize) -> Result<Vec<(Metric, f64)>> {
        let remaining: Duration =
            self.entries.iter().filter(|entry| !entry.failed).map(|entry| entry.took * entry.left).sum();
        let Some(entry) = self.entries.get_mut(place) else { return Ok(Vec::new()) };
        let (Some(cell), clock) = (plan.cells.get(entry.cell), std::time::Instant::now()) else {
            return Ok(Vec::new());
        };
        if cell.failure.is_some() {
            entry.failed = true;
            return Ok(Vec::new());
        }
        let label = plan.units.get(cell.unit).zip(plan.participants.get(cell.participant));
        let label = label
            .map(|(unit, participant)| {
                format!("{} {} {}", unit.workload.name, unit.workload.build, participant.subject.name)
            })
            .unwrap_or_default();
        self.progress.step_with_time_left(&label, remaining);
        match sample(plan, cell, entry.measure, self.session)? {
            Ok(samples) => {
                entry.took = clock.elapsed();
                Ok(samples)
            }
            Err(failure) => {
                entry.failed = true;
                let interrupted = failure.kind == FailureKind::Interrupted;
                if let Some(cell) =
                    plan.cells.get_mut(entry.cell).filter(|cell| !interrupted || cell.samples.is_empty())
                {
                    cell.failure = Some(failure);
                }
                Ok(Vec::new())
            }
        }
    }
}

/// Brings what has the same keys together: the outer one first, each where its first element was.
fn gather<O: Ord, I: Ord>(order: &mut [usize], keys: impl Fn(usize) -> (O, I)) {
    let (mut outer, mut inner) = (BTreeMap::new(), BTreeMap::new());
    order.sort_by_cached_key(|place| {
        let (one, other) = keys(*place);
        let next = outer.len();
        let one = *outer.entry(one).or_insert(next);
        let next = inner.len();
        (one, *inner.entry(other).or_insert(next))
    });
}

/// Measures once.
fn sample(
    plan: &Plan,
    cell: &PlannedCell,
    measure: Measure,
    session: &Session<'_>,
) -> Result<Result<Vec<(Metric, f64)>, Failure>> {
    let (Some(unit), Some(run)) = (plan.units.get(cell.unit), &cell.run) else { return Ok(Ok(Vec::new())) };
    let timeout = session.timeout;
    let checked = |outcome: Outcome| -> Result<Outcome, Failure> {
        let failure =
            outcome.failure(timeout).or_else(|| differs(&outcome.stdout, plan.references.get(&unit.family)?));
        failure.map_or(Ok(outcome), Err)
    };
    match measure {
        Measure::Run => {
            fresh_dir(cell, unit)?;
            Ok(checked(session.runner.run(run, &cell.dir, timeout)?).map(|outcome| {
                let measured = outcome.measured;
                let mut samples = vec![
                    (Metric::CpuS, measured.cpu_s),
                    (Metric::WallS, measured.wall_s),
                    (Metric::PeakBytes, measured.peak_bytes as f64),
                ];
                samples.extend(measured.instructions.map(|count| (Metric::Instructions, count as f64)));
                samples
            }))
        }
        Measure::Start => {
            let mut walls = Vec::new();
            for _ in 0..unit.repeat {
                fresh_dir(cell, unit)?;
                match checked(session.runner.run(run, &cell.dir, timeout)?) {
                    Ok(outcome) => walls.push(outcome.measured.wall_s),
                    Err(failure) => return Ok(Err(failure)),
                }
            }
            Ok(Ok(crate::statistics::median(&walls)
                .map(|median| (Metric::StartS, median))
                .into_iter()
                .collect()))
        }
        Measure::Compile => {
            let Some(command) = &cell.compile else { return Ok(Ok(Vec::new())) };
            // Written anew: a compiler may leave an artifact alone that is there already.
            let _ = std::fs::remove_file(&cell.artifact);
            let (failure, outcome) =
                compile(Some(command), &cell.artifact, &cell.dir, &session.runner, timeout)?;
            Ok(match (failure, outcome) {
                (None, Some(outcome)) => Ok(vec![
                    (Metric::CompileCpuS, outcome.measured.cpu_s),
                    (Metric::CompileWallS, outcome.measured.wall_s),
                    (Metric::CompilePeakBytes, outcome.measured.peak_bytes as f64),
                ]),
                (Some(failure), _) => Err(failure),
                (None, None) => Ok(Vec::new()),
            })
        }
        Measure::Sleep | Measure::Size | Measure::Program => Ok(Ok(Vec::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compared_runs_together() {
        // Two workloads in two builds, three subjects: place = workload × 6 + build × 3 + subject.
        let keys = |place: usize| (place / 6, place / 3);
        let mut order = [7, 2, 9, 0, 6, 4, 1, 11, 3, 8, 10, 5];
        gather(&mut order, keys);
        assert_eq!(order, [7, 6, 8, 9, 11, 10, 2, 0, 1, 4, 3, 5]);
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..100 {
            random.shuffle(&mut order);
            gather(&mut order, keys);
            for chunk in order.chunks(3) {
                assert!(chunk.iter().all(|place| place / 3 == chunk[0] / 3), "{order:?}");
            }
            assert!(order[..6].iter().all(|place| place / 6 == order[0] / 6), "{order:?}");
        }
    }
}
