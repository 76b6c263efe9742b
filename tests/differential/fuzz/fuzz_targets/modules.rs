//! Any bytes to a module, run on both engines at `-O1` and `-O3`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mote_compiler::OptLevel;

fuzz_target!(|bytes: &[u8]| {
    let Some(wasm) = mote_differential::module_from_bytes(bytes) else { return };
    for level in [OptLevel::O1, OptLevel::O3] {
        let options = mote_differential::options(level, bytes.len() % 2 == 0);
        if let Err(difference) = mote_differential::compare(&wasm, 0, &options) {
            panic!("{level:?}: {difference}");
        }
    }
});
