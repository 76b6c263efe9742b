//! Compiles examples/c/run.c against the header, links it with both libraries, and runs guests in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const GUEST: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
    (import "host" "add" (func $add (param i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 16) "hello from a guest\n")
    (data (i32.const 8) "\10\00\00\00\13\00\00\00")
    (func $main (export "_start")
        (local $args i32)
        (drop (call $args (i32.const 40) (i32.const 44)))
        (local.set $args (i32.load (i32.const 40)))
        (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 60)))
        ;; without arguments a trap, with one an exit code, with two an error of the host's
        (if (i32.eq (local.get $args) (i32.const 1)) (then unreachable))
        (if (i32.eq (local.get $args) (i32.const 3)) (then (drop (call $add (i32.const -1) (i32.const 0)))))
        (if (i32.ne (call $add (i32.const 40) (i32.const 2)) (i32.load (i32.const 0))) (then unreachable))
        (call $exit (i32.load (i32.const 0)))))"#;

/// Where cargo put the libraries: beside this program.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// The static library's file has a hash in its name.
fn static_library() -> PathBuf {
    let mut found: Vec<_> = std::fs::read_dir(libraries())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("libmote") && !name.starts_with("libmote_") && name.ends_with(".a")
        })
        .collect();
    found.sort_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap());
    found.pop().expect("the static library was built with this test")
}

fn build(dir: &Path, name: &str, link: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = dir.join(name);
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-std=c11", "-I"])
        .arg(root.join("include"))
        .arg(root.join("examples/c/run.c"))
        .arg("-o")
        .arg(&program)
        .args(link)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn run(program: &Path, artifact: &Path, args: &[&str]) -> Output {
    Command::new(program).arg(artifact).args(args).env("LD_LIBRARY_PATH", libraries()).output().unwrap()
}

#[test]
fn the_example_runs_guests_with_both_libraries() {
    let dir = std::env::temp_dir().join(format!("mote-capi-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let artifact = dir.join("guest.mote");
    let options = mote_compiler::Options { opt_level: mote_compiler::OptLevel::O1, ..Default::default() };
    let wasm = wat::parse_str(GUEST).unwrap();
    std::fs::write(&artifact, mote_compiler::compile(&wasm, &options).unwrap()).unwrap();

    let libraries = format!("-L{}", libraries().display());
    let fixed = static_library();
    let programs = [
        build(&dir, "shared", &[&libraries, "-lmote"]),
        build(&dir, "static", &[fixed.to_str().unwrap(), "-lpthread", "-ldl", "-lm", "-lgcc_s"]),
    ];
    for program in programs {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let exit = run(&program, &artifact, &["one"]);
        assert_eq!(text(&exit.stdout), "hello from a guest\nthe guest called the host 1 times\n");
        assert_eq!(exit.status.code(), Some(42), "{}", text(&exit.stderr));
        let trap = run(&program, &artifact, &[]);
        assert_eq!(trap.status.code(), Some(134));
        assert!(text(&trap.stderr).starts_with("run: unreachable\n    at "), "{}", text(&trap.stderr));
        let refused = run(&program, &artifact, &["one", "two"]);
        assert_eq!(refused.status.code(), Some(125));
        assert!(text(&refused.stderr).starts_with("run: host add takes no negative numbers\n    at "));
        let missing = run(&program, &dir.join("nothing"), &[]);
        assert_eq!(missing.status.code(), Some(125));
        assert!(text(&missing.stderr).contains("nothing: No such file"), "{}", text(&missing.stderr));
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
