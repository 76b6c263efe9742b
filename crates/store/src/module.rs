//! The file that a module is in.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};
use sha2::{Digest, Sha256};

use crate::error::ModuleError;
use crate::limits::{MODULE_MAX_BYTES, RACY_NS};
use crate::memory_file;

/// Bytes read at once. Large enough that the C library takes the buffer from the system and gives it back.
const CHUNK_BYTES: usize = 256 << 10;

/// A file as far as its metadata tells whether it is still the same: what git's index holds, and for the same purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Identity {
    pub fn of(stat: &Stat) -> Self {
        let ns = |seconds: i64, nanoseconds: i128| i128::from(seconds) * 1_000_000_000 + nanoseconds;
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified_ns: ns(stat.st_mtime, stat.st_mtime_nsec.into()),
            changed_ns: ns(stat.st_ctime, stat.st_ctime_nsec.into()),
        }
    }

    /// That of a file which [`Module::open`] would take.
    pub fn of_path(path: &Path) -> Option<Self> {
        let stat = rustix::fs::stat(path).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let identity = Self::of(&stat);
        (is_file && identity.size <= MODULE_MAX_BYTES).then_some(identity)
    }

    /// The first part of an index link's name.
    pub fn as_name(&self) -> String {
        let Self { device, inode, size, modified_ns, changed_ns } = self;
        format!("{LINK_PREFIX}{device:x}-{inode:x}-{size:x}-{modified_ns:x}-{changed_ns:x}-")
    }

    /// Whether its last change is long enough ago that another one would show in its times.
    pub fn is_settled(&self, now_ns: i128) -> bool {
        now_ns.saturating_sub(self.modified_ns.max(self.changed_ns)) > RACY_NS
    }
}

/// What the names of index links begin with.
pub const LINK_PREFIX: &str = "i-";

/// An open module.
#[derive(Debug)]
pub struct Module {
    file: File,
    path: PathBuf,
    /// Absent when the bytes are in memory: nothing on disk that an index could name.
    identity: Option<Identity>,
}

impl Module {
    /// Opens the file. One that cannot be sought (a pipe) is read to its end into memory.
    pub fn open(path: &Path) -> Result<Self, ModuleError> {
        // A FIFO blocks until it has a writer, as for any program that reads one.
        let file = File::open(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ModuleError::NotFound { path: path.to_owned() },
            _ => ModuleError::Unreadable { path: path.to_owned(), source },
        })?;
        Self::from_file(file, path)
    }

    /// A file that is open already; `path` is for messages.
    pub fn from_file(file: File, path: &Path) -> Result<Self, ModuleError> {
        let path = path.to_owned();
        let stat = match rustix::fs::fstat(&file) {
            Ok(stat) => stat,
            Err(error) => return Err(ModuleError::Unreadable { path, source: error.into() }),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Err(ModuleError::Directory { path }),
            FileType::RegularFile
                if u64::try_from(stat.st_size).is_ok_and(|size| size > MODULE_MAX_BYTES) =>
            {
                Err(ModuleError::TooLarge { path, limit: MODULE_MAX_BYTES })
            }
            FileType::RegularFile => Ok(Self { file, path, identity: Some(Identity::of(&stat)) }),
            _ => Self { file, path, identity: None }.in_memory(),
        }
    }

    /// What the file is called in messages.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// The first bytes, fewer when the file is shorter.
    pub fn beginning(&self, into: &mut [u8]) -> Result<usize, ModuleError> {
        use std::os::unix::fs::FileExt;
        self.file.read_at(into, 0).map_err(|source| self.unreadable(source))
    }

    /// A file that was changed a moment ago is copied into memory first, so that what is hashed is what is compiled.
    pub(crate) fn settled(self) -> Result<Self, ModuleError> {
        match &self.identity {
            Some(identity) if !identity.is_settled(now_ns()) => self.in_memory(),
            _ => Ok(self),
        }
    }

    /// Whether the file on disk is still the one that was opened.
    pub(crate) fn is_unchanged(&self) -> bool {
        match &self.identity {
            Some(identity) => {
                rustix::fs::fstat(&self.file).is_ok_and(|stat| Identity::of(&stat) == *identity)
            }
            None => true,
        }
    }

    pub(crate) fn sha256(&self) -> Result<[u8; 32], ModuleError> {
        sha256(&self.file).map_err(|source| self.unreadable(source))
    }

    /// A handle of its own for the compiler, at the beginning.
    pub fn reopen(&self) -> io::Result<File> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    }

    fn in_memory(self) -> Result<Self, ModuleError> {
        let copy = || -> io::Result<(File, u64)> {
            let mut memory = memory_file::create("mote-module")?;
            let copied = io::copy(&mut (&self.file).take(MODULE_MAX_BYTES + 1), &mut memory)?;
            Ok((memory, copied))
        };
        match copy() {
            Ok((_, copied)) if copied > MODULE_MAX_BYTES => {
                Err(ModuleError::TooLarge { path: self.path, limit: MODULE_MAX_BYTES })
            }
            Ok((file, _)) => Ok(Self { file, path: self.path, identity: None }),
            Err(source) => Err(self.unreadable(source)),
        }
    }

    fn unreadable(&self, source: io::Error) -> ModuleError {
        ModuleError::Unreadable { path: self.path.clone(), source }
    }
}

