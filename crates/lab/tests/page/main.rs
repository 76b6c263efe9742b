//! The page in a headless Chromium: what is clicked, typed and shown, and that each number is the JSON's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod browser;
mod fixture;

use std::collections::BTreeMap;
use std::path::PathBuf;

use browser::Browser;
use mote_lab::record::{Metric, Mode, Report};
use mote_lab::report;
use serde_json::json;

/// A page in a file of its own, deleted in the end.
struct Page(PathBuf);

impl Page {
    fn write(name: &str, reports: &[Report]) -> Page {
        let path = std::env::temp_dir().join(format!("mote-lab-{name}-{}.html", std::process::id()));
        std::fs::write(&path, report::html(reports)).unwrap();
        Page(path)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn all() -> Vec<Report> {
    vec![fixture::speed(), fixture::compile(), fixture::own_module()]
}

fn open(browser: &mut Browser, page: &Page) {
    browser.size(1200, 900, false);
    browser.prefer("light");
    browser.open(&page.0);
}

/// How the page writes a ratio: four significant digits.
fn four_digits(value: f64) -> String {
    let decimals = (3 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    format!("{value:.decimals$}")
}

/// The names of the first column of a table, as they stand.
const FIRST_COLUMN: &str = "rows => [...rows].map(row => row.cells[0].textContent)";

#[test]
fn clicking_through_the_page() {
    let mut browser = Browser::start();
    let page = Page::write("click", &all());
    let reports = all();

    open(&mut browser, &page);
    tabs(&mut browser, &reports);
    answers_lead_to_charts(&mut browser, 10);
    charts_show_the_json(&mut browser, &reports);
    tables_show_the_json(&mut browser, &reports[0]);
    filters(&mut browser, &reports[0]);
    sorting(&mut browser);
    themes(&mut browser);
    download(&mut browser, &reports[0]);
    assert_eq!(browser.complaints(), Vec::<String>::new());

    keyboard(&mut browser, &page);
    phone(&mut browser, &page, reports.len());
    assert_eq!(browser.complaints(), Vec::<String>::new());
    hostile_names_stay_text(&mut browser);
    one_report_and_none(&mut browser);
}

fn tabs(browser: &mut Browser, reports: &[Report]) {
    assert_eq!(
        browser.strings("[...document.querySelectorAll('[role=tab]')].map(tab => tab.textContent)"),
        ["Which runtime for whom", "speed, 2026-11-22", "compile, 2026-11-22", "run, 2026-11-22"]
    );
    let visible = "[...document.querySelectorAll('[role=tabpanel]')].filter(panel => panel.offsetParent).map(panel => panel.id)";
    assert_eq!(browser.strings(visible), ["advice"]);
    for place in 0..reports.len() {
        browser.click(&format!("#tab-{place}"));
        assert_eq!(browser.strings(visible), [format!("report-{place}")]);
        assert_eq!(
            browser.eval("document.querySelector('[aria-selected=true]').id"),
            json!(format!("tab-{place}"))
        );
    }
    browser.click("#tab-advice");
    assert_eq!(browser.strings(visible), ["advice"]);
    // The parts of a report are linked, and a link from elsewhere opens its tab.
    browser.click("#tab-1");
    for part in ["charts", "workloads", "subjects", "modules", "machine", "method"] {
        browser.click(&format!("#report-1 .contents a[href$={part}]"));
        let top =
            browser.eval(&format!("document.getElementById('report-1-{part}').getBoundingClientRect().top"));
        assert!(top.as_f64().unwrap() < 900.0, "{part} is not in sight: {top}");
    }
    browser.eval("location.hash = '#report-0-machine'");
    browser.eval("new Promise(done => setTimeout(done, 50))");
    assert_eq!(browser.strings(visible), ["report-0"]);
}

/// Each sentence has a link, and each link shows a chart whose first rows are the sentence's.
fn answers_lead_to_charts(browser: &mut Browser, least: u64) {
    let links = browser.eval("document.querySelectorAll('.sentence').length").as_u64().unwrap();
    assert!(links >= least, "{links} sentences");
    assert_eq!(browser.eval("document.querySelectorAll('.sentence a.figure').length"), json!(links));
    for link in 0..links {
        browser.click("#tab-advice");
        browser.eval(&format!("document.querySelectorAll('a.figure').forEach((link, place) => link.id = place === {link} ? 'this-one' : '')"));
        let values = browser.strings("[...document.querySelector('#this-one').closest('.sentence').querySelectorAll('.value')].map(one => one.textContent)");
        browser.click("#this-one");
        let shown = browser.strings("[...document.activeElement.querySelectorAll('.chart [data-subject] .value')].map(one => one.textContent)");
        assert!(!values.is_empty() && !shown.is_empty(), "sentence {link}: {values:?}, its chart: {shown:?}");
        for value in values {
            assert!(
                shown.contains(&value.replace(" native", "")),
                "sentence {link} says {value}, its chart {shown:?}"
            );
        }
    }
}

/// For every group, build and metric: the rows of the chart are the means of the JSON, in order, and the bars are as long as they say.
fn charts_show_the_json(browser: &mut Browser, reports: &[Report]) {
    let charts: usize =
        reports.iter().enumerate().map(|(place, report)| charts_of(browser, place, report)).sum();
    assert!(charts >= 3 * 10, "{charts} charts");
}

/// The charts of one report on each scale; gives how many there were.
fn charts_of(browser: &mut Browser, place: usize, report: &Report) -> usize {
    let key = |group: &str, build: &str, metric: Metric| {
        serde_json::to_string(&json!([group, build, serde_json::to_value(metric).unwrap()])).unwrap()
    };
    browser.click(&format!("#tab-{place}"));
    for field in ["group", "build", "metric"] {
        browser.choose(&format!("#report-{place} select[name={field}]"), "");
    }
    let mut wanted: BTreeMap<String, Vec<(f64, f64, f64, String)>> = BTreeMap::new();
    for mean in &report.summary.means {
        let rows = wanted.entry(key(&mean.group, &mean.build, mean.metric)).or_default();
        rows.push((mean.ratio, mean.low, mean.high, mean.subject.clone()));
    }
    // Without a native build: medians, a chart for each workload.
    let mut medians: BTreeMap<(String, String), Vec<(String, f64)>> = BTreeMap::new();
    for workload in report.workloads.iter().filter(|workload| !workload.build.starts_with("native")) {
        for cell in
            report.cells.iter().filter(|cell| cell.workload == workload.name && cell.build == workload.build)
        {
            for (metric, series) in &cell.metrics {
                let chart = key(&workload.group, &workload.build, *metric);
                if !wanted.contains_key(&chart) {
                    let rows = medians.entry((chart, workload.name.clone())).or_default();
                    rows.push((cell.subject.clone(), series.median));
                }
            }
        }
    }
    let mut charts = 0;
    for scale in ["linear", "log", ""] {
        browser.choose(&format!("#report-{place} select[name=scale]"), scale);
        let shown = browser.eval(&format!(
            "[...document.querySelectorAll('#report-{place} figure.chart')].map(chart => ({{
               key: chart.dataset.chart, scale: chart.dataset.scale, workload: chart.dataset.workload,
               rows: [...chart.querySelectorAll('[data-subject]')].map(row => ({{
                 subject: row.dataset.subject, name: row.querySelector('.name').textContent, value: row.querySelector('.value').textContent,
                 interval: row.querySelector('.interval').textContent, data: [row.dataset.value, row.dataset.low, row.dataset.high].map(Number),
                 bar: (r => [r.left, r.width])(row.querySelector('rect').getBoundingClientRect()),
                 whisker: (w => w && (r => [r.left, r.width])(w.getBoundingClientRect()))(row.querySelector('.whisker')) }})) }}))"
        ));
        let shown = shown.as_array().unwrap();
        assert_eq!(shown.len(), wanted.len() + medians.len());
        for chart in shown {
            let key = chart["key"].as_str().unwrap().to_string();
            let rows = chart["rows"].as_array().unwrap();
            if let Some(workload) = chart["workload"].as_str() {
                let wanted = medians.get_mut(&(key, workload.to_string())).expect("a chart of the JSON");
                wanted.sort_by(|a, b| a.1.total_cmp(&b.1));
                let figure = |row: &serde_json::Value| {
                    (row["subject"].as_str().unwrap().to_string(), row["data"][0].as_f64().unwrap())
                };
                assert_eq!(rows.iter().map(figure).collect::<Vec<_>>(), *wanted);
            } else {
                let wanted = wanted.get_mut(&key).expect("a chart of the JSON");
                wanted.sort_by(|a, b| a.0.total_cmp(&b.0));
                one_chart(rows, wanted, chart["scale"] == "log");
            }
            charts += 1;
        }
    }
    charts
}

