//! What a suite is: one TOML file that names workloads, what is measured of them, and how often.
//!
//! A suite has sets; the workloads of a set come from the same recipe of `scripts/corpus` and are measured alike. In the templates of a set
//! `{name}` is a workload and `{build}` one of its builds (for a native subject, the native build that the subject names). docs/lab.md
//! has the format.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// The suites that the program carries, in the order in which they are listed.
const SUITES: &[(&str, &str)] = &[
    ("speed.toml", include_str!("../suites/speed.toml")),
    ("compile.toml", include_str!("../suites/compile.toml")),
    ("size.toml", include_str!("../suites/size.toml")),
];

/// The largest suite file that is read, bytes.
const SUITE_FILE_BYTES: u64 = 256 * 1024;
/// The most rounds that a suite may ask for.
const MAX_ROUNDS: u32 = 10_000;

/// One suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Unique: `speed`.
    pub name: String,
    /// One line for `mote-lab list`.
    pub description: String,
    /// How it is run in full.
    pub full: Effort,
    /// How it is run with `--quick`.
    pub quick: Effort,
    /// The subjects by name, peer or pattern; without it all.
    #[serde(default)]
    pub subjects: Vec<String>,
    /// The subjects of `--quick`, unless others are asked for.
    #[serde(default)]
    pub quick_subjects: Vec<String>,
    /// What is measured.
    pub sets: Vec<Set>,
}

/// How much time a run may take.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effort {
    /// Timed rounds.
    pub rounds: u32,
    /// The longest that one run may take, seconds.
    pub timeout_s: u64,
    /// A subject whose first run of a workload takes longer than this gets fewer further rounds there,
    pub slow_s: f64,
    /// so many.
    pub slow_rounds: u32,
    /// No round is begun that would probably end after so many seconds.
    pub budget_s: Option<u64>,
}

/// Workloads that come from the same recipe.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// What geometric means are taken over.
    pub group: String,
    /// What is measured.
    pub measure: Vec<Measure>,
    /// The workloads.
    pub workloads: Vec<String>,
    /// Those of `--quick`; without it all.
    pub quick_workloads: Option<Vec<String>>,
    /// Who runs them; without it every subject. Natives always do.
    #[serde(default)]
    pub subjects: Vec<String>,
    /// How the guests are built.
    pub builds: Vec<String>,
    /// The builds of `--quick`; without it all.
    pub quick_builds: Option<Vec<String>>,
    /// The native builds that there are; a native subject whose build is not among them is left out of this set.
    #[serde(default)]
    pub natives: Vec<String>,
    /// The thing of `scripts/corpus` that has the files.
    pub corpus: String,
    /// The module inside it; without it, the thing is the module.
    pub wasm: Option<String>,
    /// The native program inside it.
    pub native: Option<String>,
    /// Smaller ones for `--quick`.
    pub quick_wasm: Option<String>,
    /// The native program beside them.
    pub quick_native: Option<String>,
    /// Arguments by workload.
    #[serde(default)]
    pub args: BTreeMap<String, Vec<String>>,
    /// Arguments by workload for `--quick`.
    #[serde(default)]
    pub quick_args: BTreeMap<String, Vec<String>>,
    /// How often a process is started for one sample (`start`), or how many sleep at once (`sleep`).
    #[serde(default = "one")]
    pub repeat: u32,
    /// What is run once by each subject before anything is timed, where the timed program prints nothing that could be checked. Without it
    /// the timed program's standard output must be the native one's.
    pub check: Option<Check>,
}

/// A program whose answer is known.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The module.
    pub wasm: String,
    /// The native program.
    pub native: String,
    /// What it must write, a file.
    pub expected: String,
    /// Where it writes it, below its directory.
    pub writes: String,
    /// Where a copy of the expected file must be, below its directory: some programs compare for themselves.
    pub copy: Option<String>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// CPU and wall time, instructions and the largest resident set of a run.
    Run,
    /// Start to exit.
    Start,
    /// The same of the subject's preparation (compiling ahead of time).
    Compile,
    /// Private dirty memory of processes that sleep; the workload prints a line and sleeps for as many seconds as its argument says.
    Sleep,
    /// Bytes of what has to be on the machine to run the workload: native program, artifact, or module.
    Size,
    /// Bytes of the subject's program with the libraries that it loads.
    Program,
}

fn one() -> u32 {
    1
}

impl Suite {
    /// The suite that the user named: one that the program carries, or a file.
    pub fn find(name: &str) -> Result<Suite> {
        if name.ends_with(".toml") {
            let path = Path::new(name);
            let size = fs::metadata(path).with_context(|| format!("cannot read the suite {name}"))?.len();
            ensure!(size <= SUITE_FILE_BYTES, "the suite {name} is larger than {SUITE_FILE_BYTES} bytes");
            let text = fs::read_to_string(path).with_context(|| format!("cannot read the suite {name}"))?;
            return Suite::parse(name, &text);
        }
        for suite in Suite::all()? {
            if suite.name == name {
                return Ok(suite);
            }
        }
        bail!("there is no suite '{name}': `mote-lab list` shows them; a file of your own must end in .toml");
    }

    /// The suites that the program carries.
    pub fn all() -> Result<Vec<Suite>> {
        SUITES.iter().map(|(file, text)| Suite::parse(file, text)).collect()
    }

    fn parse(file: &str, text: &str) -> Result<Suite> {
        let suite: Suite = toml::from_str(text).with_context(|| file.to_string())?;
        suite.check().with_context(|| file.to_string())?;
        Ok(suite)
    }

