//! `mote snapshot`: artifacts that begin after a guest's start-up.

#![allow(clippy::unwrap_used)]

mod support;

use support::Scene;

/// Makes a WASI module of C.
fn clang(scene: &Scene, name: &str, source: &str, arguments: &[&str]) {
    let file = scene.file(&format!("{name}.c"), source);
    let built = std::process::Command::new("clang-19")
        .args(["--target=wasm32-wasi", "-O1", "-o"])
        .args([scene.path(&format!("{name}.wasm")), file])
        .args(arguments)
        .status()
        .unwrap();
    assert!(built.success());
}

/// A command that seeds a generator, takes the time, and then says that its start-up is over.
const SEEDED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
__attribute__((import_module("mote"), import_name("snapshot"))) void mote_snapshot(void (*resume)(void));
static struct timespec began;
static int starts;
static void serve(void) {
    unsigned char fresh[16];
    struct timespec now;
    getentropy(fresh, sizeof fresh);
    clock_gettime(CLOCK_REALTIME, &now);
    printf("fresh ");
    for (int i = 0; i < 16; i++) printf("%02x", fresh[i]);
    printf("\nseeded %08x%08x\n", rand(), rand());
    printf("starts %d\n", starts);
    printf("later %d\n", now.tv_sec > began.tv_sec || (now.tv_sec == began.tv_sec && now.tv_nsec > began.tv_nsec));
    exit(7);
}
int main(int argc, char **argv) {
    unsigned seed;
    getentropy(&seed, sizeof seed);
    srand(seed);
    starts++;
    clock_gettime(CLOCK_REALTIME, &began);
    fprintf(stderr, "started with %s\n", argc > 1 ? argv[1] : "nothing");
    mote_snapshot(serve);
    serve();
}
"#;

fn line<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(name)).unwrap()
}

#[test]
fn restored_instances_draw_fresh_randomness_and_keep_old_seeds() {
    let scene = Scene::new();
    clang(&scene, "seeded", SEEDED, &[]);
    let taken = scene.run(&["snapshot", "seeded.wasm", "-o", "out.mote", "--", "-x"]);
    taken.printed("");
    assert_eq!(taken.stderr, "started with -x\n");
    let runs: Vec<_> = (0..2).map(|_| scene.run(&["run", "out.mote"])).collect();
    for run in &runs {
        assert_eq!((run.code(), run.stderr.as_str()), (Some(7), ""), "the start-up is over: {run:?}");
        assert_eq!(line(&run.stdout, "starts"), "starts 1");
        assert_eq!(line(&run.stdout, "later"), "later 1");
    }
    // What WASI gives is fresh. What the guest seeded before the snapshot is cloned: docs/cli.md says so.
    assert_ne!(line(&runs[0].stdout, "fresh"), line(&runs[1].stdout, "fresh"));
    assert_eq!(line(&runs[0].stdout, "seeded"), line(&runs[1].stdout, "seeded"));
    // Without a snapshot the same module runs through, with a seed of its own each time.
    let plain: Vec<_> = (0..2).map(|_| scene.run(&["run", "seeded.wasm"])).collect();
    assert_eq!(plain[0].code(), Some(7), "{plain:?}");
    assert_ne!(line(&plain[0].stdout, "seeded"), line(&plain[1].stdout, "seeded"));
    assert_ne!(line(&plain[0].stdout, "seeded"), line(&runs[0].stdout, "seeded"));
}

#[test]
fn an_export_named_by_init_runs_first_and_once() {
    let scene = Scene::new();
    clang(
        &scene,
        "table",
        r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char text[100];
__attribute__((export_name("setup"))) void setup(void) {
    FILE *file = fopen("/data/f", "r");
    fgets(text, sizeof text, file);
    fclose(file);
    strcat(text, getenv("MODE"));
}
__attribute__((export_name("other"))) void other(void) { printf("other %s\n", text); }
int main(void) { printf("main %s\n", text); }
"#,
        &[],
    );
    std::fs::create_dir(scene.path("data")).unwrap();
    scene.file("data/f", "read once, ");
    let with = ["--dir", "data::/data", "--env", "MODE=fast"];
    let take = |rest: &[&str]| {
        let words: Vec<_> =
            ["snapshot", "table.wasm", "--init", "setup"].iter().chain(&with).chain(rest).copied().collect();
        scene.run(&words)
    };
    take(&[]).printed("");
    std::fs::remove_dir_all(scene.path("data")).unwrap();
    scene.run(&["run", "table.snapshot.mote"]).printed("main read once, fast\n");
    scene.run(&["run", "--invoke", "other", "table.snapshot.mote"]).printed("other read once, fast\n");
    scene.run(&["run", "--invoke", "setup", "table.snapshot.mote"]).failed(126, "no exported function setup");
    std::fs::create_dir(scene.path("data")).unwrap();
    scene.file("data/f", "again, ");
    take(&["--start", "other", "-o", "other.mote"]).printed("");
    scene.run(&["run", "other.mote"]).printed("other again, fast\n");
}

