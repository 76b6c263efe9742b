//! Running the compiler, a process of its own.
//!
//! It reads the module on standard input and writes the artifact to standard output, a file in memory. On standard error it
//! writes `progress DONE TOTAL` lines and, when it fails, one line `error: …` as the last.

use std::collections::VecDeque;
use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Resource, Rlimit};

use crate::error::StoreError;
use crate::key::Options;
use crate::limits::{ARTIFACT_MAX_BYTES, COMPILER_CPU_SECONDS, MESSAGE_LINE_BYTES, MESSAGE_LINES};
use crate::memory_file;
use crate::module::{self, Identity, Module};

const PROGRAM: &str = "mote-compile";

/// Exit code by which the compiler says that the module is at fault.
const EXIT_INVALID: i32 = 1;

const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

/// The compiler's program file.
#[derive(Clone, Debug)]
pub struct Compiler {
    path: PathBuf,
    identity: Identity,
}

impl Compiler {
    /// `$MOTE_COMPILE`, else `mote-compile` beside the running program, else on `PATH`.
    pub fn find() -> Result<Self, StoreError> {
        Self::find_for(None)
    }

    /// The same for a caller who knows by which path the running program was started. Asking the system where it really is takes as long
    /// as a dozen other system calls, so that is done only when no compiler lies beside that path.
    pub fn find_for(program: Option<&Path>) -> Result<Self, StoreError> {
        if let Some(path) = env::var_os("MOTE_COMPILE").filter(|path| !path.is_empty()) {
            return Self::at(Path::new(&path));
        }
        // A name without a directory was found on `PATH`, not here.
        let directory = program.and_then(Path::parent).filter(|directory| !directory.as_os_str().is_empty());
        if let Some(compiler) = directory.and_then(|directory| Self::at(&directory.join(PROGRAM)).ok()) {
            return Ok(compiler);
        }
        let running = env::current_exe().unwrap_or_default();
        let beside = running.parent().unwrap_or(Path::new("."));
        let on_path = env::var_os("PATH").unwrap_or_default();
        std::iter::once(beside.to_owned())
            .chain(env::split_paths(&on_path).filter(|directory| directory.is_absolute()))
            .find_map(|directory| Self::at(&directory.join(PROGRAM)).ok())
            .ok_or_else(|| StoreError::NoCompiler { beside: running.clone() })
    }

