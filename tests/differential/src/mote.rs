//! The run on Mote.

use mote_artifact::info::ValueType;
use mote_compiler::{CompileError, Options};
use mote_runtime::{
    Caller, Extern, ExternType, Func, Global, Instance, InstantiateError, Linker, Memory, Module, Store,
    Table, TrapCode, Val,
};

use crate::trace::{End, Outcome, State, Trace, Value};
use crate::{Difference, Random, argument, host_result};

/// Runs the module; an inner `Err` says why there is nothing to compare.
pub(crate) fn run(
    wasm: &[u8],
    seed: u64,
    options: &Options,
) -> Result<Result<Trace, &'static str>, Difference> {
    let artifact = match mote_compiler::compile(wasm, options) {
        Ok(artifact) => artifact,
        Err(CompileError::Limit { .. }) => return Ok(Err("a limit of the compiler's")),
        Err(error) => return Err(Difference(format!("not compiled: {error}"))),
    };
    let module = Module::from_bytes(&artifact).map_err(|error| Difference(error.to_string()))?;
    let mut functions: Vec<String> = module
        .exports()
        .into_iter()
        .filter(|export| matches!(export.ty, ExternType::Func(_)))
        .map(|export| export.name)
        .collect();
    functions.sort();
    let mut steps = Vec::new();
    let mut random = Random::new(seed);
    let mut running: Option<(Store<()>, Instance)> = None;
    for name in functions {
        let (mut store, instance) = match running.take() {
            Some(running) => running,
            None => match start(&module)? {
                Ok((store, instance)) => {
                    let state = state(&store, &instance)?;
                    steps.push(("start".to_owned(), Outcome::Returned(Vec::new()), state));
                    (store, instance)
                }
                Err(end) => {
                    steps.push(("start".to_owned(), Outcome::Trapped(end), State::default()));
                    break;
                }
            },
        };
        let lost = || Difference(format!("the export {name} is lost"));
        let func = instance.get_func(&store, &name).ok_or_else(lost)?;
        let ty = func.ty(&store);
        let arguments = ty.params.iter().map(|ty| Ok(to_val(argument(&mut random, kind(*ty)?))));
        let arguments = arguments.collect::<Result<Vec<Val>, Difference>>()?;
        let outcome = match func.call(&mut store, &arguments) {
            Ok(results) => {
                let results = results.iter().map(from_val);
                Outcome::Returned(results.collect::<Result<Vec<Value>, Difference>>()?)
            }
            Err(trap) => Outcome::Trapped(end(trap.code())?),
        };
        let returned = matches!(outcome, Outcome::Returned(_));
        steps.push((name, outcome, state(&store, &instance)?));
        if returned {
            running = Some((store, instance));
        }
    }
    Ok(Ok(Trace { steps }))
}

/// A new instance, or how its start trapped.
fn start(module: &Module) -> Result<Result<(Store<()>, Instance), End>, Difference> {
    let mut store = Store::new(());
    let mut linker = Linker::new();
    for import in module.imports() {
        let provided = provide(&mut store, &import.ty)?;
        linker.define(import.module, import.name, provided);
    }
    match linker.instantiate(&mut store, module) {
        Ok(instance) => Ok(Ok((store, instance))),
        Err(InstantiateError::Trap(trap)) => Ok(Err(end(trap.code())?)),
        Err(error) => Err(Difference(format!("not instantiated: {error}"))),
    }
}

fn provide(store: &mut Store<()>, ty: &ExternType) -> Result<Extern, Difference> {
    let failed = |error: &dyn std::fmt::Display| Difference(format!("import not made: {error}"));
    Ok(match ty {
        ExternType::Func(ty) => {
            let results =
                ty.results.iter().map(|ty| kind(*ty)).collect::<Result<Vec<Value>, Difference>>()?;
            let func = move |_: Caller<'_, ()>, arguments: &[Val], out: &mut [Val]| {
                let arguments = arguments.iter().map(from_val).collect::<Result<Vec<Value>, Difference>>();
                let arguments = arguments.unwrap_or_default();
                for (number, (out, kind)) in out.iter_mut().zip(&results).enumerate() {
                    *out = to_val(host_result(&arguments, number, *kind));
                }
                Ok(())
            };
            Func::new(store, ty.clone(), func).into()
        }
        ExternType::Global(ty) => {
            Global::new(store, *ty, Val::default_of(ty.value)).map_err(|error| failed(&error))?.into()
        }
        ExternType::Memory(ty) => Memory::new(store, *ty).map_err(|error| failed(&error))?.into(),
        ExternType::Table(ty) => {
            Table::new(store, *ty, Val::default_of(ty.element)).map_err(|error| failed(&error))?.into()
        }
        ExternType::Tag(_) => return Err(Difference("a tag is imported".to_owned())),
    })
}

