//! *Which runtime for whom*: sentences that follow from the figures, and from nothing else.
//!
//! A question is a metric and who may take part. Its subjects are ranked by their geometric mean relative to native, or by the median
//! where there is no native build; the first is named when its interval lies below all others', else the answer is "unsure" with the
//! names of all that overlap it. Each sentence links the chart that it rests on.

use std::collections::BTreeSet;

use super::figures::{interval, metric_name, metric_noun, quantity, ratio, significant};
use super::markup::escape;
use super::{name, panel::chart_link};
use crate::analysis::YARDSTICK;
use crate::record::{Cell, Mean, Metric, Mode, Report, Series, Subject};

/// Sentences per question and report: a suite may have many groups and builds.
const SCOPES: usize = 4;

struct Question {
    title: &'static str,
    whom: &'static str,
    /// The first that a report has is taken.
    metrics: &'static [Metric],
    takes_part: fn(&Subject) -> bool,
    nobody: &'static str,
}

fn guest(subject: &Subject) -> bool {
    subject.mode != Mode::Native
}

fn feature(subject: &Subject, word: &str) -> bool {
    guest(subject) && subject.features.iter().any(|feature| feature.contains(word))
}

const QUESTIONS: [Question; 9] = [
    Question {
        title: "Fastest steady state",
        whom: "Long computations, the same module again and again.",
        metrics: &[Metric::CpuS, Metric::WallS, Metric::Instructions],
        takes_part: guest,
        nobody: "no WebAssembly runtime was timed",
    },
    Question {
        title: "Quickest start",
        whom: "A process or an instance for each request.",
        metrics: &[Metric::StartS],
        takes_part: guest,
        nobody: "no start was timed",
    },
    Question {
        title: "Smallest memory, many idle processes",
        whom: "As many guests on a machine as it can hold.",
        metrics: &[Metric::PrivateBytes],
        takes_part: guest,
        nobody: "no idle process was measured",
    },
    Question {
        title: "Smallest memory, one busy process",
        whom: "Small machines, tight limits.",
        metrics: &[Metric::PeakBytes],
        takes_part: guest,
        nobody: "no peak was measured",
    },
    Question {
        title: "Nothing may be compiled",
        whom: "Systems that forbid writing machine code: the best interpreter.",
        metrics: &[Metric::CpuS, Metric::WallS, Metric::Instructions],
        takes_part: |subject| subject.mode == Mode::Interpreter,
        nobody: "no interpreter was timed",
    },
    Question {
        title: "No step before the run",
        whom: "Modules that arrive as wasm and run at once: compiled while they run.",
        metrics: &[Metric::CpuS, Metric::WallS],
        takes_part: |subject| subject.mode == Mode::JustInTime,
        nobody: "no engine that compiles while it runs was timed",
    },
    Question {
        title: "Quickest to compile",
        whom: "Many different modules, each run a few times.",
        metrics: &[Metric::CompileCpuS, Metric::CompileWallS],
        takes_part: guest,
        nobody: "no compilation was timed",
    },
    Question {
        title: "Threads",
        whom: "Guests with WASI threads: of the runtimes that have them, by time on ordinary modules.",
        metrics: &[Metric::CpuS, Metric::WallS],
        takes_part: |subject| feature(subject, "thread"),
        nobody: "no subject that was timed has threads",
    },
    Question {
        title: "Components",
        whom: "The component model and WASI 0.2 or later: of the runtimes that have it, by time on ordinary modules.",
        metrics: &[Metric::CpuS, Metric::WallS],
        takes_part: |subject| feature(subject, "component"),
        nobody: "no subject that was timed has components",
    },
];

/// What is ranked together: a group in a build, or one workload.
struct Scope {
    group: String,
    build: String,
    workload: Option<String>,
    /// Over how many workloads those have their means that are ranked.
    workloads: usize,
    entries: Vec<Entry>,
}

struct Entry {
    subject: String,
    value: f64,
    low: f64,
    high: f64,
    workloads: usize,
    /// The median behind a ratio that is of one workload only.
    absolute: Option<f64>,
    /// One sample has no interval.
    alone: bool,
}

