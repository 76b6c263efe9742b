//! `mote snapshot`: runs a module's start-up once, and writes an artifact whose instances begin after it.

use std::path::PathBuf;

use mote_runtime::{Func, Module, SnapshotOptions};

use crate::arguments::Arguments;
use crate::build;
use crate::exit::Failure;
use crate::run::guest::{self, AtSnapshot, Guest, SNAPSHOT_IMPORT, SnapshotHere, Stopped};
use crate::run::options::RunOptions;
use crate::run::stats::Stats;
use crate::run::{context, load, open_cache};

/// Functions that are called before the snapshot when no `--init` says which, as Wizer names them.
const INIT_EXPORTS: [&str; 2] = ["wizer.initialize", "wizer-initialize"];

/// A reactor's own start: it has run and must not run again.
const INITIALIZE: &str = "_initialize";

/// What the command line names beside the options of `run`.
struct Plan {
    run: RunOptions,
    init: Option<String>,
    start: Option<String>,
    output: PathBuf,
}

impl Plan {
    fn new(mut arguments: Arguments) -> Result<Self, Failure> {
        let mut own = |name: &str| {
            let at = arguments.flags.iter().position(|(flag, _)| *flag == name)?;
            Some(arguments.flags.remove(at).1)
        };
        let (init, start, output) = (own("init"), own("start"), own("output"));
        let name = |flag, value: Option<std::ffi::OsString>| {
            value.map(|value| crate::values::text(flag, &value).map(str::to_owned)).transpose()
        };
        let (init, start) = (name("init", init)?, name("start", start)?);
        if arguments.operands.is_empty() {
            return Err(Failure::usage("mote snapshot needs a FILE; see mote snapshot --help"));
        }
        let run = RunOptions::new(arguments)?;
        let output = output.map_or_else(|| run.file.with_extension("snapshot.mote"), PathBuf::from);
        build::check_output(&output, &run.file)?;
        Ok(Self { run, init, start, output })
    }

    fn file(&self) -> std::path::Display<'_> {
        self.run.file.display()
    }
}

pub fn main(arguments: Arguments) -> Result<u8, Failure> {
    let plan = Plan::new(arguments)?;
    let cache = open_cache(&plan.run);
    let module = load(&plan.run.file, &plan.run, &cache, &mut Stats::new(false))?;
    drop(cache);
    let init = init(&plan, &module)?;
    let wasi = context(&plan.run)?;
    let mut guest = match guest::prepare(&plan.run, &module, Vec::new(), wasi, AtSnapshot::Stop) {
        Ok(guest) => guest,
        Err(stopped) => return too_early(&plan, stopped),
    };
    let resume = match start_up(&plan, &module, &mut guest, init) {
        Ok(resume) => resume,
        Err(stopped) => return too_early(&plan, stopped),
    };
    write(&plan, &module, guest, init, resume)
}

/// What runs before the snapshot.
#[derive(Clone, Copy)]
enum Init<'a> {
    /// `_initialize` when there is one, then this export.
    Export(&'a str),
    /// `_start`, until it says that its start-up is over.
    Command,
    /// `_initialize` alone.
    Reactor,
}

fn init<'a>(plan: &'a Plan, module: &Module) -> Result<Init<'a>, Failure> {
    let artifact = module.artifact();
    let exports = |name: &str| artifact.export(name).is_some();
    let stops = || artifact.imports().any(|import| (import.module, import.name) == SNAPSHOT_IMPORT);
    if let Some(name) = &plan.init {
        return Ok(Init::Export(name));
    }
    match INIT_EXPORTS.into_iter().find(|name| exports(name)) {
        Some(name) => Ok(Init::Export(name)),
        None if exports("_start") && stops() => Ok(Init::Command),
        None if exports(INITIALIZE) => Ok(Init::Reactor),
        None => Err(Failure::cannot_run(format!(
            "{}: nothing to run before the snapshot: name an export with --init (it has no {}, and does not import {:?} {:?})",
            plan.file(),
            INIT_EXPORTS[0],
            SNAPSHOT_IMPORT.0,
            SNAPSHOT_IMPORT.1
        ))),
    }
}

