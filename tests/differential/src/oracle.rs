//! The run on wasmi.

use std::collections::HashSet;

use wasmi::{
    Caller, Config, Engine, Extern, ExternType, Func, Global, Instance, Memory, Module, Mutability, Nullable,
    Ref, Store, Table, TrapCode, Val, ValType,
};

use crate::trace::{End, Outcome, State, Trace, Value};
use crate::{Random, argument, host_result};

/// The oracle's own limits are never what ends a module that fuel ends.
const RECURSION: usize = 20_000;

/// Runs the module; an `Err` says why there is nothing to compare with.
pub(crate) fn run(wasm: &[u8], seed: u64) -> Result<Trace, &'static str> {
    let mut config = Config::default();
    config
        .wasm_simd(true)
        .wasm_tail_call(true)
        .wasm_multi_memory(true)
        .wasm_memory64(true)
        .wasm_extended_const(true)
        .wasm_wide_arithmetic(true)
        .set_max_recursion_depth(RECURSION)
        .set_max_stack_height(64 << 20);
    let engine = Engine::new(&config);
    let module = Module::new(&engine, wasm).map_err(|_| "wasmi refused the module")?;
    let mut names = HashSet::new();
    if !module.imports().all(|import| names.insert((import.module(), import.name()))) {
        return Err("two imports of one name");
    }
    let mut functions: Vec<String> = module
        .exports()
        .filter(|export| matches!(export.ty(), ExternType::Func(_)))
        .map(|export| export.name().to_owned())
        .collect();
    functions.sort();
    let mut steps = Vec::new();
    let mut random = Random::new(seed);
    let mut running: Option<(Store<()>, Instance)> = None;
    for name in functions {
        let (mut store, instance) = match running.take() {
            Some(running) => running,
            None => match start(&engine, &module)? {
                Ok((store, instance)) => {
                    let state = state(&store, &instance);
                    steps.push(("start".to_owned(), Outcome::Returned(Vec::new()), state));
                    (store, instance)
                }
                Err(end) => {
                    steps.push(("start".to_owned(), Outcome::Trapped(end), State::default()));
                    break;
                }
            },
        };
        let func = instance.get_func(&store, &name).ok_or("an export is lost")?;
        let ty = func.ty(&store);
        let arguments: Vec<Val> =
            ty.params().iter().map(|ty| to_val(argument(&mut random, kind(*ty)))).collect();
        let mut results: Vec<Val> = ty.results().iter().map(|ty| Val::default_for_ty(*ty)).collect();
        let outcome = match func.call(&mut store, &arguments, &mut results) {
            Ok(()) => Outcome::Returned(results.iter().map(from_val).collect()),
            Err(error) => Outcome::Trapped(end(error.as_trap_code().ok_or("wasmi failed")?)?),
        };
        let returned = matches!(outcome, Outcome::Returned(_));
        steps.push((name, outcome, state(&store, &instance)));
        if returned {
            running = Some((store, instance));
        }
    }
    Ok(Trace { steps })
}

/// A new instance, or how its start trapped.
fn start(engine: &Engine, module: &Module) -> Result<Result<(Store<()>, Instance), End>, &'static str> {
    let mut store = Store::new(engine, ());
    let imports = module.imports().map(|import| provide(&mut store, import.ty()));
    let imports = imports.collect::<Result<Vec<Extern>, &str>>()?;
    match Instance::new(&mut store, module, &imports) {
        Ok(instance) => Ok(Ok((store, instance))),
        Err(error) => {
            let code = error.as_trap_code().ok_or("wasmi did not instantiate the module")?;
            Ok(Err(end(code)?))
        }
    }
}

