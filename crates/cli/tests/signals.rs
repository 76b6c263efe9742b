//! SIGINT and SIGTERM, while a module is compiled and while it runs.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

use support::{Scene, eventually, send};

const LOOP: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 64) "r")
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 1))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (loop (br 0))))"#;

/// As above, then reads standard input, which stays silent.
const BLOCKED: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 64) "r")
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 1))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;

fn ends_by(mut child: Child, signal: &str, number: i32) {
    let sent = Instant::now();
    send(&child, signal);
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(number), "{status:?}");
    assert!(sent.elapsed() < Duration::from_secs(2), "{:?}", sent.elapsed());
}

#[test]
fn a_running_guest_ends_at_once() {
    let scene = Scene::new();
    scene.file("loop.wat", LOOP);
    scene.file("blocked.wat", BLOCKED);
    for guest in ["loop.wat", "blocked.wat"] {
        for (signal, number) in [("INT", 2), ("TERM", 15)] {
            let mut child = scene.start(&["run", guest]);
            let mut ready = [0];
            child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
            ends_by(child, signal, number);
        }
    }
}

#[test]
fn as_process_1_of_a_container_the_exit_code_says_it() {
    if !support::is_root() {
        eprintln!("not run: making a PID namespace needs root");
        return;
    }
    let scene = Scene::new();
    scene.file("loop.wat", LOOP);
    scene.run(&["compile", "loop.wat"]).printed("");
    let mote = scene.mote(&[]);
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(["--fork", "--pid", "--mount-proc", "--kill-child", "--"]).arg(mote.get_program());
    unshare.args(["run", "loop.mote"]).current_dir(scene.path("")).stdout(std::process::Stdio::piped());
    let mut outer = unshare.spawn().unwrap();
    let mut ready = [0];
    outer.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    // The signal must come from outside the namespace, to the process itself.
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", outer.id())).unwrap();
    let sent = std::process::Command::new("kill").args(["-TERM", children.trim()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(outer.wait().unwrap().code(), Some(143));
}

/// Processes whose command line names this directory.
fn compilers_of(scene: &Scene) -> Vec<u32> {
    let needle = scene.path("slow.wasm").into_os_string().into_string().unwrap();
    let processes = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
    processes
        .filter(|pid| {
            let is_compiler = fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|comm| comm.trim() == "mote-compile");
            let input = fs::read_link(format!("/proc/{pid}/fd/0")).unwrap_or_default();
            is_compiler && input.to_string_lossy().contains(&needle)
        })
        .collect()
}

/// A module that keeps the compiler busy for seconds.
fn slow(scene: &Scene) {
    let mut text = String::from("(module (memory 1)");
    for n in 0..500 {
        text.push_str(&format!("(func (export \"f{n}\") (param i32 i32) (result i32) (local i32)"));
        for i in 0..60 {
            text.push_str(&format!(
                "(local.set 2 (i32.add (i32.load offset={} (local.get 0)) (i32.mul (local.get 2) (i32.const {}))))\
                 (if (i32.lt_u (local.get 2) (local.get 1)) (then (i32.store (local.get 2) (local.get 1))))",
                i * 4,
                n + i
            ));
        }
        text.push_str("(local.get 2))");
    }
    text.push(')');
    scene.file("slow.wasm", text);
    // A file this young is compiled from a copy in memory; only an older one shows in /proc.
    std::thread::sleep(Duration::from_millis(2200));
}

#[test]
fn a_compile_that_is_interrupted_leaves_nothing() {
    let scene = Scene::new();
    slow(&scene);
    for (signal, number) in [("INT", 2), ("TERM", 15), ("KILL", 9)] {
        let child = scene.start(&["run", "slow.wasm"]);
        eventually("the compiler runs", || !compilers_of(&scene).is_empty());
        ends_by(child, signal, number);
        eventually("the compiler ends with mote", || compilers_of(&scene).is_empty());
        assert!(scene.entries().is_empty());
    }
    let left: Vec<_> = fs::read_dir(scene.cache()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    // The lock file of a killed process is locked by nobody; the next one takes it over.
    assert!(left.iter().all(|name| name.to_string_lossy().starts_with("l-")), "{left:?}");
}

#[test]
fn a_command_that_writes_a_file_leaves_none_when_interrupted() {
    let scene = Scene::new();
    slow(&scene);
    let files = || fs::read_dir(scene.path("")).unwrap().count();
    let before = files();
    for command in [&["compile", "slow.wasm"][..], &["snapshot", "--no-cache", "--init", "f0", "slow.wasm"]] {
        for (signal, number) in [("INT", 2), ("TERM", 15)] {
            let child = scene.start(command);
            eventually("the compiler runs", || !compilers_of(&scene).is_empty());
            ends_by(child, signal, number);
            eventually("the compiler ends with mote", || compilers_of(&scene).is_empty());
            assert_eq!(files(), before, "{command:?}");
        }
    }
}
