//! Constants and record layouts of `wasi_snapshot_preview1`, as its witx files fix them.

use crate::memory::{GuestMemory, OutOfBounds};

/// Which of the two revisions of preview 1 a module was built for.
///
/// They differ in three records only: `filestat` (width of the link count), `subscription` (an extra field) and the order of
/// `whence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// Module name `wasi_snapshot_preview1`.
    Preview1,
    /// Module name `wasi_unstable` (2019).
    Unstable,
}

/// `rights`: what may be done with a descriptor.
pub mod rights {
    #![expect(missing_docs, reason = "the names are the specification's")]
    pub const FD_DATASYNC: u64 = 1 << 0;
    pub const FD_READ: u64 = 1 << 1;
    pub const FD_SEEK: u64 = 1 << 2;
    pub const FD_FDSTAT_SET_FLAGS: u64 = 1 << 3;
    pub const FD_SYNC: u64 = 1 << 4;
    pub const FD_TELL: u64 = 1 << 5;
    pub const FD_WRITE: u64 = 1 << 6;
    pub const FD_ADVISE: u64 = 1 << 7;
    pub const FD_ALLOCATE: u64 = 1 << 8;
    pub const PATH_CREATE_DIRECTORY: u64 = 1 << 9;
    pub const PATH_CREATE_FILE: u64 = 1 << 10;
    pub const PATH_LINK_SOURCE: u64 = 1 << 11;
    pub const PATH_LINK_TARGET: u64 = 1 << 12;
    pub const PATH_OPEN: u64 = 1 << 13;
    pub const FD_READDIR: u64 = 1 << 14;
    pub const PATH_READLINK: u64 = 1 << 15;
    pub const PATH_RENAME_SOURCE: u64 = 1 << 16;
    pub const PATH_RENAME_TARGET: u64 = 1 << 17;
    pub const PATH_FILESTAT_GET: u64 = 1 << 18;
    pub const PATH_FILESTAT_SET_SIZE: u64 = 1 << 19;
    pub const PATH_FILESTAT_SET_TIMES: u64 = 1 << 20;
    pub const FD_FILESTAT_GET: u64 = 1 << 21;
    pub const FD_FILESTAT_SET_SIZE: u64 = 1 << 22;
    pub const FD_FILESTAT_SET_TIMES: u64 = 1 << 23;
    pub const PATH_SYMLINK: u64 = 1 << 24;
    pub const PATH_REMOVE_DIRECTORY: u64 = 1 << 25;
    pub const PATH_UNLINK_FILE: u64 = 1 << 26;
    pub const POLL_FD_READWRITE: u64 = 1 << 27;
    pub const SOCK_SHUTDOWN: u64 = 1 << 28;
    pub const SOCK_ACCEPT: u64 = 1 << 29;

    /// Every right there is.
    pub const ALL: u64 = (1 << 30) - 1;

    /// What depends on whether a file is open for reading or writing.
    pub const ACCESS: u64 = FD_READ | FD_WRITE | FD_ALLOCATE | FD_FILESTAT_SET_SIZE;

    /// What changes a file or directory; a read-only preopen gives none of it.
    pub const MODIFY: u64 = FD_WRITE
        | FD_ALLOCATE
        | FD_FILESTAT_SET_SIZE
        | FD_FILESTAT_SET_TIMES
        | PATH_CREATE_DIRECTORY
        | PATH_CREATE_FILE
        | PATH_LINK_SOURCE
        | PATH_LINK_TARGET
        | PATH_RENAME_SOURCE
        | PATH_RENAME_TARGET
        | PATH_FILESTAT_SET_SIZE
        | PATH_FILESTAT_SET_TIMES
        | PATH_SYMLINK
        | PATH_REMOVE_DIRECTORY
        | PATH_UNLINK_FILE;

    /// What applies to a regular file.
    pub const FILE: u64 = FD_DATASYNC
        | FD_READ
        | FD_SEEK
        | FD_FDSTAT_SET_FLAGS
        | FD_SYNC
        | FD_TELL
        | FD_WRITE
        | FD_ADVISE
        | FD_ALLOCATE
        | FD_FILESTAT_GET
        | FD_FILESTAT_SET_SIZE
        | FD_FILESTAT_SET_TIMES
        | POLL_FD_READWRITE;

    /// What applies to a directory.
    pub const DIRECTORY: u64 = FD_FDSTAT_SET_FLAGS
        | FD_SYNC
        | PATH_CREATE_DIRECTORY
        | PATH_CREATE_FILE
        | PATH_LINK_SOURCE
        | PATH_LINK_TARGET
        | PATH_OPEN
        | FD_READDIR
        | PATH_READLINK
        | PATH_RENAME_SOURCE
        | PATH_RENAME_TARGET
        | PATH_FILESTAT_GET
        | PATH_FILESTAT_SET_SIZE
        | PATH_FILESTAT_SET_TIMES
        | FD_FILESTAT_GET
        | FD_FILESTAT_SET_TIMES
        | PATH_SYMLINK
        | PATH_REMOVE_DIRECTORY
        | PATH_UNLINK_FILE
        | POLL_FD_READWRITE;

    /// What applies to a pipe or a terminal. Without seek and tell: that is how wasi-libc's `isatty` knows a terminal.
    pub const STREAM: u64 = FD_READ | FD_WRITE | FD_FDSTAT_SET_FLAGS | FD_FILESTAT_GET | POLL_FD_READWRITE;

