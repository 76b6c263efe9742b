//! A report on the terminal: a table for each group, build and metric, subjects as columns, then what follows from it.

use std::io::{self, Write};

use crate::record::{Cell, Comparison, FailureKind, Metric, Report, Series, Subject, Verdict, Workload};

/// What columns are relative to, where it was measured.
const YARDSTICK: &str = "native";
/// The widest line that is printed; tables with more columns are broken.
const WIDTH: usize = 140;

/// Prints a report.
pub fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{} on {}, {} CPUs, {}",
        report.suite, report.machine.cpu, report.machine.cpus, report.started
    )?;
    for table in tables(report) {
        table.print(out)?;
    }
    means(report, out)?;
    verdicts(report, out)?;
    failures(report, out)?;
    missing(report, out)?;
    for warning in &report.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(())
}

/// One table.
struct Table<'a> {
    heading: String,
    metric: Metric,
    workloads: Vec<&'a Workload>,
    subjects: Vec<&'a Subject>,
    report: &'a Report,
}

fn tables(report: &Report) -> Vec<Table<'_>> {
    let mut tables = Vec::new();
    let mut sections: Vec<(&str, &str)> = Vec::new();
    for workload in &report.workloads {
        if !sections.contains(&(&workload.group, &workload.build)) {
            sections.push((&workload.group, &workload.build));
        }
    }
    for (group, build) in sections {
        let workloads: Vec<&Workload> = report
            .workloads
            .iter()
            .filter(|workload| workload.group == group && workload.build == build)
            .collect();
        for metric in METRICS {
            let has = |cell: &Cell| {
                cell.metrics.contains_key(&metric) && workloads.iter().any(|workload| belongs(cell, workload))
            };
            let subjects: Vec<&Subject> = report
                .subjects
                .iter()
                .filter(|subject| report.cells.iter().any(|cell| cell.subject == subject.name && has(cell)))
                .collect();
            if !subjects.is_empty() {
                let heading = format!("{group}, {build}: {}", title(metric));
                tables.push(Table { heading, metric, workloads: workloads.clone(), subjects, report });
            }
        }
    }
    tables
}

/// What is shown: wall time is in the report too.
const METRICS: [Metric; 8] = [
    Metric::CpuS,
    Metric::Instructions,
    Metric::PeakBytes,
    Metric::CompileCpuS,
    Metric::CompilePeakBytes,
    Metric::StartS,
    Metric::PrivateBytes,
    Metric::SizeBytes,
];

fn title(metric: Metric) -> &'static str {
    match metric {
        Metric::CpuS => "CPU time",
        Metric::WallS => "wall time",
        Metric::Instructions => "instructions",
        Metric::PeakBytes => "largest resident set",
        Metric::PrivateBytes => "private memory asleep",
        Metric::CompileCpuS => "CPU time of compiling",
        Metric::CompileWallS => "wall time of compiling",
        Metric::CompilePeakBytes => "largest resident set of compiling",
        Metric::StartS => "start to exit",
        Metric::SizeBytes => "bytes",
    }
}

fn belongs(cell: &Cell, workload: &Workload) -> bool {
    cell.workload == workload.name && cell.build == workload.build
}

impl Table<'_> {
    fn cell(&self, workload: &Workload, subject: &Subject) -> Option<&Cell> {
        self.report.cells.iter().find(|cell| cell.subject == subject.name && belongs(cell, workload))
    }

    fn series(&self, workload: &Workload, subject: &Subject) -> Option<&Series> {
        self.cell(workload, subject)?.metrics.get(&self.metric)
    }

    /// The yardstick in full, the others relative to it.
    fn text(&self, workload: &Workload, subject: &Subject) -> String {
        let Some(series) = self.series(workload, subject) else {
            let kind = self
                .cell(workload, subject)
                .and_then(|cell| cell.failure.as_ref())
                .map(|failure| failure.kind);
            return kind.map_or("-", short).into();
        };
        let yardstick = self
            .subjects
            .iter()
            .find(|other| other.name == YARDSTICK)
            .and_then(|other| self.series(workload, other))
            .filter(|other| other.median > 0.0);
        match yardstick.filter(|_| subject.name != YARDSTICK) {
            Some(yardstick) => format!("{:.2} x", series.median / yardstick.median),
            None => quantity(self.metric, series.median),
        }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let first = self.workloads.iter().map(|workload| workload.name.chars().count()).max().unwrap_or(0);
        let mut lines: Vec<Vec<String>> =
            vec![self.subjects.iter().map(|subject| subject.name.clone()).collect()];
        lines.extend(
            self.workloads
                .iter()
                .map(|workload| self.subjects.iter().map(|subject| self.text(workload, subject)).collect()),
        );
        let column = |place: usize| {
            lines
                .iter()
                .filter_map(|line| line.get(place))
                .map(|text| text.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.subjects.len()).map(column).collect();
        let mut start = 0;
        while start < widths.len() {
            let mut end = start;
            let mut width = first;
            while let Some(next) = widths.get(end).filter(|next| end == start || width + 2 + **next <= WIDTH)
            {
                width += 2 + next;
                end += 1;
            }
            writeln!(out, "\n{}", self.heading)?;
            let names =
                std::iter::once("").chain(self.workloads.iter().map(|workload| workload.name.as_str()));
            for (name, line) in names.zip(&lines) {
                write!(out, "{name:first$}")?;
                for (text, width) in line.iter().zip(&widths).take(end).skip(start) {
                    write!(out, "  {text:>width$}")?;
                }
                writeln!(out)?;
            }
            start = end;
        }
        Ok(())
    }
}

