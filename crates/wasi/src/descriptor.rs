//! What a guest's file descriptor stands for, and the table of them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustix::fs::{FileType, Stat};

use crate::Errno;
use crate::pipe::{InputPipe, OutputPipe};
use crate::witx::{Filetype, fdflags, rights};

/// A host descriptor that is ours, or one of the process's standard ones.
pub(crate) enum HostFd {
    Owned(OwnedFd),
    Standard(BorrowedFd<'static>),
}

impl AsFd for HostFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            HostFd::Owned(fd) => fd.as_fd(),
            HostFd::Standard(fd) => *fd,
        }
    }
}

/// How a stream that may block is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The host descriptor is non-blocking: try first, wait when it says so.
    TryFirst,
    /// As `TryFirst`, but wait first: a FIFO without a writer reads as ended, where a blocking one would wait for a writer.
    PollFirst,
    /// The open file description belongs to others as well (a terminal, the shell's pipe): its flags must stay as they are.
    Shared,
}

/// The host object behind a descriptor.
pub(crate) enum Object {
    File(HostFd),
    Directory {
        fd: OwnedFd,
        /// Where the host's directory stream stands, as a cookie; [`None`] when it must be sought.
        position: Mutex<Option<u64>>,
    },
    Stream {
        fd: HostFd,
        waiting: Waiting,
    },
    /// Always non-blocking on the host.
    Socket(OwnedFd),
    /// Reads as ended, swallows what is written.
    Null,
    Input(InputPipe),
    Output(OutputPipe),
}

/// An open descriptor. Shared by the threads that use it; closing drops the table's reference.
pub(crate) struct Descriptor {
    pub object: Object,
    pub filetype: Filetype,
    base: AtomicU64,
    inheriting: AtomicU64,
    flags: AtomicU16,
    /// Beneath a read-only preopen.
    pub readonly: bool,
    /// The guest's name of a preopened directory.
    pub preopen: Option<Box<str>>,
}

impl Descriptor {
    pub fn new(object: Object, filetype: Filetype, base: u64, inheriting: u64, flags: u16) -> Descriptor {
        Descriptor {
            object,
            filetype,
            base: base.into(),
            inheriting: inheriting.into(),
            flags: flags.into(),
            readonly: false,
            preopen: None,
        }
    }

    pub fn directory(fd: OwnedFd, readonly: bool, inheriting: u64, flags: u16) -> Descriptor {
        // A read-only directory still passes all rights on, so that opening a file beneath it for writing fails where a program
        // expects it (EROFS from open), not by a silently weaker descriptor.
        let base = if readonly { rights::DIRECTORY & !rights::MODIFY } else { rights::DIRECTORY };
        let object = Object::Directory { fd, position: Mutex::new(Some(0)) };
        Descriptor {
            readonly,
            ..Descriptor::new(object, Filetype::Directory, base & inheriting, inheriting, flags)
        }
    }

    /// A descriptor for one of the guest's standard streams: `fd` is open for others too.
    pub fn standard(fd: HostFd, base: u64) -> Result<Descriptor, rustix::io::Errno> {
        let stat = rustix::fs::fstat(&fd)?;
        let host_flags = rustix::fs::fcntl_getfl(&fd)?;
        let flags = if host_flags.contains(rustix::fs::OFlags::APPEND) { fdflags::APPEND } else { 0 };
        let seekable = rights::FD_SEEK | rights::FD_TELL;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::BlockDevice => {
                let filetype = filetype(&fd, &stat);
                let base = (base | rights::FILE & !(rights::FD_READ | rights::FD_WRITE)) & rights::FILE;
                Descriptor::new(Object::File(fd), filetype, base, 0, flags)
            }
            _ => {
                let filetype = filetype(&fd, &stat);
                // A character device that can seek and tell is no terminal to wasi-libc.
                let terminal = rustix::termios::isatty(&fd);
                let seek = if filetype == Filetype::CharacterDevice && !terminal { seekable } else { 0 };
                let object = Object::Stream { fd, waiting: Waiting::Shared };
                let base = base | rights::FD_FILESTAT_GET | rights::POLL_FD_READWRITE | seek;
                Descriptor::new(object, filetype, base | rights::FD_FDSTAT_SET_FLAGS, 0, flags)
            }
        })
    }

    /// A socket of ours; it becomes non-blocking.
    pub fn socket(fd: OwnedFd, flags: u16) -> Result<Descriptor, rustix::io::Errno> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let filetype = filetype(&fd, &rustix::fs::fstat(&fd)?);
        Ok(Descriptor::new(Object::Socket(fd), filetype, rights::SOCKET, rights::SOCKET, flags))
    }

    pub fn rights(&self) -> u64 {
        self.base.load(Ordering::Relaxed)
    }

    pub fn inheriting(&self) -> u64 {
        self.inheriting.load(Ordering::Relaxed)
    }

    /// Rights can only be given up.
    pub fn set_rights(&self, base: u64, inheriting: u64) -> Result<(), Errno> {
        if base & !self.rights() != 0 || inheriting & !self.inheriting() != 0 {
            return Err(Errno::NotCapable);
        }
        self.base.fetch_and(base, Ordering::Relaxed);
        self.inheriting.fetch_and(inheriting, Ordering::Relaxed);
        Ok(())
    }

    /// Reading, writing, cutting or growing through a descriptor that is not open for it is EBADF, as programs expect; every
    /// other right that is not there is ENOTCAPABLE, or EROFS where the reason is a read-only preopen.
    pub fn require(&self, wanted: u64) -> Result<(), Errno> {
        let missing = wanted & !self.rights();
        if missing == 0 {
            Ok(())
        } else if self.readonly && missing & rights::MODIFY != 0 && self.filetype == Filetype::Directory {
            Err(Errno::Rofs)
        } else if missing & rights::ACCESS != 0 {
            Err(Errno::Badf)
        } else {
            Err(Errno::NotCapable)
        }
    }

    pub fn flags(&self) -> u16 {
        self.flags.load(Ordering::Relaxed)
    }

    pub fn set_flags(&self, flags: u16) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    pub fn nonblocking(&self) -> bool {
        self.flags() & fdflags::NONBLOCK != 0
    }

    /// The host descriptor, where there is one.
    pub fn host(&self) -> Option<BorrowedFd<'_>> {
        match &self.object {
            Object::File(fd) | Object::Stream { fd, .. } => Some(fd.as_fd()),
            Object::Directory { fd, .. } | Object::Socket(fd) => Some(fd.as_fd()),
            Object::Null | Object::Input(_) | Object::Output(_) => None,
        }
    }

    /// The host descriptor of a regular file (or block device). Directories are EBADF, streams ESPIPE.
    pub fn file(&self) -> Result<BorrowedFd<'_>, Errno> {
        match &self.object {
            Object::File(fd) => Ok(fd.as_fd()),
            Object::Directory { .. } => Err(Errno::Badf),
            _ => Err(Errno::Spipe),
        }
    }

    /// The host descriptor of a directory with `wanted` rights.
    pub fn as_directory(&self, wanted: u64) -> Result<BorrowedFd<'_>, Errno> {
        match &self.object {
            Object::Directory { fd, .. } => {
                self.require(wanted)?;
                Ok(fd.as_fd())
            }
            _ => Err(Errno::NotDir),
        }
    }
}

