//! From a report's samples to its estimates, means, comparisons and warnings.
//!
//! [`analyse`] may be called again on a report that was analysed before: it overwrites what it filled in and repeats no warning. A cell that
//! failed has no figures: what was measured before it failed is thrown away, so that nothing that shows the report can rank it.
//!
//! Native programs are builds of their own (`native`, `native-nosimd`): a subject of the native mode stands beside the guests' builds of the
//! same workload, whichever build its own cell has.

mod doubts;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::record::{Cell, Comparison, Mean, Metric, Mode, Report, Summary, Workload};
use crate::statistics::{self, Ratio};

/// The subject that means are relative to.
pub const YARDSTICK: &str = "native";

/// The subject that all others are compared with.
pub const BASELINE: &str = "mote";

/// The group and the builds of `summary.geomean_vs_native` and `summary.geomean_vs_native_modern`.
const SUMMARY_GROUP: &str = "libsodium";
const SUMMARY_BUILD: &str = "stock";
const SUMMARY_BUILD_MODERN: &str = "modern";

/// A subject that finished fewer than this many of 4 workloads is left out of the common mean: it would leave too little of it.
const LISTED_OF_4: usize = 3;

/// Fills in every series' estimates, the summary and the warnings.
pub fn analyse(report: &mut Report) {
    for cell in &mut report.cells {
        if cell.failure.is_some() {
            cell.metrics.clear();
        }
        for series in cell.metrics.values_mut() {
            *series = statistics::summarise(&std::mem::take(&mut series.samples));
        }
    }
    let (summary, left_out) = Table::of(report).summary();
    report.summary = summary;
    for warning in doubts::doubts(report).into_iter().chain(left_out) {
        if !report.warnings.contains(&warning) {
            report.warnings.push(warning);
        }
    }
}

/// The verdict that a ratio of this metric allows: sizes have no noise.
pub(crate) fn verdict(metric: Metric, ratio: &Ratio) -> crate::record::Verdict {
    match metric {
        Metric::SizeBytes => ratio.verdict_exact(),
        _ => ratio.verdict(),
    }
}

/// A report's cells by workload, build and subject.
pub(crate) struct Table<'a> {
    report: &'a Report,
    cells: HashMap<(&'a str, &'a str, &'a str), &'a Cell>,
    /// The cells of native subjects, by workload and subject.
    native: HashMap<(&'a str, &'a str), Vec<&'a Cell>>,
}

/// The workloads of a group in one build.
pub(crate) struct Group<'a> {
    pub name: &'a str,
    pub build: &'a str,
    pub workloads: Vec<&'a Workload>,
}

impl<'a> Table<'a> {
    pub(crate) fn of(report: &'a Report) -> Self {
        let native_subjects: BTreeSet<&str> = report
            .subjects
            .iter()
            .filter(|subject| subject.mode == Mode::Native)
            .map(|subject| subject.name.as_str())
            .collect();
        let mut table = Self { report, cells: HashMap::new(), native: HashMap::new() };
        for cell in &report.cells {
            let (workload, subject) = (cell.workload.as_str(), cell.subject.as_str());
            table.cells.insert((workload, cell.build.as_str(), subject), cell);
            if native_subjects.contains(subject) {
                table.native.entry((workload, subject)).or_default().push(cell);
            }
        }
        table
    }

