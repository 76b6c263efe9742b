//! Exceptions: thrown and caught inside a guest, across instances, and across the host.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{instance, module};
use mote_runtime::{
    Caller, ExnRef, Extern, FuncType, HostError, Limits, Linker, Store, Tag, TrapCode, Val, ValueType,
};

const THROWS: &str = r#"(module $throws
    (tag $e (export "e") (param i32 i64))
    (tag $other (export "other"))
    (func $throw (export "throw") (param i32)
        (if (local.get 0) (then (throw $e (local.get 0) (i64.const 1000))) (else (throw $other))))
    (func $deep (param i32 i32)
        (if (local.get 1) (then (call $deep (local.get 0) (i32.sub (local.get 1) (i32.const 1))))
            (else (call $throw (local.get 0)))))
    (func (export "catch") (param i32 i32) (result i64)
        (local $saved i64)
        (local.set $saved (i64.extend_i32_s (i32.mul (local.get 1) (i32.const 3))))
        (block $all
            (block $caught (result i32 i64)
                (try_table (catch $e $caught) (catch_all $all)
                    (call $deep (local.get 0) (local.get 1)))
                (return (i64.const -1)))
            (i64.extend_i32_s) (drop) (i64.extend_i32_s)
            (return (i64.add (local.get $saved))))
        (i64.const -2))
    (func (export "rethrow") (param i32) (result i32)
        (block $caught (result exnref)
            (try_table (catch_all_ref $caught) (call $throw (local.get 0)))
            (return (i32.const 0)))
        (throw_ref))
    (func (export "null") (throw_ref (ref.null exn)))
)"#;

#[test]
fn handlers_are_found_through_frames() {
    let text = THROWS.replace("(i64.extend_i32_s) (drop) (i64.extend_i32_s)", "(drop) (i64.extend_i32_s)");
    let (mut store, instance) = instance(&text);
    let catch = instance.typed_func::<(i32, i32), i64>(&store, "catch").unwrap();
    for round in 0..1000 {
        assert_eq!(catch.call(&mut store, (5, round % 20)).unwrap(), 5 + i64::from(round % 20) * 3);
        assert_eq!(catch.call(&mut store, (0, 3)).unwrap(), -2);
    }
    let throw = instance.typed_func::<i32, ()>(&store, "throw").unwrap();
    let trap = throw.call(&mut store, 7).unwrap_err();
    assert_eq!(trap.code(), Some(TrapCode::UncaughtException));
    let (tag, payload) = trap.thrown().unwrap().get(&store).unwrap();
    assert_eq!(Some(tag), instance.get_export(&store, "e").and_then(Extern::tag));
    assert_eq!((payload[0].i32(), payload[1].i64()), (Some(7), Some(1000)));
    assert_eq!(trap.frames()[0].name, "throw");
    let rethrow = instance.typed_func::<i32, i32>(&store, "rethrow").unwrap();
    assert_eq!(rethrow.call(&mut store, 7).unwrap_err().code(), Some(TrapCode::UncaughtException));
    let null = instance.typed_func::<(), ()>(&store, "null").unwrap();
    assert_eq!(null.call(&mut store, ()).unwrap_err().code(), Some(TrapCode::NullReference));
}

const CATCHES: &str = r#"(module $catches
    (import "t" "e" (tag $e (param i32 i64)))
    (import "t" "throw" (func $throw (param i32)))
    (func (export "run") (param i32) (result i32)
        (block $all
            (block $caught (result i32 i64)
                (try_table (catch $e $caught) (catch_all $all) (call $throw (local.get 0)))
                (return (i32.const -1)))
            (drop) (return))
        (i32.const -2)))"#;

#[test]
fn instances_catch_what_others_throw() {
    let mut store = Store::new(());
    let mut linker = Linker::<()>::new();
    let text = THROWS.replace("(i64.extend_i32_s) (drop) (i64.extend_i32_s)", "(drop) (i64.extend_i32_s)");
    let throws = linker.instantiate(&mut store, &module(&text)).unwrap();
    linker.instance(&store, "t", throws);
    let catches = linker.instantiate(&mut store, &module(CATCHES)).unwrap();
    let run = catches.typed_func::<i32, i32>(&store, "run").unwrap();
    assert_eq!(run.call(&mut store, 9).unwrap(), 9);
    assert_eq!(run.call(&mut store, 0).unwrap(), -2);
}

#[test]
fn exceptions_pass_through_host_functions() {
    let mut store = Store::new(());
    let mut linker = Linker::<()>::new();
    let text = THROWS.replace("(i64.extend_i32_s) (drop) (i64.extend_i32_s)", "(drop) (i64.extend_i32_s)");
    let throws = linker.instantiate(&mut store, &module(&text)).unwrap();
    let inner = throws.typed_func::<i32, ()>(&store, "throw").unwrap();
    linker.define("t", "e", throws.get_export(&store, "e").unwrap());
    linker.func_wrap("t", "throw", move |mut caller: Caller<'_, ()>, what: i32| {
        inner.call(&mut caller, what)?;
        Ok::<(), HostError>(())
    });
    let catches = linker.instantiate(&mut store, &module(CATCHES)).unwrap();
    let run = catches.typed_func::<i32, i32>(&store, "run").unwrap();
    for round in 1..1000 {
        assert_eq!(run.call(&mut store, round).unwrap(), round);
    }
    assert_eq!(run.call(&mut store, 0).unwrap(), -2);
}

#[test]
fn the_host_throws_exceptions_of_its_own() {
    let mut store = Store::new(());
    let mut linker = Linker::<()>::new();
    let ty = FuncType { params: vec![ValueType::I32, ValueType::I64], results: vec![] };
    let tag = Tag::new(&mut store, &ty);
    linker.define("t", "e", tag);
    linker.func_wrap("t", "throw", move |mut caller: Caller<'_, ()>, what: i32| -> Result<(), HostError> {
        let exception = ExnRef::new(&mut caller, &tag, &[Val::I32(what * 2), Val::I64(0)])?;
        Err(HostError::throw(exception))
    });
    let catches = linker.instantiate(&mut store, &module(CATCHES)).unwrap();
    let run = catches.typed_func::<i32, i32>(&store, "run").unwrap();
    assert_eq!(run.call(&mut store, 21).unwrap(), 42);
}

#[test]
fn exceptions_have_a_limit() {
    let module = module(
        r#"(module (tag $e)
            (table $kept 100 exnref)
            (func (export "keep") (param i32)
                (block $caught (result exnref)
                    (try_table (catch_all_ref $caught) (throw $e)) (unreachable))
                (drop))
            (func (export "drop") (block $caught (try_table (catch $e $caught) (throw $e)) (unreachable))))"#,
    );
    let mut limits = Limits::default();
    limits.exceptions = 10;
    let mut store = Store::with_limits((), limits);
    let instance = Linker::new().instantiate(&mut store, &module).unwrap();
    let drop_it = instance.typed_func::<(), ()>(&store, "drop").unwrap();
    for _ in 0..100 {
        drop_it.call(&mut store, ()).unwrap();
    }
    let keep = instance.typed_func::<i32, ()>(&store, "keep").unwrap();
    let code = (0..20).find_map(|at| keep.call(&mut store, at).err()).and_then(|trap| trap.code());
    assert_eq!(code, Some(TrapCode::ResourceLimit));
}