/// What an import gets: functions that hash their arguments, and zeros.
fn provide(store: &mut Store<()>, ty: &ExternType) -> Result<Extern, &'static str> {
    Ok(match ty {
        ExternType::Func(ty) => {
            let results = ty.results().to_vec();
            let func = move |_: Caller<'_, ()>, arguments: &[Val], out: &mut [Val]| {
                let arguments: Vec<Value> = arguments.iter().map(from_val).collect();
                for (number, (out, ty)) in out.iter_mut().zip(&results).enumerate() {
                    *out = to_val(host_result(&arguments, number, kind(*ty)));
                }
                Ok(())
            };
            Func::new(store, ty.clone(), func).into()
        }
        ExternType::Global(ty) => {
            let mutability = if ty.mutability().is_mut() { Mutability::Var } else { Mutability::Const };
            Global::new(store, Val::default_for_ty(ty.content()), mutability).into()
        }
        ExternType::Memory(ty) => Memory::new(store, *ty).map_err(|_| "wasmi did not make a memory")?.into(),
        ExternType::Table(ty) => {
            let null = match ty.element() {
                wasmi::RefType::Func => Ref::Func(Nullable::Null),
                wasmi::RefType::Extern => Ref::Extern(Nullable::Null),
            };
            Table::new(store, *ty, null).map_err(|_| "wasmi did not make a table")?.into()
        }
    })
}

fn state(store: &Store<()>, instance: &Instance) -> State {
    let mut state = State::default();
    for export in instance.exports(store) {
        let name = export.name().to_owned();
        match export.into_extern() {
            Extern::Memory(memory) => state.memories.push((name, memory.data(store).to_vec())),
            Extern::Global(global) => state.globals.push((name, from_val(&global.get(store)))),
            Extern::Table(table) => {
                let elements = (0..table.size(store)).filter_map(|index| table.get(store, index));
                state.tables.push((name, elements.map(from_ref).collect()));
            }
            Extern::Func(_) => {}
        }
    }
    state.sort();
    state
}

fn end(code: TrapCode) -> Result<End, &'static str> {
    Ok(match code {
        TrapCode::UnreachableCodeReached => End::Unreachable,
        TrapCode::MemoryOutOfBounds => End::MemoryOutOfBounds,
        TrapCode::TableOutOfBounds => End::TableOutOfBounds,
        TrapCode::IndirectCallToNull => End::NullElement,
        TrapCode::BadSignature => End::BadSignature,
        TrapCode::IntegerDivisionByZero => End::DivisionByZero,
        TrapCode::IntegerOverflow => End::IntegerOverflow,
        TrapCode::BadConversionToInteger => End::BadConversion,
        TrapCode::StackOverflow => End::StackOverflow,
        _ => return Err("a limit of wasmi's"),
    })
}

/// A value of this type, to be filled in.
fn kind(ty: ValType) -> Value {
    match ty {
        ValType::I32 => Value::I32(0),
        ValType::I64 => Value::I64(0),
        ValType::F32 => Value::F32(0),
        ValType::F64 => Value::F64(0),
        ValType::V128 => Value::V128(0),
        ValType::FuncRef => Value::FuncRef(true),
        ValType::ExternRef => Value::ExternRef(true),
    }
}

fn to_val(value: Value) -> Val {
    match value {
        Value::I32(value) => Val::I32(value as i32),
        Value::I64(value) => Val::I64(value as i64),
        Value::F32(bits) => Val::F32(wasmi::F32::from_bits(bits)),
        Value::F64(bits) => Val::F64(wasmi::F64::from_bits(bits)),
        Value::V128(bits) => Val::V128(bits.into()),
        Value::FuncRef(_) => Val::FuncRef(Nullable::Null),
        Value::ExternRef(_) => Val::ExternRef(Nullable::Null),
    }
}

fn from_val(value: &Val) -> Value {
    match value {
        Val::I32(value) => Value::I32(*value as u32),
        Val::I64(value) => Value::I64(*value as u64),
        Val::F32(value) => Value::F32(value.to_bits()),
        Val::F64(value) => Value::F64(value.to_bits()),
        Val::V128(value) => Value::V128(value.as_u128()),
        Val::FuncRef(reference) => Value::FuncRef(reference.is_null()),
        Val::ExternRef(reference) => Value::ExternRef(reference.is_null()),
    }
}

fn from_ref(reference: Ref) -> Value {
    match reference {
        Ref::Func(reference) => Value::FuncRef(reference.is_null()),
        Ref::Extern(reference) => Value::ExternRef(reference.is_null()),
    }
}
