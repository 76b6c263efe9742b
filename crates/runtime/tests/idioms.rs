//! Byte loops that the compiler turns into fills, copies and searches: overlapping ranges, ranges that end at, reach over or begin behind
//! the end of the memory, and ranges that wrap around, against the same loops compiled without optimisation.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use mote_compiler::OptLevel;
use mote_runtime::{Instance, Linker, Module, Store, TrapCode};

/// One page; each loop runs on (destination, source or value, length).
const LOOPS: &str = r#"(module
    (memory (export "memory") 1 1)
    (func (export "fill") (param $to i32) (param $value i32) (param $len i32) (result i32)
        (block $end (loop $next
            (br_if $end (i32.eqz (local.get $len)))
            (i32.store8 (local.get $to) (local.get $value))
            (local.set $to (i32.add (local.get $to) (i32.const 1)))
            (local.set $len (i32.sub (local.get $len) (i32.const 1)))
            (br $next)))
        (local.get $to))
    (func (export "fill_words") (param $to i32) (param $value i32) (param $len i32) (result i32)
        (local $at i32)
        (block $end (loop $next
            (br_if $end (i32.ge_u (local.get $at) (local.get $len)))
            (i32.store (i32.add (local.get $to) (i32.shl (local.get $at) (i32.const 2))) (local.get $value))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $next)))
        (local.get $at))
    (func (export "copy") (param $to i32) (param $from i32) (param $len i32) (result i32)
        (block $end (loop $next
            (br_if $end (i32.eqz (local.get $len)))
            (i32.store8 (local.get $to) (i32.load8_u (local.get $from)))
            (local.set $to (i32.add (local.get $to) (i32.const 1)))
            (local.set $from (i32.add (local.get $from) (i32.const 1)))
            (local.set $len (i32.sub (local.get $len) (i32.const 1)))
            (br $next)))
        (local.get $from))
    (func (export "copy_down") (param $to i32) (param $from i32) (param $len i32) (result i32)
        (block $end (loop $next
            (br_if $end (i32.eqz (local.get $len)))
            (local.set $len (i32.sub (local.get $len) (i32.const 1)))
            (i32.store8 (i32.add (local.get $to) (local.get $len))
                (i32.load8_u (i32.add (local.get $from) (local.get $len))))
            (br $next)))
        (local.get $to))
    (func (export "xor") (param $to i32) (param $from i32) (param $len i32) (result i32)
        (local $at i32)
        (block $end (loop $next
            (br_if $end (i32.ge_u (local.get $at) (local.get $len)))
            (i32.store8 (i32.add (local.get $to) (local.get $at)) (i32.xor
                (i32.load8_u (i32.add (local.get $to) (local.get $at)))
                (i32.load8_u (i32.add (local.get $from) (local.get $at)))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $next)))
        (local.get $at))
    ;; sodium_memzero: the pointer goes through a slot that the loop may overwrite.
    (func (export "zero_by_slot") (param $to i32) (param $slot i32) (param $len i32) (result i32)
        (local $at i32)
        (i32.store (local.get $slot) (local.get $to))
        (block $end (loop $next
            (br_if $end (i32.ge_u (local.get $at) (local.get $len)))
            (i32.store8 (i32.add (i32.load (local.get $slot)) (local.get $at)) (i32.const 0))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $next)))
        (local.get $at))
    (func (export "equal") (param $a i32) (param $b i32) (param $len i32) (result i32)
        (local $difference i32)
        (block $end (loop $next
            (br_if $end (i32.eqz (local.get $len)))
            (local.set $difference (i32.or (local.get $difference)
                (i32.xor (i32.load8_u (local.get $a)) (i32.load8_u (local.get $b)))))
            (local.set $a (i32.add (local.get $a) (i32.const 1)))
            (local.set $b (i32.add (local.get $b) (i32.const 1)))
            (local.set $len (i32.sub (local.get $len) (i32.const 1)))
            (br $next)))
        (local.get $difference))
    (func (export "length") (param $from i32) (param $unused i32) (param $also i32) (result i32)
        (local $at i32)
        (local.set $at (local.get $from))
        (block $end (loop $next
            (br_if $end (i32.eqz (i32.load8_u (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $next)))
        (i32.sub (local.get $at) (local.get $from))))"#;

const PAGE: u32 = 65536;

struct Side {
    store: Store<()>,
    instance: Instance,
}

impl Side {
    fn new(level: OptLevel) -> Self {
        let wasm = wat::parse_str(LOOPS).unwrap();
        let module = Module::from_bytes(&common::compile(&wasm, level)).unwrap();
        let mut store = Store::new(());
        let instance = Linker::new().instantiate(&mut store, &module).unwrap();
        Self { store, instance }
    }

    /// Runs a loop on a memory with this pattern: what it returned, and the memory after it.
    fn run(
        &mut self,
        name: &str,
        arguments: (i32, i32, i32),
        pattern: &[u8],
    ) -> (Result<i32, TrapCode>, Vec<u8>) {
        let memory = self.instance.get_memory(&self.store, "memory").unwrap();
        memory.write(&mut self.store, 0, pattern).unwrap();
        let func = self.instance.typed_func::<(i32, i32, i32), i32>(&self.store, name).unwrap();
        let result = func.call(&mut self.store, arguments).map_err(|trap| trap.code().unwrap());
        let mut after = vec![0; pattern.len()];
        memory.read(&self.store, 0, &mut after).unwrap();
        (result, after)
    }
}

/// Places that matter: the ends of the memory, of the address space, and near one another.
fn places() -> Vec<u32> {
    let near = [0, 1, 3, 64, 65, 1000, 1031];
    let ends =
        [PAGE - 1000, PAGE - 33, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 0x8000_0000, u32::MAX - 40, u32::MAX];
    near.into_iter().chain(ends).collect()
}

#[test]
fn recognised_loops_do_what_the_loops_do() {
    let mut plain = Side::new(OptLevel::O0);
    let mut fast = Side::new(OptLevel::O3);
    let pattern: Vec<u8> = (0..PAGE).map(|at| (at % 251 + 1) as u8 * u8::from(at % 4099 != 17)).collect();
    let (mut returned, mut trapped) = (0, 0);
    for name in ["fill", "fill_words", "copy", "copy_down", "xor", "zero_by_slot", "equal", "length"] {
        for to in places() {
            for from in places() {
                for len in [0, 1, 7, 31, 40, 300, 1001] {
                    let arguments = (to.cast_signed(), from.cast_signed(), len);
                    let (expected, memory) = plain.run(name, arguments, &pattern);
                    let (found, after) = fast.run(name, arguments, &pattern);
                    assert_eq!(found, expected, "{name}{arguments:x?}");
                    match expected {
                        Ok(_) => {
                            assert!(after == memory, "{name}{arguments:x?}: another memory");
                            returned += 1;
                        }
                        // What a trapped loop leaves is not the loop's own: see docs/conformance.md.
                        Err(code) => {
                            assert_eq!(code, TrapCode::MemoryOutOfBounds);
                            trapped += 1;
                        }
                    }
                    if name == "length" || name == "fill" && from != 0 {
                        break;
                    }
                }
            }
        }
    }
    assert!(returned > 2000 && trapped > 2000, "{returned} returned, {trapped} trapped");
}
