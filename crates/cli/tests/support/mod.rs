//! What the system tests share: the programs as they are installed, a directory of their own, and a cache of their own.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use std::os::unix::process::ExitStatusExt;

/// The compiler's program file.
fn compiler() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| program("mote-compiler", "mote-compile"))
}

/// A program of another package. Cargo builds those of the package under test only, so this one is asked for; one that is there may be
/// stale, which cargo finds out.
pub fn program(package: &str, name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_BIN_EXE_mote")).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "-p", package, "--bin", name]);
    build.arg("--target-dir").arg(directory.parent().unwrap());
    if directory.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "{name} does not build");
    directory.join(name)
}

/// A place to run `mote` in.
pub struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    pub fn new() -> Self {
        compiler();
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn cache(&self) -> PathBuf {
        self.path("cache")
    }

    /// Writes a file.
    pub fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, contents).unwrap();
        path
    }

    /// `mote` in this directory, with a cache of the scene's own and nothing else of the environment.
    pub fn mote(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mote"));
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("MOTE_CACHE_DIR", self.cache()).env("MOTE_COMPILE", compiler());
        command
    }

    /// Runs it to its end.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        Ended::new(self.mote(arguments).output().unwrap())
    }

    /// Starts it with pipes.
    pub fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.mote(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    pub fn entries(&self) -> Vec<PathBuf> {
        let Ok(listing) = fs::read_dir(self.cache()) else { return Vec::new() };
        let mut entries: Vec<_> = listing.map(|entry| entry.unwrap().path()).collect();
        entries.retain(|path| path.file_name().unwrap().len() == 64);
        entries.sort();
        entries
    }
}

/// How a process ended and what it said.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn new(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// It failed with this code and one line that says this, and neither panicked nor crashed.
    #[track_caller]
    pub fn failed(&self, code: i32, says: &str) {
        assert_eq!(self.code(), Some(code), "{self:?}");
        assert!(self.stderr.contains(says), "wanted {says:?}: {self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "one line: {self:?}");
        assert!(self.stderr.starts_with("mote: "), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
    }

    #[track_caller]
    pub fn printed(&self, stdout: &str) {
        assert_eq!((self.code(), self.stdout.as_str()), (Some(0), stdout), "{self:?}");
    }
}

/// Waits for something that another process does.
#[track_caller]
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "not in 20 s: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal.
pub fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status().unwrap();
    assert!(sent.success());
}

pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0)
}
