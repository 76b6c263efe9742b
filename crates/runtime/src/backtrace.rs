//! The guest's frames when it stopped, with names and wasm offsets. Captured as code offsets; names are looked up when asked for.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use mote_artifact::{Artifact, CodeFrame};

use crate::arch::Registers;
use crate::unwind::Unwinder;

/// Frames that a backtrace keeps: the innermost ones.
const MAX_FRAMES: usize = 64;

#[derive(Default)]
pub(crate) struct Backtrace {
    frames: Vec<(Arc<Artifact>, u64)>,
}

/// A frame of guest code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Module name, empty when the module has none.
    pub module: String,
    /// Function index.
    pub function: u32,
    /// Function name from the module's name section or an export, empty when there is none.
    pub name: String,
    /// Byte offset in the wasm file of the operator, when it is known.
    pub wasm_offset: Option<u64>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "function {}", self.function)?,
            name => write!(f, "{name}")?,
        }
        let module = if self.module.is_empty() { "wasm" } else { &self.module };
        match self.wasm_offset {
            Some(offset) => write!(f, " ({module}+{offset:#x})"),
            None => write!(f, " ({module})"),
        }
    }
}

impl Backtrace {
    /// Follows frames from `registers`.
    ///
    /// # Safety
    /// `stack` is mapped and nothing runs on it.
    pub(crate) unsafe fn capture(registers: &Registers, stack: Range<usize>, returns: bool) -> Self {
        let mut unwinder = Unwinder::new(*registers, stack, returns);
        let mut frames = Vec::new();
        while frames.len() < MAX_FRAMES
            && let Some(frame) = unwinder.frame()
        {
            let step = unwinder.step(&frame);
            frames.push((frame.artifact, frame.at));
            if step.is_none() {
                break;
            }
        }
        Self { frames }
    }

    pub(crate) fn extend(&mut self, outer: Self) {
        let room = MAX_FRAMES.saturating_sub(self.frames.len());
        self.frames.extend(outer.frames.into_iter().take(room));
    }

    pub(crate) fn frames(&self) -> Vec<Frame> {
        // Thunks are no functions: they have no frames here. Inlined functions have.
        let frames = |(artifact, at): &(Arc<Artifact>, u64)| {
            let frame = |frame: CodeFrame<'_>| Frame {
                module: artifact.name().to_owned(),
                function: frame.function,
                name: frame.name.to_owned(),
                wasm_offset: frame.wasm_offset,
            };
            artifact.code_frames(*at).into_iter().map(frame).collect::<Vec<_>>()
        };
        self.frames.iter().flat_map(frames).collect()
    }
}
