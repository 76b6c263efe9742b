//! Runs `mote-compile` on a module and says what it took.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// How a run ended.
pub struct Outcome {
    /// Exit status; 128 and more for a signal.
    pub status: i32,
    /// What was written on standard error.
    pub message: String,
    /// User and system time of all threads.
    pub cpu_seconds: f64,
    /// Peak resident memory.
    pub peak_bytes: u64,
}

impl Outcome {
    /// What no module may bring about.
    pub fn misbehaviour(&self) -> Option<String> {
        let one_line = self.message.lines().count() == 1 && self.message.starts_with("error: ");
        match self.status {
            0 if self.message.is_empty() => None,
            1 if one_line => None,
            0 | 1 => Some(format!("it says {:?}", self.message)),
            _ => Some(self.summary()),
        }
    }

    pub fn summary(&self) -> String {
        let message: String = self.message.trim_end().chars().take(160).collect();
        format!("exit {} {message}", self.status)
    }
}

/// Compiles `wasm` with two threads and 1 GB. The time limit is far above what is allowed, so that it hides nothing.
#[allow(clippy::zombie_processes, reason = "waited for by its number, which tells what it used")]
pub fn compile(wasm: &[u8], arguments: &[&str]) -> Outcome {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let input = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bomb-{}-{number}", std::process::id()));
    std::fs::write(&input, wasm).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mote-compile"));
    command.args(["--jobs", "2", "--max-memory", "1G", "--max-time", "300"]).args(arguments);
    command.arg(&input).args(["-o", "-"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut message = Vec::new();
    child.stderr.take().unwrap().read_to_end(&mut message).unwrap();
    let (status, usage) = wait(child.id());
    std::fs::remove_file(&input).unwrap();
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Outcome {
        status: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
        message: String::from_utf8_lossy(&message).into_owned(),
        cpu_seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        peak_bytes: usage.ru_maxrss as u64 * 1024,
    }
}

/// Waits for a child, with what it used.
fn wait(process: u32) -> (ExitStatus, libc::rusage) {
    let mut status = 0;
    // SAFETY: an rusage is plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places are valid for writes, and the child is ours and not yet waited for.
    let waited = unsafe { libc::wait4(process.cast_signed(), &mut status, 0, &mut usage) };
    assert_eq!(waited, process.cast_signed());
    (ExitStatus::from_raw(status), usage)
}
