//! Verdicts on real processes: the same engine twice is unsure, one that was slowed by 5% is slower.
//!
//! Takes some ten minutes: `cargo test -p mote-lab --test verdicts -- --ignored --nocapture`, with `mote` on PATH or in `bin/`.
//! `MOTE_LAB_REPETITIONS` says how often it is measured (default 100), `MOTE_LAB_ROUNDS` in how many rounds (default: the program's own).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mote_lab::analysis::analyse;
use mote_lab::record::{Metric, Report, Verdict};

/// Steps of the guest's loop: some 60 ms.
const STEPS: u32 = 45_000_000;

/// How many runs make a group of workloads.
const GROUP: usize = 10;

/// A loop of arithmetic and memory accesses that prints one line at its end.
fn guest(steps: u32) -> Vec<u8> {
    let text = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 17)
            (data (i32.const 0) "\08\00\00\00\05\00\00\00done\n")
            (func (export "_start") (local $left i32) (local $state i64) (local $place i32)
                (local.set $left (i32.const {steps}))
                (loop $again
                    (local.set $state (i64.add (i64.mul (local.get $state) (i64.const 6364136223846793005)) (i64.const 1442695040888963407)))
                    (local.set $place (i32.add (i32.const 64) (i32.shl (i32.wrap_i64 (i64.shr_u (local.get $state) (i64.const 46))) (i32.const 2))))
                    (i32.store (local.get $place) (i32.add (i32.load (local.get $place)) (i32.wrap_i64 (local.get $state))))
                    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
                (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32)))))"#
    );
    wat::parse_str(text).unwrap()
}

/// A peer that runs `mote` on the module it is given, or always on another.
fn peer(name: &str, module: &str) -> String {
    format!(
        r#"name = "{name}"
program = "mote"
version = ["{{program}}", "--version"]
[install]
kind = "none"
reason = "a test's"
[[subjects]]
name = "{name}"
mode = "ahead-of-time"
optimised = true
prepare = ["{{program}}", "compile", "--quiet", "-o", "{{artifact}}", "{module}"]
run = ["{{program}}", "run", "--dir", "{{dir}}::/", "{{artifact}}", "{{args}}"]
extension = ".mote"
builds = ["stock"]
"#
    )
}

/// Runs the lab on the module once.
fn measure(folder: &Path, module: &Path, seed: usize) -> Report {
    let json = folder.join("report.json");
    let bin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bin");
    let mut path = vec![bin.canonicalize().unwrap_or(bin)];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_mote-lab"));
    command
        .arg("run")
        .arg(module)
        .args(["--peers", "mote,mote-again,mote-slower", "--seed", &seed.to_string()])
        .arg("--json")
        .arg(&json);
    if let Ok(rounds) = env::var("MOTE_LAB_ROUNDS") {
        command.args(["--rounds", &rounds]);
    }
    command
        .env("PATH", env::join_paths(path).unwrap())
        .env("XDG_CONFIG_HOME", folder.join("config"))
        .env("MOTE_LAB_HOME", folder.join("home"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    mote_lab::compare::read(&json).unwrap()
}

/// How often each subject got each verdict in CPU time: for one workload, or for the group.
fn count(reports: &[Report], single: bool) -> BTreeMap<(String, &'static str), usize> {
    let mut counts = BTreeMap::new();
    for report in reports {
        for comparison in &report.summary.comparisons {
            if comparison.metric == Metric::CpuS && comparison.workload.is_some() == single {
                let verdict = match comparison.verdict {
                    Verdict::Faster => "faster",
                    Verdict::Slower => "slower",
                    Verdict::Unsure => "unsure",
                };
                *counts.entry((comparison.subject.clone(), verdict)).or_default() += 1;
            }
        }
    }
    counts
}

/// The runs of a group as one report with as many workloads.
fn merged(reports: &[Report]) -> Report {
    let mut all = reports[0].clone();
    all.workloads.clear();
    all.cells.clear();
    for (place, report) in reports.iter().enumerate() {
        for mut workload in report.workloads.iter().cloned() {
            workload.name = format!("run{place}");
            all.workloads.push(workload);
        }
        for mut cell in report.cells.iter().cloned() {
            cell.workload = format!("run{place}");
            all.cells.push(cell);
        }
    }
    analyse(&mut all);
    all
}

#[test]
#[ignore = "measures for minutes, and fails on a machine that is too busy"]
fn the_same_engine_is_unsure_and_a_slowed_one_slower() {
    let repetitions = env::var("MOTE_LAB_REPETITIONS").map_or(100, |text| text.parse().unwrap());
    let folder = env::temp_dir().join(format!("mote-lab-verdicts-{}", std::process::id()));
    let peers = folder.join("config/mote-lab/peers");
    fs::create_dir_all(&peers).unwrap();
    let module = folder.join("steps.wasm");
    let slower: PathBuf = folder.join("slower.wasm");
    fs::write(&module, guest(STEPS)).unwrap();
    fs::write(&slower, guest(STEPS / 20 * 21)).unwrap();
    fs::write(peers.join("mote-again.toml"), peer("mote-again", "{wasm}")).unwrap();
    fs::write(peers.join("mote-slower.toml"), peer("mote-slower", slower.to_str().unwrap())).unwrap();

    let mut reports = Vec::new();
    for seed in 0..repetitions {
        let report = measure(&folder, &module, seed);
        for cell in &report.cells {
            assert!(cell.failure.is_none(), "{cell:?}");
        }
        reports.push(report);
    }
    let _ = fs::remove_dir_all(&folder);

    let single = count(&reports, true);
    let groups: Vec<Report> = reports.chunks_exact(GROUP).map(merged).collect();
    let whole = count(&groups, false);
    let of = |counts: &BTreeMap<(String, &str), usize>, subject: &str, verdict| {
        counts.get(&(subject.to_owned(), verdict)).copied().unwrap_or(0)
    };
    println!("{} rounds, {} repetitions: {single:?}", reports[0].rounds, reports.len());
    println!("{} groups of {GROUP}: {whole:?}", groups.len());
    for report in reports.iter().take(3) {
        println!("{:?}", report.warnings);
    }
    assert!(of(&single, "mote-again", "unsure") * 100 >= reports.len() * 95, "the same engine: {single:?}");
    assert_eq!(of(&single, "mote-slower", "faster"), 0, "slowed by 5%: {single:?}");
    assert_eq!(
        of(&whole, "mote-again", "unsure"),
        groups.len(),
        "the same engine over {GROUP} workloads: {whole:?}"
    );
    assert_eq!(
        of(&whole, "mote-slower", "slower"),
        groups.len(),
        "slowed by 5% over {GROUP} workloads: {whole:?}"
    );
}
