//! *Which runtime for whom*: sentences that follow from the figures, and from nothing else.
//!
//! A question is a metric and who may take part. Its subjects are ranked by their geometric mean relative to native, or by the median
//! where there is no native build; the first is named when its interval lies below all others', else the answer is "unsure" with the
//! names of all that overlap it. Each sentence links the chart that it rests on.

use super::figures::{metric_name, quantity, ratio};
use super::markup::escape;
use super::{name, panel::chart_link};
use crate::record::{Metric, Mode, Report, Series, Subject};

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
        whom: "Guests with WASI threads.",
        metrics: &[Metric::CpuS, Metric::WallS],
        takes_part: |subject| feature(subject, "thread"),
        nobody: "no subject that was timed has threads",
    },
    Question {
        title: "Components",
        whom: "The component model and WASI 0.2 or later.",
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
}

/// The panel.
pub fn html(reports: &[Report]) -> String {
    let mut html = String::from(
        "<section id=\"advice\" class=\"panel\" role=\"tabpanel\" aria-labelledby=\"tab-advice\" tabindex=\"-1\">\n<h2>Which runtime for whom</h2>\n\
         <p class=\"lede\">What follows from the figures of this page, and from nothing else. Where 95% intervals overlap the answer is \
         “unsure”. Each answer names the chart that it rests on.</p>\n",
    );
    for question in &QUESTIONS {
        html.push_str(&format!(
            "<article class=\"answer\"><div class=\"question\"><h3>{}</h3><p>{}</p></div><div class=\"sentences\">\n{}</div></article>\n",
            question.title,
            question.whom,
            sentences(reports, question)
        ));
    }
    html.push_str("</section>\n");
    html
}

fn sentences(reports: &[Report], question: &Question) -> String {
    let mut html = String::new();
    let mut suites_seen = Vec::new();
    // Of several reports of a suite the last run speaks.
    let mut newest: Vec<(usize, &Report)> = reports.iter().enumerate().collect();
    newest.sort_by(|(_, a), (_, b)| b.started.cmp(&a.started));
    for (place, report) in newest {
        let found = question.metrics.iter().find_map(|metric| {
            let scopes = scopes(report, *metric, question.takes_part);
            (!scopes.is_empty()).then_some((*metric, scopes))
        });
        let Some((metric, scopes)) = found else { continue };
        if suites_seen.contains(&&report.suite) {
            continue;
        }
        suites_seen.push(&report.suite);
        for scope in scopes.iter().take(SCOPES) {
            html.push_str(&sentence(reports, place, metric, scope));
        }
    }
    if html.is_empty() {
        html = format!("<p class=\"unknown\">Nothing can be said: {}.</p>\n", question.nobody);
    }
    html
}

/// The groups and builds that have a figure of this metric, the plain build and the newest proposals first.
fn scopes(report: &Report, metric: Metric, takes_part: fn(&Subject) -> bool) -> Vec<Scope> {
    let may = |name: &str| report.subjects.iter().any(|subject| subject.name == name && takes_part(subject));
    let mut scopes: Vec<Scope> = Vec::new();
    for mean in report
        .summary
        .means
        .iter()
        .filter(|mean| mean.metric == metric && may(&mean.subject) && mean.ratio.is_finite())
    {
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
        };
        add(&mut scopes, &mean.group, &mean.build, None, entry);
    }
    if scopes.is_empty() {
        for workload in &report.workloads {
            for cell in report
                .cells
                .iter()
                .filter(|cell| cell.workload == workload.name && cell.build == workload.build)
            {
                let Some(series) = cell.metrics.get(&metric).filter(|_| may(&cell.subject)) else { continue };
                add(
                    &mut scopes,
                    &workload.group,
                    &workload.build,
                    Some(&workload.name),
                    from_series(&cell.subject, series),
                );
            }
        }
    }
    for scope in &mut scopes {
        scope.entries.sort_by(|a, b| a.value.total_cmp(&b.value));
    }
    // A group's other builds say much the same; all of them are in the charts.
    let groups: std::collections::BTreeSet<String> = scopes.iter().map(|scope| scope.group.clone()).collect();
    for group in groups {
        let plain =
            |scope: &&Scope| scope.group == group && matches!(scope.build.as_str(), "stock" | "modern");
        if scopes.iter().any(|scope| plain(&scope)) {
            scopes.retain(|scope| scope.group != group || plain(&scope));
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
            entries: vec![entry],
        }),
    }
}

fn from_series(subject: &str, series: &Series) -> Entry {
    Entry {
        subject: subject.to_string(),
        value: series.median,
        low: series.low,
        high: series.high,
        workloads: 1,
        absolute: None,
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
    // A mean over fewer programs is another question's answer.
    let most = scope.entries.iter().map(|entry| entry.workloads).max().unwrap_or_default();
    let (ranked, partial): (Vec<&Entry>, Vec<&Entry>) =
        scope.entries.iter().partition(|entry| entry.workloads == most);
    let Some((best, others)) = ranked.split_first() else { return String::new() };
    let level: Vec<&Entry> = others.iter().copied().filter(|entry| entry.low <= best.high).collect();
    let behind = others.iter().copied().find(|entry| entry.low > best.high);
    let write = |entry: &Entry| value(scope, metric, entry);
    let mut text = if others.is_empty() {
        format!("<strong>{}</strong>, the only one measured: {}.", escape(&best.subject), write(best))
    } else if level.is_empty() {
        format!("<strong>{}</strong>: {}.", escape(&best.subject), write(best))
    } else {
        let mut all = vec![*best];
        all.extend(level.iter().copied());
        let all: Vec<String> =
            all.iter().map(|entry| format!("{} {}", escape(&entry.subject), write(entry))).collect();
        format!("<strong class=\"unsure\">Unsure</strong>: the intervals overlap of {}.", all.join(", "))
    };
    if let Some(next) = behind {
        text.push_str(&format!(" Next: {} {}.", escape(&next.subject), write(next)));
    }
    if !partial.is_empty() {
        let names: Vec<String> = partial
            .iter()
            .map(|entry| format!("{} ({} of {most})", escape(&entry.subject), entry.workloads))
            .collect();
        text.push_str(&format!(" Not ranked, for want of some workloads: {}.", names.join(", ")));
    }
    let over = match &scope.workload {
        Some(workload) => format!("{workload}, build {}", scope.build),
        None if most == 1 => format!("{}, build {}", scope.group, scope.build),
        None => format!("{most} workloads of {}, build {}", scope.group, scope.build),
    };
    let chart = format!("{} · {} · {over}", name(reports, place), metric_name(metric));
    format!(
        "<p class=\"sentence\">{text} <span class=\"source\">Figure: {}</span></p>\n",
        chart_link(place, &scope.group, &scope.build, metric, &chart)
    )
}

fn value(scope: &Scope, metric: Metric, entry: &Entry) -> String {
    let write = |value: f64| if scope.workload.is_some() { quantity(metric, value) } else { ratio(value) };
    let unit = if scope.workload.is_some() { "" } else { " native" };
    let absolute = entry.absolute.map(|value| format!(", {}", quantity(metric, value))).unwrap_or_default();
    format!(
        "<span class=\"value\">{}{unit}</span> <span class=\"interval\">({} to {}{absolute})</span>",
        escape(&write(entry.value)),
        escape(&write(entry.low)),
        escape(&write(entry.high))
    )
}
