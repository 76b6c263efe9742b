//! Before anything is timed: modules are compiled by the subjects that compile ahead of time, and every subject's answers are checked. On
//! all processors at once, because nothing of it is timed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::plan::{CheckFiles, Participant, Plan, PlannedCell, Unit};
use super::process::{Outcome, Runner};
use super::progress::Progress;
use crate::peer::{Inputs, Invocation};
use crate::record::{Failure, FailureKind, Mode};
use crate::suite::Measure;

/// How much longer compiling may take than a run.
const COMPILE_FACTOR: u32 = 2;
/// How much of a line is shown where outputs differ, characters.
const SHOWN: usize = 80;

/// Compiles and checks every cell that can be run; what goes wrong becomes the cell's failure.
pub fn prepare(plan: &mut Plan, runner: &Runner, timeout: Duration, progress: &Progress) -> Result<()> {
    let natives: Vec<usize> = live(plan, |mode| mode == Mode::Native);
    let others: Vec<usize> = live(plan, |mode| mode != Mode::Native);
    progress.phase("compile and check", natives.len() + others.len());
    run_all(plan, &natives, runner, timeout, progress)?;
    references(plan);
    run_all(plan, &others, runner, timeout, progress)?;
    agree(plan);
    Ok(())
}

fn live(plan: &Plan, wanted: impl Fn(Mode) -> bool) -> Vec<usize> {
    let is_wanted = |cell: &PlannedCell| {
        plan.participants.get(cell.participant).is_some_and(|participant| wanted(participant.subject.mode))
    };
    plan.cells
        .iter()
        .enumerate()
        .filter(|(_, cell)| cell.is_live() && is_wanted(cell))
        .map(|(place, _)| place)
        .collect()
}

/// What one cell's preparation found.
type Checked = Result<Option<Vec<u8>>, Failure>;

fn run_all(
    plan: &mut Plan,
    places: &[usize],
    runner: &Runner,
    timeout: Duration,
    progress: &Progress,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<Checked>)>> = Mutex::new(Vec::new());
    let (shared, workers) = (&*plan, thread::available_parallelism().map_or(1, usize::from));
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if runner.interrupted() {
                        return;
                    }
                    if let Some((cell, unit, participant)) = parts(shared, *place) {
                        progress.step(&format!(
                            "{} {} {}",
                            unit.workload.name, unit.workload.build, participant.subject.name
                        ));
                        let checked = one(cell, unit, participant, runner, timeout);
                        results
                            .lock()
                            .unwrap_or_else(|poisoned| poisoned.into_inner())
                            .push((*place, checked));
                    }
                }
            });
        }
    });
    for (place, checked) in results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        let checked = checked?;
        if let Some(cell) = plan.cells.get_mut(place) {
            match checked {
                Ok(output) => cell.output = output,
                Err(failure) => cell.failure = Some(failure),
            }
        }
    }
    Ok(())
}

fn parts(plan: &Plan, place: usize) -> Option<(&PlannedCell, &Unit, &Participant)> {
    let cell = plan.cells.get(place)?;
    Some((cell, plan.units.get(cell.unit)?, plan.participants.get(cell.participant)?))
}

/// Compiles what a cell times and checks what it answers; gives what it printed where that is to be compared.
fn one(
    cell: &PlannedCell,
    unit: &Unit,
    participant: &Participant,
    runner: &Runner,
    timeout: Duration,
) -> Result<Checked> {
    let times = |measure: Measure| unit.measures.contains(&measure);
    if unit.measures == [Measure::Program] {
        return Ok(Ok(None));
    }
    fresh_dir(cell, unit)?;
    if let (Some(failure), _) =
        compile(cell.compile.as_ref(), &cell.artifact, &cell.dir, runner, timeout * COMPILE_FACTOR)?
    {
        return Ok(Err(failure));
    }
    let files = unit.files(participant);
    if let Some(check) = files.and_then(|files| files.check.as_ref()) {
        return Ok(known_answer(cell, participant, check, runner, timeout)?.map_or(Ok(None), Err));
    }
    // A program that sleeps is checked when it is measured.
    if !times(Measure::Run) && !times(Measure::Start) {
        return Ok(Ok(None));
    }
    let Some(run) = &cell.run else { return Ok(Ok(None)) };
    let outcome = runner.run(run, &cell.dir, timeout)?;
    Ok(outcome.failure(timeout).map_or(Ok(Some(outcome.stdout)), Err))
}

/// Compiles; a failure, unless the artifact is there afterwards, and what it cost.
pub fn compile(
    command: Option<&Invocation>,
    artifact: &Path,
    dir: &Path,
    runner: &Runner,
    timeout: Duration,
) -> Result<(Option<Failure>, Option<Outcome>)> {
    let Some(command) = command else { return Ok((None, None)) };
    let outcome = runner.run(command, dir, timeout)?;
    let failure = outcome.failure(timeout).or_else(|| {
        let empty = fs::metadata(artifact).map_or(true, |metadata| metadata.is_file() && metadata.len() == 0);
        empty.then(|| Failure { kind: FailureKind::Crash, reason: "wrote no artifact".into() })
    });
    Ok((
        failure.map(|failure| Failure { reason: format!("compiling: {}", failure.reason), ..failure }),
        Some(outcome),
    ))
}

