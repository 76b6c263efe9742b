//! Who runs what: subjects and workloads, and a cell for each pair.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::peer::{Found, Inputs, Installation, Invocation, Peer, PeerSubject};
use crate::record::{Failure, FailureKind, Metric, Mode, Subject, Workload};
use crate::suite::{self, Measure, Set, Suite, fill};

/// Always measured: what others are compared with.
const ALWAYS: [&str; 2] = ["mote", "native"];

/// A subject, and how it is run when it is here.
pub struct Participant {
    /// As it is reported.
    pub subject: Subject,
    /// Its commands.
    pub spec: PeerSubject,
    /// Where its program is; None when it is missing.
    pub installation: Option<Installation>,
}

/// A program that must write a file with a known content.
#[derive(Clone, Debug)]
pub struct CheckFiles {
    /// The module or native program.
    pub program: PathBuf,
    /// What it must write.
    pub expected: PathBuf,
    /// Where, below its directory.
    pub writes: String,
    /// Where a copy of the expected file must be.
    pub copy: Option<String>,
}

/// The files that one kind of subject runs.
#[derive(Clone, Debug)]
pub struct Files {
    /// The module or native program that is timed.
    pub program: PathBuf,
    /// What is run before to see whether answers are right.
    pub check: Option<CheckFiles>,
}

/// A workload in one build, with what is needed to run it.
pub struct Unit {
    /// As it is reported.
    pub workload: Workload,
    /// What is measured of it.
    pub measures: Vec<Measure>,
    /// For engines.
    pub wasm: Files,
    /// For native subjects, by native build.
    pub natives: BTreeMap<String, Files>,
    /// Who runs it, by name, peer or pattern; empty for everybody.
    pub subjects: Vec<String>,
    /// The guest's arguments.
    pub args: Vec<String>,
    /// What each run's directory is a copy of; None for an empty one.
    pub dir: Option<PathBuf>,
    /// See [`Set::repeat`].
    pub repeat: u32,
    /// The same for all builds of a workload: native cells are measured once for all of them, and outputs must agree.
    pub family: usize,
}

/// A unit and a participant.
pub struct PlannedCell {
    /// Index of the unit.
    pub unit: usize,
    /// Index of the participant.
    pub participant: usize,
    /// The cell that is measured for this one too: the native program is the same for every build of the guest.
    pub copy_of: Option<usize>,
    /// Why it is not run, or not run any more.
    pub failure: Option<Failure>,
    /// What was measured, round by round.
    pub samples: BTreeMap<Metric, Vec<f64>>,
    /// Compiles what is timed.
    pub compile: Option<Invocation>,
    /// Runs it.
    pub run: Option<Invocation>,
    /// What `compile` makes and `run` takes, without the subject's extension.
    stem: PathBuf,
    /// And with it.
    pub artifact: PathBuf,
    /// Its directory, empty before each run.
    pub dir: PathBuf,
    /// What it printed when it was checked.
    pub output: Option<Vec<u8>>,
}

/// Everything that is to be measured.
pub struct Plan {
    /// The subjects.
    pub participants: Vec<Participant>,
    /// The workloads.
    pub units: Vec<Unit>,
    /// The pairs.
    pub cells: Vec<PlannedCell>,
    /// Runtimes that cannot be had, with the reason: they have no commands.
    pub absent: Vec<Subject>,
    /// What right programs print, by family.
    pub references: BTreeMap<usize, Vec<u8>>,
    /// What the reader of the report should know.
    pub remarks: Vec<String>,
}

/// The subjects that were asked for, those that are missing too; and runtimes that cannot be had and are named all the same, so that nobody
/// wonders where they are.
pub fn participants(
    peers: Vec<Peer>,
    asked: &[String],
    strict: bool,
) -> Result<(Vec<Participant>, Vec<Subject>)> {
    let names: BTreeSet<String> =
        peers.iter().flat_map(|peer| &peer.subjects).map(|subject| subject.name.clone()).collect();
    let is_subject = |name: &str| names.contains(name);
    for pattern in asked.iter().filter(|_| strict) {
        let one = std::slice::from_ref(pattern);
        let known = peers.iter().any(|peer| {
            peer.name == *pattern
                || peer
                    .subjects
                    .iter()
                    .any(|subject| suite::selects(one, &subject.name, &peer.name, is_subject))
        });
        ensure!(known, "there is no subject or peer '{pattern}': `mote-lab list` shows them");
    }
    let (mut participants, mut absent) = (Vec::new(), Vec::new());
    for peer in peers {
        if peer.subjects.is_empty() && (asked.is_empty() || asked.contains(&peer.name)) {
            absent.push(absentee(&peer));
        }
        let chosen: Vec<PeerSubject> = peer
            .subjects
            .iter()
            .filter(|subject| {
                asked.is_empty()
                    || ALWAYS.contains(&subject.name.as_str())
                    || suite::selects(asked, &subject.name, &peer.name, is_subject)
            })
            .cloned()
            .collect();
        if chosen.is_empty() {
            continue;
        }
        let found = peer.find();
        participants.extend(chosen.into_iter().map(|spec| participant(&peer, spec, &found)));
    }
    if participants.iter().all(|participant| participant.installation.is_none()) {
        bail!("none of the subjects is on this machine: `mote-lab peers` says how to get them");
    }
    Ok((participants, absent))
}

