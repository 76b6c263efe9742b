//! The command line. Help and completions come from these structs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// Measures WebAssembly runtimes side by side: the same bytes for every engine, every output checked, intervals with every figure.
#[derive(Debug, Parser)]
#[command(name = "mote-lab", version, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Options {
    /// What to do instead of running a suite.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The suite to run: a name from `mote-lab list`, or a TOML file.
    pub suite: Option<String>,
    /// Fewer rounds and smaller workloads: done within ten minutes on two cores.
    #[arg(long)]
    pub quick: bool,
    /// How it is measured and where the report goes.
    #[command(flatten)]
    pub run: RunOptions,
}

/// What suites and modules of the user's own have in common.
#[derive(Clone, Debug, Args)]
pub struct RunOptions {
    /// Measure these only (names of subjects or peers, `wasmtime*` for all that begin so). Mote and native are always measured.
    #[arg(long, value_delimiter = ',', value_name = "A,B,…")]
    pub peers: Vec<String>,
    /// Write the report here.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the report as one HTML page here.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Timed rounds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: Option<u32>,
    /// Seeds the order of the runs.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The longest that one run may take, seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// A checkout of Mote, whose `scripts/corpus` builds the workloads (also $MOTE_CORPUS; by default where `mote-lab` was built).
    #[arg(long, value_name = "DIR")]
    pub corpus: Option<PathBuf>,
}

/// Everything but the suites.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a module of your own in every engine; their outputs must agree.
    Run {
        /// A WASI preview 1 command.
        module: PathBuf,
        /// The directory that the guest sees as `/`. Every run starts with a copy of it (default: an empty one).
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// A native program that does the same, as the yardstick.
        #[arg(long, value_name = "PROGRAM")]
        native: Option<PathBuf>,
        /// How it is measured and where the report goes.
        #[command(flatten)]
        run: RunOptions,
        /// The guest's arguments.
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// List suites, their workloads, and subjects.
    List,
    /// Compare two reports: what became faster, what slower, what cannot be said.
    Compare {
        /// The report before.
        old: PathBuf,
        /// The report after.
        new: PathBuf,
        /// Exit with 1 when mote is slower, or larger, over a whole group of workloads.
        #[arg(long)]
        fail_if_slower: bool,
    },
    /// Make one HTML page of reports.
    Report {
        /// Reports written by `--json`.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Where the page goes.
        #[arg(long, value_name = "FILE")]
        html: PathBuf,
    },
    /// Say which peers are here, in which version, and how to get the others.
    Peers {
        /// What to do with them.
        #[command(subcommand)]
        action: Option<PeersAction>,
    },
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Runs and measures one process; `mote-lab` calls itself so.
    #[command(name = "measure-one", hide = true)]
    MeasureOne {
        /// Kill it after so many milliseconds.
        #[arg(long)]
        timeout_ms: u64,
        /// Where it starts.
        #[arg(long)]
        dir: PathBuf,
        /// The program and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// What to do with peers.
#[derive(Debug, Subcommand)]
pub enum PeersAction {
    /// Install peers from the package registries into the lab's own folder.
    Install {
        /// Names of peers.
        #[arg(required = true)]
        names: Vec<String>,
    },
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    if (0.001..=86_400.0).contains(&value) {
        Ok(Duration::from_secs_f64(value))
    } else {
        Err("not between 0.001 and 86400 seconds".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_suite_is_a_word_and_a_module_comes_after_run() {
        let options =
            Options::try_parse_from(["mote-lab", "speed", "--quick", "--peers", "mote,wasmi", "--json", "f"])
                .unwrap();
        assert_eq!(options.suite.as_deref(), Some("speed"));
        assert!(options.quick && options.run.peers == ["mote", "wasmi"]);
        let options =
            Options::try_parse_from(["mote-lab", "run", "x.wasm", "--peers", "mote", "--", "--a", "b"])
                .unwrap();
        match options.command {
            Some(Command::Run { args, run, .. }) => assert!(args == ["--a", "b"] && run.peers == ["mote"]),
            other => panic!("{other:?}"),
        }
        assert!(Options::try_parse_from(["mote-lab", "speed", "--rounds", "0"]).is_err());
        assert!(Options::try_parse_from(["mote-lab", "speed", "--timeout", "-1"]).is_err());
    }
}
