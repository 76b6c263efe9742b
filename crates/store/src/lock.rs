//! One compile at a time of each entry, across processes.
//!
//! The lock is `flock` on a file of the entry's own: the kernel releases it when its holder dies, however it dies. The holder deletes
//! the file before it lets go, so a process that then gets the lock checks that what it locked is still what the name means.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::directory::Directory;
use crate::limits::LOCK_ATTEMPTS;

/// What lock files' names begin with.
pub const LOCK_PREFIX: &str = "l-";

/// The right to make one entry.
#[derive(Debug)]
pub struct EntryLock<'a> {
    directory: &'a Directory,
    name: String,
    // Closing it lets go of the lock.
    _file: OwnedFd,
}

impl<'a> EntryLock<'a> {
    /// Waits for the right to make this entry; `waiting` is called once when another process has it.
    pub fn acquire(directory: &'a Directory, entry: &str, waiting: &mut dyn FnMut()) -> io::Result<Self> {
        let name = format!("{LOCK_PREFIX}{entry}");
        let mut told = false;
        for _ in 0..LOCK_ATTEMPTS {
            let file = open(directory, &name)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {
                    if !told {
                        waiting();
                        told = true;
                    }
                    rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
                }
                other => other?,
            }
            if is_current(directory, &name, &file)? {
                return Ok(Self { directory, name, _file: file });
            }
        }
        Err(io::Error::other("the entry's lock file is replaced again and again"))
    }

    /// Takes the lock of a lock file that lies about, if nobody holds it.
    pub fn take_over(directory: &'a Directory, name: &str) -> Option<Self> {
        let file = open(directory, name).ok()?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let current = is_current(directory, name, &file).ok()?;
        current.then(|| Self { directory, name: name.to_owned(), _file: file })
    }
}

impl Drop for EntryLock<'_> {
    fn drop(&mut self) {
        self.directory.remove(&self.name);
    }
}

fn open(directory: &Directory, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory.fd(), name, flags, Mode::RUSR | Mode::WUSR)?)
}

fn is_current(directory: &Directory, name: &str, file: &OwnedFd) -> io::Result<bool> {
    let locked = rustix::fs::fstat(file)?;
    match rustix::fs::statat(directory.fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (locked.st_dev, locked.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn many_threads_never_hold_it_together_and_nothing_stays() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("store");
        let (inside, entered) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let directory = Directory::open(&path).unwrap();
                    for _ in 0..50 {
                        let lock = EntryLock::acquire(&directory, "entry", &mut || {}).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        entered.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(entered.load(Ordering::SeqCst), 400);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn a_held_lock_is_not_taken_over_and_a_forgotten_file_is() {
        let outer = tempfile::tempdir().unwrap();
        let directory = Directory::open(&outer.path().join("store")).unwrap();
        let lock = EntryLock::acquire(&directory, "entry", &mut || {}).unwrap();
        assert!(EntryLock::take_over(&directory, "l-entry").is_none());
        drop(lock);
        std::fs::write(outer.path().join("store/l-other"), "").unwrap();
        assert!(EntryLock::take_over(&directory, "l-other").is_some());
    }
}