fn absentee(peer: &Peer) -> Subject {
    Subject {
        name: peer.name.clone(),
        runtime: peer.name.clone(),
        version: None,
        mode: Mode::AheadOfTime,
        optimised: None,
        command: String::new(),
        features: peer.features.clone(),
        missing: Some(peer.install.reason.clone().unwrap_or_else(|| "it cannot be had".into())),
    }
}

fn participant(peer: &Peer, spec: PeerSubject, found: &Found) -> Participant {
    let (installation, missing) = match found {
        Found::Here(installation) => match installation.lacks(&spec) {
            Some(reason) => (None, Some(reason)),
            None => (Some(installation.clone()), None),
        },
        Found::Missing { reason } => (None, Some(reason.clone())),
    };
    let subject = Subject {
        name: spec.name.clone(),
        runtime: peer.name.clone(),
        version: installation.as_ref().map(|installation| installation.version.clone()),
        mode: spec.mode,
        optimised: spec.optimised,
        command: command_line(&spec),
        features: peer.features.clone(),
        missing,
    };
    Participant { subject, spec, installation }
}

fn command_line(spec: &PeerSubject) -> String {
    match &spec.prepare {
        Some(prepare) => format!("{prepare} && {}", spec.run),
        None => spec.run.to_string(),
    }
}

/// The things of `scripts/corpus` that a suite needs for these subjects.
pub fn things(suite: &Suite, quick: bool, participants: &[Participant]) -> Vec<String> {
    let mut things = BTreeSet::new();
    for set in &suite.sets {
        let natives = set
            .natives
            .iter()
            .filter(|build| participants.iter().any(|participant| participant.runs_native(build)));
        let builds: Vec<&String> = set.builds(quick).iter().chain(natives).collect();
        for name in set.workloads(quick) {
            things.extend(builds.iter().map(|build| fill(&set.corpus, name, build)));
        }
    }
    things.into_iter().collect()
}

impl Participant {
    fn runs_native(&self, build: &str) -> bool {
        self.spec.mode == Mode::Native && self.installation.is_some() && self.spec.runs_build(build)
    }
}

/// The workloads of a suite, from the paths of its things.
pub fn units(suite: &Suite, quick: bool, paths: &BTreeMap<String, PathBuf>) -> Result<Vec<Unit>> {
    let mut units = Vec::new();
    let mut family = 0;
    for set in &suite.sets {
        for name in set.workloads(quick) {
            family += 1;
            let natives: BTreeMap<String, Files> = set
                .natives
                .iter()
                .filter_map(|build| Some((build.clone(), native_files(set, name, build, quick, paths)?)))
                .collect();
            for build in set.builds(quick) {
                let thing =
                    thing(set, name, build, paths).with_context(|| format!("{name}, {build}: no path"))?;
                let program =
                    set.module(quick).map_or(thing.clone(), |inside| thing.join(fill(inside, name, build)));
                let check =
                    set.check.as_ref().map(|check| check_files(set, &thing, &check.wasm, name, build));
                units.push(Unit {
                    workload: workload(name, &set.group, build, &program)?,
                    measures: set.measure.clone(),
                    wasm: Files { program, check: check.flatten() },
                    natives: natives.clone(),
                    subjects: set.subjects.clone(),
                    args: set.arguments(name, quick),
                    dir: None,
                    repeat: set.repeat,
                    family,
                });
            }
        }
    }
    Ok(units)
}

/// A workload as it is reported, with its hash and size.
pub fn workload(name: &str, group: &str, build: &str, module: &Path) -> Result<Workload> {
    let (sha256, bytes) = digest(module).with_context(|| format!("cannot read {}", module.display()))?;
    Ok(Workload { name: name.into(), group: group.into(), build: build.into(), sha256, bytes })
}

fn thing(set: &Set, name: &str, build: &str, paths: &BTreeMap<String, PathBuf>) -> Option<PathBuf> {
    paths.get(&fill(&set.corpus, name, build)).cloned()
}

