//! What a run leaves behind: the report's JSON, version 1. docs/lab.md describes every field.
//!
//! Recording writes it, analysis reads the samples and adds estimates and verdicts, the tables and the page show it. Nothing is shown
//! that is not in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the schema; a reader refuses another.
pub const SCHEMA: u32 = 1;

/// One run of one suite.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The suite's name.
    pub suite: String,
    /// Whether fewer rounds or workloads were asked for (`--quick`).
    pub quick: bool,
    /// False when the run was interrupted: some cells have fewer samples than asked for, or none.
    pub complete: bool,
    /// When the run began, RFC 3339, UTC.
    pub started: String,
    /// How long it took, seconds.
    pub duration_s: f64,
    /// Seeds the order of the runs.
    pub seed: u64,
    /// Timed rounds asked for.
    pub rounds: u32,
    /// Where it ran.
    pub machine: Machine,
    /// What was measured, in the suite's order; those that could not be had too.
    pub subjects: Vec<Subject>,
    /// What they ran, in the suite's order.
    pub workloads: Vec<Workload>,
    /// A cell for each workload and subject.
    pub cells: Vec<Cell>,
    /// What follows from the cells.
    pub summary: Summary,
    /// What makes the figures doubtful: load, a governor, outliers.
    pub warnings: Vec<String>,
}

/// The machine's fingerprint.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors that the run could use.
    pub cpus: usize,
    /// Instruction sets that matter here (avx2, avx512f, …).
    pub cpu_features: Vec<String>,
    /// The frequency governor, where the system shows one.
    pub governor: Option<String>,
    /// The hypervisor, when the processor says that there is one.
    pub hypervisor: Option<String>,
    /// `uname -r`.
    pub kernel: String,
    /// PRETTY_NAME of /etc/os-release.
    pub system: String,
    /// MemTotal, bytes.
    pub memory_bytes: u64,
    /// Load averages over 1, 5 and 15 minutes, before the first run.
    pub load_before: [f64; 3],
    /// And after the last.
    pub load_after: [f64; 3],
}

/// How a subject runs code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A native build of the workload's source: the yardstick.
    Native,
    /// Compiled ahead of the timed runs.
    AheadOfTime,
    /// Compiled at the start of each run, or while it runs.
    JustInTime,
    /// Not compiled to machine code.
    Interpreter,
}

/// One way to run a workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// Unique in a report: `mote`, `wasmtime`, `wasmtime-winch`, `native`, `native-nosimd`.
    pub name: String,
    /// The runtime behind it: several subjects may share one.
    pub runtime: String,
    /// What the program said its version is.
    pub version: Option<String>,
    /// How it runs code.
    pub mode: Mode,
    /// Whether its optimising compiler is on, where it has the switch; None where it has not.
    pub optimised: Option<bool>,
    /// The command of a run, with `{wasm}` and the like where they stand.
    pub command: String,
    /// WASI threads and the component model, for the page *Which runtime for whom*.
    pub features: Vec<String>,
    /// Why it was not measured.
    pub missing: Option<String>,
}

/// One program in one build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// Unique in a report together with `build`: `auth`, `sqlite`.
    pub name: String,
    /// `libsodium`, `general`, …: what geometric means are taken over.
    pub group: String,
    /// How the guest was built: `stock`, `simd`, `modern`, `stock-opt`, …
    pub build: String,
    /// SHA-256 of the module, hexadecimal; empty for a workload without one.
    pub sha256: String,
    /// The module's size.
    pub bytes: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// User and system time of the process and of what it waited for, seconds.
    CpuS,
    /// From start to exit, seconds.
    WallS,
    /// Instructions, where the machine counts them.
    Instructions,
    /// The largest resident set, bytes.
    PeakBytes,
    /// Private dirty memory while the guest sleeps, bytes per process.
    PrivateBytes,
    /// CPU time of compiling ahead of time, seconds.
    CompileCpuS,
    /// Wall time of compiling ahead of time, seconds.
    CompileWallS,
    /// The largest resident set of the compiler, bytes.
    CompilePeakBytes,
    /// Start to exit of a module that does nothing, seconds: what to subtract from `CpuS`.
    StartS,
    /// The size of a file or of files, bytes.
    SizeBytes,
}

/// One subject on one workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The workload's name.
    pub workload: String,
    /// The workload's build.
    pub build: String,
    /// The subject's name.
    pub subject: String,
    /// What was measured; empty when it failed.
    pub metrics: BTreeMap<Metric, Series>,
    /// Why there is no figure.
    pub failure: Option<Failure>,
}

/// The samples of one metric in one cell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Series {
    /// In the order in which they were taken, one per round.
    pub samples: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// The 95% confidence interval of the median.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Which samples lie far from the others (their places in `samples`).
    pub outliers: Vec<usize>,
}

/// Why a cell has no figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// One line, for people.
    pub reason: String,
}

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The subject is not on this machine, or the registries do not have it.
    Missing,
    /// The subject cannot run this build (a proposal that it lacks).
    Unsupported,
    /// It ended with a status that the workload does not have.
    Crash,
    /// It did not end in time.
    Timeout,
    /// It printed something else than what is expected.
    WrongOutput,
    /// The run was interrupted before its turn.
    Interrupted,
}

/// What follows from the cells.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Subject → geometric mean of CPU time ÷ native's, stock builds, over the workloads of the group `libsodium` that every listed subject finished.
    pub geomean_vs_native: BTreeMap<String, f64>,
    /// The same for the builds with wide arithmetic and SIMD.
    pub geomean_vs_native_modern: BTreeMap<String, f64>,
    /// Subject → start to exit of the smallest module ÷ the native program's.
    pub start_vs_native: BTreeMap<String, f64>,
    /// Subject → private dirty memory of a sleeping process, kB.
    pub private_kb: BTreeMap<String, f64>,
    /// Every mean with its interval, by group, build and metric.
    pub means: Vec<Mean>,
    /// Each subject against Mote, by group and build, and by workload.
    pub comparisons: Vec<Comparison>,
}

/// A geometric mean of ratios to native.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mean {
    /// The workloads' group.
    pub group: String,
    /// Their build.
    pub build: String,
    /// What was compared.
    pub metric: Metric,
    /// Who.
    pub subject: String,
    /// The geometric mean of (subject's median ÷ native's median).
    pub ratio: f64,
    /// Its 95% interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Over how many workloads.
    pub workloads: usize,
}

/// Subject against baseline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The workloads' group.
    pub group: String,
    /// Their build.
    pub build: String,
    /// One workload, or None for the geometric mean of the group.
    pub workload: Option<String>,
    /// What was compared.
    pub metric: Metric,
    /// Who.
    pub subject: String,
    /// Against whom.
    pub baseline: String,
    /// Subject ÷ baseline: below 1 the subject is better.
    pub ratio: f64,
    /// Its 95% interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// What may be said.
    pub verdict: Verdict,
}

/// What a comparison says about the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The interval lies below 1.
    Faster,
    /// The interval lies above 1.
    Slower,
    /// The interval holds 1, or what lies outside it is too small to matter.
    Unsure,
}
