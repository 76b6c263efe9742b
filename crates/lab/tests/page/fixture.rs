//! Reports with plausible figures, made from a seed: what a run on many subjects leaves behind, with every kind of failure in it.

use std::collections::{BTreeMap, BTreeSet};

use mote_lab::analysis::analyse;
use mote_lab::record::*;

/// xorshift64*: the fixture is the same in every run.
struct Noise(u64);

impl Noise {
    /// Uniform in 0..1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }
}

pub const HOSTILE: &str = "<script>alert(1)</script>";

fn subject(name: &str, runtime: &str, mode: Mode, features: &[&str]) -> Subject {
    Subject {
        name: name.into(),
        runtime: runtime.into(),
        version: Some(format!("{runtime} 1.2.3")),
        mode,
        optimised: (name.contains("winch") || name.contains("singlepass")).then_some(false),
        command: format!(
            "{{program}} run --dir {{dir}}::/ {{{}}} {{args}}",
            if mode == Mode::AheadOfTime { "artifact" } else { "wasm" }
        ),
        features: features.iter().map(|feature| (*feature).into()).collect(),
        missing: None,
    }
}

fn subjects() -> Vec<Subject> {
    use Mode::{AheadOfTime, Interpreter, JustInTime, Native};
    let mut subjects = vec![
        subject("mote", "mote", AheadOfTime, &["threads"]),
        subject("native", "native", Native, &[]),
        subject("native-nosimd", "native", Native, &[]),
        subject("wasm2c", "wasm2c", AheadOfTime, &[]),
        subject("wasmtime", "wasmtime", AheadOfTime, &["threads", "components"]),
        subject("wasmtime-winch", "wasmtime", AheadOfTime, &["threads", "components"]),
        subject("wasmtime-pulley", "wasmtime", Interpreter, &["threads", "components"]),
        subject("node", "node", JustInTime, &[]),
        subject("wazero", "wazero", AheadOfTime, &[]),
        subject("wasmi", "wasmi", Interpreter, &[]),
        subject("wasm3", "wasm3", Interpreter, &[]),
        subject(HOSTILE, HOSTILE, JustInTime, &["</script><b>"]),
        subject("wavm", "wavm", AheadOfTime, &[]),
    ];
    let wavm = subjects.last_mut().unwrap();
    wavm.missing = Some("no registry has it: <b>build</b> it from source".into());
    wavm.version = None;
    subjects
}

fn factor(subject: &str) -> f64 {
    match subject {
        "native" => 1.0,
        "native-nosimd" => 1.12,
        "mote" => 1.06,
        "wasm2c" => 1.21,
        "wasmtime" => 1.42,
        "wazero" => 1.97,
        "wasmtime-winch" => 2.31,
        "node" => 1.43,
        "wasmtime-pulley" => 14.0,
        "wasmi" => 21.0,
        "wasm3" => 11.7,
        _ => 1.8,
    }
}

/// Samples alone: the analysis finds the rest. One in forty is far off.
fn series(noise: &mut Noise, centre: f64, spread: f64, rounds: usize) -> Series {
    let far = |noise: &mut Noise| if noise.next() > 0.975 { 1.4 } else { 1.0 };
    let samples = (0..rounds).map(|_| centre * (1.0 + spread * (noise.next() - 0.3)) * far(noise)).collect();
    Series { samples, ..Series::default() }
}

fn workload(name: &str, group: &str, build: &str, bytes: u64) -> Workload {
    Workload {
        name: name.into(),
        group: group.into(),
        build: build.into(),
        sha256: format!("{:064x}", bytes * 7919 + build.len() as u64),
        bytes,
    }
}

fn failure(subject: &str, workload: &Workload) -> Option<Failure> {
    let (kind, reason) = match (subject, workload.name.as_str(), workload.build.as_str()) {
        ("wavm", _, _) => (FailureKind::Missing, "no registry has it: <b>build</b> it from source"),
        ("wasm3", _, "modern") => (FailureKind::Unsupported, "no SIMD: \"invalid opcode 0xfd\""),
        ("wasmi", _, "modern") => (FailureKind::Unsupported, "no wide arithmetic"),
        ("wazero", "scrypt", _) => (FailureKind::Crash, "status 139 (SIGSEGV)"),
        ("wasmtime-winch", "sqlite", _) => (FailureKind::WrongOutput, "line 3: expected 4182, printed 4128"),
        ("wasmtime-pulley", "python", _) => (FailureKind::Timeout, "did not end in 300 s"),
        (HOSTILE, "python", _) => (FailureKind::Interrupted, "the run ended before its turn"),
        _ => return None,
    };
    Some(Failure { kind, reason: reason.into() })
}

