//! Runs one process and says what it cost. The lab starts itself again for each run (`mote-lab measure-one`): the kernel counts the memory
//! of whoever starts a program into that program's largest resident set, so the starter must be a small, fresh process.
//!
//! The answer goes to standard output: one line of JSON ([`Measured`]), then what the process wrote to its standard output and to its
//! standard error. When the lab closes the agent's standard input, or dies, the process is killed.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::{Deserialize, Serialize};
use wait4::Wait4;

/// The most that a process may write to one of its streams.
pub const OUTPUT_BYTES: u64 = 64 << 20;
/// How long a stream may stay open after the process ended and its group was killed.
const DRAIN: Duration = Duration::from_secs(5);

/// Why a process was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Killed {
    /// It did not end in time.
    Timeout,
    /// The lab wants it no more.
    Interrupted,
    /// It wrote more than [`OUTPUT_BYTES`].
    Output,
}

impl Killed {
    fn from_code(code: u8) -> Option<Killed> {
        [Killed::Timeout, Killed::Interrupted, Killed::Output].into_iter().find(|why| *why as u8 + 1 == code)
    }
}

/// What a process cost and how it ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Why it did not start.
    pub start_error: Option<String>,
    /// Its exit code.
    pub code: Option<i32>,
    /// Or the signal that ended it.
    pub signal: Option<i32>,
    /// Why it was killed.
    pub killed: Option<Killed>,
    /// User and system time of it and of what it waited for.
    pub cpu_s: f64,
    /// From start to exit.
    pub wall_s: f64,
    /// The largest resident set among it and what it waited for.
    pub peak_bytes: u64,
    /// Instructions in user mode, where the machine counts them.
    pub instructions: Option<u64>,
    /// How many bytes follow for standard output.
    pub stdout_bytes: usize,
    /// And for standard error.
    pub stderr_bytes: usize,
}

/// Kills the process's group as long as it is not reaped: afterwards the number may be somebody else's.
struct Group {
    pid: Pid,
    alive: Mutex<bool>,
    why: AtomicU8,
}

impl Group {
    fn kill(&self, why: Killed) {
        let alive = self.alive.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if *alive {
            let _ = self.why.compare_exchange(0, why as u8 + 1, Ordering::Relaxed, Ordering::Relaxed);
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// What it left behind is killed too; its number is still taken, because it is not reaped yet.
    fn end(&self) {
        *self.alive.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = false;
        let _ = kill_process_group(self.pid, Signal::KILL);
    }
}

/// The agent's whole life.
pub fn main(timeout: Duration, dir: &Path, command: &[OsString]) -> Result<()> {
    let (measured, stdout, stderr) = match measure(timeout, dir, command) {
        Ok(outcome) => outcome,
        Err(error) => (
            Measured { start_error: Some(format!("{error:#}")), ..Measured::default() },
            Vec::new(),
            Vec::new(),
        ),
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &measured)?;
    out.write_all(b"\n")?;
    out.write_all(&stdout)?;
    out.write_all(&stderr)?;
    out.flush().context("cannot answer")
}

fn measure(timeout: Duration, dir: &Path, words: &[OsString]) -> Result<(Measured, Vec<u8>, Vec<u8>)> {
    let (program, arguments) = words.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(dir).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut counter = Instructions::start();
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("{} does not start", program.display()))?;
    let pid = Pid::from_child(&child);
    let group = Arc::new(Group { pid, alive: Mutex::new(true), why: AtomicU8::new(0) });

    let outputs = [
        child.stdout.take().map(|stream| collect(stream, Arc::clone(&group))),
        child.stderr.take().map(|stream| collect(stream, Arc::clone(&group))),
    ];
    let (ended, end) = mpsc::channel::<()>();
    let watched = Arc::clone(&group);
    let watch = thread::spawn(move || {
        if end.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
            watched.kill(Killed::Timeout);
        }
    });
    let lab = Arc::clone(&group);
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        lab.kill(Killed::Interrupted);
    });

    // It ends, but keeps its number until it is reaped.
    while waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        .is_err_and(|error| error == rustix::io::Errno::INTR)
    {}
    let wall = start.elapsed();
    let instructions = counter.as_mut().and_then(Instructions::stop);
    group.end();
    drop(ended);
    let used = child.wait4().context("it cannot be waited for")?;
    let _ = watch.join();
    let [stdout, stderr] = outputs
        .map(|receiver| receiver.and_then(|receiver| receiver.recv_timeout(DRAIN).ok()).unwrap_or_default());
    let measured = Measured {
        start_error: None,
        code: used.status.code(),
        signal: used.status.signal(),
        killed: Killed::from_code(group.why.load(Ordering::Relaxed)),
        cpu_s: (used.rusage.utime + used.rusage.stime).as_secs_f64(),
        wall_s: wall.as_secs_f64(),
        peak_bytes: used.rusage.maxrss,
        instructions,
        stdout_bytes: stdout.len(),
        stderr_bytes: stderr.len(),
    };
    Ok((measured, stdout, stderr))
}

/// Reads a stream to its end in a thread; too much of it ends the process.
fn collect(stream: impl Read + Send + 'static, group: Arc<Group>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut stream = stream.take(OUTPUT_BYTES);
        let _ = stream.read_to_end(&mut bytes);
        if stream.limit() == 0 {
            group.kill(Killed::Output);
        }
        let _ = sender.send(bytes);
    });
    receiver
}

/// Counts what this process's children execute in user mode. What the agent itself does between start and stop, starting a
/// program and sleeping, is counted too: some ten thousand instructions.
struct Instructions(perf_event::Counter);

impl Instructions {
    /// None where the machine does not count, as in most virtual machines, or does not let us.
    fn start() -> Option<Instructions> {
        let mut counter = perf_event::Builder::new(perf_event::events::Hardware::INSTRUCTIONS)
            .inherit(true)
            .build()
            .ok()?;
        counter.enable().ok()?;
        Some(Instructions(counter))
    }

    fn stop(&mut self) -> Option<u64> {
        self.0.disable().ok()?;
        self.0.read().ok().filter(|count| *count > 0)
    }
}
