//! Artifacts that begin where an instance stood.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::module;
use mote_runtime::{
    Caller, Func, Instance, Linker, Module, SnapshotError, SnapshotOptions, Store, TrapCode, Val,
};

const STATE: &str = r#"(module
    (memory (export "memory") 3 10)
    (memory $second (export "second") 1)
    (data (i32.const 100) "image")
    (data $late "passive")
    (data $kept "kept")
    (table $t (export "table") 3 10 funcref)
    (table $e (export "externs") 2 externref)
    (elem (table $t) (i32.const 0) func $one)
    (elem $passive func $two $one)
    (elem declare func $two)
    (global $i (mut i32) (i32.const 5)) (global $l (mut i64) (i64.const 5))
    (global $f (mut f32) (f32.const 5)) (global $d (mut f64) (f64.const 5))
    (global $v (mut v128) (v128.const i64x2 5 5))
    (global $r (export "ref") (mut funcref) (ref.null func))
    (global $x (export "extern") (mut externref) (ref.null extern))
    (func $one (result i32) (i32.const 1))
    (func $two (result i32) (i32.const 2))
    (func (export "init")
        (i32.store8 (i32.const 100) (i32.const 88))
        (i32.store (i32.const 131072) (i32.const 79))
        (i32.store8 $second (i32.const 9) (i32.const 80))
        (memory.init $late (i32.const 0) (i32.const 0) (i32.const 7))
        (data.drop $late)
        (drop (memory.grow (i32.const 2)))
        (i32.store (i32.const 300000) (i32.const 81))
        (global.set $i (i32.const -6)) (global.set $l (i64.const -60000000000))
        (global.set $f (f32.const -0)) (global.set $d (f64.const nan:0x8000000000001))
        (global.set $v (v128.const i64x2 -1 77)) (global.set $r (ref.func $two))
        (table.set $t (i32.const 2) (ref.func $two))
        (drop (table.grow $t (ref.func $two) (i32.const 2))))
    (func (export "numbers") (result i32 i64 f32 f64 v128)
        (global.get $i) (global.get $l) (global.get $f) (global.get $d) (global.get $v))
    (func (export "load") (param i32) (result i32) (i32.load8_u (local.get 0)))
    (func (export "load2") (param i32) (result i32) (i32.load8_u $second (local.get 0)))
    (func (export "call") (param i32) (result i32) (call_indirect $t (result i32) (local.get 0)))
    (func (export "late") (memory.init $late (i32.const 0) (i32.const 0) (i32.const 1)))
    (func (export "kept") (memory.init $kept (i32.const 0) (i32.const 0) (i32.const 4)))
    (func (export "passive") (table.init $t $passive (i32.const 0) (i32.const 0) (i32.const 2)))
    (func (export "set_extern") (param externref) (global.set $x (local.get 0))))"#;

fn check(store: &mut Store<()>, instance: Instance) {
    let load = instance.typed_func::<i32, i32>(&*store, "load").unwrap();
    for (at, value) in [(0, b'p'), (6, b'e'), (100, 88), (101, b'm'), (131072, 79), (300000, 81), (50000, 0)]
    {
        assert_eq!(load.call(&mut *store, at).unwrap(), i32::from(value), "at {at}");
    }
    let load2 = instance.typed_func::<i32, i32>(&*store, "load2").unwrap();
    assert_eq!(load2.call(&mut *store, 9).unwrap(), 80);
    let numbers = instance.get_func(&*store, "numbers").unwrap().call(&mut *store, &[]).unwrap();
    assert!(
        matches!(
            numbers[..],
            [Val::I32(-6), Val::I64(-60000000000), Val::F32(0x8000_0000), Val::F64(0x7ff8_0000_0000_0001), Val::V128(v)]
                if v == (77 << 64 | u128::from(u64::MAX))
        ),
        "{numbers:?}"
    );
    let call = instance.typed_func::<i32, i32>(&*store, "call").unwrap();
    let results: Vec<_> = (0..6).map(|at| call.call(&mut *store, at).map_err(|trap| trap.code())).collect();
    let null = Err(Some(TrapCode::UninitializedElement));
    assert_eq!(results, [Ok(1), null, Ok(2), Ok(2), Ok(2), Err(Some(TrapCode::UndefinedElement))]);
    let run = |store: &mut Store<()>, name: &str| {
        instance.typed_func::<(), ()>(&*store, name).unwrap().call(store, ()).map_err(|trap| trap.code())
    };
    assert_eq!(run(store, "late"), Err(Some(TrapCode::MemoryOutOfBounds)));
    let reference = instance.get_export(&*store, "ref").unwrap().global().unwrap().get(&*store);
    let Val::FuncRef(Some(func)) = reference else { panic!() };
    assert_eq!(func.call(&mut *store, &[]).unwrap()[0].i32(), Some(2));
    let memory = instance.get_memory(&*store, "memory").unwrap();
    assert_eq!(memory.size(&*store), 5);
}