fn state(store: &Store<()>, instance: &Instance) -> Result<State, Difference> {
    let mut state = State::default();
    for (name, export) in instance.exports(store) {
        match export {
            Extern::Memory(memory) => {
                let mut bytes = vec![0; memory.byte_len(store) as usize];
                memory.read(store, 0, &mut bytes).map_err(|error| Difference(error.to_string()))?;
                state.memories.push((name, bytes));
            }
            Extern::Global(global) => state.globals.push((name, from_val(&global.get(store))?)),
            Extern::Table(table) => {
                let elements = (0..table.size(store)).filter_map(|index| table.get(store, index));
                let elements = elements.map(|value| from_val(&value)).collect::<Result<_, Difference>>()?;
                state.tables.push((name, elements));
            }
            _ => {}
        }
    }
    state.sort();
    Ok(state)
}

fn end(code: Option<TrapCode>) -> Result<End, Difference> {
    Ok(match code {
        Some(TrapCode::Unreachable) => End::Unreachable,
        Some(TrapCode::MemoryOutOfBounds) => End::MemoryOutOfBounds,
        Some(TrapCode::TableOutOfBounds | TrapCode::UndefinedElement) => End::TableOutOfBounds,
        Some(TrapCode::UninitializedElement) => End::NullElement,
        Some(TrapCode::IndirectCallTypeMismatch) => End::BadSignature,
        Some(TrapCode::IntegerDivideByZero) => End::DivisionByZero,
        Some(TrapCode::IntegerOverflow) => End::IntegerOverflow,
        Some(TrapCode::InvalidConversionToInteger) => End::BadConversion,
        Some(TrapCode::StackOverflow) => End::StackOverflow,
        other => return Err(Difference(format!("a trap that cannot be: {other:?}"))),
    })
}

fn kind(ty: ValueType) -> Result<Value, Difference> {
    Ok(match ty {
        ValueType::I32 => Value::I32(0),
        ValueType::I64 => Value::I64(0),
        ValueType::F32 => Value::F32(0),
        ValueType::F64 => Value::F64(0),
        ValueType::V128 => Value::V128(0),
        ValueType::FuncRef => Value::FuncRef(true),
        ValueType::ExternRef => Value::ExternRef(true),
        ValueType::ExnRef => return Err(Difference("an exnref".to_owned())),
    })
}

fn to_val(value: Value) -> Val {
    match value {
        Value::I32(value) => Val::I32(value as i32),
        Value::I64(value) => Val::I64(value as i64),
        Value::F32(bits) => Val::F32(bits),
        Value::F64(bits) => Val::F64(bits),
        Value::V128(bits) => Val::V128(bits),
        Value::FuncRef(_) => Val::FuncRef(None),
        Value::ExternRef(_) => Val::ExternRef(None),
    }
}

fn from_val(value: &Val) -> Result<Value, Difference> {
    Ok(match value {
        Val::I32(value) => Value::I32(*value as u32),
        Val::I64(value) => Value::I64(*value as u64),
        Val::F32(bits) => Value::F32(*bits),
        Val::F64(bits) => Value::F64(*bits),
        Val::V128(bits) => Value::V128(*bits),
        Val::FuncRef(reference) => Value::FuncRef(reference.is_none()),
        Val::ExternRef(reference) => Value::ExternRef(reference.is_none()),
        Val::ExnRef(_) => return Err(Difference("an exnref".to_owned())),
    })
}
