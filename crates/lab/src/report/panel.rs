//! One report's tab: what stands still. Charts and the tables of workloads are drawn into it by the script.

use std::collections::BTreeSet;

use super::figures::{mode_name, quantity, ratio, significant};
use super::markup::{escape, number, row, script_json, table};
use super::{day, key};
use crate::record::{Machine, Metric, Mode, Report, Subject};

/// The panel of the report in this place.
pub fn html(place: usize, report: &Report) -> String {
    let mut html = format!(
        "<section id=\"report-{place}\" class=\"panel report\" role=\"tabpanel\" aria-labelledby=\"tab-{place}\" tabindex=\"-1\" data-json=\"json-{place}\">\n"
    );
    html.push_str(&head(place, report));
    html.push_str(&warnings(report));
    html.push_str(&summary(report));
    html.push_str(
        "<noscript><p class=\"note\">Charts and the tables of workloads are drawn by a script; this browser runs none. The figures are in the JSON at the end of this file.</p></noscript>\n",
    );
    html.push_str("<div class=\"drawn\"></div>\n");
    html.push_str(&subjects(place, report));
    html.push_str(&modules(place, report));
    html.push_str(&machine(place, &report.machine));
    html.push_str(&method(place, report));
    html.push_str("</section>\n");
    html
}

fn head(place: usize, report: &Report) -> String {
    let measured = report.subjects.iter().filter(|subject| subject.missing.is_none()).count();
    let programs = report.workloads.iter().map(|workload| (&workload.group, &workload.name));
    let programs = programs.collect::<BTreeSet<_>>().len();
    let failed = report.cells.iter().filter(|cell| cell.failure.is_some()).count();
    let mut facts = vec![
        format!("{measured} subjects"),
        format!("{programs} workloads"),
        format!("{} rounds", report.rounds),
        format!("{} cells, {failed} of them without a figure", report.cells.len()),
        duration(report.duration_s),
    ];
    if report.quick {
        facts.push("quick: fewer rounds or workloads".to_string());
    }
    format!(
        "<header class=\"reporthead\"><h2>{} <span class=\"when\">{}</span></h2>\n<p class=\"facts\">{}</p>\n<p class=\"facts\">{}</p>\n\
         <p><button type=\"button\" class=\"download\" data-json=\"json-{place}\" data-file=\"{}\">Download the JSON</button></p>\n{}</header>\n",
        escape(&report.suite),
        escape(&report.started.replace('T', " ").replace('Z', " UTC")),
        escape(&facts.join(" · ")),
        escape(&machine_line(&report.machine)),
        escape(&file_name(report)),
        contents(place, report),
    )
}

/// Links to the parts of the panel: it is long.
fn contents(place: usize, report: &Report) -> String {
    let mut parts = vec![("charts", "Charts"), ("workloads", "Workloads"), ("subjects", "Subjects")];
    parts.extend([("modules", "Modules"), ("machine", "Machine"), ("method", "Method")]);
    let links: String =
        parts.iter().map(|(part, text)| format!("<a href=\"#report-{place}-{part}\">{text}</a>\n")).collect();
    format!("<nav class=\"contents\" aria-label=\"Parts of {}\">\n{links}</nav>\n", escape(&report.suite))
}

fn machine_line(machine: &Machine) -> String {
    format!("{}, {} processors, {}", machine.cpu, machine.cpus, machine.system)
}

/// A name for the downloaded file that no file system minds.
fn file_name(report: &Report) -> String {
    let name: String = format!("{}-{}", report.suite, day(report))
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' })
        .take(80)
        .collect();
    format!("{name}.json")
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() || s < 0.0 => "duration unknown".to_string(),
        s if s < 90.0 => format!("took {s:.0} s"),
        s if s < 5400.0 => format!("took {:.0} min", s / 60.0),
        s => format!("took {:.1} h", s / 3600.0),
    }
}

fn warnings(report: &Report) -> String {
    let mut all = Vec::new();
    if !report.complete && !report.warnings.iter().any(|warning| warning.contains("interrupted")) {
        all.push(
            "the run was interrupted: some cells have fewer samples than asked for, or none".to_string(),
        );
    }
    all.extend(report.warnings.iter().cloned());
    let Some((first, rest)) = all.split_at_checked(6) else {
        return list(&all);
    };
    let mut html = list(first);
    if !rest.is_empty() {
        html.push_str(&format!(
            "<details class=\"more\"><summary>{} more warnings</summary>{}</details>\n",
            rest.len(),
            list(rest)
        ));
    }
    html
}

fn list(warnings: &[String]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let items: String = warnings.iter().map(|warning| format!("<li>{}</li>\n", escape(warning))).collect();
    format!("<ul class=\"warnings\" aria-label=\"Warnings\">\n{items}</ul>\n")
}

fn summary(report: &Report) -> String {
    let summary = &report.summary;
    let columns = [
        ("CPU time, stock ÷ native", &summary.geomean_vs_native),
        ("CPU time, modern ÷ native", &summary.geomean_vs_native_modern),
        ("Start ÷ native", &summary.start_vs_native),
        ("Private memory, kB", &summary.private_kb),
    ];
    let shown: Vec<_> = columns.into_iter().filter(|(_, values)| !values.is_empty()).collect();
    if shown.is_empty() {
        return String::new();
    }
    let mut rows = String::new();
    for subject in &report.subjects {
        if !shown.iter().any(|(_, values)| values.contains_key(&subject.name)) {
            continue;
        }
        let mut cells = vec![subject_heading(subject)];
        cells.extend(shown.iter().map(|(heading, values)| match values.get(&subject.name) {
            Some(value) if heading.ends_with("kB") => number(&significant(*value), *value),
            Some(value) => number(&ratio(*value), *value),
            None => "<td class=\"number none\">–</td>".to_string(),
        }));
        rows.push_str(&row(&cells));
    }
    let mut headings = vec!["Subject"];
    headings.extend(shown.iter().map(|(heading, _)| *heading));
    format!(
        "<section class=\"summary\"><h3>In short</h3>\n{}</section>\n",
        table("In short", &headings, &rows)
    )
}

