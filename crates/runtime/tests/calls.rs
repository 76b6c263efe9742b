//! Calls in both directions.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{instance, module};
use mote_runtime::{
    Caller, Extern, ExternRef, Func, FuncType, HostError, InstantiateError, Limits, Linker, Store, Trap,
    TrapCode, Val, ValueType,
};

#[test]
fn arguments_and_results_of_every_type() {
    let (mut store, instance) = instance(
        r#"(module
            (func (export "add") (param i32 i64 f32 f64) (result f64)
                (f64.add (f64.add (f64.convert_i32_s (local.get 0)) (f64.convert_i64_s (local.get 1)))
                         (f64.add (f64.promote_f32 (local.get 2)) (local.get 3))))
            (func (export "two") (param i32 f64) (result f64 i32) (local.get 1) (local.get 0))
            (func (export "three") (param i32 i64 f32) (result f32 i64 i32) (local.get 2) (local.get 1) (local.get 0))
            (func (export "twelve") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 f64) (result i32)
                (i32.sub (i32.mul (local.get 10) (i32.trunc_f64_s (local.get 11))) (local.get 0)))
            (func (export "splat") (param v128 i32) (result v128) (i32x4.add (local.get 0) (i32x4.splat (local.get 1))))
            (func (export "same") (param externref funcref) (result externref funcref) (local.get 0) (local.get 1))
        )"#,
    );
    let add = instance.typed_func::<(i32, i64, f32, f64), f64>(&store, "add").unwrap();
    assert_eq!(add.call(&mut store, (-1, 1 << 40, 0.5, 0.25)).unwrap(), -1.0 + (1_u64 << 40) as f64 + 0.75);
    let two = instance.typed_func::<(i32, f64), (f64, i32)>(&store, "two").unwrap();
    assert_eq!(two.call(&mut store, (7, 1.5)).unwrap(), (1.5, 7));
    let three = instance.typed_func::<(i32, i64, f32), (f32, i64, i32)>(&store, "three").unwrap();
    assert_eq!(three.call(&mut store, (7, -9, 1.5)).unwrap(), (1.5, -9, 7));
    let twelve = instance.get_func(&store, "twelve").unwrap();
    let mut params = vec![Val::I32(0); 12];
    params[0] = Val::I32(5);
    params[10] = Val::I32(6);
    params[11] = Val::from(7.0);
    assert_eq!(twelve.call(&mut store, &params).unwrap()[0].i32(), Some(37));
    let splat = instance.typed_func::<(u128, i32), u128>(&store, "splat").unwrap();
    assert_eq!(splat.call(&mut store, (1, 2)).unwrap(), 0x00000002_00000002_00000002_00000003);
    let same = instance.get_func(&store, "same").unwrap();
    let word = ExternRef::new(std::num::NonZeroU64::new(99).unwrap());
    let results = same.call(&mut store, &[Val::ExternRef(Some(word)), Val::FuncRef(Some(same))]).unwrap();
    assert!(matches!(results[0], Val::ExternRef(Some(back)) if back == word));
    assert!(matches!(results[1], Val::FuncRef(Some(back)) if back == same));
    assert!(same.call(&mut store, &[Val::I32(1)]).unwrap_err().to_string().contains("do not fit"));
    assert!(instance.typed_func::<i32, i32>(&store, "add").is_err());
}

#[test]
fn host_functions_see_their_caller_and_its_memory() {
    let module = module(
        r#"(module
            (import "env" "say" (func $say (param i32 i32) (result i32)))
            (import "env" "mix" (func $mix (param i64 f32 f64 i32) (result f64)))
            (memory (export "memory") 1)
            (data (i32.const 100) "hello")
            (func (export "run") (result i32) (call $say (i32.const 100) (i32.const 5)))
            (func (export "mix") (result f64) (call $mix (i64.const -3) (f32.const 0.5) (f64.const 2) (i32.const 4)))
        )"#,
    );
    let mut linker = Linker::<Vec<String>>::new();
    linker.func_wrap("env", "say", |mut caller: Caller<'_, Vec<String>>, at: u32, len: u32| {
        let memory = caller.memory().ok_or(HostError::message("no memory"))?;
        let mut bytes = vec![0; len as usize];
        memory.read(&caller, at.into(), &mut bytes)?;
        caller.data_mut().push(String::from_utf8(bytes)?);
        let count = caller.data().len() as u32;
        memory.write(&mut caller, 0, &count.to_le_bytes())?;
        Ok::<u32, HostError>(count)
    });
    linker.func_wrap("env", "mix", |_: Caller<'_, _>, a: i64, b: f32, c: f64, d: i32| {
        a as f64 + f64::from(b) + c + f64::from(d)
    });
    let mut store = Store::new(Vec::new());
    let instance = linker.instantiate(&mut store, &module).unwrap();
    let run = instance.typed_func::<(), u32>(&store, "run").unwrap();
    assert_eq!(run.call(&mut store, ()).unwrap(), 1);
    assert_eq!(run.call(&mut store, ()).unwrap(), 2);
    let memory = instance.get_memory(&store, "memory").unwrap();
    assert_eq!(memory.read_array(&store, 0).unwrap(), [2, 0, 0, 0]);
    assert_eq!(store.data(), &["hello", "hello"]);
    let mix = instance.typed_func::<(), f64>(&store, "mix").unwrap();
    assert_eq!(mix.call(&mut store, ()).unwrap(), 3.5);
}