    /// The samples of a subject that finished; a native one's from whichever build it has.
    pub(crate) fn samples(&self, workload: &Workload, subject: &str, metric: Metric) -> Option<&'a [f64]> {
        let name = workload.name.as_str();
        let here = self.cells.get(&(name, workload.build.as_str(), subject));
        here.into_iter()
            .chain(self.native.get(&(name, subject)).into_iter().flatten())
            .filter(|cell| cell.failure.is_none())
            .filter_map(|cell| cell.metrics.get(&metric))
            .map(|series| series.samples.as_slice())
            .find(|samples| samples.iter().any(|sample| sample.is_finite()))
    }

    /// The groups and builds in the suite's order; those that only native programs are built in do not count.
    pub(crate) fn groups(&self) -> Vec<Group<'a>> {
        let of_guests: BTreeSet<(&str, &str)> = self
            .report
            .cells
            .iter()
            .filter(|cell| !self.native.contains_key(&(cell.workload.as_str(), cell.subject.as_str())))
            .map(|cell| (cell.workload.as_str(), cell.build.as_str()))
            .collect();
        let mut groups: Vec<Group<'a>> = Vec::new();
        for workload in &self.report.workloads {
            if !of_guests.contains(&(workload.name.as_str(), workload.build.as_str())) {
                continue;
            }
            let known =
                groups.iter_mut().find(|group| group.name == workload.group && group.build == workload.build);
            match known {
                Some(group) => group.workloads.push(workload),
                None => groups.push(Group {
                    name: &workload.group,
                    build: &workload.build,
                    workloads: vec![workload],
                }),
            }
        }
        groups
    }

    /// The metrics that any subject has in a group.
    pub(crate) fn metrics(&self, group: &Group<'_>) -> BTreeSet<Metric> {
        self.report
            .cells
            .iter()
            .filter(|cell| {
                cell.build == group.build
                    && group.workloads.iter().any(|workload| workload.name == cell.workload)
            })
            .flat_map(|cell| cell.metrics.keys().copied())
            .collect()
    }

    /// The names of the report's subjects, in its order.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.report.subjects.iter().map(|subject| subject.name.as_str())
    }

    fn summary(&self) -> (Summary, Vec<String>) {
        let mut summary = Summary::default();
        let mut warnings = Vec::new();
        for group in self.groups() {
            let metrics = self.metrics(&group);
            for metric in &metrics {
                let common = Common::of(self, &group, *metric);
                let means = common.means(self, &group, *metric);
                if *metric == Metric::CpuS && group.name == SUMMARY_GROUP {
                    let listed = means
                        .iter()
                        .filter(|mean| common.listed.contains(&mean.subject.as_str()))
                        .map(|mean| (mean.subject.clone(), mean.ratio))
                        .collect();
                    match group.build {
                        SUMMARY_BUILD => summary.geomean_vs_native = listed,
                        SUMMARY_BUILD_MODERN => summary.geomean_vs_native_modern = listed,
                        _ => (),
                    }
                }
                summary.means.extend(means);
                summary.comparisons.extend(self.comparisons(&group, *metric));
                // The other metrics of a cell stand and fall with the first.
                if metrics.first() == Some(metric) {
                    warnings.extend(common.left_out(&group));
                }
            }
        }
        summary.start_vs_native = self.start_vs_native();
        summary.private_kb = self.private_kb();
        (summary, warnings)
    }

    /// Every subject against [`BASELINE`]: by workload, and the group as a whole over the workloads that both finished.
    fn comparisons(&self, group: &Group<'_>, metric: Metric) -> Vec<Comparison> {
        let mut comparisons = Vec::new();
        for subject in self.subjects().filter(|subject| *subject != BASELINE) {
            let mut pairs = Vec::new();
            let comparison = |workload: Option<&Workload>, ratio: Ratio| Comparison {
                group: group.name.to_owned(),
                build: group.build.to_owned(),
                workload: workload.map(|workload| workload.name.clone()),
                metric,
                subject: subject.to_owned(),
                baseline: BASELINE.to_owned(),
                ratio: ratio.value,
                low: ratio.low,
                high: ratio.high,
                verdict: verdict(metric, &ratio),
            };
            for workload in &group.workloads {
                let both =
                    self.samples(workload, subject, metric).zip(self.samples(workload, BASELINE, metric));
                let Some((ours, theirs)) = both else { continue };
                if let Some(ratio) = statistics::paired(ours, theirs) {
                    comparisons.push(comparison(Some(workload), ratio));
                    pairs.push((ours, theirs));
                }
            }
            comparisons.extend(statistics::paired_mean(&pairs).map(|ratio| comparison(None, ratio)));
        }
        comparisons
    }

    /// The medians of `metric` by subject, on the smallest module that was measured for it.
    fn on_smallest(&self, metric: Metric) -> BTreeMap<String, f64> {
        let measured = |workload: &&Workload| {
            workload.bytes > 0
                && self.subjects().any(|subject| self.samples(workload, subject, metric).is_some())
        };
        let Some(smallest) =
            self.report.workloads.iter().filter(measured).min_by_key(|workload| workload.bytes)
        else {
            return BTreeMap::new();
        };
        self.subjects()
            .filter_map(|subject| {
                let median = statistics::median(self.samples(smallest, subject, metric)?)?;
                Some((subject.to_owned(), median))
            })
            .collect()
    }

    fn start_vs_native(&self) -> BTreeMap<String, f64> {
        let starts = self.on_smallest(Metric::StartS);
        let Some(native) = starts.get(YARDSTICK).copied().filter(|native| *native > 0.0) else {
            return BTreeMap::new();
        };
        starts.into_iter().map(|(subject, start)| (subject, start / native)).collect()
    }

    /// In the kernel's kB, which are 1024 bytes.
    fn private_kb(&self) -> BTreeMap<String, f64> {
        let bytes = self.on_smallest(Metric::PrivateBytes);
        bytes.into_iter().map(|(subject, bytes)| (subject, bytes / 1024.0)).collect()
    }
}

