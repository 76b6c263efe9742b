//! The cache, with the real compiler.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use support::{Ended, Scene};

const FIVE: &str = r#"(module (func (export "f") (result i32) (i32.const 5)))"#;

fn five(scene: &Scene) -> Ended {
    scene.run(&["run", "--invoke", "f", "five.wat"])
}

#[test]
fn eight_first_runs_compile_once() {
    let scene = Scene::new();
    scene.file("five.wat", FIVE);
    // What stands in the compiler's place counts, then becomes the compiler.
    let compiler =
        scene.mote(&[]).get_envs().find(|(name, _)| *name == "MOTE_COMPILE").unwrap().1.unwrap().to_owned();
    let counting = scene.file(
        "counting",
        format!(
            "#!/bin/sh\necho x >>{}\nsleep 0.3\nexec {} \"$@\"\n",
            scene.path("ran").display(),
            compiler.display()
        ),
    );
    fs::set_permissions(&counting, Permissions::from_mode(0o700)).unwrap();
    let runs: Vec<_> = (0..8)
        .map(|_| {
            let mut run = scene.mote(&["run", "--invoke", "f", "five.wat"]);
            run.env("MOTE_COMPILE", &counting);
            run.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for run in runs {
        Ended::new(run.wait_with_output().unwrap()).printed("5\n");
    }
    assert_eq!(fs::read_to_string(scene.path("ran")).unwrap(), "x\n");
    assert_eq!(scene.entries().len(), 1);
}

#[test]
fn an_entry_that_cannot_be_trusted_is_built_again() {
    let scene = Scene::new();
    scene.file("five.wat", FIVE);
    five(&scene).printed("5\n");
    let entry = scene.entries().pop().unwrap();
    let good = fs::read(&entry).unwrap();
    let mut spoiled = 0;
    let mut check = |says: &str| {
        let ended = five(&scene);
        ended.printed("5\n");
        assert!(ended.stderr.contains("compiling again") && ended.stderr.contains(says), "{says}: {ended:?}");
        let metadata = fs::symlink_metadata(&entry).unwrap();
        assert!(metadata.is_file() && metadata.permissions().mode() & 0o777 == 0o400, "{metadata:?}");
        assert_eq!(fs::read(&entry).unwrap(), good, "the same input gives the same bytes");
        spoiled += 1;
    };

    fs::set_permissions(&entry, Permissions::from_mode(0o600)).unwrap();
    fs::write(&entry, &good[..good.len() / 2]).unwrap();
    check("truncated");

    let mut damaged = good.clone();
    damaged[0x300..0x310].fill(0xff);
    fs::set_permissions(&entry, Permissions::from_mode(0o600)).unwrap();
    fs::write(&entry, &damaged).unwrap();
    check("damaged");

    fs::set_permissions(&entry, Permissions::from_mode(0o602)).unwrap();
    check("writable by others");

    fs::rename(&entry, scene.path("aside")).unwrap();
    symlink(scene.path("aside"), &entry).unwrap();
    check("symbolic link");

    if support::is_root() {
        std::os::unix::fs::chown(&entry, Some(65534), None).unwrap();
        check("owned by user 65534");
    }
    assert!(spoiled >= 4);
}

#[test]
fn a_cache_of_others_or_none_is_not_used_and_is_told_once() {
    let scene = Scene::new();
    scene.file("five.wat", FIVE);
    fs::create_dir(scene.cache()).unwrap();
    fs::set_permissions(scene.cache(), Permissions::from_mode(0o777)).unwrap();
    let ended = five(&scene);
    ended.printed("5\n");
    assert_eq!(ended.stderr.matches("not cached: ").count(), 1, "{ended:?}");
    assert!(ended.stderr.contains("chmod 700"), "{ended:?}");
    let quiet = scene.run(&["run", "-q", "--invoke", "f", "five.wat"]);
    assert_eq!(quiet.stderr, "");
    assert!(scene.entries().is_empty());
    scene.run(&["cache", "list"]).failed(125, "chmod 700");

    let mut homeless = scene.mote(&["run", "--invoke", "f", "five.wat"]);
    homeless.env("MOTE_CACHE_DIR", "/proc/self/nowhere");
    let ended = Ended::new(homeless.output().unwrap());
    ended.printed("5\n");
    assert!(ended.stderr.contains("not cached: "), "{ended:?}");

    let silent = scene.run(&["run", "--no-cache", "--invoke", "f", "five.wat"]);
    assert_eq!((silent.stdout.as_str(), silent.stderr.as_str()), ("5\n", ""));
}

/// Runs a script in a mount namespace of its own.
fn in_mount_namespace(script: &str) -> Ended {
    let output = Command::new("unshare").args(["--mount", "sh", "-ec", script]).output().unwrap();
    Ended::new(output)
}

#[test]
fn a_full_or_read_only_disk_does_not_stop_a_run() {
    if !support::is_root() {
        eprintln!("not run: mounting needs root");
        return;
    }
    let scene = Scene::new();
    scene.file("five.wat", FIVE);
    fs::create_dir(scene.cache()).unwrap();
    fs::set_permissions(scene.cache(), Permissions::from_mode(0o700)).unwrap();
    let mote = scene.mote(&[]);
    let variables: String = mote
        .get_envs()
        .filter_map(|(name, value)| Some(format!("export {}='{}'; ", name.display(), value?.display())))
        .collect();
    let run = format!("{} run --invoke f {}", mote.get_program().display(), scene.path("five.wat").display());
    let cache = scene.cache().display().to_string();

    let full = in_mount_namespace(&format!(
        "{variables} mount -t tmpfs -o size=4k,mode=700 tmpfs {cache}; {run}; ls -A {cache} | wc -l"
    ));
    assert!(full.stdout.starts_with("5\n"), "{full:?}");
    assert!(full.stderr.contains("not cached: cannot write to the cache"), "{full:?}");
    assert_eq!(full.stdout, "5\n0\n", "nothing half-written stays: {full:?}");

    // Compiled once while it can be written, then read only: a hit is a hit.
    let read_only = in_mount_namespace(&format!(
        "{variables} mount -t tmpfs -o mode=700 tmpfs {cache}; mount -o remount,ro {cache}; {run}; \
         mount -o remount,rw {cache}; {run}; mount -o remount,ro {cache}; {run}"
    ));
    assert_eq!(read_only.stdout, "5\n5\n5\n", "{read_only:?}");
    assert_eq!(read_only.stderr.lines().count(), 1, "{read_only:?}");
    assert!(read_only.stderr.contains("not cached: "), "{read_only:?}");

    // Code cannot be mapped from there, so it runs from a copy.
    let no_exec = in_mount_namespace(&format!(
        "{variables} mount -t tmpfs -o mode=700,noexec tmpfs {cache}; {run}; {run}"
    ));
    assert_eq!(no_exec.stdout, "5\n5\n", "{no_exec:?}");
    assert!(no_exec.stderr.contains("code cannot be mapped from the cache"), "{no_exec:?}");
}

#[test]
fn a_start_from_the_cache_writes_nothing() {
    let scene = Scene::new();
    scene.file("five.wat", FIVE);
    std::thread::sleep(std::time::Duration::from_millis(2200));
    five(&scene).printed("5\n");
    let times = || {
        let mut files: Vec<_> = fs::read_dir(scene.cache())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), entry.path().symlink_metadata().unwrap().ctime_nsec()))
            .collect();
        files.sort();
        (files, fs::metadata(scene.cache()).unwrap().ctime_nsec())
    };
    let before = times();
    assert_eq!(before.0.len(), 2, "an entry and a link to it");
    five(&scene).printed("5\n");
    assert_eq!(times(), before);
}

