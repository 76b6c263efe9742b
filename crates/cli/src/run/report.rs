//! What a person is told about a trap.

use std::fmt::Write as _;
use std::time::Duration;

use mote_runtime::{Frame, Trap, TrapCode};

use super::source::SourceMap;
use crate::inspect::printable;

/// The trap, then its frames with source lines where the module has them.
pub fn trap(trap: &Trap, timeout: Option<Duration>, wasm: &[u8]) -> String {
    let mut text = format!("trap: {}", printable(&trap.to_string()));
    if let (Some(TrapCode::Interrupted), Some(timeout)) = (trap.code(), timeout) {
        let _ = write!(text, ": --timeout of {timeout:?} has passed");
    }
    let sources = SourceMap::new(wasm);
    for (number, frame) in trap.frames().iter().enumerate() {
        let _ = write!(text, "\n  {number:>2}: {}", shown(frame));
        let lines = match (&sources, frame.wasm_offset) {
            (Some(sources), Some(offset)) => sources.find(offset),
            _ => Vec::new(),
        };
        for line in lines {
            let inlined =
                line.function.map(|name| format!(" ({} inlined)", printable(&name))).unwrap_or_default();
            let _ = write!(text, "\n        at {}{inlined}", printable(&line.place));
        }
    }
    text
}

fn shown(frame: &Frame) -> String {
    let name = match frame.name.as_str() {
        "" => format!("function {}", frame.function),
        name => printable(name),
    };
    match frame.wasm_offset {
        Some(offset) => format!("{name} (wasm {offset:#x})"),
        None => name,
    }
}
