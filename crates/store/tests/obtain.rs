//! From a module to its artifact, with a shell script in the compiler's place that counts how often it ran.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use mote_store::{Compiler, Event, Module, OptLevel, Options, Refusal, Settings, Store, StoreError};

/// "Compiles" to the options, a line, and the module; appends a byte to `ran` each time.
const SCRIPT: &str = "printf x >>\"${0%/*}/ran\"; echo \"$@\"; cat";

struct Scene {
    directory: tempfile::TempDir,
    compiler: Compiler,
}

impl Scene {
    fn new(script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("mote-compile");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let compiler = Compiler::at(&program).unwrap();
        let scene = Self { directory, compiler };
        scene.module("m.wasm", "bytes");
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn module(&self, name: &str, bytes: &str) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Makes a file look as if it had last been changed long ago: only waiting does that, since ctime cannot be set.
    fn settle() {
        std::thread::sleep(Duration::from_millis(2100));
    }

    fn compiles(&self) -> usize {
        fs::read(self.path("ran")).map_or(0, |bytes| bytes.len())
    }

    fn settings(&self) -> Settings {
        Settings::at(self.path("cache"))
    }

    fn entries(&self) -> Vec<PathBuf> {
        let mut entries: Vec<_> = fs::read_dir(self.path("cache"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.file_name().unwrap().len() == 64)
            .collect();
        entries.sort();
        entries
    }

    fn links(&self) -> usize {
        let names = fs::read_dir(self.path("cache")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("i-")).count()
    }

    fn obtain(&self, name: &str) -> (Result<String, StoreError>, Vec<Event>) {
        self.obtain_as(name, &Options::default(), &self.settings(), &mut contents)
    }

    fn obtain_as(
        &self,
        name: &str,
        options: &Options,
        settings: &Settings,
        load: &mut dyn FnMut(&File) -> Result<String, Refusal>,
    ) -> (Result<String, StoreError>, Vec<Event>) {
        let store = Store::open(settings);
        loop {
            let mut events = Vec::new();
            let module = Module::open(&self.path(name)).unwrap();
            let result =
                store.obtain_with(&self.compiler, module, options, load, &mut |event| events.push(event));
            match result {
                // A script that another thread's child still holds open for writing is "busy" for a moment.
                Err(StoreError::CannotStart { source, .. })
                    if source.kind() == ErrorKind::ExecutableFileBusy => {}
                result => return (result, events),
            }
        }
    }
}

/// A loader that takes what the script writes.
fn contents(file: &File) -> Result<String, Refusal> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    if text.starts_with("--opt-level") { Ok(text) } else { Err(Refusal::Unfit("bad magic".into())) }
}

fn told(events: &[Event], wanted: &str) -> bool {
    events.iter().any(|event| match event {
        Event::Uncached(why) | Event::Rebuild(why) => why.contains(wanted),
        _ => false,
    })
}

#[test]
fn the_second_time_nothing_is_compiled_and_the_third_nothing_is_read() {
    let scene = Scene::new(SCRIPT);
    let (first, events) = scene.obtain("m.wasm");
    let first = first.unwrap();
    assert!(first.ends_with("\nbytes"), "{first}");
    assert_eq!(events, [Event::Compiling, Event::Compiled]);
    assert_eq!(scene.obtain("m.wasm").0.unwrap(), first);
    assert_eq!((scene.compiles(), scene.links()), (1, 0), "a file this young is not indexed");
    Scene::settle();
    assert_eq!(scene.obtain("m.wasm").0.unwrap(), first);
    assert_eq!(scene.links(), 1);
    // A descriptor that can be looked at but not read (`O_PATH`) is enough now.
    let path = scene.path("m.wasm");
    let unreadable = rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let module = Module::from_file(unreadable.into(), &path).unwrap();
    let store = Store::open(&scene.settings());
    let third = store.obtain_with(&scene.compiler, module, &Options::default(), &mut contents, &mut |_| {});
    assert_eq!(third.unwrap(), first);
    // A copy is another file with the same contents.
    fs::copy(scene.path("m.wasm"), scene.path("copy.wasm")).unwrap();
    assert_eq!(scene.obtain("copy.wasm").0.unwrap(), first);
    assert_eq!(scene.compiles(), 1);
}

#[test]
fn a_changed_module_is_another_entry_even_with_its_old_time() {
    let scene = Scene::new(SCRIPT);
    Scene::settle();
    scene.obtain("m.wasm").0.unwrap();
    scene.obtain("m.wasm").0.unwrap();
    assert_eq!(scene.links(), 1);
    let modified = fs::metadata(scene.path("m.wasm")).unwrap().modified().unwrap();
    scene.module("m.wasm", "BYTES");
    File::options().write(true).open(scene.path("m.wasm")).unwrap().set_modified(modified).unwrap();
    assert!(scene.obtain("m.wasm").0.unwrap().ends_with("BYTES"));
    assert_eq!(scene.compiles(), 2);
}

#[test]
fn options_and_compilers_do_not_share_entries() {
    let scene = Scene::new(SCRIPT);
    scene.obtain("m.wasm").0.unwrap();
    let quick = Options { opt_level: OptLevel::O1, ..Options::default() };
    scene.obtain_as("m.wasm", &quick, &scene.settings(), &mut contents).0.unwrap();
    assert_eq!(scene.compiles(), 2);
    let other = Scene::new(&format!("{SCRIPT}; : another build"));
    other.obtain_as("m.wasm", &quick, &scene.settings(), &mut contents).0.unwrap();
    assert_eq!((other.compiles(), scene.entries().len()), (1, 3));
}

#[test]
fn eight_at_once_compile_once() {
    let scene = Scene::new(&format!("sleep 0.3; {SCRIPT}"));
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| scene.obtain("m.wasm"))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert_eq!(scene.compiles(), 1);
    assert!(outcomes.iter().all(|(result, _)| result.as_ref().unwrap().ends_with("bytes")));
    assert!(outcomes.iter().any(|(_, events)| events.contains(&Event::Waiting)));
    assert_eq!(fs::read_dir(scene.path("cache")).unwrap().count(), 1, "no lock or temporary file stays");
}

