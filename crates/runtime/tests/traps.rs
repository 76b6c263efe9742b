//! Every way in which a guest ends, and that the process goes on.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{instance, module};
use mote_runtime::{Caller, Limits, Linker, Module, Store, TrapCode};

const TRAPS: &str = r#"(module $traps
    (memory (export "memory") 1)
    (type $t (func (param i32) (result i32)))
    (table 2 funcref)
    (func $unit) (elem (i32.const 0) $unit)
    (func (export "unreachable") (param i32) (result i32) unreachable)
    (func (export "load") (param i32) (result i32) (i32.load (local.get 0)))
    (func (export "store") (param i32) (result i32) (i32.store offset=4294967295 (local.get 0) (i32.const 1)) (i32.const 0))
    (func (export "div") (param i32) (result i32) (i32.div_s (i32.const 1) (local.get 0)))
    (func (export "overflow") (param i32) (result i32) (i32.div_s (i32.const 0x80000000) (local.get 0)))
    (func (export "truncate") (param i32) (result i32) (i32.trunc_f64_s (f64.mul (f64.const 1e10) (f64.convert_i32_s (local.get 0)))))
    (func (export "nan") (param i32) (result i32) (i32.trunc_f64_s (f64.div (f64.const 0) (f64.convert_i32_s (local.get 0)))))
    (func $endless (export "endless") (param i32) (result i32) (i32.add (i32.const 1) (call $endless (local.get 0))))
    (func (export "indirect") (param i32) (result i32) (call_indirect (type $t) (i32.const 0) (local.get 0)))
    (func $inner (param i32) (result i32) (i32.load (local.get 0)))
    (func (export "fill") (param i32) (result i32) (memory.fill (local.get 0) (i32.const 1) (i32.const 2)) (i32.const 0))
)"#;

#[test]
fn every_kind_of_trap_has_its_code_and_the_instance_lives_on() {
    let (mut store, instance) = instance(TRAPS);
    let cases = [
        ("unreachable", 0, TrapCode::Unreachable),
        ("load", -1, TrapCode::MemoryOutOfBounds),
        ("load", 65533, TrapCode::MemoryOutOfBounds),
        ("store", 0, TrapCode::MemoryOutOfBounds),
        ("store", -1, TrapCode::MemoryOutOfBounds),
        ("div", 0, TrapCode::IntegerDivideByZero),
        ("overflow", -1, TrapCode::IntegerOverflow),
        ("truncate", 1, TrapCode::IntegerOverflow),
        ("nan", 0, TrapCode::InvalidConversionToInteger),
        ("endless", 0, TrapCode::StackOverflow),
        ("indirect", 0, TrapCode::IndirectCallTypeMismatch),
        ("indirect", 1, TrapCode::UninitializedElement),
        ("indirect", 2, TrapCode::UndefinedElement),
        ("indirect", -1, TrapCode::UndefinedElement),
        ("fill", 65535, TrapCode::MemoryOutOfBounds),
    ];
    for _ in 0..100 {
        for (name, argument, code) in cases {
            let func = instance.typed_func::<i32, i32>(&store, name).unwrap();
            let trap = func.call(&mut store, argument).unwrap_err();
            assert_eq!(trap.code(), Some(code), "{name}({argument}): {trap:#}");
            assert_eq!(trap.frames().first().map(|frame| frame.name.as_str()), Some(name), "{trap:#}");
        }
        let load = instance.typed_func::<i32, i32>(&store, "load").unwrap();
        assert_eq!(load.call(&mut store, 65532).unwrap(), 0);
    }
}

#[test]
fn a_backtrace_names_functions_and_offsets() {
    let wasm = wat::parse_str(
        r#"(module $calc
            (memory 1)
            (func $leaf (param i32) (result i32) (i32.load (local.get 0)))
            (func $middle (param i32) (result i32) (i32.add (call $leaf (local.get 0)) (i32.const 1)))
            (func (export "top") (param i32) (result i32) (i32.add (call $middle (local.get 0)) (i32.const 1))))"#,
    )
    .unwrap();
    let artifact = common::compile(&wasm, mote_compiler::OptLevel::O0);
    let module = mote_runtime::Module::from_bytes(&artifact).unwrap();
    let mut store = Store::new(());
    let instance = Linker::new().instantiate(&mut store, &module).unwrap();
    let top = instance.typed_func::<i32, i32>(&store, "top").unwrap();
    let trap = top.call(&mut store, 1 << 20).unwrap_err();
    let frames = trap.frames();
    let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
    assert_eq!(names, ["leaf", "middle", "top"], "{trap:#}");
    assert!(frames.iter().all(|frame| frame.module == "calc"));
    let load = wasm.windows(2).position(|bytes| bytes == [0x28, 0x02]).unwrap() as u64;
    assert_eq!(frames[0].wasm_offset, Some(load));
    let text = format!("{trap:#}");
    assert!(text.starts_with("out of bounds memory access\n    at leaf (calc+0x"), "{text}");
}

