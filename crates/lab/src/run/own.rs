//! A module of the user's own, in every engine: there is no native program to compare with unless one is named, so what most print is right.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::interrupt::Interrupt;
use super::plan::{self, Files, Plan, Unit};
use super::{Session, Settings};
use crate::peer;
use crate::record::Report;
use crate::suite::{Effort, Measure};

/// The name of such a run where a suite's would stand.
const NAME: &str = "module";
/// The build is not known: engines that lack what it needs fail.
const BUILD: &str = "stock";
/// How it is run when the user does not say.
const EFFORT: Effort = Effort { rounds: 10, timeout_s: 600, slow_s: 10.0, slow_rounds: 3, budget_s: None };

/// What is to be run.
#[derive(Clone, Debug)]
pub struct OwnModule {
    /// A WASI preview 1 command.
    pub module: PathBuf,
    /// What each run's directory is a copy of.
    pub dir: Option<PathBuf>,
    /// A native program that does the same.
    pub native: Option<PathBuf>,
    /// The guest's arguments.
    pub args: Vec<String>,
}

/// Runs it.
pub fn own_module(own: OwnModule, settings: &Settings, interrupt: &Interrupt) -> Result<Report> {
    let absolute =
        |path: &Path| path.canonicalize().with_context(|| format!("cannot find {}", path.display()));
    let module = absolute(&own.module)?;
    let name = module.file_stem().map_or_else(|| NAME.into(), |stem| stem.to_string_lossy().into_owned());
    let natives: BTreeMap<String, Files> = match &own.native {
        Some(program) => [("native".to_string(), Files { program: absolute(program)?, check: None })].into(),
        None => BTreeMap::new(),
    };
    let dir = own.dir.as_deref().map(absolute).transpose()?;
    ensure!(dir.as_ref().is_none_or(|dir| dir.is_dir()), "--dir is not a directory");
    let session = Session::begin(NAME, settings, settings.effort(EFFORT, EFFORT), interrupt)?;
    let mut participants =
        plan::participants(peer::all()?, &settings.subjects, !settings.subjects.is_empty())?;
    // Without a native program there is nothing native.
    participants
        .0
        .retain(|participant| !natives.is_empty() || participant.subject.mode != crate::record::Mode::Native);
    let unit = Unit {
        workload: plan::workload(&name, NAME, BUILD, &module)?,
        measures: vec![Measure::Run],
        wasm: Files { program: module, check: None },
        natives,
        subjects: Vec::new(),
        args: own.args,
        dir,
        repeat: 1,
        family: 0,
    };
    let plan = Plan::new(participants, vec![unit], session.scratch.path());
    session.finish(plan)
}
