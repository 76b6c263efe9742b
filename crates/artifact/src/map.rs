//! The mapping of an artifact file: one read-only range, with the code in it executable.

use std::ffi::c_void;
use std::fs::File;
use std::ops::Range;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::format::{PAGE, Span};
use crate::view::slice;

/// Code up to this size is mapped with all its pages: a fault would bring as many, and takes longer.
const POPULATED: usize = 64 << 10;

/// The whole file, mapped privately.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is read-only for everyone and belongs to this value until it is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of the file readable; there must be some.
    pub(crate) fn new(file: &File, len: u64) -> Result<Self, Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::NOMEM)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, file, 0) }?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, len })
    }

    /// Makes the pages of the code executable as well: `len` bytes from the second page on.
    pub(crate) fn make_executable(&mut self, file: &File, len: u64) -> Result<(), Errno> {
        let at = usize::try_from(PAGE).map_err(|_| Errno::NOMEM)?;
        let len = usize::try_from(len).ok().filter(|&len| len <= self.len.saturating_sub(at));
        let len = len.ok_or(Errno::NOMEM)?;
        if len == 0 {
            return Ok(());
        }
        let access = ProtFlags::READ | ProtFlags::EXEC;
        let mut flags = MapFlags::PRIVATE | MapFlags::FIXED;
        flags.set(MapFlags::POPULATE, len <= POPULATED);
        // Mapped anew, not changed by mprotect: hardened processes may not make memory executable that was not before.
        // SAFETY: the range is a part of the mapping, which is borrowed alone. Whole pages are replaced by the same pages of the same file.
        let mapped = unsafe { mmap(self.start.as_ptr().add(at).cast(), len, access, flags, file, PAGE) };
        mapped.map(drop)
    }

    /// Where it lies.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.start.as_ptr() as usize;
        start..start + self.len
    }

    /// The address of this offset of the file.
    pub(crate) fn address(&self, offset: u64) -> Option<*const u8> {
        let at = usize::try_from(offset).ok().filter(|&at| at <= self.len)?;
        Some(self.start.as_ptr().wrapping_add(at).cast_const())
    }

    /// The bytes of a section; `None` when it is not inside.
    pub(crate) fn section(&self, span: Span) -> Option<&[u8]> {
        slice(self.bytes(), span.offset.get(), span.len.get())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped readable until `self` is dropped. Artifacts are written under a temporary name, then renamed, and
        // never changed in place; an owner who truncates one under a running guest gets SIGBUS, which the runtime handles.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and is unmapped once; all borrows of it end with `self`. A failure leaves it mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
    }
}