/// The panel.
pub fn html(reports: &[Report]) -> String {
    let mut html = String::from(
        "<section id=\"advice\" class=\"panel\" role=\"tabpanel\" aria-labelledby=\"tab-advice\" tabindex=\"-1\">\n<h2>Which runtime for whom</h2>\n\
         <p class=\"lede\">What follows from the figures of this page, and from nothing else. Where 95% intervals overlap the answer is \
         “unsure”. Each answer names the chart that it rests on.</p>\n",
    );
    let mut unanswered = String::new();
    for question in &QUESTIONS {
        let sentences = sentences(reports, question);
        if sentences.is_empty() {
            unanswered.push_str(&format!("<li><b>{}</b>: {}</li>\n", question.title, question.nobody));
            continue;
        }
        html.push_str(&format!(
            "<article class=\"answer\"><div class=\"question\"><h3>{}</h3><p>{}</p></div><div class=\"sentences\">\n{}</div></article>\n",
            question.title,
            question.whom,
            sentences
        ));
    }
    if !unanswered.is_empty() {
        html.push_str(&format!(
            "<article class=\"answer unanswered\"><div class=\"question\"><h3>Not answered</h3><p>What these reports \
             do not measure.</p></div><ul>\n{unanswered}</ul></article>\n"
        ));
    }
    html.push_str("</section>\n");
    html
}

fn sentences(reports: &[Report], question: &Question) -> String {
    let mut html = String::new();
    for (place, report) in reports.iter().enumerate() {
        // Of several reports of a suite the last run speaks.
        let later = |other: &Report| other.suite == report.suite && other.started > report.started;
        if reports.iter().any(later) {
            continue;
        }
        let found = question.metrics.iter().find_map(|metric| {
            let scopes = scopes(report, *metric, question.takes_part);
            (!scopes.is_empty()).then_some((*metric, scopes))
        });
        let Some((metric, scopes)) = found else { continue };
        for scope in scopes.iter().take(SCOPES) {
            html.push_str(&sentence(reports, place, metric, scope));
        }
    }
    html
}

/// The groups and builds that have a figure of this metric: their means, or each workload's medians where there is no native build.
fn scopes(report: &Report, metric: Metric, takes_part: fn(&Subject) -> bool) -> Vec<Scope> {
    let may = |name: &str| report.subjects.iter().any(|subject| subject.name == name && takes_part(subject));
    let mut scopes: Vec<Scope> = Vec::new();
    let means: Vec<&Mean> = report.summary.means.iter().filter(|mean| mean.metric == metric).collect();
    for mean in means.iter().filter(|mean| may(&mean.subject) && mean.ratio.is_finite()) {
        let absolute = (mean.workloads == 1)
            .then(|| only_median(report, &mean.group, &mean.build, &mean.subject, metric))
            .flatten();
        let entry = Entry {
            subject: mean.subject.clone(),
            value: mean.ratio,
            low: mean.low,
            high: mean.high,
            workloads: mean.workloads,
            absolute,
            alone: false,
        };
        add(&mut scopes, &mean.group, &mean.build, None, entry);
    }
    for workload in &report.workloads {
        if means.iter().any(|mean| mean.group == workload.group && mean.build == workload.build) {
            continue;
        }
        let its = |cell: &&Cell| cell.workload == workload.name && cell.build == workload.build;
        for cell in report.cells.iter().filter(its).filter(|cell| may(&cell.subject)) {
            let Some(series) = cell.metrics.get(&metric) else { continue };
            let entry = from_series(&cell.subject, series, metric);
            add(&mut scopes, &workload.group, &workload.build, Some(&workload.name), entry);
        }
    }
    for scope in &mut scopes {
        scope.entries.sort_by(|a, b| a.value.total_cmp(&b.value));
        // Native has a mean over what all that are ranked finished; others may have one over other workloads.
        let here = |mean: &&&Mean| mean.group == scope.group && mean.build == scope.build;
        let mut its = means.iter().filter(here);
        scope.workloads = its
            .clone()
            .find(|mean| mean.subject == YARDSTICK)
            .or(its.next())
            .map_or(1, |mean| mean.workloads);
    }
    // A group's other builds say much the same; all of them are in the charts.
    let groups: BTreeSet<String> = scopes.iter().map(|scope| scope.group.clone()).collect();
    for group in groups {
        let plain =
            |scope: &Scope| scope.group == group && matches!(scope.build.as_str(), "stock" | "modern");
        if scopes.iter().any(plain) {
            scopes.retain(|scope| scope.group != group || plain(scope));
        }
    }
    scopes
}