#[test]
fn the_compilers_death_is_told() {
    let scene = Scene::new();
    scene.file("five.wat", FIVE);
    let dying = scene.file("dying", "#!/bin/sh\nkill -KILL $$\n");
    fs::set_permissions(&dying, Permissions::from_mode(0o700)).unwrap();
    let mut run = scene.mote(&["run", "five.wat"]);
    Ended::new(run.env("MOTE_COMPILE", &dying).output().unwrap())
        .failed(125, "killed by signal 9: out of memory?");
    let mut run = scene.mote(&["run", "five.wat"]);
    Ended::new(run.env("MOTE_COMPILE", "/nonexistent").output().unwrap())
        .failed(125, "cannot start /nonexistent");
}

#[test]
fn a_full_disk_fails_what_must_be_written_and_leaves_nothing() {
    if !support::is_root() {
        eprintln!("not run: mounting needs root");
        return;
    }
    let scene = Scene::new();
    scene.file("five.wat", FIVE);
    scene.file("init.wat", r#"(module (memory 1) (data "x") (func (export "wizer.initialize")))"#);
    fs::create_dir(scene.path("disk")).unwrap();
    let mote = scene.mote(&[]);
    let variables: String = mote
        .get_envs()
        .filter_map(|(name, value)| Some(format!("export {}='{}'; ", name.display(), value?.display())))
        .collect();
    for command in ["compile five.wat", "snapshot init.wat"] {
        let ended = in_mount_namespace(&format!(
            "cd {}; {variables} mount -t tmpfs -o size=4k tmpfs disk; {} {command} -o disk/out.mote || echo $?; ls -A disk",
            scene.path("").display(),
            mote.get_program().display(),
        ));
        assert_eq!(ended.stdout, "125\n", "{command}: {ended:?}");
        assert_eq!(
            ended.stderr, "mote: cannot write disk/out.mote: No space left on device (os error 28)\n",
            "{command}"
        );
    }
}

#[test]
fn what_a_compiler_gives_is_read_whole_before_it_is_kept() {
    let scene = Scene::new();
    scene.file("five.wat", FIVE);
    let compiler =
        scene.mote(&[]).get_envs().find(|(name, _)| *name == "MOTE_COMPILE").unwrap().1.unwrap().to_owned();
    // One bit of the last page: no table that a start looks at.
    let failing = scene.file(
        "failing",
        format!(
            "#!/bin/sh\n{} \"$@\" >{out} || exit\nprintf '\\377' | dd of={out} bs=1 seek=$(($(stat -c %s {out}) - 1)) conv=notrunc status=none\nexec cat {out}\n",
            compiler.display(),
            out = scene.path("written").display()
        ),
    );
    fs::set_permissions(&failing, Permissions::from_mode(0o700)).unwrap();
    for options in [&["run"][..], &["run", "--no-cache"]] {
        let mut run = scene.mote(&[options, &["--invoke", "f", "five.wat"]].concat());
        Ended::new(run.env("MOTE_COMPILE", &failing).output().unwrap())
            .failed(125, "five.wat: the compiled artifact cannot be loaded: ");
        assert!(scene.entries().is_empty());
    }
}

#[test]
fn a_size_that_is_none_is_told() {
    let scene = Scene::new();
    scene.file("five.wat", FIVE);
    let mut run = scene.mote(&["run", "--invoke", "f", "five.wat"]);
    let ended = Ended::new(run.env("MOTE_CACHE_SIZE", "lots").output().unwrap());
    ended.printed("5\n");
    assert_eq!(ended.stderr, "mote: MOTE_CACHE_SIZE: lots is not a size; write for example 500M or 2G\n");
    let mut run = scene.mote(&["run", "-q", "--invoke", "f", "five.wat"]);
    assert_eq!(Ended::new(run.env("MOTE_CACHE_SIZE", "lots").output().unwrap()).stderr, "");
    let mut prune = scene.mote(&["cache", "prune"]);
    Ended::new(prune.env("MOTE_CACHE_SIZE", "1.5G").output().unwrap()).failed(2, "1.5G is not a size");
}