#[test]
fn instances_of_a_snapshot_begin_where_it_was_taken() {
    let mut store = Store::new(());
    let instance = Linker::new().instantiate(&mut store, &module(STATE)).unwrap();
    instance.checkpoint(&mut store).unwrap();
    instance.typed_func::<(), ()>(&store, "init").unwrap().call(&mut store, ()).unwrap();
    check(&mut store, instance);
    // Pages that a checkpoint has mapped from its file are part of the snapshot too.
    instance.checkpoint(&mut store).unwrap();
    let snapshot = instance.snapshot(&mut store).unwrap();
    assert_eq!(snapshot, instance.snapshot(&mut store).unwrap());
    let module = Module::from_bytes(&snapshot).unwrap();
    for _ in 0..2 {
        let mut store = Store::new(());
        let instance = Linker::new().instantiate(&mut store, &module).unwrap();
        check(&mut store, instance);
        let again = Module::from_bytes(&instance.snapshot(&mut store).unwrap()).unwrap();
        let instance = Linker::new().instantiate(&mut store, &again).unwrap();
        check(&mut store, instance);
        let run = |store: &mut Store<()>, name: &str| {
            instance.typed_func::<(), ()>(&*store, name).unwrap().call(store, ()).unwrap();
        };
        run(&mut store, "kept");
        run(&mut store, "passive");
        let load = instance.typed_func::<i32, i32>(&store, "load").unwrap();
        assert_eq!(load.call(&mut store, 0).unwrap(), i32::from(b'k'));
        let call = instance.typed_func::<i32, i32>(&store, "call").unwrap();
        assert_eq!(call.call(&mut store, 0).unwrap(), 2);
    }
}

#[test]
fn what_a_snapshot_cannot_keep_is_refused() {
    let mut store = Store::new(());
    let instance = Linker::new().instantiate(&mut store, &module(STATE)).unwrap();
    let host = Func::wrap(&mut store, |_: Caller<'_, ()>| 1_i32);
    let table = instance.get_export(&store, "table").unwrap().table().unwrap();
    table.set(&mut store, 1, Val::FuncRef(Some(host))).unwrap();
    let error = instance.snapshot(&mut store).unwrap_err();
    assert!(matches!(error, SnapshotError::Reference { place: "table", index: 0, .. }), "{error}");
    table.set(&mut store, 1, Val::FuncRef(None)).unwrap();
    let word = mote_runtime::ExternRef::new(std::num::NonZeroU64::new(5).unwrap());
    let set = instance.get_func(&store, "set_extern").unwrap();
    set.call(&mut store, &[Val::ExternRef(Some(word))]).unwrap();
    let error = instance.snapshot(&mut store).unwrap_err();
    assert_eq!(
        error.to_string(),
        "global 6 holds a reference that a snapshot cannot keep: something of the host's"
    );
    let mut linker = Linker::new();
    linker.instance(&store, "a", instance);
    let imports = module(r#"(module (import "a" "memory" (memory 1)))"#);
    let imports = linker.instantiate(&mut store, &imports).unwrap();
    assert!(matches!(imports.snapshot(&mut store), Err(SnapshotError::Imported { what: "memory", .. })));
}

#[test]
fn a_snapshot_can_start_with_another_function_and_leave_exports_out() {
    let mut store = Store::new(());
    let instance = Linker::new()
        .instantiate(
            &mut store,
            &module(
                r#"(module
                    (global $at (mut i32) (i32.const 0))
                    (table 2 funcref) (elem (i32.const 1) func $resume)
                    (func (export "_start") (global.set $at (i32.const 1)))
                    (func (export "init") (global.set $at (i32.const 2)))
                    (func $resume (global.set $at (i32.add (global.get $at) (i32.const 40))))
                    (func (export "at") (result i32) (global.get $at)))"#,
            ),
        )
        .unwrap();
    instance.typed_func::<(), ()>(&store, "init").unwrap().call(&mut store, ()).unwrap();
    assert!(instance.indirect_func(&store, 0).is_none() && instance.indirect_func(&store, 2).is_none());
    let start = instance.indirect_func(&store, 1);
    let options = SnapshotOptions { without: &["init"], start };
    let snapshot = instance.snapshot_with(&mut store, options).unwrap();

    let host = Func::wrap(&mut store, |_: Caller<'_, ()>| ());
    let foreign = SnapshotOptions { start: Some(host), ..options };
    assert!(matches!(instance.snapshot_with(&mut store, foreign), Err(SnapshotError::Start)));

    let mut store = Store::new(());
    let instance = Linker::new().instantiate(&mut store, &Module::from_bytes(&snapshot).unwrap()).unwrap();
    assert!(instance.get_func(&store, "init").is_none());
    instance.typed_func::<(), ()>(&store, "_start").unwrap().call(&mut store, ()).unwrap();
    let at = instance.typed_func::<(), i32>(&store, "at").unwrap();
    assert_eq!(at.call(&mut store, ()).unwrap(), 42);
}