fn one_chart(shown: &[serde_json::Value], wanted: &[(f64, f64, f64, String)], log: bool) {
    assert_eq!(shown.len(), wanted.len());
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    for (row, (ratio, low, high, subject)) in shown.iter().zip(wanted) {
        assert_eq!(row["subject"], json!(subject));
        assert!(row["name"].as_str().unwrap().starts_with(subject.as_str()));
        assert_eq!([0, 1, 2].map(|place| number(&row["data"][place])), [*ratio, *low, *high], "{subject}");
        assert_eq!(row["value"], json!(format!("{} ×", four_digits(*ratio))), "{subject}");
        assert_eq!(
            row["interval"],
            json!(format!("{} to {}", four_digits(*low), four_digits(*high))),
            "{subject}"
        );
    }
    // Lengths: every bar and interval in the proportion of the longest, to a pixel.
    let length = |value: f64| if log { value.ln().abs() } else { value };
    let (longest, most) = shown
        .iter()
        .map(|row| (number(&row["bar"][1]), length(number(&row["data"][0]))))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap();
    let pixels = longest / most;
    assert!(longest > 50.0);
    for row in shown {
        let [value, low, high] = [0, 1, 2].map(|place| number(&row["data"][place]));
        assert!((number(&row["bar"][1]) - length(value) * pixels).abs() < 1.5, "{row}");
        if row["whisker"].is_null() {
            assert_eq!(low, high, "no interval is drawn: {row}");
            continue;
        }
        let span = if log { (high / low).ln() } else { high - low };
        assert!((number(&row["whisker"][1]) - span * pixels).abs() < 1.5, "{row}");
        let tip = if log && value < 1.0 {
            number(&row["bar"][0])
        } else {
            number(&row["bar"][0]) + number(&row["bar"][1])
        };
        let start = number(&row["whisker"][0]);
        assert!(
            start <= tip + 1.5 && tip <= start + number(&row["whisker"][1]) + 1.5,
            "the interval is not at the bar's end: {row}"
        );
    }
}

