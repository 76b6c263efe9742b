//! Where the workloads come from: the project's `scripts/corpus`, which fetches, compiles and keeps them.

use std::collections::BTreeMap;
use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::run::interrupt::Interrupt;

/// The script inside a checkout.
const SCRIPT: &str = "scripts/corpus";
/// How often it is asked whether the script has ended.
const POLL: Duration = Duration::from_millis(50);

/// A checkout of Mote.
#[derive(Clone, Debug)]
pub struct Corpus {
    checkout: PathBuf,
}

impl Corpus {
    /// The checkout that the user named, that of $MOTE_CORPUS, or the one whose bin/ holds this program.
    pub fn find(named: Option<&Path>) -> Result<Corpus> {
        let variable = env::var_os("MOTE_CORPUS").filter(|path| !path.is_empty()).map(PathBuf::from);
        if let Some(checkout) = named.map(Path::to_owned).or(variable) {
            ensure!(
                checkout.join(SCRIPT).is_file(),
                "{} has no {SCRIPT}: name a checkout of Mote",
                checkout.display()
            );
            return Ok(Corpus { checkout });
        }
        let program = env::current_exe().context("this program's path is not known")?;
        let folders = program.ancestors().skip(1).map(Path::to_owned).chain(env::current_dir().ok());
        match folders.into_iter().find(|folder| folder.join(SCRIPT).is_file()) {
            Some(checkout) => Ok(Corpus { checkout }),
            None => bail!(
                "the workloads are built by {SCRIPT} of Mote's source: say where it is with --corpus DIR or MOTE_CORPUS"
            ),
        }
    }

    /// Builds the things that are not there yet; gives the path of each by its name.
    pub fn build(&self, things: &[String], interrupt: &Interrupt) -> Result<BTreeMap<String, PathBuf>> {
        let mut command = Command::new(self.checkout.join(SCRIPT));
        command.args(things).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {SCRIPT} in {}", self.checkout.display()))?;
        let pid = Pid::from_child(&child);
        // The answer is a few lines, which fit into the pipe.
        while child.try_wait().context("the corpus script cannot be waited for")?.is_none() {
            if interrupt.requested() {
                let _ = kill_process_group(pid, Signal::KILL);
            }
            thread::sleep(POLL);
        }
        let output = child.wait_with_output().context("the corpus script's answer was lost")?;
        ensure!(!interrupt.requested(), "interrupted before anything was measured");
        ensure!(output.status.success(), "{SCRIPT} {} ended with {}", things.join(" "), output.status);
        let text = String::from_utf8(output.stdout).context("the corpus script's answer is not text")?;
        let paths: BTreeMap<String, PathBuf> = text
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(name, path)| (name.into(), path.into()))
            .collect();
        for thing in things {
            ensure!(paths.contains_key(thing), "{SCRIPT} said nothing about {thing}");
        }
        Ok(paths)
    }
}