    fn check(&self) -> Result<()> {
        for effort in [&self.full, &self.quick] {
            ensure!((1..=MAX_ROUNDS).contains(&effort.rounds), "rounds must be between 1 and {MAX_ROUNDS}");
            ensure!(effort.timeout_s > 0, "timeout_s must not be 0");
        }
        ensure!(!self.sets.is_empty(), "it has no [[sets]]");
        for set in &self.sets {
            set.verify().with_context(|| format!("the set '{}'", set.group))?;
        }
        Ok(())
    }
}

impl Set {
    fn verify(&self) -> Result<()> {
        ensure!(
            !self.workloads.is_empty() && !self.builds.is_empty() && !self.measure.is_empty(),
            "workloads, builds and measure must not be empty"
        );
        ensure!(self.repeat > 0, "repeat must not be 0");
        let known = |names: &Option<Vec<String>>, all: &[String]| {
            names.iter().flatten().all(|name| all.contains(name))
        };
        ensure!(
            known(&self.quick_workloads, &self.workloads),
            "quick_workloads names one that is not in workloads"
        );
        ensure!(known(&self.quick_builds, &self.builds), "quick_builds names one that is not in builds");
        ensure!(
            self.args.keys().chain(self.quick_args.keys()).all(|name| self.workloads.contains(name)),
            "args names one that is not in workloads"
        );
        Ok(())
    }

    /// The workloads of a run.
    pub fn workloads(&self, quick: bool) -> &[String] {
        self.quick_workloads.as_ref().filter(|_| quick).unwrap_or(&self.workloads)
    }

    /// The builds of a run.
    pub fn builds(&self, quick: bool) -> &[String] {
        self.quick_builds.as_ref().filter(|_| quick).unwrap_or(&self.builds)
    }

    /// The arguments of a workload.
    pub fn arguments(&self, workload: &str, quick: bool) -> Vec<String> {
        self.quick_args
            .get(workload)
            .filter(|_| quick)
            .or_else(|| self.args.get(workload))
            .cloned()
            .unwrap_or_default()
    }

    /// Where the module is inside its thing.
    pub fn module(&self, quick: bool) -> Option<&str> {
        self.quick_wasm.as_ref().filter(|_| quick).or(self.wasm.as_ref()).map(String::as_str)
    }

    /// Where the native program is inside its thing.
    pub fn native_program(&self, quick: bool) -> Option<&str> {
        self.quick_native.as_ref().filter(|_| quick).or(self.native.as_ref()).map(String::as_str)
    }
}

/// A template of a set with its names put in.
pub fn fill(template: &str, name: &str, build: &str) -> String {
    template.replace("{name}", name).replace("{build}", build)
}

/// Whether one of the names or patterns (`wasmtime*`) means this subject. The name of a subject means that one alone, even when it is
/// a peer's name too.
pub fn selects(patterns: &[String], subject: &str, peer: &str, is_subject: impl Fn(&str) -> bool) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => subject.starts_with(beginning),
        None => pattern == subject || (pattern == peer && !is_subject(pattern)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_of_the_program_are_sound() {
        let names: Vec<String> = Suite::all().unwrap().into_iter().map(|suite| suite.name).collect();
        assert_eq!(names, ["speed", "compile", "size"]);
    }

    #[test]
    fn quick_takes_its_own_files_and_arguments_where_it_has_them() {
        let text = r#"
            name = "x"
            description = "y"
            full = { rounds = 5, timeout_s = 9, slow_s = 1, slow_rounds = 1 }
            quick = { rounds = 2, timeout_s = 9, slow_s = 1, slow_rounds = 0, budget_s = 10 }
            [[sets]]
            group = "g"
            measure = ["run"]
            workloads = ["a", "b"]
            quick_workloads = ["b"]
            builds = ["stock"]
            corpus = "{name}-{build}"
            wasm = "bench/{name}.wasm"
            quick_wasm = "quick/{name}.wasm"
            args = { b = ["9"] }
            quick_args = { b = ["1"] }
        "#;
        let suite = Suite::parse("x.toml", text).unwrap();
        let set = &suite.sets[0];
        assert_eq!((set.workloads(false).len(), set.workloads(true)), (2, &["b".to_string()][..]));
        assert_eq!(
            (set.arguments("b", false), set.arguments("b", true), set.arguments("a", true)),
            (vec!["9".into()], vec!["1".into()], vec![])
        );
        assert_eq!(
            (set.module(false), set.module(true)),
            (Some("bench/{name}.wasm"), Some("quick/{name}.wasm"))
        );
        assert_eq!(fill(&set.corpus, "a", "stock"), "a-stock");
        let wrong = text.replace("args = { b", "args = { c");
        assert!(format!("{:#}", Suite::parse("x.toml", &wrong).unwrap_err()).contains("not in workloads"));
        assert!(Suite::parse("x.toml", &text.replace("rounds = 5", "rounds = 0")).is_err());
    }

    #[test]
    fn a_subject_is_chosen_by_its_name_its_peer_or_the_beginning_of_its_name() {
        let is_subject = |name: &str| ["wasmtime", "wasmtime-winch", "wamr-aot"].contains(&name);
        let chosen = |pattern: &str, subject: &str, peer: &str| {
            selects(&[pattern.to_string()], subject, peer, is_subject)
        };
        assert!(
            chosen("wasmtime", "wasmtime", "wasmtime") && !chosen("wasmtime", "wasmtime-winch", "wasmtime")
        );
        assert!(chosen("wasmtime*", "wasmtime-winch", "wasmtime") && chosen("wamr", "wamr-aot", "wamr"));
        assert!(!chosen("wamr", "wasmtime", "wasmtime"));
    }
}