fn native_files(
    set: &Set,
    name: &str,
    build: &str,
    quick: bool,
    paths: &BTreeMap<String, PathBuf>,
) -> Option<Files> {
    let thing = thing(set, name, build, paths)?;
    let program =
        set.native_program(quick).map_or(thing.clone(), |inside| thing.join(fill(inside, name, build)));
    let check = set.check.as_ref().and_then(|check| check_files(set, &thing, &check.native, name, build));
    Some(Files { program, check })
}

fn check_files(set: &Set, thing: &Path, program: &str, name: &str, build: &str) -> Option<CheckFiles> {
    let check = set.check.as_ref()?;
    Some(CheckFiles {
        program: thing.join(fill(program, name, build)),
        expected: thing.join(fill(&check.expected, name, build)),
        writes: fill(&check.writes, name, build),
        copy: check.copy.as_ref().map(|copy| fill(copy, name, build)),
    })
}

fn digest(file: &Path) -> io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    let bytes = io::copy(&mut File::open(file)?, &mut HashWriter(&mut hasher))?;
    Ok((hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), bytes))
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Plan {
    /// Pairs them; what cannot be run is a cell that says why.
    pub fn new(
        (participants, absent): (Vec<Participant>, Vec<Subject>),
        units: Vec<Unit>,
        scratch: &Path,
    ) -> Plan {
        let mut cells: Vec<PlannedCell> = Vec::new();
        let mut natives: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (place, unit) in units.iter().enumerate() {
            for (number, participant) in participants.iter().enumerate() {
                if !unit.is_for(&participant.subject, &participants) {
                    continue;
                }
                let folder = scratch.join(format!(
                    "{}-{}-{}",
                    unit.workload.name, unit.workload.build, participant.subject.name
                ));
                let mut cell = PlannedCell {
                    unit: place,
                    participant: number,
                    copy_of: None,
                    failure: None,
                    samples: BTreeMap::new(),
                    compile: None,
                    run: None,
                    artifact: participant.spec.artifact(&folder.join("artifact")),
                    stem: folder.join("artifact"),
                    dir: folder.join("dir"),
                    output: None,
                };
                if participant.subject.mode == Mode::Native {
                    if unit.native_build(participant).is_none() && participant.installation.is_some() {
                        continue;
                    }
                    cell.copy_of = natives.get(&(unit.family, number)).copied();
                    natives.entry((unit.family, number)).or_insert(cells.len());
                }
                cell.failure = cell.plan(unit, participant).err();
                cells.push(cell);
            }
        }
        Plan { participants, units, cells, absent, references: BTreeMap::new(), remarks: Vec::new() }
    }
}

impl Unit {
    fn is_for(&self, subject: &Subject, participants: &[Participant]) -> bool {
        let is_subject = |name: &str| participants.iter().any(|participant| participant.subject.name == name);
        self.subjects.is_empty()
            || subject.mode == Mode::Native
            || suite::selects(&self.subjects, &subject.name, &subject.runtime, is_subject)
    }

    fn native_build(&self, participant: &Participant) -> Option<&Files> {
        self.natives.iter().find(|(build, _)| participant.spec.runs_build(build)).map(|(_, files)| files)
    }

    /// What this participant runs.
    pub fn files(&self, participant: &Participant) -> Option<&Files> {
        if participant.subject.mode == Mode::Native {
            self.native_build(participant)
        } else {
            Some(&self.wasm)
        }
    }
}

impl PlannedCell {
    fn plan(&mut self, unit: &Unit, participant: &Participant) -> Result<(), Failure> {
        let failed = |kind, reason: String| Failure { kind, reason };
        let Some(installation) = &participant.installation else {
            return Err(failed(
                FailureKind::Missing,
                participant.subject.missing.clone().unwrap_or_else(|| "not on this machine".into()),
            ));
        };
        let build = &unit.workload.build;
        let files = unit
            .files(participant)
            .filter(|_| participant.subject.mode == Mode::Native || participant.spec.runs_build(build));
        let Some(files) = files else {
            return Err(failed(FailureKind::Unsupported, format!("cannot run the build '{build}'")));
        };
        let inputs = Inputs { wasm: &files.program, artifact: &self.stem, dir: &self.dir, args: &unit.args };
        let commands = participant
            .spec
            .prepare(installation, &inputs)
            .and_then(|compile| Ok((compile, participant.spec.run(installation, &inputs)?)));
        let (compile, run) = commands.map_err(|error| failed(FailureKind::Crash, format!("{error:#}")))?;
        let useless = compile.is_none() && unit.measures == [Measure::Compile];
        if useless {
            return Err(failed(FailureKind::Unsupported, "has nothing to compile ahead of time".into()));
        }
        self.compile = compile;
        self.run = Some(run);
        Ok(())
    }

    /// Whether it is still to be run.
    pub fn is_live(&self) -> bool {
        self.failure.is_none() && self.copy_of.is_none()
    }
}
