//! A guest for the tests: a context, a small memory, and a directory of its own on the host.

use tempfile::TempDir;

use crate::sandbox::Sandbox;
use crate::witx::{Abi, rights};
use crate::{Errno, Error, GuestMemory, WasiCtx, WasiCtxBuilder};

/// Size of the memory. Results go to the first 4 KiB; what is passed lies behind.
pub const MEMORY_BYTES: usize = 1 << 20;
const SCRATCH: u32 = 4096;
/// The preopen.
pub const DIR: u32 = 3;
pub const READ: u64 = rights::FD_READ;
pub const WRITE: u64 = rights::FD_WRITE;

pub struct Guest {
    pub ctx: WasiCtx,
    pub memory: Vec<u8>,
    pub dir: TempDir,
    next: u32,
}

/// The number a guest would get.
pub fn errno<T: std::fmt::Debug>(result: Result<T, Error>) -> Errno {
    match result.expect_err("an error") {
        Error::Errno(errno) => errno,
        other => panic!("{other:?}"),
    }
}

impl Guest {
    pub fn new() -> Guest {
        Guest::with(|_| {})
    }

    /// Builds with a writable preopen `/` and whatever `configure` adds.
    pub fn with(configure: impl FnOnce(&mut WasiCtxBuilder)) -> Guest {
        let dir = tempfile::tempdir().unwrap();
        let mut builder = WasiCtxBuilder::new();
        builder.preopen(dir.path(), "/", false);
        configure(&mut builder);
        Guest { ctx: builder.build().unwrap(), memory: vec![0; MEMORY_BYTES], dir, next: SCRATCH }
    }

    /// One guest whose paths the kernel resolves, one whose paths are walked.
    pub fn both() -> [Guest; 2] {
        let mut walking = Guest::new();
        walking.ctx.sandbox = Sandbox::without_openat2();
        [Guest::new(), walking]
    }

    pub fn host(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join(path)
    }

    /// Preopens another directory instead; paths are resolved the same way as before.
    pub fn preopen_instead(&mut self, path: impl AsRef<std::path::Path>) {
        let mut builder = WasiCtxBuilder::new();
        builder.preopen(path, "/", false);
        let sandbox = std::mem::take(&mut self.ctx.sandbox);
        self.ctx = builder.build().unwrap();
        self.ctx.sandbox = sandbox;
    }

    /// Puts bytes into the memory.
    pub fn put(&mut self, bytes: &[u8]) -> (u32, u32) {
        let at = self.next;
        self.memory.write(at, bytes).unwrap();
        self.next = (at + bytes.len() as u32).next_multiple_of(8);
        if self.next as usize > MEMORY_BYTES / 2 {
            self.next = SCRATCH;
        }
        (at, bytes.len() as u32)
    }

    /// An array of one (address, length).
    pub fn iovec(&mut self, address: u32, len: u32) -> u32 {
        let record = [address.to_le_bytes(), len.to_le_bytes()].concat();
        self.put(&record).0
    }

    pub fn u32_at(&self, address: u32) -> u32 {
        self.memory.read_u32(address).unwrap()
    }

    pub fn u64_at(&self, address: u32) -> u64 {
        self.memory.read_u64(address).unwrap()
    }

    pub fn open_in(
        &mut self,
        dir: u32,
        path: &str,
        follow: bool,
        oflags: u32,
        rights: u64,
        fdflags: u32,
    ) -> Result<u32, Error> {
        let (at, len) = self.put(path.as_bytes());
        let memory = self.memory.as_mut_slice();
        self.ctx.path_open(memory, dir, follow.into(), at, len, oflags, rights, !0, fdflags, 0)?;
        Ok(self.u32_at(0))
    }

    pub fn open(&mut self, path: &str, oflags: u32, rights: u64) -> Result<u32, Error> {
        self.open_in(DIR, path, true, oflags, rights, 0)
    }

    /// Creates or truncates a file with these contents.
    pub fn create(&mut self, path: &str, contents: &[u8]) {
        std::fs::write(self.host(path), contents).unwrap();
    }