/// All tables of workloads, opened: each cell has its median, its interval's bounds and its ratio, or its reason.
fn tables_show_the_json(browser: &mut Browser, report: &Report) {
    browser.click("#tab-0");
    for field in ["group", "build", "metric"] {
        browser.choose(&format!("#report-0 select[name={field}]"), "");
    }
    browser.eval("document.querySelectorAll('#report-0 details.workload').forEach(box => box.open = false)");
    browser.click("#report-0 .listhead button");
    browser.eval("new Promise(done => setTimeout(done, 200))");
    let tables = browser.eval(
        "Object.fromEntries([...document.querySelectorAll('#report-0 details.workload')].map(box => [box.querySelector('h4').textContent,
           Object.fromEntries([...box.querySelectorAll('tbody tr')].map(row => [row.dataset.subject,
             Object.fromEntries([...row.cells].slice(1).map((cell, place) => {
               const heading = box.querySelector('table').tHead.rows[0].cells[place + 1].dataset;
               return [heading.build + ' ' + heading.metric, [cell.dataset.sort, cell.innerText]];
             }))]))]))",
    );
    let mut compared = 0;
    let mut builds = Vec::new();
    for workload in report.workloads.iter().filter(|workload| !workload.build.starts_with("native")) {
        builds.push((&workload.name, &workload.build));
    }
    for cell in &report.cells {
        // A native program's figure stands in the column of each of its guests' builds.
        let native = cell.build.starts_with("native");
        let columns = builds
            .iter()
            .filter(|(name, build)| *name == &cell.workload && (native || *build == &cell.build));
        for (build, metric) in columns.flat_map(|(_, build)| {
            [Metric::CpuS, Metric::WallS, Metric::PeakBytes].map(|metric| (build, metric))
        }) {
            let key = format!("{build} {}", serde_json::to_value(metric).unwrap().as_str().unwrap());
            let shown = &tables[&cell.workload][&cell.subject][&key];
            let text = shown[1]
                .as_str()
                .unwrap_or_else(|| panic!("no cell for {} {} {key}", cell.workload, cell.subject));
            match (&cell.failure, cell.metrics.get(&metric)) {
                (Some(failure), _) => {
                    assert_eq!(shown[0], json!(""));
                    assert!(text.contains(&failure.reason), "{text}: {}", failure.reason);
                }
                (None, Some(series)) => {
                    assert_eq!(shown[0].as_str().unwrap().parse::<f64>().unwrap(), series.median);
                    for value in [series.median, series.low, series.high] {
                        let scaled = match (metric, value) {
                            (Metric::PeakBytes, v) if v >= 1048576.0 => v / 1048576.0,
                            (Metric::PeakBytes, v) => v / 1024.0,
                            (_, v) if v >= 1.0 => v,
                            (_, v) => v * 1e3,
                        };
                        assert!(text.contains(&four_digits(scaled)), "{text}: {value}");
                    }
                    let native = report
                        .cells
                        .iter()
                        .find(|one| one.workload == cell.workload && one.subject == "native");
                    let ratio = series.median / native.unwrap().metrics[&metric].median;
                    assert!(text.contains(&format!("{} × native", four_digits(ratio))), "{text}: {ratio}");
                    assert_eq!(text.contains("outlier"), !series.outliers.is_empty(), "{text}");
                }
                (None, None) => panic!("the fixture has neither figure nor failure"),
            }
            compared += 1;
        }
    }
    assert!(compared > report.cells.len() * 3, "{compared}");
}

