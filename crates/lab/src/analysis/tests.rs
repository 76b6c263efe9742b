use super::*;
use crate::record::{Failure, FailureKind, Machine, SCHEMA, Series, Subject, Verdict};

fn report(subjects: &[(&str, Mode)], workloads: &[(&str, &str, &str, u64)]) -> Report {
    Report {
        schema: SCHEMA,
        suite: "speed".to_owned(),
        quick: false,
        complete: true,
        started: "2026-11-22T00:00:00Z".to_owned(),
        duration_s: 1.0,
        seed: 1,
        rounds: 7,
        machine: Machine { cpus: 2, ..Machine::default() },
        subjects: subjects
            .iter()
            .map(|(name, mode)| Subject {
                name: (*name).to_owned(),
                runtime: (*name).to_owned(),
                version: None,
                mode: *mode,
                optimised: None,
                command: String::new(),
                features: Vec::new(),
                missing: None,
            })
            .collect(),
        workloads: workloads
            .iter()
            .map(|(group, name, build, bytes)| Workload {
                name: (*name).to_owned(),
                group: (*group).to_owned(),
                build: (*build).to_owned(),
                sha256: String::new(),
                bytes: *bytes,
            })
            .collect(),
        cells: Vec::new(),
        summary: Summary::default(),
        warnings: Vec::new(),
    }
}

fn cell(workload: &str, build: &str, subject: &str, metric: Metric, samples: &[f64]) -> Cell {
    let series = Series { samples: samples.to_vec(), ..Series::default() };
    Cell {
        workload: workload.to_owned(),
        build: build.to_owned(),
        subject: subject.to_owned(),
        metrics: BTreeMap::from([(metric, series)]),
        failure: None,
    }
}

fn failed(workload: &str, build: &str, subject: &str, kind: FailureKind) -> Cell {
    // With a figure that must not count.
    let mut cell = cell(workload, build, subject, Metric::CpuS, &[0.001; 7]);
    cell.failure = Some(Failure { kind, reason: "differs at byte 3".to_owned() });
    cell
}

/// Seven rounds around `median`, the same noise for everybody.
fn rounds(median: f64) -> Vec<f64> {
    [1.03, 0.99, 1.0, 1.2, 0.98, 1.01, 0.97].map(|noise| noise * median).to_vec()
}

const SUBJECTS: [(&str, Mode); 4] = [
    ("mote", Mode::AheadOfTime),
    ("wasmtime", Mode::AheadOfTime),
    ("wasm3", Mode::Interpreter),
    ("native", Mode::Native),
];

/// Four workloads of libsodium natively and for wasm; wasm3 answers wrongly on one.
fn speed() -> Report {
    let names = ["aead", "auth", "box", "sign"];
    let workloads: Vec<_> = names
        .iter()
        .flat_map(|name| [("libsodium", *name, "native", 0), ("libsodium", *name, "stock", 100)])
        .collect();
    let mut report = report(&SUBJECTS, &workloads);
    for (place, name) in names.iter().enumerate() {
        let native = 0.1 * (place + 1) as f64;
        let cpu =
            |build, subject, times: f64| cell(name, build, subject, Metric::CpuS, &rounds(native * times));
        report.cells.push(cpu("native", "native", 1.0));
        report.cells.push(cpu("stock", "mote", [1.0, 1.1, 1.2, 1.3][place]));
        report.cells.push(cpu("stock", "wasmtime", 1.5));
        report.cells.push(match *name {
            "box" => failed(name, "stock", "wasm3", FailureKind::WrongOutput),
            _ => cpu("stock", "wasm3", 10.0),
        });
    }
    report
}

fn near(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < 1e-9
}