fn subject_heading(subject: &Subject) -> String {
    let mode = serde_json::to_value(subject.mode)
        .ok()
        .and_then(|mode| mode.as_str().map(str::to_string))
        .unwrap_or_default();
    format!(
        "<th scope=\"row\"><i class=\"mode {mode}\" aria-hidden=\"true\"></i>{}</th>",
        escape(&subject.name)
    )
}

fn subjects(place: usize, report: &Report) -> String {
    let rows: String = report
        .subjects
        .iter()
        .map(|subject| {
            let version = match (&subject.missing, &subject.version) {
                (Some(reason), _) => format!("<span class=\"failed\">{}</span>", escape(reason)),
                (None, Some(version)) => escape(version),
                (None, None) => "–".to_string(),
            };
            let optimised = match subject.optimised {
                Some(true) => "on",
                Some(false) => "off",
                None => "–",
            };
            row(&[
                subject_heading(subject),
                escape(&subject.runtime),
                format!("<td class=\"wide\">{version}</td>"),
                format!("<td class=\"brief\">{}</td>", mode_name(subject.mode)),
                optimised.to_string(),
                escape(&subject.features.join(", ")),
                format!("<td><code>{}</code></td>", escape(&subject.command)),
            ])
        })
        .collect();
    let headings = ["Subject", "Runtime", "Version", "Mode", "Optimisation", "Features", "Command"];
    format!(
        "<section id=\"report-{place}-subjects\"><h3>Subjects</h3>\n{}</section>\n",
        table("Subjects", &headings, &rows)
    )
}

fn modules(place: usize, report: &Report) -> String {
    let rows: String = report
        .workloads
        .iter()
        .map(|workload| {
            row(&[
                format!("<th scope=\"row\">{}</th>", escape(&workload.name)),
                escape(&workload.group),
                escape(&workload.build),
                number(&quantity(Metric::SizeBytes, workload.bytes as f64), workload.bytes as f64),
                format!("<td><code class=\"hash\">{}</code></td>", escape(&workload.sha256)),
            ])
        })
        .collect();
    format!(
        "<section id=\"report-{place}-modules\"><details><summary><h3>Modules</h3> <span class=\"note\">{} files and their hashes</span></summary>\n{}</details></section>\n",
        report.workloads.len(),
        table("Modules", &["Workload", "Group", "Build", "Size", "SHA-256"], &rows)
    )
}

fn machine(place: usize, machine: &Machine) -> String {
    let load =
        |load: &[f64; 3]| load.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(", ");
    let facts = [
        ("Processor", machine.cpu.clone()),
        ("Processors used", machine.cpus.to_string()),
        ("Instruction sets", machine.cpu_features.join(", ")),
        ("Governor", machine.governor.clone().unwrap_or_else(|| "the system shows none".to_string())),
        ("Hypervisor", machine.hypervisor.clone().unwrap_or_else(|| "none".to_string())),
        ("System", machine.system.clone()),
        ("Kernel", machine.kernel.clone()),
        ("Memory", quantity(Metric::SizeBytes, machine.memory_bytes as f64)),
        ("Load before (1, 5, 15 min)", load(&machine.load_before)),
        ("Load after", load(&machine.load_after)),
    ];
    let facts: String = facts
        .iter()
        .map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escape(value)))
        .collect();
    format!(
        "<section id=\"report-{place}-machine\"><h3>Machine</h3>\n<dl class=\"machine\">\n{facts}</dl></section>\n"
    )
}

fn method(place: usize, report: &Report) -> String {
    let native = report.subjects.iter().any(|subject| subject.mode == Mode::Native);
    let ratios = if native {
        "A ratio is a subject's median divided by the native build's for the same workload; below 1 it is better than native. A group's \
         figure is the geometric mean of its workloads' ratios."
    } else {
        "There is no native build to compare with: figures are absolute."
    };
    format!(
        "<section id=\"report-{place}-method\" class=\"method\"><h3>Method</h3>\n<p>Every engine was given the same bytes. Each of {} timed rounds ran every subject once, in \
         random order (seed {}), one process at a time, after a run that was not counted; what takes long has fewer rounds, \
         and each figure's samples are in the JSON. What a program printed was compared with what is \
         expected; a wrong answer is a failed cell, not a figure. A figure is the median of its samples; the interval beside it holds the true \
         median with 95% confidence. {ratios} “Faster” and “slower” are said only when the interval of the ratio does not hold 1 and what \
         lies outside it matters; all else is “unsure”.</p></section>\n",
        report.rounds, report.seed
    )
}

/// What a link to a chart carries.
pub fn chart_link(place: usize, group: &str, build: &str, metric: Metric, text: &str) -> String {
    let target = script_json(&(group, build, key(metric)));
    format!(
        "<a class=\"figure\" href=\"#report-{place}\" data-report=\"{place}\" data-chart=\"{}\">{}</a>",
        escape(&target),
        escape(text)
    )
}
