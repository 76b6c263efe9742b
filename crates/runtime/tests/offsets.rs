//! Constants in the 32-bit sums of addresses: exact on both sides of where a sum wraps.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::instance;
use mote_runtime::TrapCode;

/// Offsets within and past what the compiler moves out of the sum.
const OFFSETS: [i32; 9] = [4, -8, 24, 4096, -4096, 65532, 65536, -65536, 70000];

/// A function for each pair of offsets: stores at the one, loads at the other.
fn module(pages: u32) -> String {
    let mut functions = String::new();
    for (i, stored) in OFFSETS.iter().enumerate() {
        for (k, loaded) in OFFSETS.iter().enumerate() {
            functions += &format!(
                "(func (export \"f{i}_{k}\") (param i32 i32) (result i32)
                   (i32.store (i32.add (local.get 0) (i32.const {stored})) (local.get 1))
                   (i32.store8 (local.get 0) (i32.const 7))
                   (i32.load (i32.add (local.get 0) (i32.const {loaded}))))"
            );
        }
    }
    format!("(module (memory (export \"memory\") {pages}) {functions})")
}

/// Whether the specification lets all three accesses happen; `None` is a trap.
fn expected(len: u64, pointer: u32, stored: i32, loaded: i32) -> Option<()> {
    let inside = |address: u32, size: u64| (u64::from(address) + size <= len).then_some(());
    inside(pointer.wrapping_add_signed(stored), 4)?;
    inside(pointer, 1)?;
    inside(pointer.wrapping_add_signed(loaded), 4)
}

fn agree(pages: u32) {
    let (mut store, instance) = instance(&module(pages));
    let len = u64::from(pages) * 65536;
    let memory = instance.get_memory(&mut store, "memory").unwrap();
    let end = len as u32;
    let mut pointers = vec![0, 1, 3, 7, 8, 9, 4095, 4096, 4097, 65535, 65536, 0x7fff_fffc, 0x8000_0000];
    for edge in
        [end, 0_u32, 0_u32.wrapping_sub(65536), 0_u32.wrapping_sub(131072), 0_u32.wrapping_sub(262144)]
    {
        for distance in [-70004, -65540, -65536, -4100, -4096, -28, -24, -8, -5, -4, -3, -1, 0, 1, 4, 8, 4096]
        {
            pointers.push(edge.wrapping_add_signed(distance));
        }
    }
    for pointer in pointers {
        for (i, &stored) in OFFSETS.iter().enumerate() {
            for (k, &loaded) in OFFSETS.iter().enumerate() {
                let value = pointer ^ 0x5a5a_0000 ^ (i as u32) << 8 ^ k as u32;
                let function =
                    instance.typed_func::<(i32, i32), i32>(&mut store, &format!("f{i}_{k}")).unwrap();
                let result = function.call(&mut store, (pointer as i32, value as i32));
                let what = format!("pages {pages} pointer {pointer:#x} store {stored} load {loaded}");
                match (expected(len, pointer, stored, loaded), result) {
                    (Some(()), Ok(got)) => {
                        // The memory itself says what was loaded, through the host's own arithmetic.
                        let mut bytes = [0; 4];
                        let address = u64::from(pointer.wrapping_add_signed(loaded));
                        memory.read(&store, address, &mut bytes).unwrap();
                        assert_eq!(got, i32::from_le_bytes(bytes), "{what}");
                        if stored == loaded && stored.unsigned_abs() >= 4 {
                            assert_eq!(got as u32, value, "{what}");
                        }
                    }
                    (None, Err(trap)) => {
                        assert_eq!(trap.code(), Some(TrapCode::MemoryOutOfBounds), "{what}: {trap}");
                    }
                    (expected, got) => panic!("{what}: expected {expected:?}, got {got:?}"),
                }
            }
        }
    }
}

#[test]
fn in_a_small_memory() {
    agree(1);
    agree(3);
}

#[test]
fn in_the_largest_memory() {
    agree(65532);
}
