//! What `mote run` gives a guest, and what the guest gives back.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use support::{Ended, Scene, eventually};

/// Prints its arguments and its environment, a line each.
const WORLD: &str = r#"(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $env_sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $env (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func $lines (param $bytes i32)
    (local $at i32)
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $at) (local.get $bytes)))
      (if (i32.eqz (i32.load8_u offset=4096 (local.get $at)))
        (then (i32.store8 offset=4096 (local.get $at) (i32.const 10))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br $next)))
    (i32.store (i32.const 0) (i32.const 4096))
    (i32.store (i32.const 4) (local.get $bytes))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func (export "_start")
    (drop (call $args_sizes (i32.const 16) (i32.const 20)))
    (drop (call $args (i32.const 64) (i32.const 4096)))
    (call $lines (i32.load (i32.const 20)))
    (drop (call $env_sizes (i32.const 16) (i32.const 20)))
    (drop (call $env (i32.const 64) (i32.const 4096)))
    (call $lines (i32.load (i32.const 20)))))"#;

#[test]
fn a_guest_sees_its_arguments_and_the_variables_it_was_given() {
    let scene = Scene::new();
    scene.file("world.wat", WORLD);
    scene.run(&["run", "world.wat", "--dir", "x y"]).printed("world.wat\n--dir\nx y\n");
    scene.run(&["run", "--argv0", "me", "--env", "A=1", "--env", "B", "world.wat"]).printed("me\nA=1\n");
    let mut inheriting = scene.mote(&["run", "--env", "B", "world.wat"]);
    Ended::new(inheriting.env("B", "two").output().unwrap()).printed("world.wat\nB=two\n");
}

#[test]
fn the_guests_exit_code_is_motes() {
    let scene = Scene::new();
    scene.file(
        "exit.wat",
        r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (func (export "_start") (call $exit (i32.const 7))) (memory (export "memory") 0))"#,
    );
    let ended = scene.run(&["run", "exit.wat"]);
    assert_eq!((ended.code(), ended.stderr.as_str()), (Some(7), ""));
    scene.file("return.wat", r#"(module (func (export "_start")))"#);
    scene.run(&["run", "return.wat"]).printed("");
}

#[test]
fn functions_are_invoked_with_typed_arguments() {
    let scene = Scene::new();
    scene.file(
        "math.wat",
        r#"(module
            (func (export "add") (param i32 i64) (result i64)
              (i64.add (i64.extend_i32_s (local.get 0)) (local.get 1)))
            (func (export "swap") (param f32 f64) (result f64 f32) (local.get 1) (local.get 0))
            (func (export "splat") (param i32) (result v128) (i8x16.splat (local.get 0)))
            (func (export "none")))"#,
    );
    scene.run(&["run", "--invoke", "add", "math.wat", "-2", "0x28"]).printed("38\n");
    scene.run(&["run", "--invoke", "swap", "math.wat", "1.5", "-inf"]).printed("-inf\n1.5\n");
    scene.run(&["run", "--invoke", "splat", "math.wat", "1"]).printed("0x01010101010101010101010101010101\n");
    scene.run(&["run", "--invoke", "none", "math.wat"]).printed("");
    scene
        .run(&["run", "--invoke", "add", "math.wat", "1"])
        .failed(125, "add takes 2 arguments (i32, i64), and 1 are given");
    scene
        .run(&["run", "--invoke", "add", "math.wat", "1", "x"])
        .failed(125, "argument 2: x is not a value of type i64");
    scene
        .run(&["run", "--invoke", "sub", "math.wat"])
        .failed(126, "no exported function sub; there are: add, swap");
}

#[test]
fn a_reactor_is_initialised_before_its_functions() {
    let scene = Scene::new();
    scene.file(
        "reactor.wat",
        r#"(module (global $ready (mut i32) (i32.const 0))
            (func (export "_initialize") (global.set $ready (i32.const 41)))
            (func (export "answer") (result i32) (i32.add (global.get $ready) (i32.const 1))))"#,
    );
    scene.run(&["run", "--invoke", "answer", "reactor.wat"]).printed("42\n");
}

#[test]
fn preloaded_modules_are_imported_by_name() {
    let scene = Scene::new();
    scene.file(
        "lib.wat",
        r#"(module (func (export "double") (param i32) (result i32) (i32.shl (local.get 0) (i32.const 1))))"#,
    );
    scene.file(
        "main.wat",
        r#"(module (import "lib" "double" (func $double (param i32) (result i32)))
            (func (export "four") (result i32) (call $double (i32.const 2))))"#,
    );
    scene.run(&["run", "--preload", "lib=lib.wat", "--invoke", "four", "main.wat"]).printed("4\n");
    scene.run(&["run", "--invoke", "four", "main.wat"]).failed(126, "\"lib\" \"double\"");
    scene
        .run(&["run", "--preload", "lib=none.wat", "--invoke", "four", "main.wat"])
        .failed(127, "none.wat: no such file");
}