fn add(scopes: &mut Vec<Scope>, group: &str, build: &str, workload: Option<&str>, entry: Entry) {
    let same = |scope: &&mut Scope| {
        scope.group == group && scope.build == build && scope.workload.as_deref() == workload
    };
    match scopes.iter_mut().find(same) {
        Some(scope) => scope.entries.push(entry),
        None => scopes.push(Scope {
            group: group.to_string(),
            build: build.to_string(),
            workload: workload.map(str::to_string),
            workloads: 1,
            entries: vec![entry],
        }),
    }
}

fn from_series(subject: &str, series: &Series, metric: Metric) -> Entry {
    Entry {
        subject: subject.to_string(),
        value: series.median,
        low: series.low,
        high: series.high,
        workloads: 1,
        absolute: None,
        alone: series.samples.len() == 1 && metric != Metric::SizeBytes,
    }
}

/// The median of the only workload of a group in a build.
fn only_median(report: &Report, group: &str, build: &str, subject: &str, metric: Metric) -> Option<f64> {
    let mut medians = report
        .workloads
        .iter()
        .filter(|workload| workload.group == group && workload.build == build)
        .flat_map(|workload| {
            report.cells.iter().filter(move |cell| cell.workload == workload.name && cell.build == build)
        })
        .filter(|cell| cell.subject == subject)
        .filter_map(|cell| cell.metrics.get(&metric));
    match (medians.next(), medians.next()) {
        (Some(series), None) => Some(series.median),
        _ => None,
    }
}

fn sentence(reports: &[Report], place: usize, metric: Metric, scope: &Scope) -> String {
    // A mean over other workloads is another question's answer.
    let (whole, partial): (Vec<&Entry>, Vec<&Entry>) =
        scope.entries.iter().partition(|entry| entry.workloads == scope.workloads);
    let (alone, ranked): (Vec<&Entry>, Vec<&Entry>) = whole.into_iter().partition(|entry| entry.alone);
    let mut text = ranking(scope, metric, &ranked);
    if !partial.is_empty() {
        let names: Vec<String> = partial
            .iter()
            .map(|entry| format!("{} (finished {})", escape(&entry.subject), entry.workloads))
            .collect();
        text.push_str(&format!(" Not ranked, for want of finished workloads: {}.", names.join(", ")));
    }
    if !alone.is_empty() {
        let figure = |entry: &&Entry| format!("{} {}", escape(&entry.subject), value(scope, metric, entry).0);
        let names: Vec<String> = alone.iter().map(figure).collect();
        text.push_str(&format!(" Not ranked, for one sample has no interval: {}.", names.join(", ")));
    }
    let over = match &scope.workload {
        Some(workload) => format!("{workload}, build {}", scope.build),
        None if scope.workloads == 1 => format!("{}, build {}", scope.group, scope.build),
        None => format!("{} workloads of {}, build {}", scope.workloads, scope.group, scope.build),
    };
    let chart = format!("{} · {} · {over}", name(reports, place), metric_name(metric));
    format!(
        "<p class=\"sentence\">{text} <span class=\"source\">Figure: {}</span></p>\n",
        chart_link(place, &scope.group, &scope.build, metric, &chart)
    )
}

