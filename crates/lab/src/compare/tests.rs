use super::*;
use crate::record::{Cell, Failure, FailureKind, Mode, Series, Subject, Summary};

/// Seven rounds with little noise, another for each `seed`.
fn rounds(median: f64, seed: usize) -> Vec<f64> {
    let noise = [1.004, 0.997, 1.0, 1.012, 0.996, 1.003, 0.999];
    (0..noise.len()).map(|round| median * noise[(round * 3 + seed) % noise.len()]).collect()
}

/// Three workloads, native and mote, on a machine of this speed.
fn report(speed: f64, mote: f64, with_native: bool) -> Report {
    let mut subjects = vec![("mote", Mode::AheadOfTime)];
    if with_native {
        subjects.push(("native", Mode::Native));
    }
    let names = ["aead", "auth", "box"];
    let workload = |name: &&str, build: &str, bytes| Workload {
        name: (*name).to_owned(),
        group: "libsodium".to_owned(),
        build: build.to_owned(),
        sha256: format!("{name}-{build}"),
        bytes,
    };
    let cell = |name: &str, build: &str, subject: &str, metrics: &[(Metric, Vec<f64>)]| Cell {
        workload: name.to_owned(),
        build: build.to_owned(),
        subject: subject.to_owned(),
        metrics: metrics
            .iter()
            .map(|(metric, samples)| {
                let series = Series { samples: samples.clone(), ..Series::default() };
                (*metric, series)
            })
            .collect(),
        failure: None,
    };
    let mut cells = Vec::new();
    for (seed, name) in names.iter().enumerate() {
        if with_native {
            cells.push(cell(name, "native", "native", &[(Metric::CpuS, rounds(0.1 / speed, seed))]));
        }
        let samples =
            [(Metric::CpuS, rounds(0.1 * mote / speed, seed + 1)), (Metric::PeakBytes, vec![3e6; 7])];
        cells.push(cell(name, "stock", "mote", &samples));
    }
    Report {
        schema: SCHEMA,
        suite: "speed".to_owned(),
        quick: false,
        complete: true,
        started: "2026-11-22T00:00:00Z".to_owned(),
        duration_s: 1.0,
        seed: 1,
        rounds: 7,
        machine: Machine::default(),
        subjects: subjects
            .into_iter()
            .map(|(name, mode)| Subject {
                name: name.to_owned(),
                runtime: name.to_owned(),
                version: Some("1".to_owned()),
                mode,
                optimised: None,
                command: String::new(),
                features: Vec::new(),
                missing: None,
            })
            .collect(),
        workloads: names
            .iter()
            .flat_map(|name| [workload(name, "native", 0), workload(name, "stock", 9)])
            .collect(),
        cells,
        summary: Summary::default(),
        warnings: Vec::new(),
    }
}

fn cpu<'a>(changes: &'a Changes, workload: Option<&str>) -> &'a Row {
    let section = changes.sections.iter().find(|section| section.metric == Metric::CpuS).unwrap();
    let of_mote = |row: &&Row| row.subject == "mote" && row.workload.as_deref() == workload;
    section.rows.iter().find(of_mote).unwrap()
}

#[test]
fn a_busier_machine_is_no_change() {
    // Half as fast on the second day: native tells.
    let changes = changes(&report(1.0, 1.2, true), &report(0.5, 1.2, true));
    let row = cpu(&changes, None);
    assert_eq!((row.verdict, row.relative), (Verdict::Unsure, true));
    assert!((row.ratio.value - 1.0).abs() < 0.01, "{row:?}");
    assert!(!changes.slower());
    let text = changes.to_string();
    assert!(text.contains("libsodium, stock: CPU time, relative to native of the same run"), "{text}");
    assert!(!text.contains('*'), "{text}");
}

#[test]
fn five_percent_slower_is_slower() {
    let (old, new) = (report(1.0, 1.2, true), report(0.9, 1.26, true));
    let changes = changes(&old, &new);
    for workload in [None, Some("aead"), Some("box")] {
        let row = cpu(&changes, workload);
        assert_eq!(row.verdict, Verdict::Slower, "{row:?}");
        assert!(row.ratio.low > 1.01 && row.ratio.high < 1.1, "{row:?}");
    }
    assert!(changes.slower());
    assert!(!super::changes(&new, &old).slower());
    assert_eq!(cpu(&super::changes(&new, &old), None).verdict, Verdict::Faster);
    let text = compare(&old, &new);
    let line = text.lines().find(|line| line.contains("auth")).unwrap();
    assert!(line.contains("120.000 ms") && line.contains("140.000 ms") && line.ends_with("slower"), "{text}");
    assert!(text.contains("peak memory") && text.contains("3.000 MB"), "{text}");
}