#[test]
fn wizers_name_is_the_default_and_a_reactor_is_initialised_once() {
    let scene = Scene::new();
    scene.file(
        "reactor.wat",
        r#"(module (global $n (mut i32) (i32.const 0))
            (func (export "_initialize") (global.set $n (i32.add (global.get $n) (i32.const 1))))
            (func (export "wizer.initialize") (global.set $n (i32.add (global.get $n) (i32.const 10))))
            (func (export "n") (result i32) (global.get $n)))"#,
    );
    scene.run(&["snapshot", "reactor.wat"]).printed("");
    for _ in 0..2 {
        scene.run(&["run", "--invoke", "n", "reactor.snapshot.mote"]).printed("11\n");
    }
    // A snapshot of a snapshot has nothing left to run.
    scene
        .run(&["snapshot", "reactor.snapshot.mote", "-o", "b.mote"])
        .failed(126, "nothing to run before the snapshot");
    scene.run(&["snapshot", "--init", "n", "reactor.wat"]).failed(126, "n: ");
}

#[test]
fn a_snapshot_that_cannot_be_taken_says_why_and_writes_nothing() {
    let scene = Scene::new();
    let wasi = r#"(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (import "mote" "snapshot" (func $here (param i32)))
        (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
        (memory (export "memory") 1) (data (i32.const 0) "f")
        (table 3 funcref) (elem (i32.const 1) $typed) (func $typed (param i32))"#;
    let take = |name: &str, body: &str, code: i32, says: &str| {
        scene.file(name, format!("(module {wasi} (func (export \"_start\") {body}))"));
        let taken = scene.run(&["snapshot", "--dir", ".", "--timeout", "300ms", "-o", "out.mote", name]);
        taken.failed(code, says);
        assert!(!scene.path("out.mote").exists());
    };
    take("ends.wat", "", 126, "ends.wat: the guest ended without calling mote.snapshot");
    take(
        "exits.wat",
        "(call $exit (i32.const 3))",
        126,
        "the guest ended with exit code 3 before the snapshot",
    );
    take("null.wat", "(call $here (i32.const 0))", 126, "mote.snapshot: no function has the address 0");
    take(
        "far.wat",
        "(call $here (i32.const -1))",
        126,
        "mote.snapshot: no function has the address 4294967295",
    );
    take("typed.wat", "(call $here (i32.const 1))", 126, "the function passed to mote.snapshot: ");
    scene.file("f", "");
    take(
        "open.wat",
        "(drop (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 8))) (call $here (i32.const 1))",
        126,
        "open.wat: ",
    );
    // A trap has its backtrace behind the one line.
    scene.file("trap.wat", format!("(module {wasi} (func (export \"_start\") unreachable))"));
    let trapped = scene.run(&["snapshot", "trap.wat"]);
    assert_eq!(trapped.code(), Some(134), "{trapped:?}");
    assert!(trapped.stderr.starts_with("mote: trap: unreachable"), "{trapped:?}");
    scene.file("loop.wat", format!("(module {wasi} (func (export \"_start\") (loop (br 0))))"));
    let late = scene.run(&["snapshot", "--timeout", "200ms", "loop.wat"]);
    assert!(late.code() == Some(134) && late.stderr.contains("--timeout of 200ms has passed"), "{late:?}");
    // Before the instance is there.
    scene.file(
        "early.wat",
        format!("(module {wasi} (func $s (call $here (i32.const 1))) (start $s) (func (export \"_start\")))"),
    );
    let early = scene.run(&["snapshot", "early.wat"]);
    assert!(
        early.code() == Some(134) && early.stderr.contains("while the module is instantiated"),
        "{early:?}"
    );

    scene.file("none.wat", "(module (func (export \"_start\")))");
    scene.run(&["snapshot", "none.wat"]).failed(126, "name an export with --init");
    scene.run(&["snapshot", "--init", "gone", "none.wat"]).failed(126, "no exported function gone");
    scene.run(&["snapshot", "--init", "_start", "-o", "x.wasm", "none.wat"]).failed(2, "ends in .mote");
    scene
        .run(&["snapshot", "--init", "_start", "-o", "/nowhere/x.mote", "none.wat"])
        .failed(125, "/nowhere/x.mote");
    scene.run(&["snapshot"]).failed(2, "needs a FILE");
    scene.run(&["snapshot", "gone.wasm"]).failed(127, "gone.wasm: no such file");
    scene.file("shared.wat", r#"(module (memory 1 1 shared) (func (export "wizer.initialize")))"#);
    scene.run(&["snapshot", "shared.wat"]).failed(126, "memory 0 is shared");
}
