//! The mapping of an artifact file: one read-only range, with the code in it executable.

use std::ffi::c_void;
use std::fs::File;
use std::ops::Range;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::format::{PAGE, Span};
use crate::view::slice;

/// The file from its second page up to the image, mapped privately.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is read-only for everyone and belongs to this value until it is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for Mapping {}

/// What the operating system refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MapError {
    /// To map the file.
    Read(Errno),
    /// To make its code executable.
    Execute(Errno),
}

impl Mapping {
    /// Maps `[PAGE, end)` of the file readable, and the pages of `text` executable as well. `text` must start at `PAGE`.
    pub(crate) fn new(file: &File, end: u64, text: Option<u64>) -> Result<Self, MapError> {
        let len = end
            .checked_sub(PAGE)
            .and_then(|len| usize::try_from(len).ok())
            .ok_or(MapError::Read(Errno::NOMEM))?;
        if len == 0 {
            return Ok(Self { start: NonNull::dangling(), len });
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, file, PAGE) };
        let start = start.map_err(MapError::Read)?;
        let mapping = Self { start: NonNull::new(start.cast()).ok_or(MapError::Read(Errno::NOMEM))?, len };
        let text = text.and_then(|text| usize::try_from(text).ok()).filter(|&text| text != 0 && text <= len);
        if let Some(text) = text {
            let access = ProtFlags::READ | ProtFlags::EXEC;
            // Mapped anew, not changed by mprotect: hardened processes may not make memory executable that was not before.
            // SAFETY: the range is the first part of the mapping that was just made, which nobody else knows yet. Whole pages are
            // replaced by the same pages: the writer gives no other section a part of the code's.
            let mapped =
                unsafe { mmap(start, text, access, MapFlags::PRIVATE | MapFlags::FIXED, file, PAGE) };
            mapped.map_err(MapError::Execute)?;
        }
        Ok(mapping)
    }

    /// Where it lies.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.start.as_ptr() as usize;
        start..start + self.len
    }

    /// The address of this offset of the file.
    pub(crate) fn address(&self, offset: u64) -> Option<*const u8> {
        let at = usize::try_from(offset.checked_sub(PAGE)?).ok().filter(|&at| at <= self.len)?;
        Some(self.start.as_ptr().wrapping_add(at).cast_const())
    }

    /// The bytes of a section; `None` when it is not inside.
    pub(crate) fn section(&self, span: Span) -> Option<&[u8]> {
        slice(self.bytes(), span.offset.get().checked_sub(PAGE)?, span.len.get())
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the range is empty, or it is mapped readable until `self` is dropped. Artifacts are written under a temporary name, then renamed, and
        // never changed in place; an owner who truncates one under a running guest gets SIGBUS, which the runtime reports.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        // SAFETY: the range was mapped by `new` and is unmapped once; all borrows of it end with `self`. A failure leaves it mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
    }
}
