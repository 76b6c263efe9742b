//! What changed between two reports: the same subjects and workloads, measured at two times.
//!
//! The machine's state differs between two runs by more than most changes do. So a time is first divided, round by round, by the native
//! program's of the same run, where both reports have it; what is compared is that. Sizes, memory and instruction counts do not depend on
//! how busy the machine was and are compared as they are. The ratios are new ÷ old: below 1 the new one needs less.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::analysis::{self, BASELINE, Table, YARDSTICK};
use crate::record::{Machine, Metric, Report, SCHEMA, Verdict, Workload};
use crate::statistics::{self, Ratio};

/// Above this many rows only those with a verdict are shown.
const ROWS: usize = 60;

/// How many names a note lists.
const NAMED: usize = 8;

/// The longest report that is read, bytes: a full run of the largest suite has some 20 MB.
const REPORT_LIMIT: u64 = 512 << 20;

/// Reads a report.
///
/// # Errors
/// When the file cannot be read, is no report, or has another schema than [`SCHEMA`].
pub fn read(path: &Path) -> anyhow::Result<Report> {
    let size =
        std::fs::metadata(path).with_context(|| format!("cannot read the report {}", path.display()))?.len();
    if size > REPORT_LIMIT {
        bail!("{}: {size} bytes are more than a report has (at most {REPORT_LIMIT})", path.display());
    }
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the report {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> anyhow::Result<Report> {
    // The schema first: a report of another one may lack what this one has.
    #[derive(serde::Deserialize)]
    struct Schema {
        schema: u32,
    }
    let Schema { schema } = serde_json::from_str(text).context("not a report of mote-lab")?;
    if schema != SCHEMA {
        bail!(
            "the report has schema {schema}, this mote-lab reads {SCHEMA}: measure again, or use the mote-lab that wrote it"
        );
    }
    serde_json::from_str(text).context("not a whole report of mote-lab")
}

/// [`changes`] as text.
pub fn compare(old: &Report, new: &Report) -> String {
    changes(old, new).to_string()
}

/// What changed.
#[derive(Debug)]
pub struct Changes {
    /// What makes the comparison doubtful.
    pub notes: Vec<String>,
    /// By group, build and metric; a group's rows begin with the one of the whole group.
    pub sections: Vec<Section>,
}

/// The changes of one metric in one group and build.
#[derive(Debug)]
pub struct Section {
    /// The workloads' group.
    pub group: String,
    /// Their build.
    pub build: String,
    /// What was compared.
    pub metric: Metric,
    /// One for each subject and workload, and one for each subject over all of them.
    pub rows: Vec<Row>,
}

/// One change.
#[derive(Debug)]
pub struct Row {
    /// Who.
    pub subject: String,
    /// On what; None for the geometric mean of the group.
    pub workload: Option<String>,
    /// The old and the new median; None for a mean.
    pub medians: Option<(f64, f64)>,
    /// New ÷ old.
    pub ratio: Ratio,
    /// Whether both were divided by the native program's times first.
    pub relative: bool,
    /// What may be said.
    pub verdict: Verdict,
}

impl Changes {
    /// Whether a group is slower (larger) as a whole, by any metric, for mote, or for any subject when neither report has mote.
    ///
    /// Single workloads do not count: of some hundred that did not change, a few are called slower.
    pub fn slower(&self) -> bool {
        let rows =
            || self.sections.iter().flat_map(|section| &section.rows).filter(|row| row.workload.is_none());
        let with_mote = rows().any(|row| row.subject == BASELINE);
        rows().any(|row| row.verdict == Verdict::Slower && (row.subject == BASELINE || !with_mote))
    }
}

/// The changes from `old` to `new`, of what both have.
pub fn changes(old: &Report, new: &Report) -> Changes {
    let (before, after) = (Table::of(old), Table::of(new));
    let mut sections = Vec::new();
    for group in after.groups() {
        for metric in after.metrics(&group) {
            let mut rows = Vec::new();
            for subject in after.subjects() {
                rows.extend(subject_rows(&before, &after, &group.workloads, subject, metric));
            }
            if !rows.is_empty() {
                sections.push(Section {
                    group: group.name.to_owned(),
                    build: group.build.to_owned(),
                    metric,
                    rows,
                });
            }
        }
    }
    let mut notes = notes(old, new);
    if sections.is_empty() {
        notes.push("the reports have no finished cell in common".to_owned());
    }
    Changes { notes, sections }
}

/// The row of the group, then those of its workloads; nothing when the reports have none in common.
fn subject_rows(
    before: &Table<'_>,
    after: &Table<'_>,
    workloads: &[&Workload],
    subject: &str,
    metric: Metric,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut pairs = Vec::new();
    for workload in workloads {
        let both = after.samples(workload, subject, metric).zip(before.samples(workload, subject, metric));
        let Some((new, old)) = both else { continue };
        let yardsticks = after
            .samples(workload, YARDSTICK, metric)
            .zip(before.samples(workload, YARDSTICK, metric))
            .filter(|_| by_clock(metric) && subject != YARDSTICK);
        let (new_values, old_values) = match yardsticks {
            Some((new_yard, old_yard)) => (relative(new, new_yard), relative(old, old_yard)),
            None => (new.to_vec(), old.to_vec()),
        };
        let Some(ratio) = statistics::unpaired(&new_values, &old_values) else {
            continue;
        };
        rows.push(Row {
            subject: subject.to_owned(),
            workload: Some(workload.name.clone()),
            medians: statistics::median(old).zip(statistics::median(new)),
            ratio,
            relative: yardsticks.is_some(),
            verdict: analysis::verdict(metric, &ratio),
        });
        pairs.push((new_values, old_values));
    }
    let pairs: Vec<(&[f64], &[f64])> =
        pairs.iter().map(|(new, old)| (new.as_slice(), old.as_slice())).collect();
    if let Some(ratio) = statistics::unpaired_mean(&pairs) {
        let whole = Row {
            subject: subject.to_owned(),
            workload: None,
            medians: None,
            ratio,
            relative: rows.iter().all(|row| row.relative),
            verdict: analysis::verdict(metric, &ratio),
        };
        rows.insert(0, whole);
    }
    rows
}

/// Whether the metric depends on how busy the machine is.
fn by_clock(metric: Metric) -> bool {
    use Metric::{CompileCpuS, CompileWallS, CpuS, StartS, WallS};
    matches!(metric, CpuS | WallS | StartS | CompileCpuS | CompileWallS)
}

/// The samples ÷ the yardstick's of the same rounds.
fn relative(samples: &[f64], yardstick: &[f64]) -> Vec<f64> {
    statistics::log_ratios(samples, yardstick).into_iter().map(f64::exp).collect()
}

/// What differs besides the figures.
fn notes(old: &Report, new: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if old.suite != new.suite {
        notes.push(format!("different suites: {} and {}", old.suite, new.suite));
    }
    for (report, which) in [(old, "old"), (new, "new")] {
        if !report.complete {
            notes.push(format!("the {which} report was interrupted"));
        }
    }
    let differing = machine_differences(&old.machine, &new.machine);
    if !differing.is_empty() {
        notes.push(format!("different machines: {}", differing.join("; ")));
    }
    let modules: BTreeMap<(&str, &str), &str> = old
        .workloads
        .iter()
        .map(|workload| ((workload.name.as_str(), workload.build.as_str()), workload.sha256.as_str()))
        .collect();
    let changed: Vec<String> = new
        .workloads
        .iter()
        .filter(|workload| {
            let before = modules.get(&(workload.name.as_str(), workload.build.as_str()));
            before.is_some_and(|before| *before != workload.sha256)
        })
        .map(|workload| format!("{} ({})", workload.name, workload.build))
        .collect();
    if !changed.is_empty() {
        notes.push(format!("different modules, by their hashes: {}", list(&changed)));
    }
    let versions: Vec<String> = new
        .subjects
        .iter()
        .filter_map(|subject| {
            let before = old.subjects.iter().find(|before| before.name == subject.name)?;
            let (was, is) = (before.version.as_deref()?, subject.version.as_deref()?);
            (was != is).then(|| format!("{}: {was} and {is}", subject.name))
        })
        .collect();
    if !versions.is_empty() {
        notes.push(format!("different versions: {}", list(&versions)));
    }
    notes
}

fn machine_differences(old: &Machine, new: &Machine) -> Vec<String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    [
        ("processor", old.cpu.clone(), new.cpu.clone()),
        ("processors", old.cpus.to_string(), new.cpus.to_string()),
        ("instruction sets", old.cpu_features.join(" "), new.cpu_features.join(" ")),
        ("governor", text(&old.governor), text(&new.governor)),
        ("hypervisor", text(&old.hypervisor), text(&new.hypervisor)),
        ("kernel", old.kernel.clone(), new.kernel.clone()),
        ("system", old.system.clone(), new.system.clone()),
        ("memory", old.memory_bytes.to_string(), new.memory_bytes.to_string()),
    ]
    .into_iter()
    .filter(|(_, old, new)| old != new)
    .map(|(what, old, new)| format!("{what} {old} and {new}"))
    .collect()
}

fn list(names: &[String]) -> String {
    let mut shown: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    if names.len() > NAMED {
        shown.push("…");
    }
    shown.join(", ")
}

impl fmt::Display for Changes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(out, "warning: {note}")?;
        }
        let rows: usize = self.sections.iter().map(|section| section.rows.len()).sum();
        for section in &self.sections {
            section.write(out, rows > ROWS)?;
        }
        if self.sections.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "\nratios are new / old with their 95% intervals; slower or faster: the interval lies more than {}% from 1",
            statistics::MINIMAL_EFFECT * 100.0
        )?;
        let raw = self.sections.iter().any(|section| {
            by_clock(section.metric)
                && section.rows.iter().any(|row| !row.relative && row.subject != YARDSTICK)
        });
        if raw {
            writeln!(
                out,
                "*: not relative to {YARDSTICK}, which a report lacks there: a busier machine looks like a slower subject"
            )?;
        }
        Ok(())
    }
}