    /// What applies to a socket.
    pub const SOCKET: u64 = STREAM | SOCK_SHUTDOWN | SOCK_ACCEPT;
}

/// `filetype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Filetype {
    Unknown = 0,
    BlockDevice = 1,
    CharacterDevice = 2,
    Directory = 3,
    RegularFile = 4,
    SocketDgram = 5,
    SocketStream = 6,
    SymbolicLink = 7,
}

impl From<rustix::fs::FileType> for Filetype {
    /// FIFOs have no name in the specification; sockets are refined by whoever holds one.
    fn from(host: rustix::fs::FileType) -> Filetype {
        use rustix::fs::FileType;
        match host {
            FileType::RegularFile => Filetype::RegularFile,
            FileType::Directory => Filetype::Directory,
            FileType::Symlink => Filetype::SymbolicLink,
            FileType::CharacterDevice => Filetype::CharacterDevice,
            FileType::BlockDevice => Filetype::BlockDevice,
            FileType::Socket => Filetype::SocketStream,
            FileType::Fifo | FileType::Unknown => Filetype::Unknown,
        }
    }
}

/// `fdflags`.
pub(crate) mod fdflags {
    pub const APPEND: u16 = 1;
    pub const DSYNC: u16 = 2;
    pub const NONBLOCK: u16 = 4;
    pub const RSYNC: u16 = 8;
    pub const SYNC: u16 = 16;
    pub const ALL: u16 = 31;
}

/// `oflags`.
pub(crate) mod oflags {
    pub const CREAT: u32 = 1;
    pub const DIRECTORY: u32 = 2;
    pub const EXCL: u32 = 4;
    pub const TRUNC: u32 = 8;
    pub const ALL: u32 = 15;
}

/// `lookupflags`.
pub(crate) const SYMLINK_FOLLOW: u32 = 1;

/// `fstflags`.
pub(crate) mod fstflags {
    pub const ATIM: u32 = 1;
    pub const ATIM_NOW: u32 = 2;
    pub const MTIM: u32 = 4;
    pub const MTIM_NOW: u32 = 8;
    pub const ALL: u32 = 15;
}

/// `eventtype`.
pub(crate) mod eventtype {
    pub const CLOCK: u8 = 0;
    pub const FD_READ: u8 = 1;
    pub const FD_WRITE: u8 = 2;
}

/// `clockid`.
pub(crate) mod clockid {
    pub const REALTIME: u32 = 0;
    pub const MONOTONIC: u32 = 1;
    pub const PROCESS_CPUTIME_ID: u32 = 2;
    pub const THREAD_CPUTIME_ID: u32 = 3;
}

/// Size of `dirent`, which the name follows.
pub(crate) const DIRENT_BYTES: usize = 24;
/// Size of `event`.
pub(crate) const EVENT_BYTES: u32 = 32;

impl Abi {
    /// Size of `subscription`.
    pub(crate) fn subscription_bytes(self) -> u32 {
        match self {
            Abi::Preview1 => 48,
            Abi::Unstable => 56,
        }
    }
}

/// `filestat`; times in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filestat {
    pub dev: u64,
    pub ino: u64,
    pub filetype: Filetype,
    pub nlink: u64,
    pub size: u64,
    pub atim: u64,
    pub mtim: u64,
    pub ctim: u64,
}

impl Filestat {
    /// What stands in for a file that exists only in memory.
    pub fn virtual_of(filetype: Filetype) -> Filestat {
        Filestat { dev: 0, ino: 0, filetype, nlink: 1, size: 0, atim: 0, mtim: 0, ctim: 0 }
    }

    pub fn write<M: GuestMemory + ?Sized>(
        &self,
        abi: Abi,
        memory: &mut M,
        address: u32,
    ) -> Result<(), OutOfBounds> {
        let mut record = [0u8; 64];
        let mut words = record.as_chunks_mut::<8>().0.iter_mut();
        let mut put = |value: u64| {
            if let Some(word) = words.next() {
                *word = value.to_le_bytes();
            }
        };
        put(self.dev);
        put(self.ino);
        match abi {
            Abi::Preview1 => {
                put(self.filetype as u64);
                put(self.nlink);
            }
            Abi::Unstable => {
                let nlink = u32::try_from(self.nlink).unwrap_or(u32::MAX);
                put(self.filetype as u64 | u64::from(nlink) << 32);
            }
        }
        put(self.size);
        put(self.atim);
        put(self.mtim);
        put(self.ctim);
        let len = match abi {
            Abi::Preview1 => 64,
            Abi::Unstable => 56,
        };
        memory.write(address, record.get(..len).unwrap_or(&record))
    }
}

impl From<&rustix::fs::Stat> for Filestat {
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "widths differ between architectures"
    )]
    fn from(stat: &rustix::fs::Stat) -> Filestat {
        Filestat {
            dev: stat.st_dev,
            ino: stat.st_ino,
            filetype: rustix::fs::FileType::from_raw_mode(stat.st_mode).into(),
            nlink: u64::from(stat.st_nlink),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            atim: nanoseconds(stat.st_atime as i64, stat.st_atime_nsec as i64),
            mtim: nanoseconds(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctim: nanoseconds(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

/// `timestamp` of a host time; what lies before 1970 or after 2554 is clamped.
pub(crate) fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let nanoseconds = u64::try_from(nanoseconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}