fn short(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Missing => "missing",
        FailureKind::Unsupported => "-",
        FailureKind::Crash => "crash",
        FailureKind::Timeout => "timeout",
        FailureKind::WrongOutput => "WRONG",
        FailureKind::Interrupted => "...",
    }
}

/// A quantity with its unit.
fn quantity(metric: Metric, value: f64) -> String {
    match metric {
        Metric::CpuS | Metric::WallS | Metric::CompileCpuS | Metric::CompileWallS | Metric::StartS
            if value < 0.1 =>
        {
            format!("{:.2} ms", value * 1e3)
        }
        Metric::CpuS | Metric::WallS | Metric::CompileCpuS | Metric::CompileWallS | Metric::StartS => {
            format!("{value:.3} s")
        }
        Metric::Instructions => format!("{:.1} M", value / 1e6),
        Metric::PeakBytes | Metric::PrivateBytes | Metric::CompilePeakBytes | Metric::SizeBytes
            if value < 1e7 =>
        {
            format!("{:.0} kB", value / 1024.0)
        }
        Metric::PeakBytes | Metric::PrivateBytes | Metric::CompilePeakBytes | Metric::SizeBytes => {
            format!("{:.1} MB", value / 1_048_576.0)
        }
    }
}

fn means(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut heading = String::new();
    for mean in report.summary.means.iter().filter(|mean| METRICS.contains(&mean.metric)) {
        let now = format!(
            "\ngeometric mean relative to native: {}, {}: {}",
            mean.group,
            mean.build,
            title(mean.metric)
        );
        if now != heading {
            writeln!(out, "{now}")?;
            heading = now;
        }
        writeln!(
            out,
            "  {:24} {:8.3}  [{:.3}, {:.3}]  {} workloads",
            mean.subject, mean.ratio, mean.low, mean.high, mean.workloads
        )?;
    }
    Ok(())
}

fn verdicts(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let whole =
        |comparison: &&Comparison| comparison.workload.is_none() && METRICS.contains(&comparison.metric);
    for (place, comparison) in report.summary.comparisons.iter().filter(whole).enumerate() {
        if place == 0 {
            writeln!(out, "\nverdicts")?;
        }
        let verdict = match comparison.verdict {
            Verdict::Faster => "less than",
            Verdict::Slower => "more than",
            Verdict::Unsure => "perhaps the same as",
        };
        writeln!(
            out,
            "  {}, {}: {}: {} is {verdict} {}: {:.3} [{:.3}, {:.3}]",
            comparison.group,
            comparison.build,
            title(comparison.metric),
            comparison.subject,
            comparison.baseline,
            comparison.ratio,
            comparison.low,
            comparison.high
        )?;
    }
    Ok(())
}

/// Every failure that is not an absence.
fn failures(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut first = true;
    for cell in &report.cells {
        let Some(failure) = cell
            .failure
            .as_ref()
            .filter(|failure| !matches!(failure.kind, FailureKind::Missing | FailureKind::Unsupported))
        else {
            continue;
        };
        if std::mem::take(&mut first) {
            writeln!(out, "\nfailed")?;
        }
        writeln!(out, "  {} {} {}: {}", cell.workload, cell.build, cell.subject, failure.reason)?;
    }
    Ok(())
}

fn missing(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut first = true;
    for subject in &report.subjects {
        let Some(reason) = &subject.missing else { continue };
        if std::mem::take(&mut first) {
            writeln!(out, "\nnot measured")?;
        }
        writeln!(out, "  {}: {reason}", subject.name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_their_units() {
        assert_eq!(quantity(Metric::CpuS, 0.0123), "12.30 ms");
        assert_eq!(quantity(Metric::CpuS, 1.5), "1.500 s");
        assert_eq!(quantity(Metric::PrivateBytes, 65536.0), "64 kB");
        assert_eq!(quantity(Metric::SizeBytes, 104_857_600.0), "100.0 MB");
    }
}
