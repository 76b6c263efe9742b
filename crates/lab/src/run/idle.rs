//! Private memory of a module that sleeps: some processes of the same subject at once, counted by the kernel (`smaps_rollup`).

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process_group};

use super::plan::{Plan, PlannedCell};
use super::process::Runner;
use super::progress::Progress;
use crate::record::{Failure, FailureKind, Metric};
use crate::suite::Measure;

/// The most that is read of what a sleeper says.
const LINE_BYTES: u64 = 4096;
/// The most processes that are looked at below one sleeper.
const MAX_DESCENDANTS: usize = 4096;

/// Measures the cells of suites that ask for it.
pub fn run(plan: &mut Plan, runner: &Runner, timeout: Duration, progress: &Progress) -> Result<()> {
    let sleeps = |cell: &PlannedCell| {
        plan.units
            .get(cell.unit)
            .filter(|unit| unit.measures.contains(&Measure::Sleep))
            .map(|unit| unit.repeat)
    };
    let places: Vec<(usize, u32)> = plan
        .cells
        .iter()
        .enumerate()
        .filter(|(_, cell)| cell.is_live())
        .filter_map(|(place, cell)| Some((place, sleeps(cell)?)))
        .collect();
    if places.is_empty() {
        return Ok(());
    }
    progress.phase("asleep", places.len());
    for (place, count) in places {
        let Some(cell) = plan.cells.get_mut(place) else { continue };
        if runner.interrupted() {
            break;
        }
        progress.step(&cell.dir.display().to_string());
        match sleepers(cell, count, timeout) {
            Ok(samples) => {
                cell.samples.insert(Metric::PrivateBytes, samples);
            }
            Err(failure) => cell.failure = Some(failure),
        }
    }
    Ok(())
}

/// A sleeper, killed with all that it started when it is dropped.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Private dirty bytes of each of `count` processes that sleep at the same time.
fn sleepers(cell: &PlannedCell, count: u32, timeout: Duration) -> Result<Vec<f64>, Failure> {
    let failed = |kind, reason: String| Failure { kind, reason };
    let Some(run) = &cell.run else { return Ok(Vec::new()) };
    let mut sleepers = Vec::new();
    for _ in 0..count {
        let mut command: Command = run.command();
        command.current_dir(&cell.dir).process_group(0).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command
            .spawn()
            .map_err(|error| failed(FailureKind::Crash, format!("does not start: {error}")))?;
        sleepers.push(Sleeper(child));
    }
    let said: Vec<_> =
        sleepers.iter_mut().filter_map(|sleeper| sleeper.0.stdout.take()).map(first_line).collect();
    let mut streams = Vec::new();
    for receiver in said {
        match receiver.recv_timeout(timeout) {
            // The stream stays open until the memory is counted.
            Ok((true, stream)) => streams.push(stream),
            Ok((false, _)) => return Err(failed(FailureKind::Crash, "ended instead of sleeping".into())),
            Err(_) => {
                return Err(failed(
                    FailureKind::Timeout,
                    format!("did not come up within {} s", timeout.as_secs_f64()),
                ));
            }
        }
    }
    // Pages of freshly written programs count as dirty until they are on disk.
    rustix::fs::sync();
    let bytes = sleepers.iter().map(|sleeper| private_dirty(sleeper.0.id()));
    let samples: Option<Vec<f64>> = bytes.map(|bytes| bytes.map(|bytes| bytes as f64)).collect();
    samples.ok_or_else(|| failed(FailureKind::Crash, "ended instead of sleeping".into()))
}

/// Whether a stream begins with a line; and the stream, so that it stays open.
fn first_line<R: Read + Send + 'static>(stream: R) -> mpsc::Receiver<(bool, BufReader<R>)> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        let came = stream.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line).is_ok_and(|count| count > 0);
        let _ = sender.send((came, stream));
    });
    receiver
}

/// Private dirty bytes of a process and of all that it started.
fn private_dirty(pid: u32) -> Option<u64> {
    let mut family = vec![pid];
    let mut place = 0;
    while let Some(process) = family.get(place).copied().filter(|_| place < MAX_DESCENDANTS) {
        place += 1;
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    let bytes: Vec<Option<u64>> = family.into_iter().map(own_private_dirty).collect();
    // The process itself must still be there; a child may have ended meanwhile.
    bytes.first().copied().flatten()?;
    Some(bytes.into_iter().flatten().sum())
}

fn own_private_dirty(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_process_and_its_children_is_counted() {
        let own = own_private_dirty(std::process::id()).unwrap();
        let mut command = Command::new("sleep");
        let child = Sleeper(command.arg("60").process_group(0).spawn().unwrap());
        let with_child = private_dirty(std::process::id()).unwrap();
        assert!(own > 4096 && with_child > own, "{own} {with_child}");
        let pid = child.0.id();
        drop(child);
        assert_eq!(private_dirty(pid), None);
    }
}
