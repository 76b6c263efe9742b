//! Standard streams that live in memory, for embedders and tests.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that the guest reads from its standard input.
#[derive(Clone, Debug, Default)]
pub struct InputPipe {
    left: Arc<Mutex<VecDeque<u8>>>,
}

impl InputPipe {
    /// A pipe that gives `bytes` and then ends.
    pub fn new(bytes: impl Into<Vec<u8>>) -> InputPipe {
        InputPipe { left: Arc::new(Mutex::new(bytes.into().into())) }
    }

    pub(crate) fn read(&self, buffers: &mut [IoSliceMut<'_>]) -> usize {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        for buffer in buffers {
            let part = buffer.len().min(left.len());
            for (slot, byte) in buffer.iter_mut().zip(left.drain(..part)) {
                *slot = byte;
                count += 1;
            }
        }
        count
    }

    pub(crate) fn len(&self) -> usize {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// What the guest wrote to a standard stream.
#[derive(Clone, Debug)]
pub struct OutputPipe {
    written: Arc<Mutex<Vec<u8>>>,
    max_bytes: usize,
}

impl OutputPipe {
    /// A pipe that takes `max_bytes`; what comes after is refused with ENOSPC.
    pub fn new(max_bytes: usize) -> OutputPipe {
        OutputPipe { written: Arc::default(), max_bytes }
    }

    /// A copy of everything written so far.
    pub fn contents(&self) -> Vec<u8> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes everything written so far out of the pipe.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn write(&self, buffers: &[IoSlice<'_>]) -> Result<usize, crate::Errno> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        for buffer in buffers {
            let part =
                buffer.get(..buffer.len().min(self.max_bytes.saturating_sub(written.len()))).unwrap_or(&[]);
            written.extend_from_slice(part);
            count += part.len();
            if part.len() < buffer.len() {
                break;
            }
        }
        if count == 0 && buffers.iter().any(|buffer| !buffer.is_empty()) {
            return Err(crate::Errno::NoSpc);
        }
        Ok(count)
    }
}