/// Hash of a whole file, wherever its position stands.
pub fn sha256(file: &File) -> io::Result<[u8; 32]> {
    use std::os::unix::fs::FileExt;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        match file.read_at(&mut chunk, at) {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(read) => {
                hash.update(chunk.get(..read).unwrap_or_default());
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Nanoseconds since 1970 by the system's clock.
pub fn now_ns() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos().cast_signed())
}

/// Seconds since 1970 by the system's clock.
pub fn now_seconds() -> i64 {
    i64::try_from(now_ns() / 1_000_000_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    #[test]
    fn a_fresh_file_is_not_settled_and_an_old_one_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.wasm");
        fs::write(&path, b"bytes").unwrap();
        let module = Module::open(&path).unwrap();
        let identity = *module.identity().unwrap();
        assert!(!identity.is_settled(now_ns()));
        assert!(identity.is_settled(now_ns() + RACY_NS + 1));
        // An mtime set back does not hide a change: ctime cannot be set.
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        assert!(!Identity::of(&rustix::fs::fstat(&file).unwrap()).is_settled(now_ns()));
    }

    #[test]
    fn any_write_changes_the_identity() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.wasm");
        fs::write(&path, b"bytes").unwrap();
        let module = Module::open(&path).unwrap();
        assert!(module.is_unchanged());
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::OpenOptions::new().write(true).open(&path).unwrap().write_all(b"other").unwrap();
        assert!(!module.is_unchanged());
    }

    #[test]
    fn a_settled_copy_keeps_its_bytes_when_the_file_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.wasm");
        fs::write(&path, b"bytes").unwrap();
        let module = Module::open(&path).unwrap().settled().unwrap();
        let before = module.sha256().unwrap();
        fs::write(&path, b"other").unwrap();
        assert_eq!(module.sha256().unwrap(), before);
        assert!(module.identity().is_none());
    }

    #[test]
    fn a_pipe_is_read_to_its_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"(module)").unwrap();
        drop(writer);
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        let module = Module::from_file(file, Path::new("-")).unwrap();
        let mut beginning = [0; 16];
        assert_eq!(module.beginning(&mut beginning).unwrap(), 8);
        let mut text = String::new();
        module.reopen().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "(module)");
    }

    #[test]
    fn what_is_not_a_module_file_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let missing = Module::open(&directory.path().join("none.wasm")).unwrap_err();
        assert!(matches!(missing, ModuleError::NotFound { .. }), "{missing}");
        let folder = Module::open(directory.path()).unwrap_err();
        assert!(matches!(folder, ModuleError::Directory { .. }), "{folder}");
        let large = directory.path().join("large.wasm");
        File::create(&large).unwrap().set_len(MODULE_MAX_BYTES + 1).unwrap();
        let large = Module::open(&large).unwrap_err();
        assert!(matches!(large, ModuleError::TooLarge { .. }), "{large}");
    }
}