/// Opens `f` in the first directory and copies up to 64 bytes of it to standard output; exits with the error's number.
const READER: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "f")
  (func (export "_start") (local $error i32)
    (local.set $error (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0)
      (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 8)))
    (if (local.get $error) (then (call $exit (local.get $error))))
    (i32.store (i32.const 16) (i32.const 64))
    (i32.store (i32.const 20) (i32.const 64))
    (drop (call $read (i32.load (i32.const 8)) (i32.const 16) (i32.const 1) (i32.const 24)))
    (i32.store (i32.const 20) (i32.load (i32.const 24)))
    (drop (call $write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 24))))
  (func (export "unlink") (result i32) (call $unlink (i32.const 3) (i32.const 0) (i32.const 1))))"#;

#[test]
fn directories_are_given_and_can_be_read_only() {
    let scene = Scene::new();
    scene.file("reader.wat", READER);
    std::fs::create_dir(scene.path("data")).unwrap();
    scene.file("data/f", "contents");
    scene.run(&["run", "--dir", "data", "reader.wat"]).printed("contents");
    scene.run(&["run", "--dir", "data::/:ro", "reader.wat"]).printed("contents");
    // EBADF: no descriptor 3 without --dir.
    assert_eq!(scene.run(&["run", "reader.wat"]).code(), Some(8));
    let refused = scene.run(&["run", "--dir", "data:ro", "--invoke", "unlink", "reader.wat"]);
    assert!(refused.stdout != "0\n" && refused.code() == Some(0), "{refused:?}");
    assert!(scene.path("data/f").exists());
    scene.run(&["run", "--dir", "data", "--invoke", "unlink", "reader.wat"]).printed("0\n");
    assert!(!scene.path("data/f").exists());
    scene.run(&["run", "--dir", "nowhere", "reader.wat"]).failed(125, "nowhere");
    scene.run(&["run", "--dir", "reader.wat", "reader.wat"]).failed(125, "reader.wat");
}