#[test]
fn the_mean_is_over_what_every_listed_subject_finished() {
    let mut report = speed();
    analyse(&mut report);
    let geomean = &report.summary.geomean_vs_native;
    assert_eq!(geomean.keys().collect::<Vec<_>>(), ["mote", "native", "wasm3", "wasmtime"]);
    assert!(near(geomean["native"], 1.0));
    // Without "box", which wasm3 did not finish.
    assert!(near(geomean["mote"], (1.0f64 * 1.1 * 1.3).cbrt()), "{geomean:?}");
    assert!(near(geomean["wasmtime"], 1.5));
    assert!(near(geomean["wasm3"], 10.0));
    assert!(report.summary.geomean_vs_native_modern.is_empty());
    assert!(report.summary.means.iter().all(|mean| mean.workloads == 3 && mean.build == "stock"));
    let warned = |what: &str| report.warnings.iter().any(|warning| warning.contains(what));
    assert!(
        warned("the means are over 3 of 4 workloads; left out: box (not finished by wasm3)"),
        "{:?}",
        report.warnings
    );
    assert!(warned("1 cell wrong output, not counted: wasm3 on box (stock)"), "{:?}", report.warnings);
}

#[test]
fn a_subject_that_finished_little_does_not_shrink_the_mean() {
    let mut report = speed();
    for cell in report.cells.iter_mut().filter(|cell| cell.subject == "wasm3" && cell.workload != "aead") {
        *cell = failed(&cell.workload, "stock", "wasm3", FailureKind::Crash);
    }
    analyse(&mut report);
    let geomean = &report.summary.geomean_vs_native;
    assert_eq!(geomean.keys().collect::<Vec<_>>(), ["mote", "native", "wasmtime"]);
    assert!(near(geomean["mote"], (1.0f64 * 1.1 * 1.2 * 1.3).powf(0.25)), "{geomean:?}");
    let wasm3 = report.summary.means.iter().find(|mean| mean.subject == "wasm3").unwrap();
    assert_eq!(wasm3.workloads, 1);
    assert!(near(wasm3.ratio, 10.0));
    assert!(
        report.warnings.iter().any(|warning| warning.contains("wasm3 (finished 1 of 4)")),
        "{:?}",
        report.warnings
    );
}

#[test]
fn every_subject_is_compared_with_mote() {
    let mut report = speed();
    analyse(&mut report);
    let find =
        |subject: &str, workload: Option<&str>| {
            report.summary.comparisons.iter().find(|comparison| {
                comparison.subject == subject && comparison.workload.as_deref() == workload
            })
        };
    let wasmtime = find("wasmtime", Some("auth")).unwrap();
    assert!(near(wasmtime.ratio, 1.5 / 1.1), "{wasmtime:?}");
    assert_eq!(wasmtime.verdict, Verdict::Slower);
    let native = find("native", Some("sign")).unwrap();
    assert!(near(native.ratio, 1.0 / 1.3));
    assert_eq!((native.verdict, native.build.as_str()), (Verdict::Faster, "stock"));
    assert_eq!(find("native", Some("aead")).unwrap().verdict, Verdict::Unsure);
    // A wrong answer is no figure, and the group is what both finished.
    assert!(find("wasm3", Some("box")).is_none());
    assert!(near(find("wasm3", None).unwrap().ratio, 10.0 / (1.0f64 * 1.1 * 1.3).cbrt()));
    assert!(find("mote", None).is_none());
    assert_eq!(report.summary.comparisons.len(), 5 + 4 + 5);
}

#[test]
fn analysing_again_changes_nothing() {
    let mut report = speed();
    analyse(&mut report);
    let text = serde_json::to_string(&report).unwrap();
    analyse(&mut report);
    assert!(serde_json::to_string(&report).unwrap() == text, "the second analysis differs");
    // And the report survives its file.
    let read: Report = serde_json::from_str(&text).unwrap();
    assert!(serde_json::to_string(&read).unwrap() == text, "not what was written");
}

#[test]
fn failed_cells_lose_their_figures() {
    let mut report = speed();
    analyse(&mut report);
    assert!(report.cells.iter().all(|cell| cell.failure.is_none() || cell.metrics.is_empty()));
    let mote = report.cells.iter().find(|cell| cell.subject == "mote").unwrap();
    let series = &mote.metrics[&Metric::CpuS];
    assert!(near(series.median, 0.1) && series.low < 0.1 && series.high > 0.1, "{series:?}");
    assert_eq!(series.outliers, [3]);
}

