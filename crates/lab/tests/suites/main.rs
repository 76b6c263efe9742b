//! `mote-lab` from the outside, with real engines: wasmi as an engine of the user's own, under several names and with several arguments, so
//! that right answers, wrong ones, crashes and hangs come from the same program; and whatever else is on this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mote_lab::record::{Cell, FailureKind, Metric, Mode, Report};

/// Prints its first argument; `trap` traps, `loop` does not end, `fail` exits with 3.
const GUEST: &str = r#"
(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start") (local $text i32) (local $first i32)
    (drop (call $args (i32.const 1024) (i32.const 2048)))
    (local.set $text (i32.load (i32.const 1028)))
    (local.set $first (i32.load (local.get $text)))
    (if (i32.eq (local.get $first) (i32.const 0x70617274)) (then unreachable))
    (if (i32.eq (local.get $first) (i32.const 0x706f6f6c)) (then (loop $forever (br $forever))))
    (if (i32.eq (local.get $first) (i32.const 0x6c696166)) (then (call $exit (i32.const 3))))
    ;; four bytes and a line break
    (i32.store8 offset=4 (local.get $text) (i32.const 10))
    (i32.store (i32.const 0) (local.get $text))
    (i32.store (i32.const 4) (i32.const 5))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))
"#;

/// A home of the lab's own, with peers and a module.
struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Lab {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("mote-lab/peers")).unwrap();
        fs::write(folder.path().join("guest.wasm"), wat::parse_str(GUEST).unwrap()).unwrap();
        Lab { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An engine of the user's own: wasmi, which is given these arguments.
    fn peer(&self, name: &str, arguments: &str) {
        let program = engines().join("wasmi-command");
        assert!(
            program.is_file(),
            "{} is not there: `cargo test` builds it, `cargo test --test suites` needs `cargo build --examples` before",
            program.display()
        );
        let text = format!(
            r#"
                name = "{name}"
                program = "wasmi-command"
                version = ["{{program}}", "--version"]
                [install]
                kind = "none"
                reason = "it is built with the tests"
                [[subjects]]
                name = "{name}"
                mode = "interpreter"
                run = ["{{program}}", "{{wasm}}", {arguments}]
                builds = ["stock"]
            "#
        );
        fs::write(self.path(&format!("mote-lab/peers/{name}.toml")), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mote-lab"));
        command
            .args(arguments)
            .env("XDG_CONFIG_HOME", self.folder.path())
            .env("MOTE_LAB_HOME", self.path("home"));
        let path = std::env::var("PATH").unwrap();
        command
            .env("PATH", format!("{}:{path}", engines().display()))
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the guest in these subjects and reads the report.
    fn report(&self, peers: &str, more: &[&str]) -> (Output, Report) {
        let (module, json) = (self.path("guest.wasm"), self.path("report.json"));
        let mut arguments =
            vec!["run", module.to_str().unwrap(), "--peers", peers, "--json", json.to_str().unwrap()];
        arguments.extend(more);
        let output = self.run(&arguments);
        let text = fs::read_to_string(&json)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        (output, serde_json::from_str(&text).unwrap())
    }
}

/// Where cargo puts the examples that it builds with the tests.
fn engines() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_mote-lab")).with_file_name("examples")
}

fn cell<'a>(report: &'a Report, subject: &str) -> &'a Cell {
    report.cells.iter().find(|cell| cell.subject == subject).unwrap_or_else(|| panic!("no cell of {subject}"))
}

fn failure(report: &Report, subject: &str) -> (FailureKind, String) {
    let failure = cell(report, subject).failure.clone().unwrap_or_else(|| panic!("{subject} did not fail"));
    assert!(cell(report, subject).metrics.is_empty());
    (failure.kind, failure.reason)
}

