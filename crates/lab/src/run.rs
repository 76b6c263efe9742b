//! Runs a suite and records what it measured.
//!
//! [`plan`] puts subjects and workloads together: each pair is a cell. [`prepare`] compiles what is compiled ahead of time and checks every
//! output. [`schedule`] runs the cells in rounds, in random order, through [`process`] and its [`agent`]; [`idle`] and [`size`] measure what is
//! measured once. What comes out is a [`Report`] with samples and estimates, which analysis completes.

pub mod agent;
mod idle;
pub mod interrupt;
mod own;
mod plan;
mod prepare;
mod process;
mod progress;
mod schedule;
mod size;

use std::env;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};

use self::interrupt::Interrupt;
pub use self::own::{OwnModule, own_module};
use self::plan::Plan;
use self::process::Runner;
use self::progress::Progress;
use crate::corpus::Corpus;
use crate::record::{Cell, Failure, FailureKind, Machine, Report, SCHEMA, Summary};
use crate::suite::{Effort, Suite};
use crate::{analysis, machine, peer, statistics};

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Less of everything.
    pub quick: bool,
    /// Subjects by name, peer or pattern; empty for the suite's own choice.
    pub subjects: Vec<String>,
    /// Timed rounds instead of the suite's.
    pub rounds: Option<u32>,
    /// Seeds the order of the runs.
    pub seed: Option<u64>,
    /// The longest that one run may take, instead of the suite's.
    pub timeout: Option<Duration>,
    /// The checkout that has the workloads.
    pub corpus: Option<PathBuf>,
}

impl Settings {
    fn effort(&self, full: Effort, quick: Effort) -> Effort {
        let mut effort = if self.quick { quick } else { full };
        effort.rounds = self.rounds.unwrap_or(effort.rounds);
        effort
    }
}

/// Runs a suite. An interrupted run gives a report that says so.
pub fn suite(suite: &Suite, settings: &Settings, interrupt: &Interrupt) -> Result<Report> {
    let mut session = Session::begin(&suite.name, settings, suite.effort(settings), interrupt)?;
    let asked = match (settings.subjects.is_empty(), settings.quick) {
        (false, _) => &settings.subjects,
        (true, true) if !suite.quick_subjects.is_empty() => &suite.quick_subjects,
        (true, _) => &suite.subjects,
    };
    let participants = plan::participants(peer::all()?, asked, !settings.subjects.is_empty())?;
    let paths = Corpus::find(settings.corpus.as_deref())?
        .build(&plan::things(suite, settings.quick, &participants.0), interrupt)?;
    let units = plan::units(suite, settings.quick, &paths)?;
    // Building the workloads is not part of the time that a quick run may take: it happens once.
    session.budget_from = Instant::now();
    session.finish(Plan::new(participants, units, session.scratch.path()))
}

impl Suite {
    fn effort(&self, settings: &Settings) -> Effort {
        settings.effort(self.full, self.quick)
    }
}

/// What a run has from its beginning to its end.
struct Session<'a> {
    name: &'a str,
    settings: &'a Settings,
    effort: Effort,
    timeout: Duration,
    runner: Runner,
    scratch: tempfile::TempDir,
    machine: Machine,
    started: SystemTime,
    clock: Instant,
    /// When the time began that [`Effort::budget_s`] limits.
    budget_from: Instant,
    seed: u64,
}

impl<'a> Session<'a> {
    fn begin(
        name: &'a str,
        settings: &'a Settings,
        effort: Effort,
        interrupt: &Interrupt,
    ) -> Result<Session<'a>> {
        let program = env::current_exe().context("this program's path is not known")?;
        Ok(Session {
            name,
            settings,
            effort,
            timeout: settings.timeout.unwrap_or(Duration::from_secs(effort.timeout_s)),
            runner: Runner::new(program, interrupt.clone()),
            scratch: tempfile::Builder::new()
                .prefix("mote-lab-")
                .tempdir()
                .context("cannot make a scratch directory")?,
            machine: machine::fingerprint(),
            started: SystemTime::now(),
            clock: Instant::now(),
            budget_from: Instant::now(),
            seed: settings.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
        })
    }

    /// Measures the plan.
    fn finish(&self, mut plan: Plan) -> Result<Report> {
        let progress = Progress::new();
        prepare::prepare(&mut plan, &self.runner, self.timeout, &progress)?;
        let mut warnings = schedule::run(&mut plan, self, &progress)?;
        idle::run(&mut plan, &self.runner, self.timeout, &progress)?;
        size::run(&mut plan)?;
        progress.finish();
        warnings.extend(plan.remarks.iter().cloned());
        let mut machine = self.machine.clone();
        machine.load_after = machine::load();
        let complete = !self.runner.interrupted();
        if !complete {
            warnings.push(
                "the run was interrupted: some cells have fewer samples than asked for, or none".into(),
            );
        }
        let mut report = Report {
            schema: SCHEMA,
            suite: self.name.into(),
            quick: self.settings.quick,
            complete,
            started: humantime::format_rfc3339_seconds(self.started).to_string(),
            duration_s: self.clock.elapsed().as_secs_f64(),
            seed: self.seed,
            rounds: self.effort.rounds,
            machine,
            cells: cells(&plan),
            subjects: plan
                .participants
                .into_iter()
                .map(|participant| participant.subject)
                .chain(plan.absent)
                .collect(),
            workloads: plan.units.into_iter().map(|unit| unit.workload).collect(),
            summary: Summary::default(),
            warnings,
        };
        analysis::analyse(&mut report);
        Ok(report)
    }
}

/// The cells as they are reported.
fn cells(plan: &Plan) -> Vec<Cell> {
    let mut cells = Vec::new();
    for planned in &plan.cells {
        let source = planned.copy_of.and_then(|place| plan.cells.get(place)).unwrap_or(planned);
        let (Some(unit), Some(participant)) =
            (plan.units.get(planned.unit), plan.participants.get(planned.participant))
        else {
            continue;
        };
        let failure = source.failure.clone().or_else(|| {
            let none = source.samples.values().all(Vec::is_empty);
            none.then(|| Failure {
                kind: FailureKind::Interrupted,
                reason: "interrupted before its turn".into(),
            })
        });
        let metrics = match &failure {
            Some(_) => Default::default(),
            None => source
                .samples
                .iter()
                .map(|(metric, samples)| (*metric, statistics::summarise(samples)))
                .collect(),
        };
        cells.push(Cell {
            workload: unit.workload.name.clone(),
            build: unit.workload.build.clone(),
            subject: participant.subject.name.clone(),
            metrics,
            failure,
        });
    }
    for (unit, absent) in
        plan.units.iter().flat_map(|unit| plan.absent.iter().map(move |absent| (unit, absent)))
    {
        let reason = absent.missing.clone().unwrap_or_default();
        cells.push(Cell {
            workload: unit.workload.name.clone(),
            build: unit.workload.build.clone(),
            subject: absent.name.clone(),
            metrics: Default::default(),
            failure: Some(Failure { kind: FailureKind::Missing, reason }),
        });
    }
    cells
}
