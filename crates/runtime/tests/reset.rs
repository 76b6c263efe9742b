//! Taking instances back.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::module;
use mote_runtime::{Extern, Linker, Store, Trap, TrapCode, Val};

const STATE: &str = r#"(module
    (memory (export "memory") 3 10)
    (data (i32.const 100) "image")
    (data $late "passive")
    (table (export "table") 3 10 funcref)
    (elem (i32.const 0) $one)
    (global $g (export "g") (mut i64) (i64.const 5))
    (func $one (result i32) (i32.const 1))
    (func $two (result i32) (i32.const 2))
    (elem declare func $two)
    (func $init (export "init") (i32.store (i32.const 70000) (i32.const 77)) (global.set $g (i64.const 6)))
    (start $init)
    (func (export "change")
        (i32.store8 (i32.const 100) (i32.const 88))
        (i32.store (i32.const 70000) (i32.const 78))
        (i32.store (i32.const 131072) (i32.const 79))
        (memory.init $late (i32.const 0) (i32.const 0) (i32.const 7))
        (data.drop $late)
        (drop (memory.grow (i32.const 2)))
        (i32.store (i32.const 200000) (i32.const 80))
        (global.set $g (i64.const 9))
        (table.set (i32.const 0) (ref.func $two))
        (drop (table.grow (ref.func $two) (i32.const 4))))
    (func (export "init_late") (memory.init $late (i32.const 0) (i32.const 0) (i32.const 7)))
    (func (export "load") (param i32) (result i32) (i32.load8_u (local.get 0)))
    (func (export "call") (param i32) (result i32) (call_indirect (result i32) (local.get 0))))"#;

#[test]
fn a_reset_restores_everything_the_guest_changed() {
    let mut store = Store::new(());
    let instance = Linker::new().instantiate(&mut store, &module(STATE)).unwrap();
    assert!(instance.reset(&mut store).is_err());
    instance.checkpoint(&mut store).unwrap();
    let memory = instance.get_memory(&store, "memory").unwrap();
    let before = memory.data(&store).unwrap().to_vec();
    let run = |store: &mut Store<()>, name: &str| {
        instance.typed_func::<(), ()>(&*store, name).unwrap().call(store, ())
    };
    let load = instance.typed_func::<i32, i32>(&store, "load").unwrap();
    let call = instance.typed_func::<i32, i32>(&store, "call").unwrap();
    let table = instance.get_export(&store, "table").and_then(Extern::table).unwrap();
    let global = instance.get_export(&store, "g").and_then(Extern::global).unwrap();
    for round in 0..50 {
        run(&mut store, "change").unwrap();
        assert_eq!(load.call(&mut store, 200000).unwrap(), 80);
        assert_eq!(call.call(&mut store, 0).unwrap(), 2);
        assert!(run(&mut store, "init_late").is_err());
        assert_eq!(table.size(&store), 7);
        instance.reset(&mut store).unwrap();
        assert_eq!(memory.data(&store).unwrap(), before, "round {round}");
        assert_eq!(memory.size(&store), 3);
        assert_eq!(load.call(&mut store, 200000).unwrap_err().code(), Some(TrapCode::MemoryOutOfBounds));
        assert_eq!(global.get(&store).i64(), Some(6));
        assert_eq!(table.size(&store), 3);
        assert_eq!(call.call(&mut store, 0).unwrap(), 1);
        assert_eq!(
            call.call(&mut store, 4).map_err(|trap: Trap| trap.code()),
            Err(Some(TrapCode::UndefinedElement))
        );
        assert_eq!(table.grow(&mut store, 1, Val::FuncRef(None)).unwrap(), 3);
        assert_eq!(call.call(&mut store, 3).unwrap_err().code(), Some(TrapCode::UninitializedElement));
        instance.reset(&mut store).unwrap();
    }
    // A later checkpoint replaces the earlier one.
    run(&mut store, "change").unwrap();
    instance.checkpoint(&mut store).unwrap();
    let after = memory.data(&store).unwrap().to_vec();
    memory.write(&mut store, 100, b"other").unwrap();
    instance.reset(&mut store).unwrap();
    assert_eq!(memory.data(&store).unwrap(), after);
    assert_eq!(memory.size(&store), 5);
    assert_eq!(global.get(&store).i64(), Some(9));
    assert_eq!(table.size(&store), 7);
}

#[test]
fn many_written_pages_are_restored_too() {
    let text = r#"(module (memory (export "memory") 16)
        (data (i32.const 5000) "first") (data (i32.const 700000) "second"))"#;
    let mut store = Store::new(());
    let instance = Linker::new().instantiate(&mut store, &module(text)).unwrap();
    let memory = instance.get_memory(&store, "memory").unwrap();
    memory.write(&mut store, 300_000, b"before the checkpoint").unwrap();
    instance.checkpoint(&mut store).unwrap();
    let before = memory.data(&store).unwrap().to_vec();
    for round in 1..20_u8 {
        // All pages at once, every second page, and a few.
        let data = memory.data_mut(&mut store).unwrap();
        match round % 3 {
            0 => data.fill(round),
            1 => data.chunks_mut(4096).step_by(2).for_each(|page| page[17] = round),
            _ => data[4000..20_000].fill(round),
        }
        instance.reset(&mut store).unwrap();
        assert!(memory.data(&store).unwrap() == before, "round {round}");
    }
}
