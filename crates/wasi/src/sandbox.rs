//! Paths beneath a directory, and never outside it.
//!
//! The kernel resolves a path with `openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)`: no `..`, absolute link, link target or
//! concurrent rename leads out. Where the kernel does not have it (before Linux 5.6, or refused by a seccomp filter) the path
//! is walked here, one component at a time with `O_NOFOLLOW`; `..` returns to the descriptor that the walk came from, so that
//! a directory moved away meanwhile cannot lead out either.
//!
//! Functions that name an entry of a directory (create, unlink, rename, …) resolve all but the last component this way and
//! give the last one to the kernel, which follows no link there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat};
use rustix::io::Errno as HostErrno;

use crate::Errno;

/// As in the kernel.
const MAX_SYMLINKS: u32 = 40;
/// Directories that the walk holds open at once.
const MAX_DEPTH: usize = 256;
/// `openat2` says EAGAIN when something was renamed on the way; then the path is resolved again, this often.
const MAX_RETRIES: u32 = 64;

/// How paths are resolved; remembers that the kernel has no `openat2`.
#[derive(Default)]
pub(crate) struct Sandbox {
    no_openat2: AtomicBool,
}

/// The directory that an entry is named in.
pub(crate) enum Parent<'d> {
    /// The one the path began in.
    Start(BorrowedFd<'d>),
    Opened(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Parent::Start(fd) => *fd,
            Parent::Opened(fd) => fd.as_fd(),
        }
    }
}

impl Sandbox {
    /// Walks paths even where `openat2` is there.
    #[cfg(test)]
    pub fn without_openat2() -> Sandbox {
        Sandbox { no_openat2: AtomicBool::new(true) }
    }

    /// Opens `path` beneath `dir`.
    pub fn open(&self, dir: BorrowedFd<'_>, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        if !self.no_openat2.load(Ordering::Relaxed) {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            for _ in 0..MAX_RETRIES {
                match openat2(dir, path, flags, mode, resolve) {
                    Ok(fd) => return Ok(fd),
                    Err(HostErrno::AGAIN | HostErrno::INTR) => {}
                    Err(HostErrno::XDEV) => return Err(Errno::Perm),
                    Err(HostErrno::NOSYS) => {
                        self.no_openat2.store(true, Ordering::Relaxed);
                        break;
                    }
                    // A seccomp filter that does not know the call says EPERM; the walk finds out whether it is the file's.
                    Err(HostErrno::PERM) => break,
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        walk(dir, path, flags, mode)
    }

    /// An `O_PATH` descriptor for `path`.
    pub fn locate(&self, dir: BorrowedFd<'_>, path: &str, follow: bool) -> Result<OwnedFd, Errno> {
        let flags = if follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
        self.open(dir, path, flags, Mode::empty())
    }

    /// The directory that holds the last component of `path`, and that component (with its trailing slashes).
    pub fn parent<'d, 'p>(&self, dir: BorrowedFd<'d>, path: &'p str) -> Result<(Parent<'d>, &'p str), Errno> {
        let trimmed = path.trim_end_matches('/');
        let start = trimmed.rfind('/').map_or(0, |slash| slash + 1);
        let (parent, name) = path.split_at_checked(start).ok_or(Errno::Inval)?;
        if path.starts_with('/') {
            return Err(Errno::Perm);
        }
        let last = name.trim_end_matches('/');
        if last == ".." {
            // The kernel refuses `..` wherever an entry is named; a path that leads out is to be refused as such.
            self.open(dir, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        }
        if parent.is_empty() {
            return Ok((Parent::Start(dir), name));
        }
        let opened = self.open(dir, parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        Ok((Parent::Opened(opened), name))
    }
}

/// Resolves `path` without `openat2`.
fn walk(dir: BorrowedFd<'_>, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    // The directories between `dir` and where the walk stands.
    let mut stack: Vec<OwnedFd> = Vec::new();
    // What is left to resolve, in reverse: the next component is at the end.
    let mut left: Vec<String> = Vec::new();
    let mut must_be_directory = push_components(&mut left, path)?;
    let mut symlinks = 0;
    loop {
        let Some(name) = left.pop() else {
            // The path ended in `.`, `..` or a link to one: the directory itself is wanted.
            let here = stack.last().map_or(dir, |fd| fd.as_fd());
            return Ok(openat(here, c".", flags.difference(OFlags::NOFOLLOW), mode)?);
        };
        if name == ".." {
            stack.pop().ok_or(Errno::Perm)?;
            continue;
        }
        let here = stack.last().map_or(dir, |fd| fd.as_fd());
        let last = left.is_empty();
        let follow = !last || must_be_directory || !flags.contains(OFlags::NOFOLLOW);
        if last && !must_be_directory {
            match openat(here, name.as_str(), flags | OFlags::NOFOLLOW, mode) {
                // With O_PATH a link is opened itself, with O_DIRECTORY it is ENOTDIR.
                Ok(fd) if follow && flags.contains(OFlags::PATH) && is_symlink(&fd)? => {}
                Err(HostErrno::LOOP | HostErrno::NOTDIR) if follow => {}
                // O_CREAT | O_EXCL takes a link for the file.
                other => return Ok(other?),
            }
        }
        let entry = match openat(
            here,
            name.as_str(),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            Ok(entry) => entry,
            // "name/" that is to be created: only directories end in a slash.
            Err(HostErrno::NOENT) if last && flags.contains(OFlags::CREATE) => return Err(Errno::IsDir),
            Err(errno) => return Err(errno.into()),
        };
        match FileType::from_raw_mode(rustix::fs::fstat(&entry)?.st_mode) {
            FileType::Directory if stack.len() < MAX_DEPTH => stack.push(entry),
            FileType::Directory => return Err(Errno::NameTooLong),
            FileType::Symlink => {
                symlinks += 1;
                if symlinks > MAX_SYMLINKS {
                    return Err(Errno::Loop);
                }
                let target = readlinkat(&entry, c"", Vec::new())?;
                let target = target.to_str().map_err(|_| Errno::Ilseq)?;
                let slash = push_components(&mut left, target)?;
                must_be_directory |= slash && last;
            }
            _ => return Err(Errno::NotDir),
        }
    }
}

fn is_symlink(fd: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) == FileType::Symlink)
}

/// Puts the components of `path` on `left`; tells whether it ended in a slash. Absolute paths lead out.
fn push_components(left: &mut Vec<String>, path: &str) -> Result<bool, Errno> {
    if path.is_empty() {
        return Err(Errno::NoEnt);
    }
    if path.starts_with('/') {
        return Err(Errno::Perm);
    }
    left.extend(path.rsplit('/').filter(|name| !name.is_empty() && *name != ".").map(str::to_owned));
    // 40 links of 4095 bytes each could otherwise pile up.
    if left.len() > 4096 {
        return Err(Errno::NameTooLong);
    }
    Ok(path.ends_with('/') || path.ends_with("/.") || path == ".")
}
