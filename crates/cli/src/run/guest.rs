//! From mapped modules to a running guest, and to the exit code.

use std::fs::File;
use std::io::Read;
use std::time::Instant;

use mote_runtime::{
    Caller, ExternType, Func, HostError, Instance, InstantiateError, Interrupt as _, Limits, Linker, Module,
    Store, Trap, Val,
};
use mote_wasi::WasiCtx;

use super::options::RunOptions;
use super::profile::Profile;
use super::stats::Stats;
use super::{invoke, report};
use crate::exit::{self, Failure};
use crate::output::print;

/// Where a guest says that its start-up is over: a function that gets a function pointer.
pub const SNAPSHOT_IMPORT: (&str, &str) = ("mote", "snapshot");

/// Everything that a run needs.
pub struct Ready {
    pub options: RunOptions,
    pub module: Module,
    pub guest: Guest,
    pub stats: Stats,
}

/// A guest that can be called.
pub struct Guest {
    pub store: Store<WasiCtx>,
    pub instance: Instance,
}

/// What happens when a guest calls [`SNAPSHOT_IMPORT`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AtSnapshot {
    /// Nothing: it goes on.
    Return,
    /// It ends with [`SnapshotHere`].
    Stop,
}

/// The guest called [`SNAPSHOT_IMPORT`].
#[derive(Debug)]
pub struct SnapshotHere {
    /// Index in the first table of the function to go on with.
    pub resume: u32,
}

impl std::fmt::Display for SnapshotHere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "mote.snapshot was called where no snapshot can be taken: while the module is instantiated",
        )
    }
}

impl std::error::Error for SnapshotHere {}

/// Why there is no result.
pub enum Stopped {
    /// The guest trapped or ended itself.
    Guest(Trap),
    /// Mote failed, or the module does not fit.
    Mote(Failure),
}

impl From<Trap> for Stopped {
    fn from(trap: Trap) -> Self {
        Self::Guest(trap)
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Mote(failure)
    }
}

impl Stopped {
    /// The exit code, after telling a trap.
    pub fn code(self, options: &RunOptions) -> Result<u8, Failure> {
        match self {
            Self::Guest(trap) => ended(options, &trap),
            Self::Mote(failure) => Err(failure),
        }
    }
}

/// Calls the guest and sees it to its end.
pub fn run(ready: &mut Ready) -> Result<u8, Failure> {
    let Ready { options, module, guest, stats } = ready;
    let mut profile = options.profile.then(Profile::new);
    let outcome = call(options, guest, module, profile.as_mut());
    let memory = guest.instance.get_memory(&guest.store, "memory");
    stats.ended(memory.map_or(0, |memory| memory.byte_len(&guest.store)));
    let code = match outcome {
        Ok(()) => Ok(0),
        Err(stopped) => stopped.code(options),
    };
    match profile {
        Some(profile) => {
            let written = profile.finish(options.profile_stacks.as_deref());
            code.and_then(|code| written.map(|()| code))
        }
        None => code,
    }
}

/// Links and instantiates; the preloaded modules first.
pub fn prepare(
    options: &RunOptions,
    module: &Module,
    preloads: Vec<(String, Module)>,
    wasi: WasiCtx,
    at_snapshot: AtSnapshot,
) -> Result<Guest, Stopped> {
    let mut store = Store::with_limits(wasi, limits(options));
    let mut linker = Linker::new();
    let imported: Vec<_> = preloads
        .iter()
        .map(|(_, preload)| preload)
        .chain([module])
        .flat_map(|module| module.artifact().imports())
        .map(|import| (import.module, import.name))
        .collect();
    mote_wasi::add_wanted_to_linker(
        &mut linker,
        |wasi: &mut WasiCtx| wasi,
        // Names differ more often than modules do.
        |module, name| imported.iter().any(|import| import.1 == name && import.0 == module),
    );
    if imported.contains(&SNAPSHOT_IMPORT) {
        let (module, name) = SNAPSHOT_IMPORT;
        linker.func_wrap(module, name, move |_: Caller<'_, WasiCtx>, resume: u32| match at_snapshot {
            AtSnapshot::Return => Ok(()),
            AtSnapshot::Stop => Err(HostError::from(SnapshotHere { resume })),
        });
    }
    drop(imported);
    if let Some(timeout) = options.timeout {
        store.set_deadline(Instant::now().checked_add(timeout));
        end_waits(&mut store)
            .map_err(|error| Failure::own(format!("--timeout: cannot make an event descriptor: {error}")))?;
    }
    for (name, preload) in preloads {
        let instance = linker.instantiate(&mut store, &preload).map_err(|error| refused(&name, error))?;
        initialize(&mut store, instance)?;
        linker.instance(&mut store, name, instance);
    }
    let instance = linker
        .instantiate(&mut store, module)
        .map_err(|error| refused(&options.file.display().to_string(), error))?;
    Ok(Guest { store, instance })
}