#[test]
fn calls_nest_and_inner_traps_pass_through_the_host() {
    let module = module(
        r#"(module
            (import "env" "again" (func $again (param i32) (result i32)))
            (func $down (export "down") (param i32) (result i32)
                (if (i32.eqz (local.get 0)) (then unreachable))
                (i32.add (i32.const 1) (call $again (i32.sub (local.get 0) (i32.const 1)))))
            (func (export "count") (param i32) (result i32)
                (if (result i32) (i32.eqz (local.get 0)) (then (i32.const 0))
                    (else (i32.add (i32.const 1) (call $again (i32.sub (local.get 0) (i32.const 1)))))))
        )"#,
    );
    let mut linker = Linker::<&'static str>::new();
    linker.func_wrap("env", "again", |mut caller: Caller<'_, &'static str>, left: i32| {
        let name = *caller.data();
        let func = caller.get_export(name).and_then(Extern::func).ok_or(HostError::message("no export"))?;
        let results = func.call(&mut caller, &[Val::I32(left)])?;
        Ok::<i32, HostError>(results[0].i32().unwrap_or(-1))
    });
    let mut store = Store::new("count");
    let instance = linker.instantiate(&mut store, &module).unwrap();
    let count = instance.typed_func::<i32, i32>(&store, "count").unwrap();
    assert_eq!(count.call(&mut store, 50).unwrap(), 50);
    let too_deep = count.call(&mut store, 1000).unwrap_err();
    assert_eq!(too_deep.code(), Some(TrapCode::StackOverflow));
    assert_eq!(count.call(&mut store, 50).unwrap(), 50);
    *store.data_mut() = "down";
    let down = instance.typed_func::<i32, i32>(&store, "down").unwrap();
    let trap = down.call(&mut store, 3).unwrap_err();
    assert_eq!(trap.code(), Some(TrapCode::Unreachable));
    assert_eq!(trap.frames().len(), 4, "{trap:#}");
    assert!(trap.frames().iter().all(|frame| frame.name == "down"));
}

#[test]
fn a_host_panic_comes_out_on_the_host_side() {
    let module = module(r#"(module (import "env" "panic" (func $p)) (func (export "run") (call $p)))"#);
    let mut linker = Linker::<()>::new();
    linker.func_wrap("env", "panic", |_: Caller<'_, ()>| -> () { panic!("from the host") });
    let mut store = Store::new(());
    let instance = linker.instantiate(&mut store, &module).unwrap();
    let run = instance.typed_func::<(), ()>(&store, "run").unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.call(&mut store, ())));
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"from the host"));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.call(&mut store, ())));
    assert!(caught.is_err());
}

#[test]
fn host_errors_reach_the_caller_with_their_type() {
    #[derive(Debug, PartialEq, thiserror::Error)]
    #[error("exit {0}")]
    struct Exit(i32);
    let module = module(
        r#"(module (import "env" "exit" (func $exit (param i32)))
            (func (export "run") (param i32) (call $exit (local.get 0))))"#,
    );
    let mut linker = Linker::<()>::new();
    linker.func_wrap("env", "exit", |_: Caller<'_, ()>, code: i32| -> Result<(), HostError> {
        Err(Exit(code).into())
    });
    let mut store = Store::new(());
    let instance = linker.instantiate(&mut store, &module).unwrap();
    let run = instance.typed_func::<i32, ()>(&store, "run").unwrap();
    let trap = run.call(&mut store, 3).unwrap_err();
    assert_eq!(trap.downcast_ref::<Exit>(), Some(&Exit(3)));
    assert_eq!(trap.code(), None);
    assert_eq!(trap.frames()[0].function, 1);
}

