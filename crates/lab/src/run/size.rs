//! Bytes on disk: what a subject needs to run a workload, and the subject's own program.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::plan::{Plan, PlannedCell};
use crate::record::{Failure, FailureKind, Metric, Mode};
use crate::suite::Measure;

/// Measures the cells of suites that ask for it.
pub fn run(plan: &mut Plan) -> Result<()> {
    for place in 0..plan.cells.len() {
        let Some(cell) = plan.cells.get(place).filter(|cell| cell.is_live()) else { continue };
        let measures = plan.units.get(cell.unit).map_or(&[][..], |unit| &unit.measures);
        let bytes = if measures.contains(&Measure::Size) {
            workload_bytes(plan, cell)
        } else if measures.contains(&Measure::Program) {
            program_bytes(plan, cell)
        } else {
            continue;
        };
        let Some(cell) = plan.cells.get_mut(place) else { continue };
        match bytes {
            Ok(Some(bytes)) => {
                cell.samples.insert(Metric::SizeBytes, vec![bytes as f64]);
            }
            Ok(None) => {
                cell.failure = Some(Failure {
                    kind: FailureKind::Unsupported,
                    reason: "a native program needs no runtime".into(),
                })
            }
            Err(error) => {
                cell.failure = Some(Failure {
                    kind: FailureKind::Crash,
                    reason: format!("its size is not known: {error}"),
                })
            }
        }
    }
    Ok(())
}

/// The native program, the artifact, or the module.
fn workload_bytes(plan: &Plan, cell: &PlannedCell) -> io::Result<Option<u64>> {
    if cell.compile.is_some() {
        return tree_bytes(&cell.artifact).map(Some);
    }
    let files = plan
        .units
        .get(cell.unit)
        .zip(plan.participants.get(cell.participant))
        .and_then(|(unit, participant)| unit.files(participant));
    files.map(|files| tree_bytes(&files.program)).transpose()
}

/// A file, or all the files of a directory.
fn tree_bytes(path: &Path) -> io::Result<u64> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    fs::read_dir(path)?.map(|entry| tree_bytes(&entry?.path())).sum()
}

/// The program with the shared libraries that the system's loader gives it.
fn program_bytes(plan: &Plan, cell: &PlannedCell) -> io::Result<Option<u64>> {
    let participant = plan.participants.get(cell.participant);
    let Some(installation) = participant
        .filter(|participant| participant.subject.mode != Mode::Native)
        .and_then(|participant| participant.installation.as_ref())
    else {
        return Ok(None);
    };
    let program = fs::canonicalize(&installation.program)?;
    // Static programs make it fail: they have no libraries.
    let output = Command::new("ldd").arg(&program).output()?;
    let mut files: BTreeSet<PathBuf> = if output.status.success() {
        libraries(&String::from_utf8_lossy(&output.stdout))
    } else {
        BTreeSet::new()
    };
    files.insert(program);
    files
        .iter()
        .map(|file| fs::metadata(file).map(|metadata| metadata.len()))
        .sum::<io::Result<u64>>()
        .map(Some)
}

/// The files that `ldd` names.
fn libraries(text: &str) -> BTreeSet<PathBuf> {
    let paths = text
        .lines()
        .filter_map(|line| line.rsplit_once(" (").map(|(before, _)| before))
        .map(|before| before.rsplit("=>").next().unwrap_or(before).trim());
    paths.filter(|path| path.starts_with('/')).filter_map(|path| fs::canonicalize(path).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_the_loader_says() {
        let shell = fs::canonicalize("/bin/sh").unwrap();
        let text = format!(
            "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => {} (0x2)\n\t/etc/passwd (0x3)\n\tlibx.so => not found\n",
            shell.display()
        );
        assert_eq!(libraries(&text), BTreeSet::from([shell, PathBuf::from("/etc/passwd")]));
    }
}