impl Section {
    fn write(&self, out: &mut fmt::Formatter<'_>, short: bool) -> fmt::Result {
        let relative = self.rows.iter().any(|row| row.relative);
        let against = if relative { ", relative to native of the same run" } else { "" };
        writeln!(out, "\n{}, {}: {}{against}", self.group, self.build, title(self.metric))?;
        let shown: Vec<[String; 6]> = self
            .rows
            .iter()
            .filter(|row| !short || row.workload.is_none() || row.verdict != Verdict::Unsure)
            .map(|row| row.cells(self.metric))
            .collect();
        let width = |column: usize| {
            shown
                .iter()
                .filter_map(|cells| cells.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..6).map(width).collect();
        for cells in &shown {
            let mut line = String::from(" ");
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                // Names to the left, figures to the right, the verdict last.
                match column {
                    2..=4 => write!(line, " {cell:>width$}")?,
                    _ => write!(line, " {cell:<width$}")?,
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        let hidden = self.rows.len() - shown.len();
        if hidden > 0 {
            writeln!(out, "  and {hidden} workloads that are unsure")?;
        }
        Ok(())
    }
}

impl Row {
    fn cells(&self, metric: Metric) -> [String; 6] {
        let (old, new) = self
            .medians
            .map_or_else(Default::default, |(old, new)| (quantity(metric, old), quantity(metric, new)));
        let mark = if by_clock(metric) && !self.relative && self.subject != YARDSTICK { "*" } else { "" };
        let Ratio { value, low, high, .. } = self.ratio;
        [
            self.subject.clone(),
            self.workload.clone().unwrap_or_else(|| "(all)".to_owned()),
            old,
            new,
            format!("{value:.3} ({low:.3} to {high:.3}){mark}"),
            match self.verdict {
                Verdict::Faster if by_clock(metric) => "faster",
                Verdict::Slower if by_clock(metric) => "slower",
                Verdict::Faster => "less",
                Verdict::Slower => "more",
                Verdict::Unsure => "unsure",
            }
            .to_owned(),
        ]
    }
}

fn title(metric: Metric) -> &'static str {
    match metric {
        Metric::CpuS => "CPU time",
        Metric::WallS => "wall time",
        Metric::Instructions => "instructions",
        Metric::PeakBytes => "peak memory",
        Metric::PrivateBytes => "private memory",
        Metric::CompileCpuS => "CPU time of compiling",
        Metric::CompileWallS => "wall time of compiling",
        Metric::CompilePeakBytes => "peak memory of compiling",
        Metric::StartS => "start to exit",
        Metric::SizeBytes => "size",
    }
}

/// A figure with a unit that suits it.
fn quantity(metric: Metric, value: f64) -> String {
    let scaled = |units: &[(f64, &str)]| {
        let unit = units.iter().find(|(least, _)| value >= *least).or(units.last());
        unit.map_or_else(String::new, |(least, name)| format!("{:.3} {name}", value / least))
    };
    match metric {
        Metric::Instructions => scaled(&[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]),
        Metric::PeakBytes | Metric::PrivateBytes | Metric::CompilePeakBytes | Metric::SizeBytes => {
            scaled(&[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])
        }
        _ => scaled(&[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")]),
    }
}

#[cfg(test)]
mod tests;
