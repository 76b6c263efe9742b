//! Address space of the process: reserved without memory behind it, made usable piece by piece, given back when dropped.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the kernel's page.
pub(crate) fn page_size() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    match SIZE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf only reads.
            let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
            SIZE.store(size, Ordering::Relaxed);
            size
        }
        size => size,
    }
}

/// `bytes` rounded up to whole pages; `None` when that overflows.
pub(crate) fn round_to_pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(page_size())
}

/// A range of address space that this value owns. Nothing in it can be accessed until a method says so.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned memory; whoever shares what lies in it synchronises that itself.
unsafe impl Send for Mapping {}
// SAFETY: as above; methods that change the mapping's protection leave other threads' valid accesses valid.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes (whole pages) that fault on every access. Counts neither as memory nor as commitment.
    pub(crate) fn reserve(len: usize) -> io::Result<Self> {
        let len = round_to_pages(len.max(1)).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(base.cast()) {
            Some(base) => Ok(Self { base, len }),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// First byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes reserved.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether an address lies in it.
    pub(crate) fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.base() as usize) < self.len
    }

    /// The address of `offset`, checked to leave `len` bytes inside.
    fn at(&self, offset: usize, len: usize) -> io::Result<*mut u8> {
        match offset.checked_add(len) {
            // SAFETY: offset is inside the mapping.
            Some(end) if end <= self.len => Ok(unsafe { self.base().add(offset) }),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Makes bytes readable and writable; they read as zero the first time. `offset` and `len` are whole pages.
    pub(crate) fn commit(&self, offset: usize, len: usize) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let at = self.at(offset, len)?;
        // SAFETY: the range is inside this mapping, which is ours.
        check(unsafe { libc::mprotect(at.cast(), len, libc::PROT_READ | libc::PROT_WRITE) })
    }

    /// Maps pages of a file copy-on-write: shared with every other process until they are written.
    pub(crate) fn map_file(
        &self,
        offset: usize,
        len: usize,
        file: BorrowedFd<'_>,
        at_file: u64,
    ) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let at = self.at(offset, len)?;
        let at_file = libc::off_t::try_from(at_file).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: MAP_FIXED replaces pages inside this mapping only.
        let got = unsafe {
            libc::mmap(
                at.cast(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED,
                file.as_raw_fd(),
                at_file,
            )
        };
        if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Drops what was written: anonymous pages read as zero again, a file's pages as the file.
    pub(crate) fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let at = self.at(offset, len)?;
        // SAFETY: the range is inside this mapping, which is ours.
        check(unsafe { libc::madvise(at.cast(), len, libc::MADV_DONTNEED) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { libc::munmap(self.base().cast(), self.len) };
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_pages_are_zero_and_discarding_makes_them_zero_again() {
        let page = page_size();
        let mapping = Mapping::reserve(1 << 33).unwrap();
        mapping.commit(page, page).unwrap();
        // SAFETY: the page was committed.
        unsafe {
            let at = mapping.base().add(page);
            assert_eq!(at.read(), 0);
            at.write(7);
            mapping.discard(page, page).unwrap();
            assert_eq!(at.read(), 0);
        }
        assert!(mapping.commit(mapping.len(), page).is_err());
    }
}
