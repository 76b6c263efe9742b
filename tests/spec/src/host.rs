//! The host module `spectest` that scripts import from.

use mote_artifact::info::{GlobalType, Limits, MemoryType, TableType, ValueType};
use mote_runtime::{Caller, Global, Linker, Memory, SharedMemory, Store, Table, Val};

/// Defines `spectest` as the specification's test suite describes it.
pub(crate) fn define_spectest(store: &mut Store<()>, linker: &mut Linker<()>) -> Result<(), String> {
    linker
        .func_wrap("spectest", "print", |_: Caller<'_, ()>| {})
        .func_wrap("spectest", "print_i32", |_: Caller<'_, ()>, _: i32| {})
        .func_wrap("spectest", "print_i64", |_: Caller<'_, ()>, _: i64| {})
        .func_wrap("spectest", "print_f32", |_: Caller<'_, ()>, _: f32| {})
        .func_wrap("spectest", "print_f64", |_: Caller<'_, ()>, _: f64| {})
        .func_wrap("spectest", "print_i32_f32", |_: Caller<'_, ()>, _: i32, _: f32| {})
        .func_wrap("spectest", "print_f64_f64", |_: Caller<'_, ()>, _: f64, _: f64| {});
    let number: f64 = 666.6;
    let globals = [
        ("global_i32", Val::I32(666)),
        ("global_i64", Val::I64(666)),
        ("global_f32", Val::F32((number as f32).to_bits())),
        ("global_f64", Val::F64(number.to_bits())),
    ];
    for (name, value) in globals {
        let ty = GlobalType { value: value.ty(), mutable: false };
        let global = Global::new(&mut *store, ty, value).map_err(|error| error.to_string())?;
        linker.define("spectest", name, global);
    }
    for (name, table64) in [("table", false), ("table64", true)] {
        let ty =
            TableType { element: ValueType::FuncRef, limits: Limits { min: 10, max: Some(20) }, table64 };
        let table = Table::new(&mut *store, ty, Val::FuncRef(None)).map_err(|error| error.to_string())?;
        linker.define("spectest", name, table);
    }
    let ty = MemoryType { limits: Limits { min: 1, max: Some(2) }, shared: false, memory64: false };
    let memory = Memory::new(&mut *store, ty).map_err(|error| error.to_string())?;
    linker.define("spectest", "memory", memory);
    let limits = store.limits().clone();
    let shared = SharedMemory::new(1, 2, &limits).map_err(|error| error.to_string())?;
    let memory = Memory::from_shared(&mut *store, &shared);
    linker.define("spectest", "shared_memory", memory);
    Ok(())
}