/// What all listed subjects of a group finished, so that their means are over the same workloads.
struct Common<'a> {
    listed: Vec<&'a str>,
    workloads: Vec<&'a Workload>,
    /// Subjects that finished too little, and how much.
    unlisted: Vec<(&'a str, usize)>,
    /// Workloads that a listed subject did not finish, and which.
    dropped: Vec<(&'a Workload, &'a str)>,
    /// How many workloads the yardstick finished.
    all: usize,
}

impl<'a> Common<'a> {
    fn of(table: &Table<'a>, group: &Group<'a>, metric: Metric) -> Self {
        let finished = |subject: &str, workload: &Workload| {
            table
                .samples(workload, subject, metric)
                .is_some_and(|samples| statistics::median(samples).is_some_and(|median| median > 0.0))
        };
        let yard: Vec<&Workload> =
            group.workloads.iter().copied().filter(|workload| finished(YARDSTICK, workload)).collect();
        let mut counts: Vec<(&str, usize)> = table
            .subjects()
            .map(|subject| {
                let count = yard.iter().filter(|workload| finished(subject, workload)).count();
                (subject, count)
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        let mut unlisted: Vec<(&str, usize)> =
            counts.extract_if(.., |(_, count)| *count * 4 < yard.len() * LISTED_OF_4).collect();
        loop {
            let mut common = Vec::new();
            let mut dropped = Vec::new();
            for workload in &yard {
                match counts.iter().find(|(subject, _)| !finished(subject, workload)) {
                    Some((subject, _)) => dropped.push((*workload, *subject)),
                    None => common.push(*workload),
                }
            }
            // Subjects that failed one after the other may leave nothing in common: the one that finished least goes until something is.
            let least = counts.iter().map(|(_, count)| *count).min();
            match counts.iter().position(|(_, count)| Some(*count) == least) {
                Some(place) if common.is_empty() && counts.len() > 1 => unlisted.push(counts.remove(place)),
                _ => {
                    return Self {
                        listed: counts.into_iter().map(|(subject, _)| subject).collect(),
                        workloads: common,
                        unlisted,
                        dropped,
                        all: yard.len(),
                    };
                }
            }
        }
    }

    /// The means over the common workloads; of an unlisted subject, over those that it and the yardstick finished.
    fn means(&self, table: &Table<'a>, group: &Group<'a>, metric: Metric) -> Vec<Mean> {
        let listed = self.listed.iter().map(|subject| (*subject, self.workloads.as_slice()));
        let unlisted = self.unlisted.iter().map(|(subject, _)| (*subject, group.workloads.as_slice()));
        let mean = |(subject, workloads): (&str, &[&Workload])| {
            let pairs: Vec<(&[f64], &[f64])> = workloads
                .iter()
                .filter_map(|workload| {
                    table.samples(workload, subject, metric).zip(table.samples(workload, YARDSTICK, metric))
                })
                .collect();
            let ratio = statistics::medians_mean(&pairs)?;
            Some(Mean {
                group: group.name.to_owned(),
                build: group.build.to_owned(),
                metric,
                subject: subject.to_owned(),
                ratio: ratio.value,
                low: ratio.low,
                high: ratio.high,
                workloads: pairs.len(),
            })
        };
        listed.chain(unlisted).filter_map(mean).collect()
    }

    /// What readers of the means have to know.
    fn left_out(&self, group: &Group<'_>) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.unlisted.is_empty() {
            let subjects: Vec<String> = self
                .unlisted
                .iter()
                .map(|(subject, count)| format!("{subject} (finished {count} of {})", self.all))
                .collect();
            warnings.push(format!(
                "{}, {}: not in the common mean, for want of finished workloads: {}",
                group.name,
                group.build,
                subjects.join(", ")
            ));
        }
        if !self.dropped.is_empty() {
            let workloads: Vec<String> = self
                .dropped
                .iter()
                .map(|(workload, subject)| format!("{} (not finished by {subject})", workload.name))
                .collect();
            warnings.push(format!(
                "{}, {}: the means are over {} of {} workloads; left out: {}",
                group.name,
                group.build,
                self.workloads.len(),
                self.all,
                workloads.join(", ")
            ));
        }
        warnings
    }
}

#[cfg(test)]
mod tests;
