//! Compiles text modules for tests.
#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(clippy::unwrap_used)]

use mote_compiler::{OptLevel, Options};
use mote_runtime::{Instance, Linker, Module, Store};

/// Compiles a module written as text.
pub fn module(text: &str) -> Module {
    let wasm = wat::parse_str(text).unwrap();
    Module::from_bytes(&compile(&wasm, OptLevel::O1)).unwrap()
}

/// Compiles a module.
pub fn compile(wasm: &[u8], opt_level: OptLevel) -> Vec<u8> {
    let options = Options { opt_level, cpu: Some("x86-64-v3".to_owned()), ..Options::default() };
    mote_compiler::compile(wasm, &options).unwrap()
}

/// An instance without imports in a store of its own.
pub fn instance(text: &str) -> (Store<()>, Instance) {
    let mut store = Store::new(());
    let instance = Linker::new().instantiate(&mut store, &module(text)).unwrap();
    (store, instance)
}
