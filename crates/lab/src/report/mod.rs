//! The page: reports in, one HTML file out, that needs no network and no other file.
//!
//! Each report's JSON is embedded as it is. What reads well without a script (machine, subjects, modules, warnings, and the advice of
//! [`advice`]) is written here; charts and the tables of workloads are drawn by `page.js` from the embedded JSON, so that only what the
//! filters leave is in the document. Names come from files that others may have made: everything written here goes through
//! [`markup::escape`], the script writes text nodes only, and the page's security policy lets no script run but its own.

mod advice;
mod figures;
mod markup;
mod panel;

use crate::record::{Metric, Report};
use markup::{csp_hash, escape, script_json};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page that shows these reports, a tab for each, after the tab that says which runtime is for whom.
pub fn html(reports: &[Report]) -> String {
    fill(PAGE, |name| match name {
        "title" => escape(&title(reports)),
        "policy" => format!(
            "default-src 'none'; img-src data:; style-src '{}'; script-src '{}'; base-uri 'none'; form-action 'none'",
            csp_hash(STYLE),
            csp_hash(SCRIPT)
        ),
        "style" => STYLE.to_string(),
        "script" => SCRIPT.to_string(),
        "heading" => escape(&heading(reports)),
        "tabs" => tabs(reports),
        "advice" => advice::html(reports),
        "panels" => reports.iter().enumerate().map(|(place, report)| panel::html(place, report)).collect(),
        "metrics" => script_json(&figures::legend()),
        "reports" => reports
            .iter()
            .enumerate()
            .map(|(place, report)| {
                format!(
                    "<script type=\"application/json\" id=\"json-{place}\">{}</script>\n",
                    script_json(report)
                )
            })
            .collect(),
        _ => String::new(),
    })
}

/// Puts values where the template has `{{name}}`. What is put in is not looked at again: a subject called `{{script}}` stays one.
fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut page = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let Some((name, tail)) = after.split_once("}}") else { break };
        page.push_str(&value(name));
        rest = tail;
    }
    page.push_str(rest);
    page
}

fn title(reports: &[Report]) -> String {
    match reports {
        [report] => format!("{} · {} · mote-lab", report.suite, day(report)),
        _ => "WebAssembly runtimes · mote-lab".to_string(),
    }
}

fn heading(reports: &[Report]) -> String {
    let runtimes: std::collections::BTreeSet<&str> = reports
        .iter()
        .flat_map(|report| &report.subjects)
        .filter(|subject| subject.missing.is_none() && subject.mode != crate::record::Mode::Native)
        .map(|subject| subject.runtime.as_str())
        .collect();
    match runtimes.len() {
        1 => "One WebAssembly runtime, measured".to_string(),
        n => format!("{n} WebAssembly runtimes, side by side"),
    }
}

/// The date of a report: the part of its RFC 3339 time before the `T`.
fn day(report: &Report) -> &str {
    report.started.split('T').next().unwrap_or_default()
}

/// What a report is called where there are several: `speed, 2026-11-22`, with the time of day where that is not enough.
fn name(reports: &[Report], place: usize) -> String {
    let Some(report) = reports.get(place) else { return String::new() };
    let alike = |other: &&Report| other.suite == report.suite && day(other) == day(report);
    let when = if reports.iter().filter(alike).count() > 1 { report.started.as_str() } else { day(report) };
    format!("{}, {when}", report.suite)
}

fn tabs(reports: &[Report]) -> String {
    let mut tabs = String::from(
        "<button type=\"button\" role=\"tab\" id=\"tab-advice\" aria-controls=\"advice\" aria-selected=\"true\">Which runtime for whom</button>\n",
    );
    for place in 0..reports.len() {
        tabs.push_str(&format!(
            "<button type=\"button\" role=\"tab\" id=\"tab-{place}\" aria-controls=\"report-{place}\" aria-selected=\"false\" tabindex=\"-1\">{}</button>\n",
            escape(&name(reports, place))
        ));
    }
    tabs
}

/// The key that a metric has in the JSON.
fn key(metric: Metric) -> String {
    serde_json::to_value(metric).ok().and_then(|value| value.as_str().map(str::to_string)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_not_filled_again() {
        let page = fill("a {{x}} b {{y}} c", |name| if name == "x" { "{{y}}".into() } else { "Y".into() });
        assert_eq!(page, "a {{y}} b Y c");
    }

    #[test]
    fn a_page_without_reports_is_a_page() {
        let page = html(&[]);
        assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
        assert!(!page.contains("{{"));
    }

    #[test]
    fn the_script_cannot_end_its_own_element() {
        for text in [SCRIPT, STYLE] {
            assert!(!text.contains("</script") && !text.contains("</style") && !text.contains("<!--"));
        }
    }
}