    /// The program with this path.
    pub fn at(path: &Path) -> Result<Self, StoreError> {
        match rustix::fs::stat(path) {
            Ok(stat) => Ok(Self { path: path.to_owned(), identity: Identity::of(&stat) }),
            Err(error) => Err(StoreError::CannotStart { path: path.to_owned(), source: error.into() }),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Another build of the compiler makes other entries, whatever it calls itself.
    pub(crate) fn sha256(&self) -> Result<[u8; 32], StoreError> {
        File::open(&self.path)
            .and_then(|file| module::sha256(&file))
            .map_err(|source| StoreError::CannotStart { path: self.path.clone(), source })
    }

    /// Compiles into a sealed file in memory. `progress` gets what is done and the total.
    pub fn compile(
        &self,
        module: &Module,
        options: &Options,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<File, StoreError> {
        let system = |what| move |source| StoreError::System { what, source };
        let artifact = memory_file::create("mote-artifact").map_err(system("make a file in memory"))?;
        let mut child = Command::new(&self.path)
            .args(options.arguments())
            .args(["--progress", "-", "-o", "-"])
            .stdin(module.reopen().map_err(system("read the module"))?)
            .stdout(artifact.try_clone().map_err(system("make a file in memory"))?)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| StoreError::CannotStart { path: self.path.clone(), source })?;
        limit(&child);
        let message = match child.stderr.take() {
            Some(stderr) => listen(stderr, progress),
            None => String::new(),
        };
        let status = child.wait().map_err(system("wait for the compiler"))?;
        outcome(status, &module.name(), message)?;
        memory_file::seal(&artifact).map_err(system("seal the artifact"))?;
        Ok(artifact)
    }
}

/// Bounds that hold even if the compiler's own do not.
fn limit(child: &Child) {
    let pid = Pid::from_child(child);
    let cpu = Some(COMPILER_CPU_SECONDS);
    for (resource, limit) in
        [(Resource::Cpu, cpu), (Resource::Fsize, Some(ARTIFACT_MAX_BYTES)), (Resource::Core, Some(0))]
    {
        // It may have ended already.
        let _ = rustix::process::prlimit(Some(pid), resource, Rlimit { current: limit, maximum: limit });
    }
}

/// Reads messages until the compiler closes its end; gives the last lines that are not progress.
fn listen(mut stderr: impl Read, progress: &mut dyn FnMut(u64, u64)) -> String {
    let mut kept = VecDeque::new();
    let mut line = Vec::new();
    let mut chunk = [0; 4096];
    let mut finish = |line: &mut Vec<u8>| {
        let text = String::from_utf8_lossy(line).trim_end().to_owned();
        line.clear();
        match parse_progress(&text) {
            Some((done, total)) => progress(done, total),
            None if text.is_empty() => {}
            None => {
                kept.push_back(text);
                if kept.len() > MESSAGE_LINES {
                    kept.pop_front();
                }
            }
        }
    };
    loop {
        match stderr.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => {
                for &byte in chunk.get(..read).unwrap_or_default() {
                    match byte {
                        b'\n' => finish(&mut line),
                        _ if line.len() < MESSAGE_LINE_BYTES => line.push(byte),
                        _ => {}
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    finish(&mut line);
    kept.pop_back().map(|last| one_line(last.strip_prefix("error: ").unwrap_or(&last))).unwrap_or_default()
}

fn parse_progress(line: &str) -> Option<(u64, u64)> {
    let (done, total) = line.strip_prefix("progress ")?.split_once(' ')?;
    Some((done.parse().ok()?, total.parse().ok()?))
}

/// A message may quote names out of a hostile module: no control character reaches the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn outcome(status: ExitStatus, module: &str, message: String) -> Result<(), StoreError> {
    let module = module.to_owned();
    if let Some(signal) = status.signal() {
        let hint = match signal {
            SIGKILL => ": out of memory?",
            SIGXCPU => ": the limit of CPU time",
            SIGXFSZ => ": the artifact is larger than the limit",
            _ => ": it crashed; please report the module",
        };
        return Err(StoreError::CompilerKilled { module, signal, hint });
    }
    match status.code() {
        Some(0) => Ok(()),
        Some(EXIT_INVALID) if !message.is_empty() => Err(StoreError::Invalid { module, message }),
        Some(code) if message.is_empty() => {
            Err(StoreError::CompilerFailed { module, message: format!("exit code {code}") })
        }
        _ => Err(StoreError::CompilerFailed { module, message }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A shell script in the compiler's place, to see how its ends are told.
    fn run(script: &str) -> (Result<File, StoreError>, Vec<(u64, u64)>) {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("mote-compile");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let wasm = directory.path().join("m.wasm");
        fs::write(&wasm, "module bytes").unwrap();
        let module = Module::open(&wasm).unwrap();
        let mut seen = Vec::new();
        let compiler = Compiler::at(&program).unwrap();
        // A script that another thread's child still holds open for writing is "busy" for a moment.
        loop {
            let compiled =
                compiler.compile(&module, &Options::default(), &mut |done, total| seen.push((done, total)));
            match &compiled {
                Err(StoreError::CannotStart { source, .. })
                    if source.kind() == io::ErrorKind::ExecutableFileBusy => {}
                _ => return (compiled, seen),
            }
        }
    }

    fn failure(script: &str) -> String {
        run(script).0.unwrap_err().to_string()
    }

    #[test]
    fn what_it_writes_is_the_artifact() {
        let (compiled, progress) = run("echo 'progress 1 4' >&2; echo 'progress 4 4' >&2; echo \"$@\"; cat");
        let mut text = String::new();
        let mut file = compiled.unwrap();
        io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "--opt-level 3 --progress - -o -\nmodule bytes");
        assert_eq!(progress, [(1, 4), (4, 4)]);
    }

    #[test]
    fn its_last_line_is_passed_on() {
        let said = failure("echo note >&2; echo 'error: function 3: bad opcode at offset 0x1f' >&2; exit 1");
        assert!(said.ends_with("m.wasm: function 3: bad opcode at offset 0x1f"), "{said}");
        let said = failure("echo 'error: memory limit of 1 GiB' >&2; exit 3");
        assert!(said.ends_with("m.wasm: the compiler failed: memory limit of 1 GiB"), "{said}");
        let said = failure("exit 3");
        assert!(said.ends_with("the compiler failed: exit code 3"), "{said}");
        let said = failure("printf 'error: import \\033[2J' >&2; exit 1");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }

    #[test]
    fn its_death_is_told() {
        assert!(failure("kill -KILL $$").ends_with("killed by signal 9: out of memory?"));
        assert!(failure("kill -XCPU $$").ends_with("killed by signal 24: the limit of CPU time"));
        assert!(failure("kill -SEGV $$").contains("killed by signal 11: it crashed"));
    }

    #[test]
    fn endless_messages_are_bounded() {
        let said = failure("head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 1");
        assert!(said.len() < 2 * MESSAGE_LINE_BYTES, "{}", said.len());
    }

    #[test]
    fn a_compiler_that_is_not_there_says_where_it_was_looked_for() {
        let error = Compiler::at(Path::new("/nonexistent/mote-compile")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/mote-compile"), "{error}");
    }
}