#[test]
fn start_and_private_memory_of_the_smallest_module() {
    let mut report = report(
        &SUBJECTS,
        &[("start", "large", "stock", 900), ("start", "empty", "stock", 30), ("start", "empty", "native", 0)],
    );
    for (workload, build, subject, start, private) in [
        ("large", "stock", "mote", 0.9, 9e6),
        ("empty", "stock", "mote", 0.002, 65_536.0),
        ("empty", "stock", "wasm3", 0.004, 131_072.0),
        ("empty", "native", "native", 0.001, 32_768.0),
    ] {
        report.cells.push(cell(workload, build, subject, Metric::StartS, &[start; 7]));
        let private = cell(workload, build, subject, Metric::PrivateBytes, &[private]).metrics;
        report.cells.last_mut().unwrap().metrics.extend(private);
    }
    analyse(&mut report);
    let Summary { start_vs_native, private_kb, .. } = &report.summary;
    assert!(
        near(start_vs_native["mote"], 2.0)
            && near(start_vs_native["wasm3"], 4.0)
            && near(start_vs_native["native"], 1.0)
    );
    assert_eq!((private_kb["mote"], private_kb["wasm3"], private_kb["native"]), (64.0, 128.0, 32.0));
}

#[test]
fn a_size_needs_one_sample() {
    let mut report = report(&SUBJECTS, &[("size", "libsodium", "stock", 1)]);
    for (subject, bytes) in [("mote", 100.0), ("wasmtime", 120.0), ("native", 100.5)] {
        report.cells.push(cell("libsodium", "stock", subject, Metric::SizeBytes, &[bytes]));
    }
    analyse(&mut report);
    let verdicts: Vec<_> = report
        .summary
        .comparisons
        .iter()
        .map(|comparison| (comparison.subject.as_str(), comparison.workload.is_some(), comparison.verdict))
        .collect();
    let (slower, unsure) = (Verdict::Slower, Verdict::Unsure);
    assert_eq!(
        verdicts,
        [
            ("wasmtime", true, slower),
            ("wasmtime", false, slower),
            ("native", true, unsure),
            ("native", false, unsure)
        ]
    );
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
}

#[test]
fn doubts_are_told() {
    let mut report = speed();
    report.complete = false;
    report.rounds = 3;
    report.machine.load_before = [6.8, 6.0, 5.0];
    report.machine.load_after = [7.1, 6.0, 5.0];
    report.machine.governor = Some("powersave".to_owned());
    report.machine.hypervisor = Some("QEMU".to_owned());
    for cell in report.cells.iter_mut().filter(|cell| cell.subject == "mote") {
        *cell = self::cell(&cell.workload, "stock", "mote", Metric::CpuS, &[0.001, 0.002, 0.003]);
    }
    analyse(&mut report);
    for doubt in [
        "was interrupted",
        "3 rounds",
        "was 6.80 on 2 processors before",
        "was 7.10 on 2 processors after",
        "governor is powersave",
        "QEMU",
        "4 of 15 cells spread by more than 5% in CPU time: mote on aead (stock) 74%",
        "4 of 15 cells take less than 10 ms",
        "11 of 89 times lie far from the others",
    ] {
        assert!(
            report.warnings.iter().any(|warning| warning.contains(doubt)),
            "{doubt}: {:#?}",
            report.warnings
        );
    }
}

#[test]
fn an_empty_report_has_an_empty_summary() {
    let mut empty = report(&[], &[]);
    analyse(&mut empty);
    assert!(
        empty.summary.means.is_empty() && empty.summary.comparisons.is_empty() && empty.warnings.is_empty()
    );
    let mut only_names = report(&SUBJECTS, &[("g", "w", "stock", 1)]);
    only_names.cells.push(cell("w", "stock", "mote", Metric::CpuS, &[]));
    only_names.cells.push(cell("unknown", "stock", "unknown", Metric::CpuS, &[1.0]));
    analyse(&mut only_names);
    assert!(only_names.summary.means.is_empty() && only_names.summary.comparisons.is_empty());
}