#[test]
fn every_round_gives_a_sample_of_each_metric() {
    let lab = Lab::new();
    lab.peer("one", r#""{args}""#);
    lab.peer("two", r#""{args}""#);
    let (output, report) = lab.report("one,two", &["--rounds", "4", "--seed", "7", "--", "same"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(report.complete && report.rounds == 4 && report.seed == 7 && report.suite == "module");
    for subject in ["one", "two"] {
        let cell = cell(&report, subject);
        assert!(cell.failure.is_none(), "{:?}", cell.failure);
        for metric in [Metric::CpuS, Metric::WallS, Metric::PeakBytes] {
            let series = &cell.metrics[&metric];
            assert_eq!(series.samples.len(), 4, "{metric:?}");
            assert!(
                series.low <= series.median && series.median <= series.high && series.median > 0.0,
                "{series:?}"
            );
        }
        // An interpreter with a page of wasm memory: neither nothing nor the lab's own memory.
        let peak = cell.metrics[&Metric::PeakBytes].median;
        assert!((500e3..200e6).contains(&peak), "{peak}");
    }
    let workload = &report.workloads[0];
    let digest: String = {
        use sha2::Digest;
        sha2::Sha256::digest(fs::read(lab.path("guest.wasm")).unwrap())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    };
    assert_eq!((workload.name.as_str(), &workload.sha256), ("guest", &digest));
    assert!(String::from_utf8_lossy(&output.stdout).contains("CPU time"));
    assert!(report.subjects.iter().all(|subject| subject.name != "one"
        || subject.version.as_deref() == Some(concat!("wasmi-command ", env!("CARGO_PKG_VERSION")))));
}

#[test]
fn wrong_answers_crashes_and_hangs_are_cells_with_reasons() {
    let lab = Lab::new();
    lab.peer("right", r#""{args}""#);
    lab.peer("right-too", r#""{args}""#);
    lab.peer("wrong", r#""else""#);
    lab.peer("trapping", r#""trap""#);
    lab.peer("failing", r#""fail""#);
    lab.peer("hanging", r#""loop""#);
    let (output, report) = lab.report(
        "right,right-too,wrong,trapping,failing,hanging",
        &["--rounds", "2", "--timeout", "2", "--", "same"],
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(cell(&report, "right").failure.is_none() && cell(&report, "right-too").failure.is_none());
    let (kind, reason) = failure(&report, "wrong");
    assert_eq!(
        (kind, reason.as_str()),
        (FailureKind::WrongOutput, "line 1: got \"else\", expected \"same\"")
    );
    let (kind, reason) = failure(&report, "trapping");
    assert!(
        kind == FailureKind::Crash && reason.contains("exit code 134") && reason.contains("unreachable"),
        "{reason}"
    );
    assert_eq!(failure(&report, "failing"), (FailureKind::Crash, "exit code 3".into()));
    assert_eq!(failure(&report, "hanging"), (FailureKind::Timeout, "did not end within 2 s".into()));
    assert!(report.complete && String::from_utf8_lossy(&output.stdout).contains("failed"));
}

#[test]
fn a_native_program_is_the_yardstick_and_its_output_the_right_one() {
    let lab = Lab::new();
    lab.peer("right", r#""{args}""#);
    lab.peer("wrong", r#""else""#);
    lab.peer("wrong-too", r#""else""#);
    let (_, report) =
        lab.report("right,wrong,wrong-too", &["--rounds", "2", "--native", "/bin/echo", "--", "same"]);
    assert_eq!(
        report.subjects.iter().find(|subject| subject.name == "native").map(|subject| subject.mode),
        Some(Mode::Native)
    );
    assert!(cell(&report, "native").failure.is_none(), "{:?}", cell(&report, "native").failure);
    assert!(cell(&report, "right").failure.is_none());
    assert_eq!(failure(&report, "wrong").0, FailureKind::WrongOutput);
}

#[test]
fn a_guest_gets_a_copy_of_the_directory_each_time() {
    let lab = Lab::new();
    fs::create_dir(lab.path("data")).unwrap();
    fs::write(lab.path("data/file"), "as it was").unwrap();
    // The shell is the program that is measured: it changes the file that it finds.
    fs::write(
        lab.path("mote-lab/peers/shell.toml"),
        r#"
        name = "shell"
        program = "sh"
        version = ["{program}", "-c", "echo 1"]
        [install]
        kind = "apt"
        package = "dash"
        [[subjects]]
        name = "shell"
        mode = "interpreter"
        run = ["{program}", "-c", "cat {dir}/file; echo changed > {dir}/file; : {wasm}"]
        builds = ["stock"]
    "#,
    )
    .unwrap();
    let data = lab.path("data");
    let (output, report) = lab.report("shell", &["--rounds", "3", "--dir", data.to_str().unwrap()]);
    assert!(
        output.status.success() && cell(&report, "shell").failure.is_none(),
        "{:?}",
        cell(&report, "shell").failure
    );
    assert_eq!(fs::read_to_string(lab.path("data/file")).unwrap(), "as it was");
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_leaves_no_process_behind() {
    let lab = Lab::new();
    lab.peer("one", r#""{args}""#);
    let (module, json) = (lab.path("guest.wasm"), lab.path("report.json"));
    let arguments = [
        "run",
        module.to_str().unwrap(),
        "--peers",
        "one",
        "--rounds",
        "10000",
        "--json",
        json.to_str().unwrap(),
        "--",
        "same",
    ];
    let child = lab.command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let output = interrupt(child);
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Report = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert!(
        !report.complete && report.warnings.iter().any(|warning| warning.contains("interrupted")),
        "{:?}",
        report.warnings
    );
    let samples = cell(&report, "one").metrics[&Metric::CpuS].samples.len();
    assert!((1..10_000).contains(&samples), "{samples}");
    assert_no_process_of(&lab);
}

#[test]
fn ctrl_c_ends_a_guest_that_hangs() {
    let lab = Lab::new();
    lab.peer("hanging", r#""loop""#);
    let module = lab.path("guest.wasm");
    let child = lab
        .command(&["run", module.to_str().unwrap(), "--peers", "hanging"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let wanted = Instant::now() + Duration::from_secs(20);
    while processes_of(&lab).is_empty() {
        assert!(Instant::now() < wanted, "the guest never ran");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(interrupt(child).status.code(), Some(130));
    assert_no_process_of(&lab);
}

fn interrupt(child: Child) -> Output {
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    child.wait_with_output().unwrap()
}

/// Engines that run this lab's guest, apart from `mote-lab` itself, by their command lines.
fn processes_of(lab: &Lab) -> Vec<String> {
    let guest = lab.path("guest.wasm").display().to_string();
    let lines = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| {
            line.contains(&guest) && line.contains("wasmi-command ") && !line.contains("mote-lab ")
        })
        .collect()
}

fn assert_no_process_of(lab: &Lab) {
    let patience = Instant::now() + Duration::from_secs(5);
    while !processes_of(lab).is_empty() {
        assert!(Instant::now() < patience, "left behind: {:?}", processes_of(lab));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_subject_that_is_not_here_is_a_cell_too() {
    let lab = Lab::new();
    lab.peer("one", r#""{args}""#);
    let text = fs::read_to_string(lab.path("mote-lab/peers/one.toml")).unwrap();
    fs::write(
        lab.path("mote-lab/peers/absent.toml"),
        text.replace("\"one\"", "\"absent\"").replace("wasmi-command", "no-such-program"),
    )
    .unwrap();
    let (output, report) = lab.report("one,absent", &["--rounds", "1", "--", "same"]);
    assert!(output.status.success());
    assert_eq!(failure(&report, "absent").0, FailureKind::Missing);
    assert!(report.subjects.iter().any(|subject| subject.name == "absent" && subject.missing.is_some()));
}

#[test]
fn mistakes_of_the_user_are_told_and_nothing_is_run() {
    let lab = Lab::new();
    for (arguments, expected) in [
        (&["no-such-suite"][..], "there is no suite 'no-such-suite'"),
        (&["speed", "--peers", "no-such-peer"][..], "there is no subject or peer 'no-such-peer'"),
        (&["run", "no-such.wasm"][..], "cannot find no-such.wasm"),
        (&["speed", "--corpus", "/"][..], "name a checkout of Mote"),
    ] {
        let output = lab.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
    }
    assert!(lab.run(&["list"]).status.success() && lab.run(&["completions", "bash"]).status.success());
}

/// What is on this machine must run the guest and print the same.
#[test]
fn the_engines_of_this_machine_agree() {
    let lab = Lab::new();
    lab.peer("one", r#""{args}""#);
    let (output, report) = lab.report("one,mote,node,wasmtime,wazero", &["--rounds", "1", "--", "same"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for cell in &report.cells {
        let failure = cell.failure.as_ref().filter(|failure| failure.kind != FailureKind::Missing);
        assert!(failure.is_none(), "{}: {failure:?}", cell.subject);
    }
    assert!(cell(&report, "one").failure.is_none());
}