#[test]
fn a_failed_compile_is_not_kept_and_lets_the_next_try() {
    let scene = Scene::new("printf x >>\"${0%/*}/ran\"; echo half; echo 'error: no' >&2; exit 1");
    for _ in 0..2 {
        let (result, _) = scene.obtain("m.wasm");
        assert!(matches!(result, Err(StoreError::Invalid { .. })), "{result:?}");
    }
    assert_eq!(scene.compiles(), 2);
    assert_eq!(fs::read_dir(scene.path("cache")).unwrap().count(), 0);
}

#[test]
fn entries_that_cannot_be_trusted_are_built_again() {
    type Spoil = fn(&Path);
    let spoilers: [(&str, Spoil); 4] = [
        ("bad magic", |entry| {
            fs::remove_file(entry).unwrap();
            fs::write(entry, "garbage").unwrap();
            fs::set_permissions(entry, fs::Permissions::from_mode(0o400)).unwrap();
        }),
        ("writable by others", |entry| {
            fs::set_permissions(entry, fs::Permissions::from_mode(0o420)).unwrap()
        }),
        ("symbolic link", |entry| {
            let aside = entry.with_extension("aside");
            fs::rename(entry, &aside).unwrap();
            symlink(&aside, entry).unwrap();
        }),
        ("regular", |entry| {
            fs::remove_file(entry).unwrap();
            fs::create_dir(entry).unwrap();
        }),
    ];
    let scene = Scene::new(SCRIPT);
    Scene::settle();
    scene.obtain("m.wasm").0.unwrap();
    for (round, (why, spoil)) in spoilers.into_iter().enumerate() {
        scene.obtain("m.wasm").0.unwrap();
        assert_eq!(scene.compiles(), round + 1);
        spoil(scene.entries().first().unwrap());
        let (result, events) = scene.obtain("m.wasm");
        assert!(result.unwrap().ends_with("bytes"));
        assert!(told(&events, why), "{why}: {events:?}");
        assert_eq!(scene.compiles(), round + 2);
        let mode = fs::symlink_metadata(scene.entries().first().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o170777, 0o100400);
    }
}

