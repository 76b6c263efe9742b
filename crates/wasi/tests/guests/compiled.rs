//! Runs a guest on Mote's own engine.

use std::time::{Duration, Instant};

use mote_compiler::{OptLevel, Options};
use mote_runtime::{Interrupt as _, Linker, Module, Store, Trap, TrapCode};
use mote_wasi::{Error, Interrupt, WasiCtx, add_wanted_to_linker};

use crate::{End, Program};

pub fn module(wasm: &[u8]) -> Module {
    let options = Options { opt_level: OptLevel::O1, ..Options::default() };
    Module::from_bytes(&mote_compiler::compile(wasm, &options).unwrap()).unwrap()
}

pub fn run(program: &Program, ctx: WasiCtx) -> End {
    run_until(program, ctx, None)
}

pub fn run_until(program: &Program, ctx: WasiCtx, timeout: Option<Duration>) -> End {
    match start(&program.module, ctx, timeout) {
        Ok(()) => End::Exit(0),
        Err(trap) => match (trap.downcast_ref::<Error>(), trap.code()) {
            (Some(end), _) => End::Exit(end.exit_status().unwrap()),
            (None, Some(TrapCode::Interrupted)) => End::Interrupted,
            (None, Some(TrapCode::Unreachable)) => End::Trap,
            (None, code) => panic!("{code:?}: {trap:#}"),
        },
    }
}

pub fn start(module: &Module, ctx: WasiCtx, timeout: Option<Duration>) -> Result<(), Trap> {
    let mut linker = Linker::new();
    let imports = module.imports();
    add_wanted_to_linker(
        &mut linker,
        |ctx: &mut WasiCtx| ctx,
        |module, name| imports.iter().any(|import| import.module == module && import.name == name),
    );
    let mut store = Store::new(ctx);
    if let Some(timeout) = timeout {
        let event = store.interrupt_event().unwrap().try_clone_to_owned().unwrap();
        store.data_mut().set_interrupt(Interrupt::from_fd(event));
        store.set_deadline(Some(Instant::now() + timeout));
    }
    let instance = linker.instantiate(&mut store, module).unwrap();
    let start = instance.typed_func::<(), ()>(&mut store, "_start").unwrap();
    start.call(&mut store, ())
}