#[test]
fn a_million_traps_leak_nothing() {
    let (mut store, instance) = instance(TRAPS);
    let load = instance.typed_func::<i32, i32>(&store, "load").unwrap();
    let div = instance.typed_func::<i32, i32>(&store, "div").unwrap();
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let rounds = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let mut before = 0;
    for round in 0..rounds {
        assert!(load.call(&mut store, -8).is_err());
        assert!(div.call(&mut store, 0).is_err());
        if round == 1000 {
            before = resident();
        }
    }
    assert!(resident() < before + 256, "pages before {before}, after {}", resident());
}

#[test]
fn traps_of_many_threads_do_not_mix() {
    let module = module(TRAPS);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let module = &module;
            scope.spawn(move || {
                let mut store = Store::with_limits((), Limits::default());
                let instance = Linker::new().instantiate(&mut store, module).unwrap();
                for round in 0..500 {
                    let (name, argument, code) = match (round + seed) % 4 {
                        0 => ("endless", 0, TrapCode::StackOverflow),
                        1 => ("load", -1, TrapCode::MemoryOutOfBounds),
                        2 => ("unreachable", 0, TrapCode::Unreachable),
                        _ => ("div", 0, TrapCode::IntegerDivideByZero),
                    };
                    let func = instance.typed_func::<i32, i32>(&store, name).unwrap();
                    assert_eq!(func.call(&mut store, argument).unwrap_err().code(), Some(code));
                }
            });
        }
    });
}

#[test]
fn a_stack_that_ends_in_a_host_call_is_a_trap() {
    let text = r#"(module
        (import "env" "direct" (func $direct (param i32) (result i32)))
        (import "env" "slots" (func $slots (param i32) (result i32 i32)))
        (memory 1)
        (func $odd (export "odd") (param i32 i64) (result i32)
            (i32.add (call $direct (local.get 0)) (call $odd (i32.add (local.get 0) (i32.const 1)) (local.get 1))))
        (func $even (export "even") (param i32 i64) (result i32)
            (i32.add (i32.add (call $slots (local.get 0)))
                (i32.add (i32.wrap_i64 (local.get 1)) (call $even (i32.add (local.get 0) (i32.const 1)) (local.get 1)))))
        (func $grow (export "grow") (param i32 i64) (result i32)
            (i32.add (memory.grow (i32.const 0)) (call $grow (local.get 0) (local.get 1)))))"#;
    let module = module(text);
    let mut linker = Linker::<u32>::new();
    linker.func_wrap("env", "direct", |mut caller: Caller<'_, u32>, at: i32| {
        *caller.data_mut() += 1;
        at
    });
    linker.func_wrap("env", "slots", |mut caller: Caller<'_, u32>, at: i32| {
        *caller.data_mut() += 1;
        (at, 1)
    });
    for pages in 16..28 {
        let mut limits = Limits::default();
        limits.stack_bytes = pages * 4096;
        let mut store = Store::with_limits(0, limits);
        let instance = linker.instantiate(&mut store, &module).unwrap();
        for name in ["odd", "even", "grow"] {
            let func = instance.typed_func::<(i32, i64), i32>(&store, name).unwrap();
            let trap = func.call(&mut store, (0, 1)).unwrap_err();
            assert_eq!(trap.code(), Some(TrapCode::StackOverflow), "{name}: {trap:#}");
        }
        assert!(*store.data() > 100);
    }
}

#[test]
fn a_truncated_artifact_under_a_running_guest_is_a_trap() {
    let text = r#"(module (memory (export "memory") 2) (data (i32.const 65536) "far")
        (func (export "load") (param i32) (result i32) (i32.load8_u (local.get 0))))"#;
    let artifact = common::compile(&wat::parse_str(text).unwrap(), mote_compiler::OptLevel::O1);
    let path = std::env::temp_dir().join(format!("mote-truncated-{}", std::process::id()));
    std::fs::write(&path, &artifact).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let module = Module::from_file(&file).unwrap();
    let mut store = Store::new(());
    let instance = Linker::new().instantiate(&mut store, &module).unwrap();
    let load = instance.typed_func::<i32, i32>(&store, "load").unwrap();
    let memory = instance.get_memory(&store, "memory").unwrap();
    assert_eq!(load.call(&mut store, 0).unwrap(), 0);
    // The image lies behind the code: first only that is lost, then everything.
    let image = module.artifact().image().next().unwrap().file_offset;
    for len in [image, 0] {
        file.set_len(len).unwrap();
        let trap = load.call(&mut store, 65536).unwrap_err();
        assert_eq!(
            trap.to_string(),
            "out of bounds memory access: a page of the artifact is gone: its file was truncated while it ran"
        );
        assert!(memory.read_array::<3>(&store, 65536).is_err());
    }
    std::fs::remove_file(&path).unwrap();
}