#[test]
fn a_listening_socket_is_accepted_from() {
    let scene = Scene::new();
    // Accepts once (waiting by poll is inside the host), then answers with one byte more than each it got.
    scene.file(
        "server.wat",
        r#"(module
          (import "wasi_snapshot_preview1" "sock_accept" (func $accept (param i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "sock_recv" (func $recv (param i32 i32 i32 i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "sock_send" (func $send (param i32 i32 i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
          (memory (export "memory") 1)
          (func $check (param i32) (if (local.get 0) (then (call $exit (local.get 0)))))
          (func (export "_start")
            (call $check (call $accept (i32.const 3) (i32.const 0) (i32.const 0)))
            (i32.store (i32.const 16) (i32.const 64))
            (i32.store (i32.const 20) (i32.const 1))
            (call $check (call $recv (i32.load (i32.const 0)) (i32.const 16) (i32.const 1) (i32.const 0) (i32.const 24) (i32.const 28)))
            (i32.store8 (i32.const 64) (i32.add (i32.load8_u (i32.const 64)) (i32.const 1)))
            (call $check (call $send (i32.load (i32.const 0)) (i32.const 16) (i32.const 1) (i32.const 0) (i32.const 24)))))"#,
    );
    let mut guest = scene.start(&["run", "--listen", "127.0.0.1:0", "server.wat"]);
    let mut said = String::new();
    let mut stderr = guest.stderr.take().unwrap();
    eventually("mote says where it listens", || {
        let mut byte = [0];
        while !said.ends_with('\n') && stderr.read(&mut byte).unwrap() == 1 {
            said.push(char::from(byte[0]));
        }
        said.ends_with('\n')
    });
    let address = said.trim().strip_prefix("mote: listening on ").unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"a").unwrap();
    let mut answer = [0];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"b");
    assert!(guest.wait().unwrap().success());
    scene
        .run(&["run", "--listen", "256.0.0.1:80", "server.wat"])
        .failed(125, "--listen: cannot listen on 256.0.0.1:80");
}

#[test]
fn a_module_comes_from_a_pipe_and_an_artifact_by_its_name() {
    let scene = Scene::new();
    let text = r#"(module (func (export "f") (result i32) (i32.const 5)))"#;
    let mut guest = scene.mote(&["run", "--invoke", "f", "-"]);
    let mut guest =
        guest.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    guest.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    Ended::new(guest.wait_with_output().unwrap()).printed("5\n");

    scene.file("f.wat", text);
    scene.run(&["compile", "f.wat"]).printed("");
    let entries = scene.entries().len();
    scene.run(&["run", "--invoke", "f", "f.mote"]).printed("5\n");
    assert_eq!(scene.entries().len(), entries, "an artifact of one's own is not cached");
    // The same bytes under a name that does not say so are a module, and no valid one.
    std::fs::copy(scene.path("f.mote"), scene.path("f.wasm")).unwrap();
    let refused = scene.run(&["run", "--invoke", "f", "f.wasm"]);
    refused.failed(126, "f.wasm: ");
}

#[test]
fn output_that_nobody_reads_is_no_crash() {
    let scene = Scene::new();
    scene.file("world.wat", WORLD);
    scene.run(&["run", "world.wat"]);
    let mut list = scene.start(&["cache", "list"]);
    drop(list.stdout.take());
    let ended = Ended::new(list.wait_with_output().unwrap());
    assert_eq!((ended.code(), ended.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_trap_shows_names_and_source_lines() {
    let scene = Scene::new();
    scene.file(
        "trap.c",
        "static volatile int zero;\n\
         __attribute__((noinline)) int divide(int a) {\n  return a / zero;\n}\n\
         __attribute__((export_name(\"run\"))) int run(void) {\n  return divide(3) + 1;\n}\n",
    );
    let built = std::process::Command::new("clang-19")
        .args(["--target=wasm32", "-nostdlib", "-g", "-O1", "-Wl,--no-entry", "-o"])
        .args([scene.path("trap.wasm"), scene.path("trap.c")])
        .status()
        .unwrap();
    assert!(built.success());
    let trapped = scene.run(&["run", "--invoke", "run", "trap.wasm"]);
    assert_eq!(trapped.code(), Some(134), "{trapped:?}");
    let lines: Vec<_> = trapped.stderr.lines().collect();
    assert_eq!(lines.first(), Some(&"mote: trap: integer divide by zero"), "{trapped:?}");
    // The compiler inlines one into the other; both are frames all the same.
    for wanted in ["0: divide (wasm 0x", "trap.c:3", "1: run (wasm 0x", "trap.c:6"] {
        assert!(lines.iter().any(|line| line.contains(wanted)), "{wanted}: {trapped:?}");
    }
}

#[test]
fn stats_are_one_line() {
    let scene = Scene::new();
    scene.file("world.wat", WORLD);
    let ended = scene.run(&["run", "--stats", "world.wat"]);
    assert!(
        ended.stderr.starts_with("mote: compile ") && ended.stderr.contains("guest memory 131.1 kB"),
        "{ended:?}"
    );
    let again = scene.run(&["run", "--stats", "world.wat"]);
    assert!(again.stderr.contains("compile from the cache"), "{again:?}");
}

#[test]
fn what_is_compiled_is_listed_and_inspected() {
    let scene = Scene::new();
    scene.file("world.wat", WORLD);
    scene.run(&["run", "world.wat"]);
    let list = scene.run(&["cache", "list"]);
    assert!(list.stdout.contains("used today") && list.stdout.contains("1 entries"), "{list:?}");
    let inspected = scene.run(&["inspect", "world.wat"]);
    assert!(
        inspected.stdout.contains("wasi_snapshot_preview1.fd_write  func(i32, i32, i32, i32) -> (i32)"),
        "{inspected:?}"
    );
    let listing = scene.run(&["inspect", "--function", "_start", "world.wat"]);
    assert!(listing.stdout.lines().count() > 10 && listing.stdout.contains("ret"), "{listing:?}");
    scene.run(&["inspect", "--function", "none", "world.wat"]).failed(125, "no function none");
    let cleared = scene.run(&["cache", "clear"]);
    assert!(cleared.stdout.starts_with("deleted 1 entries, "), "{cleared:?}");
    assert!(scene.entries().is_empty());
}

#[test]
fn an_unreadable_module_is_126_and_a_missing_one_127() {
    let scene = Scene::new();
    scene.run(&["run", "none.wasm"]).failed(127, "none.wasm: no such file");
    scene.run(&["run", "none.mote"]).failed(127, "none.mote: no such file");
    scene.run(&["run", "."]).failed(126, "is a directory");
    let path = scene.file("secret.wasm", "");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000)).unwrap();
    if !support::is_root() {
        scene.run(&["run", "secret.wasm"]).failed(126, "ermission denied");
    }
    scene.run(&["run"]).failed(125, "needs a FILE");
    scene.run(&["run", "--max-memmory", "1M", "x"]).failed(125, "did you mean --max-memory?");
    scene.run(&["rum", "x"]).failed(2, "did you mean run?");
}

/// `hot` works much longer than `cold`; both are called by `_start`.
const WORK: &str = r#"(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (global $n (mut i32) (i32.const 0))
  (func $spin (param $turns i32)
    (loop $again
      (global.set $n (i32.add (i32.mul (global.get $n) (i32.const 31)) (i32.const 7)))
      (i32.store (i32.const 0) (global.get $n))
      (br_if $again (local.tee $turns (i32.sub (local.get $turns) (i32.const 1))))))
  (func $hot (call $spin (i32.const 300000000)))
  (func $cold (call $spin (i32.const 3000000)))
  (func (export "_start") (call $cold) (call $hot) (call $exit (i32.const 5)))
  (func (export "forever") (loop (call $hot) (br 0))))"#;

#[test]
fn a_profile_shows_where_the_time_went() {
    let scene = Scene::new();
    scene.file("work.wat", WORK);
    let ended = scene.run(&["run", "--profile", "--profile-stacks", "stacks", "work.wat"]);
    assert_eq!(ended.code(), Some(5), "{ended:?}");
    let rows: Vec<_> = ended.stderr.lines().collect();
    assert!(rows[0].starts_with("mote: profile: ") && rows[0].contains(" samples, "), "{ended:?}");
    let stacks = std::fs::read_to_string(scene.path("stacks")).unwrap();
    let time = |wanted: &str| -> u64 {
        let lines = stacks.lines().filter_map(|line| line.rsplit_once(' '));
        lines.filter(|(stack, _)| stack.contains(wanted)).map(|(_, time)| time.parse::<u64>().unwrap()).sum()
    };
    assert!(time("hot;") > 10 * time("cold;").max(1), "{stacks}");
    assert!(time("_start;") >= time("hot;") && time("hot;") > 1000, "{stacks}");
    assert!(rows[2].ends_with("  spin"), "{ended:?}");

    let refused = scene.run(&["run", "--profile-stacks", "/nowhere/stacks", "work.wat"]);
    assert_eq!(refused.code(), Some(125), "{refused:?}");
    assert!(refused.stderr.ends_with("No such file or directory (os error 2)\n"), "{refused:?}");

    // A deadline and a signal end it with a profile, too.
    let late = scene.run(&["run", "--profile", "--timeout", "100ms", "--invoke", "forever", "work.wat"]);
    assert!(late.code() == Some(134) && late.stderr.contains("mote: profile: "), "{late:?}");
    let child = scene.start(&["run", "--profile", "--invoke", "forever", "work.wat"]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    support::send(&child, "INT");
    let ended = Ended::new(child.wait_with_output().unwrap());
    assert_eq!(ended.signal(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains("mote: profile: ") && ended.stderr.contains("spin"), "{ended:?}");
}

#[test]
fn test_scripts_run_by_the_program_beside() {
    let scene = Scene::new();
    support::program("mote-spec", "mote-wast");
    scene.file("good.wast", r#"(module (func (export "f") (result i32) (i32.const 5))) (assert_return (invoke "f") (i32.const 5))"#);
    scene.file("bad.wast", r#"(module (func (export "f") (result i32) (i32.const 5))) (assert_return (invoke "f") (i32.const 6))"#);
    let good = scene.run(&["wast", "--opt-level", "3", "good.wast"]);
    assert!(good.code() == Some(0) && good.stdout.contains("2 passed, 0 failed"), "{good:?}");
    let bad = scene.run(&["wast", "good.wast", "bad.wast"]);
    assert!(bad.code() == Some(1) && bad.stdout.contains("bad.wast"), "{bad:?}");
    scene.run(&["wast"]).failed(2, "at least one FILE");
    scene.run(&["wast", "--opt-level", "2", "good.wast"]).failed(2, "2 is not a level");
    // Alone, with nothing beside it and nothing on PATH.
    let alone = scene.path("mote");
    std::fs::copy(env!("CARGO_BIN_EXE_mote"), &alone).unwrap();
    let mut command = std::process::Command::new(&alone);
    command.args(["wast", "good.wast"]).current_dir(scene.path("")).env("PATH", "");
    Ended::new(command.output().unwrap()).failed(125, "mote-wast not found beside ");
}