/// The specification's type of an open host file; tells the two socket types apart.
pub(crate) fn filetype(fd: impl AsFd, stat: &Stat) -> Filetype {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Socket => match rustix::net::sockopt::socket_type(fd) {
            Ok(rustix::net::SocketType::DGRAM) => Filetype::SocketDgram,
            _ => Filetype::SocketStream,
        },
        other => other.into(),
    }
}

/// The guest's descriptors by number. New ones take the lowest free number, so that a run is reproducible.
///
/// A call takes the lock for as long as a look-up takes, never while it waits.
pub(crate) struct Table {
    slots: RwLock<Slots>,
    max: u32,
}

struct Slots {
    entries: Vec<Option<Arc<Descriptor>>>,
    /// Every number below is taken.
    lowest_free: usize,
}

impl Table {
    pub fn new(max: u32) -> Table {
        Table { slots: RwLock::new(Slots { entries: Vec::new(), lowest_free: 0 }), max }
    }

    pub fn get(&self, fd: u32) -> Result<Arc<Descriptor>, Errno> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.entries.get(fd as usize).and_then(Option::as_ref).cloned().ok_or(Errno::Badf)
    }

    /// What is open, with its numbers.
    pub fn open(&self) -> Vec<(u32, Arc<Descriptor>)> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let numbered = (0..).zip(&slots.entries);
        numbered.filter_map(|(number, entry)| Some((number, entry.clone()?))).collect()
    }

    /// Whether another descriptor would be refused. Asked before a file is created for it.
    pub fn is_full(&self) -> bool {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.lowest_free >= self.max as usize
            || slots.entries.len() >= self.max as usize
                && slots.entries.get(slots.lowest_free..).is_none_or(|rest| rest.iter().all(Option::is_some))
    }

    pub fn insert(&self, descriptor: Descriptor) -> Result<u32, Errno> {
        let descriptor = Some(Arc::new(descriptor));
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let start = slots.lowest_free;
        let free = slots.entries.iter().skip(start).position(Option::is_none).map(|index| start + index);
        let number = free.unwrap_or(slots.entries.len());
        if number >= self.max as usize {
            return Err(Errno::Mfile);
        }
        match slots.entries.get_mut(number) {
            Some(slot) => *slot = descriptor,
            None => slots.entries.push(descriptor),
        }
        slots.lowest_free = number + 1;
        u32::try_from(number).map_err(|_| Errno::Mfile)
    }

    pub fn remove(&self, fd: u32) -> Result<Arc<Descriptor>, Errno> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let removed = slots.entries.get_mut(fd as usize).and_then(Option::take).ok_or(Errno::Badf)?;
        slots.lowest_free = slots.lowest_free.min(fd as usize);
        Ok(removed)
    }

    /// Moves `from` to the number of `to`, which is closed. Both must be open: a number is never made from nothing.
    pub fn renumber(&self, from: u32, to: u32) -> Result<(), Errno> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        if slots.entries.get(to as usize).and_then(Option::as_ref).is_none() {
            return Err(Errno::Badf);
        }
        if from == to {
            return Ok(());
        }
        let moved = slots.entries.get_mut(from as usize).and_then(Option::take).ok_or(Errno::Badf)?;
        slots.lowest_free = slots.lowest_free.min(from as usize);
        let closed = slots.entries.get_mut(to as usize).and_then(|slot| slot.replace(moved));
        // The host's close may take time (a network file system); not under the lock.
        drop(slots);
        drop(closed);
        Ok(())
    }
}