#[test]
fn dynamic_host_functions_and_wrong_results() {
    let module = module(
        r#"(module (import "env" "f" (func $f (param i32 f64) (result i64 v128 f32)))
            (func (export "run") (param i32 f64) (result i64 v128 f32) (call $f (local.get 0) (local.get 1))))"#,
    );
    let ty = FuncType {
        params: vec![ValueType::I32, ValueType::F64],
        results: vec![ValueType::I64, ValueType::V128, ValueType::F32],
    };
    let mut linker = Linker::<bool>::new();
    linker.func_new("env", "f", ty, |caller: Caller<'_, bool>, params, results| {
        results[0] = Val::I64(params[0].i32().unwrap_or(0).into());
        results[1] = if *caller.data() { Val::V128(77) } else { Val::I32(1) };
        results[2] = Val::from(params[1].f64().unwrap_or(0.0) as f32);
        Ok(())
    });
    let mut store = Store::new(true);
    let instance = linker.instantiate(&mut store, &module).unwrap();
    let run = instance.typed_func::<(i32, f64), (i64, u128, f32)>(&store, "run").unwrap();
    assert_eq!(run.call(&mut store, (-5, 0.5)).unwrap(), (-5, 77, 0.5));
    *store.data_mut() = false;
    assert!(run.call(&mut store, (-5, 0.5)).unwrap_err().to_string().contains("other types"));
}