fn filters(browser: &mut Browser, report: &Report) {
    let charts = "[...document.querySelectorAll('#report-0 figure.chart')].map(chart => chart.dataset.chart)";
    let workloads =
        "[...document.querySelectorAll('#report-0 details.workload h4')].map(one => one.textContent)";
    let subjects = "[...new Set([...document.querySelectorAll('#report-0 .chart [data-subject]')].map(row => row.dataset.subject))]";
    browser.choose("#report-0 select[name=group]", "general");
    browser.choose("#report-0 select[name=build]", "stock");
    browser.choose("#report-0 select[name=metric]", "peak_bytes");
    assert_eq!(browser.strings(charts), ["[\"general\",\"stock\",\"peak_bytes\"]"]);
    assert_eq!(browser.strings(workloads), ["sqlite", "zstd", "python"]);

    // The workload's name is typed.
    browser.click("#report-0 input[type=search]");
    browser.call("Input.insertText", json!({ "text": "ZST" }));
    assert_eq!(browser.strings(workloads), ["zstd"]);
    browser.eval("{ const box = document.querySelector('#report-0 input[type=search]'); box.value = ''; box.dispatchEvent(new Event('input')); }");

    for mode in ["native", "ahead-of-time", "just-in-time"] {
        browser.click(&format!("#report-0 input[name=mode-{mode}]"));
    }
    let shown = browser.strings(subjects);
    let interpreters: Vec<&str> = report
        .subjects
        .iter()
        .filter(|subject| subject.mode == Mode::Interpreter)
        .map(|subject| subject.name.as_str())
        .collect();
    assert!(!shown.is_empty() && shown.len() == interpreters.len(), "{shown:?}");
    assert!(shown.iter().all(|name| interpreters.contains(&name.as_str())), "{shown:?}");
    browser.click("#report-0 input[name=mode-interpreter]");
    assert_eq!(browser.strings(charts), Vec::<String>::new());
    assert_eq!(
        browser.eval("document.querySelector('#report-0 .empty').textContent"),
        json!("No figure passes these filters.")
    );
    for mode in ["native", "ahead-of-time", "just-in-time", "interpreter"] {
        browser.click(&format!("#report-0 input[name=mode-{mode}]"));
    }
    browser.choose("#report-0 select[name=group]", "libsodium");
    browser.choose("#report-0 select[name=metric]", "cpu_s");
    assert_eq!(browser.strings(charts), ["[\"libsodium\",\"stock\",\"cpu_s\"]"]);
    // A choice that the others would leave empty: they give way.
    browser.choose("#report-0 select[name=build]", "modern");
    browser.choose("#report-0 select[name=group]", "general");
    assert_eq!(browser.strings(charts), ["[\"general\",\"stock\",\"cpu_s\"]"]);
    browser.choose("#report-0 select[name=build]", "modern");
    assert_eq!(browser.strings(charts), ["[\"libsodium\",\"modern\",\"cpu_s\"]"]);
    browser.choose("#report-0 select[name=build]", "stock");
}