#[test]
fn without_native_the_times_are_compared_as_they_are_and_marked() {
    let changes = changes(&report(1.0, 1.2, false), &report(0.5, 1.2, false));
    let row = cpu(&changes, None);
    assert_eq!((row.verdict, row.relative), (Verdict::Slower, false));
    assert!(changes.to_string().contains("*: not relative to native"), "{changes}");
}

#[test]
fn what_differs_besides_is_told() {
    let old = report(1.0, 1.2, true);
    let mut new = old.clone();
    assert!(changes(&old, &new).notes.is_empty());
    new.machine.cpu = "other".to_owned();
    new.workloads[1].sha256 = "changed".to_owned();
    new.subjects[0].version = Some("2".to_owned());
    new.suite = "size".to_owned();
    new.complete = false;
    let text = compare(&old, &new);
    for note in [
        "different machines: processor  and other",
        "different modules, by their hashes: aead (stock)",
        "different versions: mote: 1 and 2",
        "different suites: speed and size",
        "the new report was interrupted",
    ] {
        assert!(text.contains(&format!("warning: {note}\n")), "{note}: {text}");
    }
}

#[test]
fn failed_and_absent_cells_do_not_count() {
    let old = report(1.0, 1.2, true);
    let mut new = report(1.0, 1.2, true);
    new.cells.retain(|cell| cell.workload != "box");
    for cell in new.cells.iter_mut().filter(|cell| cell.workload == "auth") {
        cell.failure = Some(Failure { kind: FailureKind::WrongOutput, reason: String::new() });
    }
    let changes = changes(&old, &new);
    let rows: usize = changes.sections.iter().map(|section| section.rows.len()).sum();
    // Mote's CPU time and memory, native's CPU time: a row for aead and one for the group each.
    assert_eq!(rows, 6, "{changes}");
    new.cells.clear();
    assert!(compare(&old, &new).contains("no finished cell in common"));
}

#[test]
fn other_schemas_and_other_files_are_refused() {
    let text = serde_json::to_string(&report(1.0, 1.2, true)).unwrap();
    assert_eq!(parse(&text).unwrap().rounds, 7);
    let other = text.replacen("\"schema\":1", "\"schema\":2", 1);
    assert!(parse(&other).unwrap_err().to_string().contains("schema 2"));
    for broken in ["", "[]", "{}", "{\"schema\":1}", &text[..text.len() / 2]] {
        assert!(parse(broken).unwrap_err().to_string().contains("report of mote-lab"), "{broken}");
    }
    let error = format!("{:#}", read(Path::new("/nonexistent/report.json")).unwrap_err());
    assert!(error.contains("/nonexistent/report.json"), "{error}");
}

#[test]
fn a_long_comparison_shows_what_changed() {
    let mut old = report(1.0, 1.2, true);
    let template: Vec<Cell> = old.cells.iter().filter(|cell| cell.workload == "aead").cloned().collect();
    let workloads: Vec<Workload> =
        old.workloads.iter().filter(|workload| workload.name == "aead").cloned().collect();
    for number in 0..30 {
        let name = format!("program{number}");
        old.cells.extend(template.iter().cloned().map(|cell| Cell { workload: name.clone(), ..cell }));
        old.workloads
            .extend(workloads.iter().cloned().map(|workload| Workload { name: name.clone(), ..workload }));
    }
    let mut new = old.clone();
    for cell in new.cells.iter_mut().filter(|cell| cell.workload == "program7" && cell.subject == "mote") {
        for sample in &mut cell.metrics.get_mut(&Metric::CpuS).unwrap().samples {
            *sample *= 1.2;
        }
    }
    let text = compare(&old, &new);
    assert!(text.contains("program7") && !text.contains("program8"), "{text}");
    assert!(text.contains("and 65 workloads that are unsure"), "{text}");
}