#[test]
fn host_functions_in_tables_are_called_indirectly() {
    let module = module(
        r#"(module
            (type $t (func (param i32) (result i32)))
            (table (export "table") 4 funcref)
            (func (export "call") (param i32 i32) (result i32)
                (call_indirect (type $t) (local.get 1) (local.get 0))))"#,
    );
    let mut store = Store::new(100_i32);
    let early = Func::wrap(&mut store, |caller: Caller<'_, i32>, by: i32| *caller.data() + by);
    let instance = Linker::new().instantiate(&mut store, &module).unwrap();
    let late = Func::wrap(&mut store, |caller: Caller<'_, i32>, by: i32| *caller.data() - by);
    let other = Func::wrap(&mut store, |_: Caller<'_, i32>| ());
    let table = instance.get_export(&store, "table").and_then(Extern::table).unwrap();
    for (at, func) in [early, late, other].into_iter().enumerate() {
        table.set(&mut store, at as u64, Val::FuncRef(Some(func))).unwrap();
    }
    let call = instance.typed_func::<(i32, i32), i32>(&store, "call").unwrap();
    assert_eq!(call.call(&mut store, (0, 1)).unwrap(), 101);
    assert_eq!(call.call(&mut store, (1, 1)).unwrap(), 99);
    let code = |result: Result<i32, Trap>| result.unwrap_err().code();
    assert_eq!(code(call.call(&mut store, (2, 1))), Some(TrapCode::IndirectCallTypeMismatch));
    assert_eq!(code(call.call(&mut store, (3, 1))), Some(TrapCode::UninitializedElement));
    assert_eq!(code(call.call(&mut store, (4, 1))), Some(TrapCode::UndefinedElement));
}

#[test]
fn imports_that_do_not_fit_are_named() {
    let wants = module(r#"(module (import "env" "f" (func (param i32) (result i64))))"#);
    let mut store = Store::new(());
    let missing = Linker::new().instantiate(&mut store, &wants).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "unknown import: \"env\" \"f\" is not defined, expected a function (i32) -> (i64)"
    );
    let mut linker = Linker::<()>::new();
    linker.func_wrap("env", "f", |_: Caller<'_, ()>, _: i64| 1_i64);
    let wrong = linker.instantiate(&mut store, &wants).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "incompatible import type: \"env\" \"f\" is a function (i64) -> (i64), expected a function (i32) -> (i64)"
    );
    let mut other = Store::new(());
    let func = Func::wrap(&mut other, |_: Caller<'_, ()>, _: i32| 1_i64);
    let mut linker = Linker::<()>::new();
    linker.define("env", "f", func);
    assert!(matches!(linker.instantiate(&mut store, &wants), Err(InstantiateError::OtherStore { .. })));
    assert!(linker.instantiate(&mut other, &wants).is_ok());
}

#[test]
fn instances_share_memories_tables_and_globals() {
    let a = module(
        r#"(module
            (memory (export "memory") 1 3) (table (export "table") 2 funcref)
            (global $g (export "global") (mut i32) (i32.const 5))
            (func $id (export "id") (param i32) (result i32) (i32.add (local.get 0) (global.get $g)))
            (elem (i32.const 1) $id)
            (func (export "load") (param i32) (result i32) (i32.load8_u (local.get 0))))"#,
    );
    let b = module(
        r#"(module
            (import "a" "memory" (memory 1)) (import "a" "table" (table 2 funcref))
            (import "a" "global" (global $g (mut i32))) (import "a" "id" (func $id (param i32) (result i32)))
            (type $t (func (param i32) (result i32)))
            (func $neg (param i32) (result i32) (i32.sub (i32.const 0) (local.get 0)))
            (elem (i32.const 0) $neg)
            (data (i32.const 8) "\2a")
            (func (export "run") (param i32) (result i32)
                (global.set $g (i32.const 7))
                (i32.store8 (i32.const 9) (i32.const 43))
                (drop (memory.grow (i32.const 1)))
                (i32.store8 (i32.const 70000) (i32.const 44))
                (i32.add (call $id (local.get 0)) (call_indirect (type $t) (local.get 0) (i32.const 1))))
            (func (export "neg") (param i32) (result i32) (call_indirect (type $t) (local.get 0) (i32.const 0)))
        )"#,
    );
    let mut store = Store::new(());
    let mut linker = Linker::new();
    let a = linker.instantiate(&mut store, &a).unwrap();
    linker.instance(&store, "a", a);
    let b = linker.instantiate(&mut store, &b).unwrap();
    let load = a.typed_func::<i32, i32>(&store, "load").unwrap();
    assert_eq!(load.call(&mut store, 8).unwrap(), 42);
    assert_eq!(load.call(&mut store, 70000).unwrap_err().code(), Some(TrapCode::MemoryOutOfBounds));
    let run = b.typed_func::<i32, i32>(&store, "run").unwrap();
    assert_eq!(run.call(&mut store, 1).unwrap(), 16);
    assert_eq!(load.call(&mut store, 9).unwrap(), 43);
    assert_eq!(load.call(&mut store, 70000).unwrap(), 44);
    let neg = b.typed_func::<i32, i32>(&store, "neg").unwrap();
    assert_eq!(neg.call(&mut store, 3).unwrap(), -3);
}

#[test]
fn segments_are_applied_in_order_and_stay_when_a_later_one_traps() {
    let host = module(r#"(module (memory (export "m") 1) (table (export "t") 1 funcref))"#);
    let bad = module(
        r#"(module (import "h" "m" (memory 1)) (import "h" "t" (table 1 funcref))
            (func $f (export "f") (result i32) (i32.const 9))
            (elem (i32.const 0) $f)
            (data (i32.const 0) "ab") (data (i32.const 65535) "cd"))"#,
    );
    let mut store = Store::new(());
    let mut linker = Linker::new();
    let host = linker.instantiate(&mut store, &host).unwrap();
    linker.instance(&store, "h", host);
    let error = linker.instantiate(&mut store, &bad).unwrap_err();
    assert_eq!(error.trap().and_then(Trap::code), Some(TrapCode::MemoryOutOfBounds));
    let memory = host.get_memory(&store, "m").unwrap();
    assert_eq!(memory.read_array(&store, 0).unwrap(), *b"ab");
    assert_eq!(memory.read_array(&store, 65535).unwrap(), [0]);
    let table = host.get_export(&store, "t").and_then(Extern::table).unwrap();
    let Some(Val::FuncRef(Some(func))) = table.get(&store, 0) else { panic!() };
    assert_eq!(func.call(&mut store, &[]).unwrap()[0].i32(), Some(9));
}

#[test]
fn limits_of_a_store_hold() {
    let module = module(
        r#"(module (memory (export "m") 1) (table (export "t") 1 funcref)
            (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
            (func (export "grow_table") (param i32) (result i32) (table.grow 0 (ref.null func) (local.get 0))))"#,
    );
    let mut limits = Limits::default();
    limits.memory_bytes = 3 * 65536;
    limits.table_elements = 4;
    limits.instances = 2;
    let mut store = Store::with_limits((), limits);
    let linker = Linker::new();
    let instance = linker.instantiate(&mut store, &module).unwrap();
    let grow = instance.typed_func::<i32, i32>(&store, "grow").unwrap();
    assert_eq!(grow.call(&mut store, 2).unwrap(), 1);
    assert_eq!(grow.call(&mut store, 1).unwrap(), -1);
    assert_eq!(grow.call(&mut store, 0).unwrap(), 3);
    let grow = instance.typed_func::<i32, i32>(&store, "grow_table").unwrap();
    assert_eq!(grow.call(&mut store, 3).unwrap(), 1);
    assert_eq!(grow.call(&mut store, 1).unwrap(), -1);
    linker.instantiate(&mut store, &module).unwrap();
    assert!(matches!(
        linker.instantiate(&mut store, &module),
        Err(InstantiateError::InstanceLimit { limit: 2 })
    ));
}
