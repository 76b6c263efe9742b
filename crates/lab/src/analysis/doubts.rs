//! What makes a report's figures doubtful.

use crate::record::{Cell, FailureKind, Metric, Report};
use crate::statistics;

/// A load average above this part of the processors, before the first run, is somebody else's work.
const LOAD_PER_CPU: f64 = 0.25;

/// Below this many rounds intervals are not distribution-free.
const FREE_ROUNDS: u32 = 6;

/// A cell whose times spread by more than this (robust standard deviation ÷ median) is noisy.
const NOISY: f64 = 0.05;

/// Times below this are mostly the start of the process, seconds.
const SHORT_S: f64 = 0.01;

/// How many cells a warning names.
const NAMED: usize = 5;

/// The warnings about a report whose series are summarised.
pub fn doubts(report: &Report) -> Vec<String> {
    let mut doubts = Vec::new();
    if !report.complete {
        doubts.push(
            "the run was interrupted: some cells have fewer samples than asked for, or none".to_owned(),
        );
    }
    let timed = report.cells.iter().any(|cell| cell.metrics.keys().any(|metric| is_time(*metric)));
    if timed && report.rounds < FREE_ROUNDS {
        doubts.push(format!(
            "{} rounds: intervals are by Student's t on logarithms and wide; from {FREE_ROUNDS} rounds on they suppose no distribution",
            report.rounds
        ));
    }
    if timed {
        machine(report, &mut doubts);
        noise(report, &mut doubts);
    }
    failures(report, &mut doubts);
    doubts
}

fn is_time(metric: Metric) -> bool {
    use Metric::{CompileCpuS, CompileWallS, CpuS, StartS, WallS};
    matches!(metric, CpuS | WallS | StartS | CompileCpuS | CompileWallS)
}

fn machine(report: &Report, doubts: &mut Vec<String>) {
    let machine = &report.machine;
    let [load, ..] = machine.load_before;
    if load > LOAD_PER_CPU * machine.cpus as f64 {
        doubts.push(format!(
            "the load average was {load:.2} on {} processors before the first run: other programs were running",
            machine.cpus
        ));
    }
    // The lab itself runs one program at a time.
    let [load, ..] = machine.load_after;
    if load > 1.0 + LOAD_PER_CPU * machine.cpus as f64 {
        doubts.push(format!(
            "the load average was {load:.2} on {} processors after the last run: other programs were running",
            machine.cpus
        ));
    }
    if let Some(governor) = machine.governor.as_deref().filter(|governor| *governor != "performance") {
        doubts.push(format!(
            "the frequency governor is {governor}, not performance: clocks change between runs"
        ));
    }
    if let Some(hypervisor) = &machine.hypervisor {
        doubts.push(format!("a virtual machine (hypervisor: {hypervisor}): its neighbours slow runs unseen"));
    }
}

fn noise(report: &Report, doubts: &mut Vec<String>) {
    let mut timed = 0;
    let mut noisy: Vec<(&Cell, f64)> = Vec::new();
    let mut short: Vec<(&Cell, f64)> = Vec::new();
    let (mut samples, mut outliers) = (0, 0);
    for cell in &report.cells {
        for (metric, series) in cell.metrics.iter().filter(|(metric, _)| is_time(**metric)) {
            samples += series.samples.len();
            outliers += series.outliers.len();
            if *metric == Metric::CpuS && series.median > 0.0 {
                timed += 1;
                let spread = statistics::spread(&series.samples) / series.median;
                if spread > NOISY {
                    noisy.push((cell, spread));
                }
                if series.median < SHORT_S {
                    short.push((cell, -series.median));
                }
            }
        }
    }
    if !noisy.is_empty() {
        let named = named(&mut noisy, |spread| format!("{:.0}%", spread * 100.0));
        doubts.push(format!(
            "{} of {timed} cells spread by more than {:.0}% in CPU time: {named}",
            noisy.len(),
            NOISY * 100.0
        ));
    }
    if !short.is_empty() {
        let named = named(&mut short, |median| format!("{:.1} ms", median * -1000.0));
        doubts.push(format!(
            "{} of {timed} cells take less than {:.0} ms of CPU time, much of it the start of a process: {named}",
            short.len(),
            SHORT_S * 1000.0
        ));
    }
    if outliers > 0 {
        doubts.push(format!(
            "{outliers} of {samples} times lie far from the others of their cell (modified z-score above 3.5): medians are used, none is left out"
        ));
    }
}

/// The cells with the largest values, as text; sorts them.
fn named(cells: &mut [(&Cell, f64)], text: impl Fn(f64) -> String) -> String {
    cells.sort_by(|one, other| other.1.total_cmp(&one.1));
    let mut names: Vec<String> =
        cells.iter().take(NAMED).map(|(cell, value)| format!("{} {}", place(cell), text(*value))).collect();
    if cells.len() > NAMED {
        names.push("…".to_owned());
    }
    names.join(", ")
}

fn place(cell: &Cell) -> String {
    format!("{} on {} ({})", cell.subject, cell.workload, cell.build)
}

fn failures(report: &Report, doubts: &mut Vec<String>) {
    for (kind, what) in [
        (FailureKind::WrongOutput, "wrong output, not counted"),
        (FailureKind::Crash, "crashed"),
        (FailureKind::Timeout, "not ended in time"),
    ] {
        let failed: Vec<String> = report
            .cells
            .iter()
            .filter(|cell| cell.failure.as_ref().is_some_and(|failure| failure.kind == kind))
            .map(place)
            .collect();
        if failed.is_empty() {
            continue;
        }
        let more = if failed.len() > NAMED { ", …" } else { "" };
        let named: Vec<String> = failed.iter().take(NAMED).cloned().collect();
        let cells = if failed.len() == 1 { "cell" } else { "cells" };
        doubts.push(format!("{} {cells} {what}: {}{more}", failed.len(), named.join(", ")));
    }
}