/// A click on a heading sorts up, another down; failures stay last; static tables sort too.
fn sorting(browser: &mut Browser) {
    browser.eval("document.querySelectorAll('#report-0 details.workload').forEach(box => { box.open = box.querySelector('h4').textContent === 'scrypt'; })");
    browser.eval("new Promise(done => setTimeout(done, 100))");
    let heading = "#report-0 details[open] th[data-build=stock] button";
    let column = "[...document.querySelectorAll('#report-0 details[open] tbody tr')].map(row => row.cells[1].dataset.sort)";
    for (direction, sign) in [("ascending", 1.0), ("descending", -1.0)] {
        browser.click(heading);
        assert_eq!(
            browser.eval("document.querySelector('#report-0 details[open] th[data-build=stock]').ariaSort"),
            json!(direction)
        );
        let values = browser.strings(column);
        let figures: Vec<f64> = values
            .iter()
            .filter(|value| !value.is_empty())
            .map(|value| sign * value.parse::<f64>().unwrap())
            .collect();
        assert!(figures.len() > 5 && figures.is_sorted(), "{direction}: {values:?}");
        assert!(
            values.len() > figures.len() && values[figures.len()..].iter().all(String::is_empty),
            "failures last: {values:?}"
        );
    }
    let subjects = |browser: &mut Browser| {
        browser.strings(&format!("({FIRST_COLUMN})([...document.querySelectorAll('#report-0 h3')].find(h => h.textContent === 'Subjects').parentNode.querySelectorAll('tbody tr'))"))
    };
    let before = subjects(browser);
    browser.eval("[...document.querySelectorAll('#report-0 h3')].find(h => h.textContent === 'Subjects').parentNode.querySelector('th').id = 'by-name'");
    browser.click("#by-name button");
    let mut wanted = before.clone();
    wanted.sort();
    assert_eq!(subjects(browser), wanted);
    assert_ne!(before, wanted);
}

fn themes(browser: &mut Browser) {
    let light = |browser: &mut Browser| {
        let paper =
            browser.eval("getComputedStyle(document.body).backgroundColor").as_str().unwrap().to_string();
        let first: u32 = paper.trim_start_matches("rgb(").split(',').next().unwrap().parse().unwrap();
        first > 128
    };
    assert!(light(browser));
    browser.prefer("dark");
    assert!(!light(browser), "the system's wish");
    for (label, is_light) in [("Theme: light", true), ("Theme: dark", false), ("Theme: automatic", false)] {
        browser.click("#theme");
        assert_eq!(browser.eval("document.querySelector('#theme').textContent"), json!(label));
        assert_eq!(light(browser), is_light, "{label}");
    }
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        // Text against its background: at least 4.5 to 1 (WCAG 2.2, 1.4.3).
        let poor = browser.strings(CONTRAST);
        assert_eq!(poor, Vec::<String>::new(), "{scheme}");
    }
    browser.prefer("light");
}

/// Elements with text of their own whose contrast is below 4.5.
const CONTRAST: &str = "(() => {
  const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number); return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const poor = new Set();
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), ink = light(e.closest('svg') ? style.fill : style.color);
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (contrast < 4.5) poor.add(e.tagName + '.' + (e.getAttribute('class') || '') + ' ' + contrast.toFixed(2));
  }
  return [...poor];
})()";

