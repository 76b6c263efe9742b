//! `fd_readdir`.
//!
//! Cookies are the kernel's own positions in a directory (`d_off`), which stay valid while entries come and go, so nothing is
//! kept between two calls but where the host's stream stands. Names that are not UTF-8 cannot be written in this interface and
//! are left out.

use std::mem::MaybeUninit;
use std::sync::PoisonError;

use rustix::fs::{AtFlags, FileType, RawDir, SeekFrom};

use crate::descriptor::Object;
use crate::memory::GuestMemory;
use crate::witx::{DIRENT_BYTES, Filetype, rights};
use crate::{Errno, Error, WasiCtx};

/// Host records read in one call; a guest's libc asks for 4096 bytes at a time.
const HOST_BYTES: usize = 8192;
/// The largest host record (255-byte name) with room.
const MIN_HOST_BYTES: usize = 512;

impl WasiCtx {
    /// Writes entries from `cookie` on. The last one is cut where the buffer ends; less than a full buffer means the end.
    pub fn fd_readdir<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        fd: u32,
        buf: u32,
        buf_len: u32,
        cookie: u64,
        bufused: u32,
    ) -> Result<(), Error> {
        let descriptor = self.table.get(fd)?;
        memory.check(buf, buf_len)?;
        memory.check(bufused, 4)?;
        let Object::Directory { fd, position } = &descriptor.object else {
            return Err(Errno::NotDir.into());
        };
        descriptor.require(rights::FD_READDIR)?;
        // Two threads that read one directory take turns: the host's stream has one position.
        let mut position = position.lock().unwrap_or_else(PoisonError::into_inner);
        if *position != Some(cookie) {
            i64::try_from(cookie).map_err(|_| Errno::Inval)?;
            rustix::fs::seek(fd, SeekFrom::Start(cookie))?;
        }
        *position = None;
        let mut host = [MaybeUninit::uninit(); HOST_BYTES];
        // No more than about what fits: what is read beyond it is sought again.
        let host_len = (buf_len as usize).clamp(MIN_HOST_BYTES, HOST_BYTES);
        let mut entries = RawDir::new(fd, host.get_mut(..host_len).unwrap_or(&mut []));
        let mut output = Cut { memory, at: buf, left: buf_len };
        let mut next = cookie;
        while output.left > 0 {
            let entry = match entries.next() {
                Some(Err(rustix::io::Errno::INTR)) => continue,
                Some(entry) => entry?,
                None => break,
            };
            next = entry.next_entry_cookie();
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let filetype = match entry.file_type() {
                // Not every file system says.
                FileType::Unknown => {
                    match rustix::fs::statat(fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode).into(),
                        // Gone since.
                        Err(_) => Filetype::Unknown,
                    }
                }
                known => Filetype::from(known),
            };
            let header: [u64; DIRENT_BYTES / 8] =
                [next, entry.ino(), name.len() as u64 | (filetype as u64) << 32];
            output.put(header.map(u64::to_le_bytes).as_flattened())?;
            output.put(name.as_bytes())?;
        }
        if entries.is_buffer_empty() {
            *position = Some(next);
        }
        let left = output.left;
        Ok(memory.write_u32(bufused, buf_len - left)?)
    }
}

/// A buffer of the guest that takes what fits.
struct Cut<'m, M: ?Sized> {
    memory: &'m mut M,
    at: u32,
    left: u32,
}

impl<M: GuestMemory + ?Sized> Cut<'_, M> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let len = bytes.len().min(self.left as usize);
        self.memory.write(self.at, bytes.get(..len).unwrap_or(bytes))?;
        // `left` bounds the sum by the end of a buffer that lies in the memory.
        self.at = self.at.wrapping_add(len as u32);
        self.left -= len as u32;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