/// Who is first, or that nobody is; and who is next.
fn ranking(scope: &Scope, metric: Metric, ranked: &[&Entry]) -> String {
    let Some((best, others)) = ranked.split_first() else {
        return "<strong class=\"unsure\">Unsure</strong>: nobody can be ranked.".to_string();
    };
    let level: Vec<&Entry> = others.iter().copied().filter(|entry| entry.low <= best.high).collect();
    let noun = metric_noun(metric);
    let (figure, interval) = value(scope, metric, best);
    let subject = escape(&best.subject);
    let mut text = match (level.is_empty(), scope.workload.is_some()) {
        (false, _) => {
            let all: Vec<String> = std::iter::once(*best)
                .chain(level.iter().copied())
                .map(|entry| {
                    let (figure, interval) = value(scope, metric, entry);
                    format!("{} {figure} {interval}", escape(&entry.subject))
                })
                .collect();
            format!(
                "<strong class=\"unsure\">Unsure</strong>: the intervals of {noun} overlap of {}.",
                all.join(", ")
            )
        }
        (true, true) => format!("<strong>{subject}</strong>: {figure} of {noun} {interval}."),
        (true, false) => format!("<strong>{subject}</strong>: {figure}’s {noun} {interval}."),
    };
    if others.is_empty() {
        text.push_str(" No other was measured.");
    }
    if let Some(next) = others.iter().find(|entry| entry.low > best.high) {
        let (figure, interval) = value(scope, metric, next);
        text.push_str(&format!(" Next: {} {figure} {interval}.", escape(&next.subject)));
    }
    text
}

