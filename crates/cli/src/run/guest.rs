//! From mapped modules to a running guest, and to the exit code.

use std::fs::File;
use std::io::Read;
use std::time::Instant;

use mote_runtime::{
    ExternType, Instance, InstantiateError, Interrupt as _, Limits, Linker, Module, Store, Trap,
};
use mote_wasi::WasiCtx;

use super::options::RunOptions;
use super::stats::Stats;
use super::{invoke, report};
use crate::exit::{self, Failure};
use crate::output::print;

/// Runs the guest to its end.
pub fn run(
    options: &RunOptions,
    module: &Module,
    preloads: Vec<(String, Module)>,
    wasi: WasiCtx,
    stats: &mut Stats,
) -> Result<u8, Failure> {
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
        |module, name| imported.contains(&(module, name)),
    );
    drop(imported);
    if let Some(timeout) = options.timeout {
        store.set_deadline(Instant::now().checked_add(timeout));
        end_waits(&mut store)
            .map_err(|error| Failure::own(format!("--timeout: cannot make an event descriptor: {error}")))?;
    }
    for (name, preload) in preloads {
        let instance = match linker.instantiate(&mut store, &preload) {
            Ok(instance) => instance,
            Err(error) => return refused(options, &name, error),
        };
        if let Err(trap) = initialize(&mut store, instance) {
            return ended(options, &trap);
        }
        linker.instance(&mut store, name, instance);
    }
    let instance = match linker.instantiate(&mut store, module) {
        Ok(instance) => instance,
        Err(error) => return refused(options, &options.file.display().to_string(), error),
    };
    drop(linker);
    stats.instantiated();
    let result = call(options, &mut store, module, instance);
    stats.ended(instance.get_memory(&store, "memory").map_or(0, |memory| memory.byte_len(&store)));
    let code = match result? {
        Ok(()) => Ok(0),
        Err(trap) => ended(options, &trap),
    };
    // The process ends now, and the system takes everything back at once: unmapping it piece by piece took a tenth of a start.
    std::mem::forget(store);
    code
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

/// Calls what the command line names. The outer error is Mote's, the inner one the guest's end.
fn call(
    options: &RunOptions,
    store: &mut Store<WasiCtx>,
    module: &Module,
    instance: Instance,
) -> Result<Result<(), Trap>, Failure> {
    let Some(name) = &options.invoke else {
        let Some(start) = instance.get_func(&*store, "_start") else {
            return Ok(initialize(store, instance));
        };
        let start = start
            .typed::<(), ()>(&*store)
            .map_err(|error| Failure::cannot_run(format!("{}: _start: {error}", options.file.display())))?;
        return Ok(start.call(store, ()));
    };
    let func = instance.get_func(&*store, name).ok_or_else(|| {
        let functions =
            module.exports().into_iter().filter(|export| matches!(export.ty, ExternType::Func(_)));
        let names: Vec<_> = functions.map(|export| export.name).collect();
        Failure::cannot_run(format!(
            "{}: no exported function {name}; there are: {}",
            options.file.display(),
            names.join(", ")
        ))
    })?;
    let arguments =
        invoke::arguments(name, &func.ty(&*store), options.guest_arguments.get(1..).unwrap_or_default())?;
    if let Err(trap) = initialize(store, instance) {
        return Ok(Err(trap));
    }
    match func.call(store, &arguments) {
        Ok(results) => print(&invoke::results(&results)).map(Ok),
        Err(trap) => Ok(Err(trap)),
    }
}

/// A reactor's own start.
fn initialize(store: &mut Store<WasiCtx>, instance: Instance) -> Result<(), Trap> {
    match instance.typed_func::<(), ()>(&*store, "_initialize") {
        Ok(start) => start.call(store, ()),
        Err(_) => Ok(()),
    }
}

fn refused(options: &RunOptions, name: &str, error: InstantiateError) -> Result<u8, Failure> {
    match error.trap() {
        Some(trap) => ended(options, trap),
        None => Err(Failure::cannot_run(format!("{name}: {error}"))),
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