/// Runs the program whose answer is known.
fn known_answer(
    cell: &PlannedCell,
    participant: &Participant,
    check: &CheckFiles,
    runner: &Runner,
    timeout: Duration,
) -> Result<Option<Failure>> {
    let Some(installation) = &participant.installation else { return Ok(None) };
    let expected =
        fs::read(&check.expected).with_context(|| format!("cannot read {}", check.expected.display()))?;
    let folder = cell.dir.with_file_name("check");
    let dir = folder.join("dir");
    fs::create_dir_all(&dir).context("cannot make a scratch directory")?;
    if let Some(copy) = &check.copy {
        fs::write(dir.join(copy), &expected).context("cannot write into the scratch directory")?;
    }
    let stem = folder.join("artifact");
    let artifact = participant.spec.artifact(&stem);
    let inputs = Inputs { wasm: &check.program, artifact: &stem, dir: &dir, args: &[] };
    let prepare = participant.spec.prepare(installation, &inputs)?;
    if let (Some(failure), _) = compile(prepare.as_ref(), &artifact, &dir, runner, timeout * COMPILE_FACTOR)?
    {
        return Ok(Some(failure));
    }
    let outcome = runner.run(&participant.spec.run(installation, &inputs)?, &dir, timeout)?;
    let written = fs::read(dir.join(&check.writes)).ok();
    let _ = fs::remove_dir_all(&folder);
    let failure = outcome.failure(timeout);
    Ok(match written {
        // Half an answer of a program that crashed or was killed: that is what happened.
        Some(written) if failure.is_some() && expected.starts_with(&written) => failure,
        // A wrong answer is worse news than the exit code that comes with it: programs compare for themselves too.
        Some(written) if written != expected && outcome.measured.killed.is_none() => {
            Some(wrong(first_difference(&written, &expected)))
        }
        Some(_) => failure,
        None => failure.or_else(|| Some(wrong(format!("wrote no {}", check.writes)))),
    })
}

/// What native programs printed is what every subject must print.
fn references(plan: &mut Plan) {
    for cell in plan.cells.iter().filter(|cell| cell.failure.is_none()) {
        let (Some(unit), Some(output)) = (plan.units.get(cell.unit), &cell.output) else { continue };
        plan.references.entry(unit.family).or_insert_with(|| output.clone());
    }
}

/// Outputs must be the native program's; where there is none, what most subjects printed.
fn agree(plan: &mut Plan) {
    let mut votes: BTreeMap<usize, BTreeMap<Vec<u8>, usize>> = BTreeMap::new();
    for cell in &plan.cells {
        let (Some(unit), Some(output)) = (plan.units.get(cell.unit), &cell.output) else { continue };
        if !plan.references.contains_key(&unit.family) {
            *votes.entry(unit.family).or_default().entry(output.clone()).or_default() += 1;
        }
    }
    for (family, outputs) in votes {
        if let Some((output, count)) = outputs.iter().max_by_key(|(_, count)| **count) {
            if outputs.len() > 1 {
                plan.remarks.push(format!(
                    "subjects disagree about what is printed; {count} agree and are taken to be right"
                ));
            }
            plan.references.insert(family, output.clone());
        }
    }
    for cell in &mut plan.cells {
        let reference = plan.units.get(cell.unit).and_then(|unit| plan.references.get(&unit.family));
        if let (Some(output), Some(reference)) = (cell.output.take(), reference) {
            cell.failure = differs(&output, reference);
        }
    }
}

/// A failure when an output is not what it should be.
pub fn differs(output: &[u8], reference: &[u8]) -> Option<Failure> {
    (output != reference).then(|| wrong(first_difference(output, reference)))
}

fn wrong(reason: String) -> Failure {
    Failure { kind: FailureKind::WrongOutput, reason }
}

/// The first line in which two outputs differ, for a person.
fn first_difference(actual: &[u8], expected: &[u8]) -> String {
    let mut lines = (actual.split(|byte| *byte == b'\n'), expected.split(|byte| *byte == b'\n'));
    let show = |line: Option<&[u8]>| match line {
        Some(line) => format!("{:?}", String::from_utf8_lossy(line).chars().take(SHOWN).collect::<String>()),
        None => "nothing".into(),
    };
    let mut number = 0;
    loop {
        number += 1;
        match (lines.0.next(), lines.1.next()) {
            (None, None) => return "no difference".into(),
            (got, wanted) if got != wanted => {
                return format!("line {number}: got {}, expected {}", show(got), show(wanted));
            }
            _ => {}
        }
    }
}

/// Makes the cell's directory anew.
pub fn fresh_dir(cell: &PlannedCell, unit: &Unit) -> Result<()> {
    match fs::remove_dir_all(&cell.dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).context("cannot empty a scratch directory");
        }
        _ => {}
    }
    fs::create_dir_all(&cell.dir).context("cannot make a scratch directory")?;
    match &unit.dir {
        Some(from) => copy_tree(from, &cell.dir).with_context(|| format!("cannot copy {}", from.display())),
        None => Ok(()),
    }
}

/// Copies files and directories; links and special files are left out, and said so by the guest that misses them.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            fs::create_dir(&target)?;
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_shown() {
        assert_eq!(first_difference(b"a\nb\n", b"a\nc\n"), "line 2: got \"b\", expected \"c\"");
        assert_eq!(first_difference(b"a", b"a\nb"), "line 2: got nothing, expected \"b\"");
        assert!(differs(b"a", b"a").is_none());
        assert_eq!(differs(b"a", b"b").unwrap().kind, FailureKind::WrongOutput);
    }

    #[test]
    fn a_directory_is_copied_with_what_is_in_it() {
        let scratch = tempfile::tempdir().unwrap();
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("inner/file"), "text").unwrap();
        copy_tree(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("inner/file")).unwrap(), "text");
    }
}