#[test]
fn a_directory_of_others_is_not_used_and_the_module_still_runs() {
    let scene = Scene::new(SCRIPT);
    fs::create_dir(scene.path("cache")).unwrap();
    fs::set_permissions(scene.path("cache"), fs::Permissions::from_mode(0o777)).unwrap();
    let (result, events) = scene.obtain("m.wasm");
    assert!(result.unwrap().ends_with("bytes"));
    assert!(told(&events, "chmod 700"), "{events:?}");
    assert_eq!(fs::read_dir(scene.path("cache")).unwrap().count(), 0);
}

#[test]
fn without_a_store_every_start_compiles_and_says_nothing() {
    let scene = Scene::new(SCRIPT);
    for _ in 0..2 {
        let (result, events) =
            scene.obtain_as("m.wasm", &Options::default(), &Settings::none(), &mut contents);
        assert!(result.unwrap().ends_with("bytes"));
        assert_eq!(events, [Event::Compiling, Event::Compiled]);
    }
    assert_eq!(scene.compiles(), 2);
    assert!(!scene.path("cache").exists());
}

#[test]
fn what_the_loader_cannot_map_runs_from_a_copy_in_memory() {
    let scene = Scene::new(SCRIPT);
    scene.obtain("m.wasm").0.unwrap();
    let entry = fs::metadata(scene.entries().first().unwrap()).unwrap();
    let mut load = |file: &File| {
        use std::os::unix::fs::MetadataExt;
        if file.metadata().unwrap().dev() == entry.dev() {
            return Err(Refusal::Unmappable("mounted noexec".into()));
        }
        contents(file)
    };
    let (result, events) = scene.obtain_as("m.wasm", &Options::default(), &scene.settings(), &mut load);
    assert!(result.unwrap().ends_with("bytes"));
    assert!(told(&events, "noexec"), "{events:?}");
    assert_eq!(scene.compiles(), 1);
}

#[test]
fn an_artifact_that_the_loader_never_takes_is_an_error_not_a_loop() {
    let scene = Scene::new(SCRIPT);
    let mut load = |_: &File| Err(Refusal::Unfit("version 2, not 1".into()));
    let (result, _) = scene.obtain_as("m.wasm", &Options::default(), &scene.settings(), &mut load);
    let message = result.unwrap_err().to_string();
    assert!(message.contains("cannot be loaded: version 2, not 1"), "{message}");
    assert_eq!((scene.compiles(), scene.entries().len()), (1, 0));
}

#[test]
fn a_module_that_changes_under_the_compiler_is_not_stored() {
    let scene = Scene::new("echo \"$@\"; cat; printf more >>\"${0%/*}/m.wasm\"");
    Scene::settle();
    let (result, _) = scene.obtain("m.wasm");
    assert!(matches!(result, Err(StoreError::Changed { .. })), "{result:?}");
    assert!(scene.entries().is_empty());
}

#[test]
fn the_store_stays_within_its_size() {
    let scene = Scene::new(SCRIPT);
    let settings = Settings { capacity_bytes: 5000, ..scene.settings() };
    for round in 0..4 {
        scene.module("m.wasm", &format!("{round}").repeat(2000));
        scene.obtain_as("m.wasm", &Options::default(), &settings, &mut contents).0.unwrap();
        for entry in scene.entries() {
            let file = File::open(entry).unwrap();
            let older = file.metadata().unwrap().modified().unwrap() - Duration::from_secs(60);
            file.set_modified(older.max(SystemTime::UNIX_EPOCH)).unwrap();
        }
    }
    let mut newest = String::new();
    assert_eq!(scene.entries().len(), 2);
    let latest =
        scene.entries().into_iter().max_by_key(|entry| fs::metadata(entry).unwrap().modified().unwrap());
    File::open(latest.unwrap()).unwrap().read_to_string(&mut newest).unwrap();
    assert!(newest.ends_with("333"), "the newest stays");
}