/// A figure as the chart writes it, and its interval.
fn value(scope: &Scope, metric: Metric, entry: &Entry) -> (String, String) {
    let absolute = entry.absolute.map(|value| format!("; {}", quantity(metric, value))).unwrap_or_default();
    let (figure, range) = if scope.workload.is_some() {
        (quantity(metric, entry.value), interval(metric, entry.low, entry.high))
    } else {
        let range = format!("{} to {}", significant(entry.low), significant(entry.high));
        (format!("{} native", ratio(entry.value)), range)
    };
    (
        format!("<span class=\"value\">{figure}</span>"),
        format!("<span class=\"interval\">({range}{absolute})</span>"),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analysis::analyse;
    use crate::record::{Machine, SCHEMA, Summary, Workload};

    /// A report of subjects that ran one workload: name, mode, features and samples of CPU time.
    fn report(started: &str, subjects: &[(&str, Mode, &[&str], &[f64])]) -> Report {
        let workload = |build: &str| Workload {
            name: "auth".into(),
            group: "libsodium".into(),
            build: build.into(),
            sha256: String::new(),
            bytes: 100,
        };
        let build = |mode: Mode| if mode == Mode::Native { "native" } else { "stock" };
        let mut report = Report {
            schema: SCHEMA,
            suite: "speed".into(),
            quick: false,
            complete: true,
            started: started.into(),
            duration_s: 1.0,
            seed: 1,
            rounds: 5,
            machine: Machine::default(),
            subjects: Vec::new(),
            workloads: vec![workload("stock"), workload("native")],
            cells: Vec::new(),
            summary: Summary::default(),
            warnings: Vec::new(),
        };
        for (name, mode, features, samples) in subjects {
            report.subjects.push(Subject {
                name: (*name).into(),
                runtime: (*name).into(),
                version: None,
                mode: *mode,
                optimised: None,
                command: String::new(),
                features: features.iter().map(|feature| (*feature).into()).collect(),
                missing: None,
            });
            let series = Series { samples: samples.to_vec(), ..Series::default() };
            report.cells.push(Cell {
                workload: "auth".into(),
                build: build(*mode).into(),
                subject: (*name).into(),
                metrics: BTreeMap::from([(Metric::CpuS, series)]),
                failure: None,
            });
        }
        analyse(&mut report);
        report
    }

    const NATIVE: (&str, Mode, &[&str], &[f64]) =
        ("native", Mode::Native, &[], &[1.0, 1.001, 1.002, 0.999, 0.998, 1.0, 1.001]);
    const QUICK: (&str, Mode, &[&str], &[f64]) =
        ("quick", Mode::AheadOfTime, &["threads"], &[1.1, 1.101, 1.102, 1.099, 1.098, 1.1, 1.101]);
    const ALIKE: (&str, Mode, &[&str], &[f64]) =
        ("alike", Mode::AheadOfTime, &[], &[1.1005, 1.1015, 1.1, 1.0985, 1.099, 1.1, 1.102]);
    const SLOW: (&str, Mode, &[&str], &[f64]) =
        ("slow", Mode::Interpreter, &[], &[9.0, 9.01, 9.02, 8.99, 8.98, 9.0, 9.01]);

    fn answer(html: &str, title: &str) -> String {
        let start = html.find(&format!("<h3>{title}</h3>")).unwrap();
        html[start..].split("</article>").next().unwrap().to_string()
    }

    #[test]
    fn the_first_is_named_with_its_figure_and_the_next() {
        let html = html(&[report("2026-01-02T00:00:00Z", &[NATIVE, SLOW, QUICK])]);
        let fastest = answer(&html, "Fastest steady state");
        assert!(
            fastest.contains("<strong>quick</strong>: <span class=\"value\">1.100 × native</span>"),
            "{fastest}"
        );
        assert!(fastest.contains("Next: slow <span class=\"value\">9.000 × native</span>"), "{fastest}");
        assert!(fastest.contains("speed, 2026-01-02 · CPU time · libsodium, build stock</a>"), "{fastest}");
        assert!(!fastest.contains("<strong>native"), "the yardstick takes no part: {fastest}");
        let interpreter = answer(&html, "Nothing may be compiled");
        assert!(
            interpreter.contains("<strong>slow</strong>") && interpreter.contains("No other was measured")
        );
        assert!(answer(&html, "Threads").contains("<strong>quick</strong>"));
        assert!(answer(&html, "Not answered").contains("<b>Components</b>: no subject that was timed"));
        assert!(answer(&html, "Not answered").contains("<b>Quickest start</b>: no start was timed"));
    }

    #[test]
    fn overlapping_intervals_are_unsure() {
        let html = html(&[report("2026-01-02T00:00:00Z", &[NATIVE, QUICK, ALIKE, SLOW])]);
        let fastest = answer(&html, "Fastest steady state");
        assert!(fastest.contains("Unsure") && fastest.contains("Next: slow"), "{fastest}");
        assert!(!fastest.contains("<strong>quick") && !fastest.contains("<strong>alike"), "{fastest}");
    }

    #[test]
    fn of_two_runs_of_a_suite_the_later_speaks() {
        let old = report("2026-01-02T00:00:00Z", &[NATIVE, SLOW]);
        let new = report("2026-02-03T00:00:00Z", &[NATIVE, QUICK]);
        let html = html(&[new, old]);
        let fastest = answer(&html, "Fastest steady state");
        assert!(fastest.contains("2026-02-03") && !fastest.contains("2026-01-02"), "{fastest}");
        assert!(answer(&html, "Not answered").contains("<b>Nothing may be compiled</b>: no interpreter"));
    }

    #[test]
    fn without_native_medians_are_ranked() {
        let html = html(&[report("2026-01-02T00:00:00Z", &[SLOW, QUICK])]);
        let fastest = answer(&html, "Fastest steady state");
        assert!(
            fastest.contains("<strong>quick</strong>: <span class=\"value\">1.100 s</span> of CPU time"),
            "{fastest}"
        );
        assert!(fastest.contains("auth, build stock</a>"), "{fastest}");
    }

    #[test]
    fn one_sample_wins_nothing() {
        let lucky = ("lucky", Mode::AheadOfTime, &[][..], &[0.5][..]);
        let html = html(&[report("2026-01-02T00:00:00Z", &[lucky, QUICK, SLOW])]);
        let fastest = answer(&html, "Fastest steady state");
        assert!(fastest.contains("<strong>quick</strong>"), "{fastest}");
        assert!(
            fastest.contains("one sample has no interval: lucky <span class=\"value\">500.0 ms"),
            "{fastest}"
        );
    }
}