/// The button leads to a file that is the report, to the last digit of its seed.
fn download(browser: &mut Browser, report: &Report) {
    let folder = std::env::temp_dir().join(format!("mote-lab-download-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    browser.call("Page.setDownloadBehavior", json!({ "behavior": "allow", "downloadPath": folder }));
    browser.click("#report-0 .download");
    let file = folder.join("speed-2026-11-22.json");
    for _ in 0..500 {
        if file.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let read: Report = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::to_value(report).unwrap());
    assert!(read.seed > 1 << 53);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Tabs, sorting and a box that is opened, without a mouse.
fn keyboard(browser: &mut Browser, page: &Page) {
    open(browser, page);
    let focused =
        "document.activeElement.id || document.activeElement.className || document.activeElement.tagName";
    browser.key("Tab", 9);
    assert_eq!(browser.eval(focused), json!("skip"));
    browser.key("Tab", 9);
    assert_eq!(browser.eval(focused), json!("theme"));
    browser.key("Tab", 9);
    assert_eq!(browser.eval(focused), json!("tab-advice"));
    for (key, code, wanted) in [
        ("ArrowRight", 39, "tab-0"),
        ("End", 35, "tab-2"),
        ("ArrowRight", 39, "tab-advice"),
        ("ArrowLeft", 37, "tab-2"),
        ("Home", 36, "tab-advice"),
        ("ArrowRight", 39, "tab-0"),
    ] {
        browser.key(key, code);
        assert_eq!(browser.eval(focused), json!(wanted));
        assert_eq!(browser.eval("document.querySelector('[aria-selected=true]').id"), json!(wanted));
    }
    // Everything that can be clicked in the panel is reached with Tab and shows that it is.
    let mut reached = Vec::new();
    for _ in 0..400 {
        browser.key("Tab", 9);
        let here = browser.eval("(e => [e.tagName, getComputedStyle(e).outlineStyle, e.name || e.textContent.slice(0, 20)])(document.activeElement)");
        if here[0] == "BODY" {
            break;
        }
        assert_ne!(here[1], json!("none"), "{here}");
        reached.push(here[0].as_str().unwrap().to_string());
    }
    for kind in ["SELECT", "INPUT", "BUTTON", "SUMMARY", "DIV"] {
        assert!(reached.iter().any(|one| one == kind), "{kind} in {reached:?}");
    }
    let focusable = browser.eval(
        "[...document.querySelectorAll('#report-0 :is(button, select, input, summary)')].filter(e => e.checkVisibility()).length",
    );
    assert!(reached.len() as u64 >= focusable.as_u64().unwrap(), "{} of {focusable}", reached.len());
}

/// Elements that reach over the right edge of a phone, outside the boxes that scroll.
const BEYOND: &str = "[...document.querySelectorAll('main *')]
  .filter(e => e.getClientRects().length && !e.closest('.scroll, svg') && e.getBoundingClientRect().right > 360.5)
  .map(e => e.tagName + '.' + e.className)";

/// 360 CSS pixels: nothing is wider than the screen but what scrolls by itself.
fn phone(browser: &mut Browser, page: &Page, reports: usize) {
    browser.size(360, 740, true);
    browser.open(&page.0);
    for tab in std::iter::once("advice".to_string()).chain((0..reports).map(|place| place.to_string())) {
        browser.click(&format!("#tab-{tab}"));
        assert_eq!(
            browser.eval("[innerWidth, document.documentElement.scrollWidth]"),
            json!([360, 360]),
            "tab {tab}"
        );
        let beyond = browser.strings(BEYOND);
        assert_eq!(beyond, Vec::<String>::new(), "tab {tab}");
    }
    browser.size(1200, 900, false);
}

/// Names that are markup, in each place that a report has for text.
fn hostile_names_stay_text(browser: &mut Browser) {
    let evil = "\"'><img src=x onerror=alert(2)></script><script>alert(1)</script><!--<script>{{script}}";
    let mut report = fixture::speed();
    for cell in &mut report.cells {
        cell.subject = cell.subject.replace("wasmi", evil);
        cell.workload = cell.workload.replace("aead", evil);
        cell.build = cell.build.replace("simd", evil);
        if let Some(failure) = &mut cell.failure {
            failure.reason = evil.into();
        }
    }
    for workload in &mut report.workloads {
        workload.name = workload.name.replace("aead", evil);
        workload.build = workload.build.replace("simd", evil);
        workload.group = workload.group.replace("general", evil);
        workload.sha256 = evil.into();
    }
    for subject in &mut report.subjects {
        subject.name = subject.name.replace("wasmi", evil);
        for text in [&mut subject.runtime, &mut subject.command] {
            *text = evil.into();
        }
        subject.version = Some(evil.into());
        subject.features = vec![evil.into(), "threads".into(), "components".into()];
    }
    for mean in &mut report.summary.means {
        mean.subject = mean.subject.replace("wasmi", evil);
        mean.build = mean.build.replace("simd", evil);
        mean.group = mean.group.replace("general", evil);
    }
    for one in &mut report.summary.comparisons {
        one.subject = one.subject.replace("wasmi", evil);
        one.baseline = evil.into();
    }
    for text in [
        &mut report.suite,
        &mut report.started,
        &mut report.machine.cpu,
        &mut report.machine.system,
        &mut report.machine.kernel,
    ] {
        *text = evil.into();
    }
    report.machine.governor = Some(evil.into());
    report.machine.cpu_features = vec![evil.into()];
    report.warnings = vec![evil.into(); 9];

    let page = Page::write("hostile", &[report.clone(), report.clone()]);
    browser.open(&page.0);
    let scripts = browser.eval("document.scripts.length");
    browser.click("#tab-1");
    for field in ["group", "build", "metric"] {
        browser.choose(&format!("#report-1 select[name={field}]"), "");
    }
    browser.eval("document.querySelectorAll('#report-1 details').forEach(box => box.open = true)");
    browser.eval("new Promise(done => setTimeout(done, 100))");
    assert_eq!(browser.eval("document.querySelectorAll('img').length"), json!(0));
    assert_eq!(
        (scripts, browser.eval("document.scripts.length")),
        (json!(4), json!(4)),
        "the legend, two reports, the script"
    );
    let names = browser.strings(
        "[...document.querySelectorAll('#report-1 .chart [data-subject] .name')].map(one => one.textContent)",
    );
    assert!(names.iter().any(|name| name == evil), "{names:?}");
    let embedded: serde_json::Value =
        serde_json::from_str(browser.eval("document.getElementById('json-1').textContent").as_str().unwrap())
            .unwrap();
    assert_eq!(embedded, serde_json::to_value(&report).unwrap());
    browser.size(360, 740, true);
    assert_eq!(browser.strings(BEYOND), Vec::<String>::new());
    assert_eq!(browser.eval("document.documentElement.scrollWidth"), json!(360));
    browser.size(1200, 900, false);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

fn one_report_and_none(browser: &mut Browser) {
    for reports in [vec![], vec![fixture::compile()]] {
        let page = Page::write("few", &reports);
        browser.open(&page.0);
        assert_eq!(browser.eval("document.querySelectorAll('[role=tab]').length"), json!(reports.len() + 1));
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
}

/// Reports of real runs, not of a fixture: one of three rounds, one that was interrupted before its first.
#[test]
fn measured_reports() {
    let read = |text: &str| serde_json::from_str::<Report>(text).unwrap();
    let reports =
        [read(include_str!("reports/compile.json")), read(include_str!("reports/interrupted.json"))];
    let page = Page::write("measured", &reports);
    let mut browser = Browser::start();
    open(&mut browser, &page);
    answers_lead_to_charts(&mut browser, 4);
    assert!(charts_of(&mut browser, 0, &reports[0]) >= 3 * 5);
    assert_eq!(charts_of(&mut browser, 1, &reports[1]), 0);
    let empty = browser.eval("document.querySelector('#report-1 .empty').textContent");
    assert_eq!(empty, json!("No figure passes these filters."));
    phone(&mut browser, &page, reports.len());
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// What `MOTE_LAB_SCREENSHOTS=DIR` leaves to look at.
#[test]
fn pictures() {
    let mut browser = Browser::start();
    let page = Page::write("pictures", &all());
    for (name, width, phone, scheme) in [
        ("light", 1200, false, "light"),
        ("dark", 1200, false, "dark"),
        ("phone", 360, true, "light"),
        ("phone-dark", 360, true, "dark"),
    ] {
        browser.size(width, 900, phone);
        browser.prefer(scheme);
        browser.open(&page.0);
        assert_eq!(
            browser.eval("matchMedia('(prefers-color-scheme: dark)').matches"),
            json!(scheme == "dark")
        );
        browser.screenshot(&format!("{name}-advice"), 0, 1500);
        browser.click("#tab-0");
        for part in 0..4 {
            browser.screenshot(&format!("{name}-speed-{part}"), part * 1300, 1300);
        }
    }
}