/// A guest that waits in a host function ends with its deadline too.
fn end_waits(store: &mut Store<WasiCtx>) -> std::io::Result<()> {
    let event = store.interrupt_event()?.try_clone_to_owned()?;
    store.data_mut().set_interrupt(mote_wasi::Interrupt::from_fd(event));
    Ok(())
}

fn limits(options: &RunOptions) -> Limits {
    let mut limits = Limits::default();
    if let Some(bytes) = options.max_memory_bytes {
        limits.memory_bytes = bytes;
    }
    if let Some(bytes) = options.max_stack_bytes {
        limits.stack_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    limits
}

/// Calls what the command line names.
fn call(
    options: &RunOptions,
    guest: &mut Guest,
    module: &Module,
    profile: Option<&mut Profile>,
) -> Result<(), Stopped> {
    let Guest { store, instance } = guest;
    let Some(name) = &options.invoke else {
        let Some(start) = instance.get_func(&*store, "_start") else {
            return Ok(initialize(store, *instance)?);
        };
        let start = start
            .typed::<(), ()>(&*store)
            .map_err(|error| Failure::cannot_run(format!("{}: _start: {error}", options.file.display())))?;
        return match profile {
            None => Ok(start.call(store, ())?),
            Some(profile) => Ok(profile.call(store, start.func(), &[]).map(drop)?),
        };
    };
    let func = function(options, module, guest, name)?;
    let Guest { store, instance } = guest;
    let arguments =
        invoke::arguments(name, &func.ty(&*store), options.guest_arguments.get(1..).unwrap_or_default())?;
    initialize(store, *instance)?;
    let results: Vec<Val> = match profile {
        None => func.call(store, &arguments)?,
        Some(profile) => profile.call(store, func, &arguments)?,
    };
    Ok(print(&invoke::results(&results)).map(drop)?)
}

/// The exported function of this name.
pub fn function(options: &RunOptions, module: &Module, guest: &Guest, name: &str) -> Result<Func, Failure> {
    guest.instance.get_func(&guest.store, name).ok_or_else(|| {
        let functions =
            module.exports().into_iter().filter(|export| matches!(export.ty, ExternType::Func(_)));
        let names: Vec<_> = functions.map(|export| export.name).collect();
        Failure::cannot_run(format!(
            "{}: no exported function {name}; there are: {}",
            options.file.display(),
            names.join(", ")
        ))
    })
}

/// A reactor's own start.
pub fn initialize(store: &mut Store<WasiCtx>, instance: Instance) -> Result<(), Trap> {
    match instance.typed_func::<(), ()>(&*store, "_initialize") {
        Ok(start) => start.call(store, ()),
        Err(_) => Ok(()),
    }
}

fn refused(name: &str, error: InstantiateError) -> Stopped {
    match error {
        InstantiateError::Trap(trap) => Stopped::Guest(trap),
        // The machine is at fault, not the module.
        InstantiateError::Map(_) => Stopped::Mote(Failure::own(format!("{name}: {error}"))),
        error => Stopped::Mote(Failure::cannot_run(format!("{name}: {error}"))),
    }
}

/// The exit code of a guest that did not return: its own, or a trap's after telling it.
fn ended(options: &RunOptions, trap: &Trap) -> Result<u8, Failure> {
    if let Some(status) = trap.downcast_ref::<mote_wasi::Error>().and_then(|error| error.exit_status()) {
        return Ok(status);
    }
    let mut wasm = Vec::new();
    if !crate::inspect::is_artifact_name(&options.file)
        && let Ok(file) = File::open(&options.file)
    {
        // Only for source lines: without the file there are none.
        let _ = file.take(mote_store::MODULE_MAX_BYTES).read_to_end(&mut wasm);
    }
    Err(Failure::new(exit::TRAPPED, report::trap(trap, options.timeout, &wasm)))
}