    pub fn write(&mut self, fd: u32, bytes: &[u8]) -> Result<u32, Error> {
        let (at, len) = self.put(bytes);
        let iovec = self.iovec(at, len);
        self.ctx.fd_write(self.memory.as_mut_slice(), fd, iovec, 1, 0)?;
        Ok(self.u32_at(0))
    }

    pub fn read(&mut self, fd: u32, len: u32) -> Result<Vec<u8>, Error> {
        let buffer = MEMORY_BYTES as u32 / 2;
        let iovec = self.iovec(buffer, len);
        self.ctx.fd_read(self.memory.as_mut_slice(), fd, iovec, 1, 0)?;
        let count = self.u32_at(0) as usize;
        Ok(self.memory[buffer as usize..][..count].to_vec())
    }

    pub fn seek(&mut self, fd: u32, offset: i64, whence: u32) -> Result<u64, Error> {
        self.ctx.fd_seek(Abi::Preview1, self.memory.as_mut_slice(), fd, offset, whence, 0)?;
        Ok(self.u64_at(0))
    }

    /// Calls a function that takes one path.
    pub fn on_path(
        &mut self,
        path: &str,
        call: impl Fn(&WasiCtx, &mut [u8], u32, u32) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (at, len) = self.put(path.as_bytes());
        call(&self.ctx, &mut self.memory, at, len)
    }

    pub fn mkdir(&mut self, path: &str) -> Result<(), Error> {
        self.on_path(path, |ctx, memory, at, len| ctx.path_create_directory(memory, DIR, at, len))
    }

    pub fn rmdir(&mut self, path: &str) -> Result<(), Error> {
        self.on_path(path, |ctx, memory, at, len| ctx.path_remove_directory(memory, DIR, at, len))
    }

    pub fn unlink(&mut self, path: &str) -> Result<(), Error> {
        self.on_path(path, |ctx, memory, at, len| ctx.path_unlink_file(memory, DIR, at, len))
    }

    pub fn rename(&mut self, old: &str, new: &str) -> Result<(), Error> {
        let (new_at, new_len) = self.put(new.as_bytes());
        self.on_path(old, |ctx, memory, at, len| ctx.path_rename(memory, DIR, at, len, DIR, new_at, new_len))
    }

    pub fn link(&mut self, old: &str, new: &str) -> Result<(), Error> {
        let (new_at, new_len) = self.put(new.as_bytes());
        self.on_path(old, |ctx, memory, at, len| ctx.path_link(memory, DIR, 0, at, len, DIR, new_at, new_len))
    }

    pub fn symlink(&mut self, target: &str, path: &str) -> Result<(), Error> {
        let (target_at, target_len) = self.put(target.as_bytes());
        self.on_path(path, |ctx, memory, at, len| {
            ctx.path_symlink(memory, target_at, target_len, DIR, at, len)
        })
    }

    pub fn readlink(&mut self, path: &str, buf_len: u32) -> Result<Vec<u8>, Error> {
        self.on_path(path, |ctx, memory, at, len| ctx.path_readlink(memory, DIR, at, len, 1024, buf_len, 0))?;
        let len = self.u32_at(0) as usize;
        Ok(self.memory[1024..][..len].to_vec())
    }

    /// `path_filestat_get`: (filetype, size, inode).
    pub fn stat(&mut self, path: &str, follow: bool) -> Result<(u8, u64, u64), Error> {
        self.on_path(path, |ctx, memory, at, len| {
            ctx.path_filestat_get(Abi::Preview1, memory, DIR, follow.into(), at, len, 0)
        })?;
        Ok((self.memory[16], self.u64_at(32), self.u64_at(8)))
    }

    pub fn fdstat(&mut self, fd: u32) -> Result<(u8, u16, u64, u64), Error> {
        self.ctx.fd_fdstat_get(self.memory.as_mut_slice(), fd, 0)?;
        Ok((self.memory[0], self.memory.read_u16(2).unwrap(), self.u64_at(8), self.u64_at(16)))
    }
}
