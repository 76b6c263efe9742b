//! Runs commands through the agent and reads its answers.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::agent::{Killed, Measured, OUTPUT_BYTES};
use super::interrupt::Interrupt;
use crate::peer::Invocation;
use crate::record::{Failure, FailureKind};

/// How often the lab looks whether it was interrupted while a process runs.
const POLL: Duration = Duration::from_millis(50);
/// How much later than the process's own timeout the agent is given up.
const GRACE: Duration = Duration::from_secs(30);
/// The longest line of a message in a report, characters.
const MESSAGE_CHARACTERS: usize = 240;

/// How a process ended, what it cost and what it wrote.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The figures.
    pub measured: Measured,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Outcome {
    /// What is wrong with how it ended; None after exit code 0.
    pub fn failure(&self, timeout: Duration) -> Option<Failure> {
        let failed = |kind, reason| Some(Failure { kind, reason });
        match self.measured.killed {
            Some(Killed::Timeout) => {
                return failed(
                    FailureKind::Timeout,
                    format!("did not end within {} s", timeout.as_secs_f64()),
                );
            }
            Some(Killed::Interrupted) => return failed(FailureKind::Interrupted, "interrupted".into()),
            Some(Killed::Output) => {
                return failed(FailureKind::Crash, format!("wrote more than {OUTPUT_BYTES} bytes"));
            }
            None => {}
        }
        if let Some(error) = &self.measured.start_error {
            return failed(FailureKind::Crash, error.clone());
        }
        if self.measured.code == Some(0) {
            return None;
        }
        let how = match (self.measured.code, self.measured.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "ended in a way that is not known".into(),
        };
        let said = self.last_words();
        failed(FailureKind::Crash, if said.is_empty() { how } else { format!("{how}: {said}") })
    }

    /// The line of standard error that says most: one that speaks of an error, or the last.
    fn last_words(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = lines().find(|line| line.to_lowercase().contains("error")).or_else(|| lines().next_back());
        line.unwrap_or("")
            .chars()
            .filter(|character| !character.is_control())
            .take(MESSAGE_CHARACTERS)
            .collect()
    }
}

/// Starts agents.
#[derive(Clone, Debug)]
pub struct Runner {
    program: PathBuf,
    interrupt: Interrupt,
}

impl Runner {
    /// `program` is `mote-lab` itself.
    pub fn new(program: PathBuf, interrupt: Interrupt) -> Runner {
        Runner { program, interrupt }
    }

    /// Whether the user wants an end.
    pub fn interrupted(&self) -> bool {
        self.interrupt.requested()
    }

    /// Runs a command in a directory to its end. Errors are the lab's own; what goes wrong with the command is in the outcome.
    pub fn run(&self, invocation: &Invocation, dir: &Path, timeout: Duration) -> Result<Outcome> {
        let mut command = Command::new(&self.program);
        command
            .arg("measure-one")
            .arg("--timeout-ms")
            .arg(timeout.as_millis().to_string())
            .arg("--dir")
            .arg(dir);
        command.arg("--").arg(&invocation.program).args(&invocation.args).envs(&invocation.env);
        // In a group of its own, so that the terminal's Ctrl-C reaches the lab alone.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut agent =
            command.spawn().with_context(|| format!("cannot start {} again", self.program.display()))?;
        let mut lifeline = agent.stdin.take();
        let stdout = agent.stdout.take().context("the agent has no output")?;
        let (sender, answer) = mpsc::channel();
        let reader = thread::spawn(move || drop(sender.send(read_answer(stdout))));
        let mut waited = Duration::ZERO;
        let outcome = loop {
            match answer.recv_timeout(POLL) {
                Ok(outcome) => break outcome,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    waited += POLL;
                    if self.interrupted() {
                        drop(lifeline.take());
                    }
                    if waited > timeout + GRACE {
                        let _ = agent.kill();
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the agent's answer was lost"),
            }
        };
        drop(lifeline);
        let status = agent.wait().context("the agent cannot be waited for")?;
        let _ = reader.join();
        outcome.with_context(|| format!("the agent ended with {status} and no answer for: {invocation}"))
    }
}

fn read_answer(stream: impl Read) -> Result<Outcome> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.by_ref().take(64 * 1024).read_line(&mut line)?;
    let measured: Measured = serde_json::from_str(&line).context("not an answer")?;
    let mut read = |count: usize| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        stream.by_ref().take(count as u64).read_to_end(&mut bytes)?;
        ensure!(bytes.len() == count, "the answer is cut short");
        Ok(bytes)
    };
    let stdout = read(measured.stdout_bytes)?;
    let stderr = read(measured.stderr_bytes)?;
    Ok(Outcome { measured, stdout, stderr })
}