fn machine() -> Machine {
    Machine {
        cpu: "Example Processor 9000 @ 3.00GHz".into(),
        cpus: 2,
        cpu_features: ["avx2", "bmi2", "avx512f"].map(String::from).to_vec(),
        governor: None,
        hypervisor: Some("KVM".into()),
        kernel: "6.1.0-18-amd64".into(),
        system: "Debian GNU/Linux 12 (bookworm)".into(),
        memory_bytes: 8_343_212_032,
        load_before: [0.12, 0.3, 0.25],
        load_after: [1.02, 0.95, 0.7],
    }
}

struct Plan {
    suite: &'static str,
    started: &'static str,
    seed: u64,
    workloads: Vec<Workload>,
    /// The metric, its value for native and how much a subject's factor counts.
    metrics: Vec<(Metric, f64, f64)>,
}

/// CPU time and memory on programs of two groups in three builds.
pub fn speed() -> Report {
    speed_at("2026-11-22T01:02:03Z", 7)
}

pub fn speed_at(started: &'static str, seed: u64) -> Report {
    let mut workloads = Vec::new();
    for (place, name) in
        ["aead", "auth", "box", "generichash", "scrypt", "sign", "stream", "secretbox_with_a_long_name"]
            .iter()
            .enumerate()
    {
        for build in ["stock", "simd", "modern"] {
            workloads.push(workload(name, "libsodium", build, 90_000 + 1234 * place as u64));
        }
    }
    for (place, name) in ["sqlite", "zstd", "python"].iter().enumerate() {
        workloads.push(workload(name, "general", "stock", 900_000 * (place as u64 + 1)));
    }
    report(Plan {
        suite: "speed",
        started,
        seed,
        workloads,
        metrics: vec![(Metric::CpuS, 0.21, 1.0), (Metric::WallS, 0.22, 1.0), (Metric::PeakBytes, 4.2e6, 0.4)],
    })
}

/// One module that does nothing: start and idle memory.
pub fn compile() -> Report {
    report(Plan {
        suite: "compile",
        started: "2026-11-22T03:04:05Z",
        seed: 11,
        workloads: vec![workload("nothing", "start", "stock", 312)],
        metrics: vec![
            (Metric::StartS, 0.000_61, 1.4),
            (Metric::PrivateBytes, 90_112.0, 1.1),
            (Metric::CompileCpuS, 0.031, 1.2),
        ],
    })
}

/// A user's own module: no native build, so no means.
pub fn own_module() -> Report {
    let mut report = report(Plan {
        suite: "run",
        started: "2026-11-22T05:06:07Z",
        seed: 13,
        workloads: vec![workload("mine", "module", "as given", 31_337)],
        metrics: vec![(Metric::CpuS, 0.4, 1.0)],
    });
    report.subjects.retain(|subject| subject.mode != Mode::Native);
    report.cells.retain(|cell| !cell.subject.starts_with("native"));
    report.workloads.retain(|workload| !workload.build.starts_with("native"));
    analyse(&mut report);
    report
}

fn report(plan: Plan) -> Report {
    let mut noise = Noise(plan.seed);
    let subjects = subjects();
    let mut workloads = plan.workloads;
    // Native programs are builds of their own.
    for name in workloads.iter().map(|one| one.name.clone()).collect::<BTreeSet<_>>() {
        let group = workloads.iter().find(|one| one.name == name).unwrap().group.clone();
        for build in ["native", "native-nosimd"] {
            workloads.push(workload(&name, &group, build, 0));
        }
    }
    let mut cells = Vec::new();
    for workload in &workloads {
        let weight = 0.3 + workload.name.len() as f64 / 7.0;
        for subject in &subjects {
            if (subject.mode == Mode::Native) != workload.build.starts_with("native")
                || subject.mode == Mode::Native && subject.name != workload.build
            {
                continue;
            }
            let failure = failure(&subject.name, workload);
            let mut metrics = BTreeMap::new();
            if failure.is_none() {
                for (metric, native, power) in &plan.metrics {
                    let bend = if subject.name == "native" { 1.0 } else { 0.97 + 0.06 * noise.next() };
                    let centre = native * weight * factor(&subject.name).powf(*power) * bend;
                    metrics.insert(*metric, series(&mut noise, centre, 0.015, 7));
                }
            }
            cells.push(Cell {
                workload: workload.name.clone(),
                build: workload.build.clone(),
                subject: subject.name.clone(),
                metrics,
                failure,
            });
        }
    }
    let mut report = Report {
        schema: SCHEMA,
        suite: plan.suite.into(),
        quick: false,
        complete: plan.suite != "compile",
        started: plan.started.into(),
        duration_s: 4321.0,
        // More than a JavaScript number holds.
        seed: u64::MAX - plan.seed,
        rounds: 7,
        machine: machine(),
        subjects,
        workloads,
        cells,
        summary: Summary::default(),
        warnings: vec![
            "load was 1.02 at the end: other programs ran".into(),
            "aead on wasmi: <i>1</i> outlier".into(),
        ],
    };
    analyse(&mut report);
    report
}