/// Runs it; gives the function to go on with, when the guest names one.
fn start_up(
    plan: &Plan,
    module: &Module,
    guest: &mut Guest,
    init: Init<'_>,
) -> Result<Option<Func>, Stopped> {
    let run = |guest: &mut Guest, name: &str| -> Result<(), Stopped> {
        let func = guest::function(&plan.run, module, guest, name)?
            .typed::<(), ()>(&guest.store)
            .map_err(|error| Failure::cannot_run(format!("{}: {name}: {error}", plan.file())))?;
        Ok(func.call(&mut guest.store, ())?)
    };
    let ran = match init {
        Init::Command => run(guest, "_start").and_then(|()| Err(no_call(plan).into())),
        Init::Reactor => run(guest, INITIALIZE),
        Init::Export(name) => guest::initialize(&mut guest.store, guest.instance)
            .map_err(Stopped::from)
            .and_then(|()| run(guest, name)),
    };
    let resume = match ran {
        Ok(()) => None,
        Err(Stopped::Guest(trap)) => match trap.downcast_ref::<SnapshotHere>() {
            Some(here) => Some(here.resume),
            None => return Err(Stopped::Guest(trap)),
        },
        Err(stopped) => return Err(stopped),
    };
    let typed = |func: Func, what: &str| match func.typed::<(), ()>(&guest.store) {
        Ok(_) => Ok(func),
        Err(error) => Err(Failure::cannot_run(format!("{}: {what}: {error}", plan.file()))),
    };
    if let Some(name) = &plan.start {
        return Ok(Some(typed(guest::function(&plan.run, module, guest, name)?, name)?));
    }
    let Some(index) = resume else { return Ok(None) };
    let func = guest.instance.indirect_func(&guest.store, index).ok_or_else(|| {
        Failure::cannot_run(format!("{}: mote.snapshot: no function has the address {index}", plan.file()))
    })?;
    Ok(Some(typed(func, "the function passed to mote.snapshot")?))
}

fn no_call(plan: &Plan) -> Failure {
    Failure::cannot_run(format!("{}: the guest ended without calling mote.snapshot", plan.file()))
}

/// The guest ended before there was anything to keep.
fn too_early(plan: &Plan, stopped: Stopped) -> Result<u8, Failure> {
    if let Stopped::Guest(trap) = &stopped
        && let Some(status) = trap.downcast_ref::<mote_wasi::Error>().and_then(|error| error.exit_status())
    {
        return Err(Failure::cannot_run(format!(
            "{}: the guest ended with exit code {status} before the snapshot",
            plan.file()
        )));
    }
    stopped.code(&plan.run)
}

fn write(
    plan: &Plan,
    module: &Module,
    mut guest: Guest,
    init: Init<'_>,
    start: Option<Func>,
) -> Result<u8, Failure> {
    let opened = guest.store.data().opened();
    if let Some(first) = opened.first() {
        return Err(Failure::cannot_run(format!(
            "{}: a snapshot cannot keep open files: the guest holds descriptor {first}{}",
            plan.file(),
            if opened.len() > 1 { format!(" and {} more", opened.len() - 1) } else { String::new() }
        )));
    }
    let mut without = vec![INITIALIZE];
    if let Init::Export(name) = init {
        without.push(name);
    }
    let options = SnapshotOptions { without: &without, start };
    let artifact = guest
        .instance
        .snapshot_with(&mut guest.store, options)
        .map_err(|error| Failure::cannot_run(format!("{}: {error}", plan.file())))?;
    // As in `run`: the process ends soon.
    std::mem::forget((guest, module.clone()));
    build::save(&mut artifact.as_slice(), &plan.output)
        .map_err(|error| Failure::own(format!("cannot write {}: {error}", plan.output.display())))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{arguments, table};

    fn read(line: &[&str]) -> Result<Plan, Failure> {
        let snapshot = table::command("snapshot").unwrap();
        Plan::new(arguments::parse(snapshot, line.iter().map(std::ffi::OsString::from), false)?)
    }

    #[test]
    fn every_flag_of_the_table_is_handled() {
        let mut line = vec!["x.wasm".to_owned()];
        for flag in table::command("snapshot").unwrap().flags() {
            line.push(format!("--{}", flag.name));
            match flag.name {
                "timeout" => line.push("1s".to_owned()),
                "max-memory" | "max-stack" => line.push("1M".to_owned()),
                "opt-level" => line.push("1".to_owned()),
                "env-file" => line.push("/dev/null".to_owned()),
                "output" => line.push("out.mote".to_owned()),
                _ if flag.value.is_empty() => {}
                name => line.push(name.to_owned()),
            }
        }
        line.extend(["--".to_owned(), "--arg".to_owned()]);
        let line: Vec<_> = line.iter().map(String::as_str).collect();
        let plan = read(&line).unwrap();
        assert_eq!((plan.init.as_deref(), plan.start.as_deref()), (Some("init"), Some("start")));
        assert_eq!(plan.output, PathBuf::from("out.mote"));
        assert_eq!(plan.run.guest_arguments, ["argv0", "--arg"]);
    }

    #[test]
    fn the_output_has_an_artifacts_name_and_is_not_the_input() {
        assert_eq!(read(&["a/x.wasm"]).unwrap().output, PathBuf::from("a/x.snapshot.mote"));
        assert_eq!(read(&["x.mote"]).unwrap().output, PathBuf::from("x.snapshot.mote"));
        assert!(read(&["x.mote", "-o", "x.mote"]).is_err_and(|error| error.message.contains("overwritten")));
        assert!(read(&["x.wasm", "-o", "x"]).is_err_and(|error| error.message.contains("ends in .mote")));
        assert!(read(&["--init", "f"]).is_err_and(|error| error.message.contains("needs a FILE")));
    }
}
