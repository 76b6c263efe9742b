//! The directory of the store and the files in it.
//!
//! | name | what |
//! |---|---|
//! | 64 hex digits | an entry: an artifact, mode 0400 |
//! | `i-…` | an index link: from a module file's identity to an entry's name |
//! | `l-…` | a lock file, there while an entry is being compiled |
//! | `t-…` | an entry that is being written |
//!
//! Everything is reached from one descriptor, opened and checked once, so that nobody can put another directory in its place.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
};
use rustix::io::Errno;

use crate::key::is_entry_name;
use crate::limits::TOUCH_SECONDS;
use crate::module::{now_ns, now_seconds};

/// What temporary files' names begin with.
pub const TEMPORARY_PREFIX: &str = "t-";

/// How entries are opened.
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The open directory.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    now_seconds: fn() -> i64,
}

/// What a look at an entry found.
#[derive(Debug)]
pub enum Found {
    /// An entry that only this user can have written.
    Entry(File),
    /// Nothing.
    Nothing,
    /// Something that is not used, and why.
    Refused(String),
}

impl Directory {
    /// Opens the directory, makes it where it is not there, and refuses one that others can change. The error is for the user.
    pub fn open(path: &Path) -> Result<Self, String> {
        let said = |error: io::Error| format!("{}: {error}", path.display());
        let fd = match open_directory(path) {
            Err(Errno::NOENT) => {
                DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(said)?;
                open_directory(path)
            }
            opened => opened,
        };
        let fd = fd.map_err(|error| said(error.into()))?;
        let stat = rustix::fs::fstat(&fd).map_err(|error| said(error.into()))?;
        let user = rustix::process::geteuid().as_raw();
        if stat.st_uid != user {
            return Err(format!("{}: owned by user {}, not by user {user}", path.display(), stat.st_uid));
        }
        if stat.st_mode & 0o077 != 0 {
            let (shown, mode) = (path.display(), stat.st_mode & 0o7777);
            return Err(format!("{shown}: open to other users (mode {mode:04o}); run: chmod 700 {shown}"));
        }
        Ok(Self { fd, now_seconds })
    }

    /// Takes another clock than the standard library's.
    pub fn with_clock(self, now_seconds: fn() -> i64) -> Self {
        Self { now_seconds, ..self }
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Opens an entry and checks whose it is; its contents are the caller's to check.
    pub fn entry(&self, name: &str) -> Found {
        let flags = OPEN | OFlags::NOFOLLOW;
        self.checked(rustix::fs::openat(&self.fd, name, flags, Mode::empty()))
    }

    /// The same for the entry that an index link names.
    pub fn linked(&self, link: &str) -> Found {
        // One look-up instead of two. A link that leads out of the directory is none of the store's.
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.fd, link, OPEN, Mode::empty(), beneath) {
            // Kernels before 5.6, and sandboxes that do not know the call.
            Err(Errno::NOSYS | Errno::PERM) => match self.follow(link) {
                Some(name) => self.entry(&name),
                None => Found::Nothing,
            },
            opened => self.checked(opened),
        }
    }

    fn checked(&self, opened: Result<OwnedFd, Errno>) -> Found {
        let file = match opened {
            Ok(file) => file,
            Err(Errno::NOENT) => return Found::Nothing,
            Err(Errno::LOOP) => return Found::Refused("a symbolic link".to_owned()),
            Err(error) => return Found::Refused(error.to_string()),
        };
        match rustix::fs::fstat(&file) {
            Ok(stat) => match fault(&stat) {
                None => {
                    touch(&file, &stat, (self.now_seconds)());
                    Found::Entry(File::from(file))
                }
                Some(fault) => Found::Refused(fault),
            },
            Err(error) => Found::Refused(error.to_string()),
        }
    }

    /// Copies an artifact into the store under this name, whole or not at all.
    ///
    /// The data is synced before the name appears: after a power cut an entry is complete or absent. The name itself is not
    /// synced: one that is lost is compiled again.
    pub fn publish(&self, name: &str, artifact: &File) -> io::Result<()> {
        static SEQUENCE: AtomicU32 = AtomicU32::new(0);
        let (process, sequence) = (rustix::process::getpid(), SEQUENCE.fetch_add(1, Ordering::Relaxed));
        let temporary =
            format!("{TEMPORARY_PREFIX}{:x}-{sequence:x}-{:x}", process.as_raw_nonzero(), now_ns());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.fd, &temporary, flags, Mode::RUSR)?);
        let written = copy_from_start(artifact, &file)
            .and_then(|()| file.sync_data())
            .and_then(|()| Ok(rustix::fs::renameat(&self.fd, &temporary, &self.fd, name)?));
        if written.is_err() {
            self.remove(&temporary);
        }
        written
    }

    /// The entry that an index link names.
    pub fn follow(&self, link: &str) -> Option<String> {
        let target = rustix::fs::readlinkat(&self.fd, link, Vec::with_capacity(80)).ok()?;
        is_entry_name(target.to_bytes()).then(|| target.into_string().ok()).flatten()
    }

    /// Makes an index link, in place of an older one. It is a convenience: failure only costs the next start a hash.
    pub fn link(&self, link: &str, entry: &str) {
        if self.follow(link).as_deref() == Some(entry) {
            return;
        }
        self.remove(link);
        let _ = rustix::fs::symlinkat(entry, &self.fd, link);
    }

    /// Removes a file, if it is there.
    pub fn remove(&self, name: &str) {
        // An entry's name may be held by a directory that somebody put there.
        if rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) == Err(Errno::ISDIR) {
            let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR);
        }
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Why a file must not be loaded as code.
fn fault(stat: &Stat) -> Option<String> {
    let user = rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        Some("not a regular file".to_owned())
    } else if stat.st_uid != user {
        Some(format!("owned by user {}, not by user {user}", stat.st_uid))
    } else if stat.st_mode & 0o022 != 0 {
        Some(format!("writable by others (mode {:04o})", stat.st_mode & 0o7777))
    } else {
        None
    }
}

/// Renews the time of last use, which eviction goes by, unless it is recent.
fn touch(file: &OwnedFd, stat: &Stat, now_seconds: i64) {
    if now_seconds.saturating_sub(stat.st_mtime) > TOUCH_SECONDS {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        };
        // On a read-only file system the time stays what it is.
        let _ = rustix::fs::futimens(file, &times);
    }
}

fn copy_from_start(from: &File, mut to: &File) -> io::Result<()> {
    use std::io::{Seek, SeekFrom};
    let mut from = from;
    from.seek(SeekFrom::Start(0))?;
    io::copy(&mut from, &mut to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const NAME: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn private() -> (tempfile::TempDir, Directory) {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let opened = Directory::open(directory.path()).unwrap();
        (directory, opened)
    }

    fn refused(directory: &Directory) -> String {
        match directory.entry(NAME) {
            Found::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_directory_is_made_private_and_an_open_one_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("a/b");
        Directory::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        let why = Directory::open(&path).unwrap_err();
        assert!(why.contains("chmod 700"), "{why}");
        let file = outer.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Directory::open(&file).is_err());
    }

    #[test]
    fn what_is_published_is_found_with_its_bytes_and_cannot_be_written() {
        let (outer, directory) = private();
        let source = outer.path().join("source");
        fs::write(&source, "artifact").unwrap();
        directory.publish(NAME, &File::open(&source).unwrap()).unwrap();
        assert!(matches!(directory.entry(NAME), Found::Entry(_)));
        assert_eq!(fs::read_to_string(outer.path().join(NAME)).unwrap(), "artifact");
        assert_eq!(fs::metadata(outer.path().join(NAME)).unwrap().permissions().mode() & 0o777, 0o400);
        let names: Vec<_> =
            fs::read_dir(outer.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "no temporary file stays: {names:?}");
    }

    #[test]
    fn entries_of_others_are_refused() {
        let (outer, directory) = private();
        let path = outer.path().join(NAME);
        assert!(matches!(directory.entry(NAME), Found::Nothing));

        fs::write(&path, "artifact").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(refused(&directory).contains("writable by others"));

        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert!(refused(&directory).contains("owned by user 12345"));
        }
        let real = outer.path().join("real");
        fs::rename(&path, &real).unwrap();
        symlink(&real, &path).unwrap();
        assert!(refused(&directory).contains("symbolic link"));
        directory.remove(NAME);

        fs::create_dir(&path).unwrap();
        assert!(refused(&directory).contains("regular"));
        directory.remove(NAME);
        assert!(matches!(directory.entry(NAME), Found::Nothing));
    }

    #[test]
    fn a_link_leads_to_entry_names_only() {
        let (outer, directory) = private();
        directory.link("i-1", NAME);
        assert_eq!(directory.follow("i-1").as_deref(), Some(NAME));
        symlink("/etc/passwd", outer.path().join("i-2")).unwrap();
        assert_eq!(directory.follow("i-2"), None);
        directory.link("i-2", NAME);
        assert_eq!(directory.follow("i-2").as_deref(), Some(NAME));
        assert_eq!(directory.follow("i-3"), None);

        fs::write(outer.path().join(NAME), "artifact").unwrap();
        fs::set_permissions(outer.path().join(NAME), fs::Permissions::from_mode(0o400)).unwrap();
        assert!(matches!(directory.linked("i-1"), Found::Entry(_)));
        assert!(matches!(directory.linked("i-3"), Found::Nothing));
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        fs::set_permissions(elsewhere.path(), fs::Permissions::from_mode(0o400)).unwrap();
        for (link, to) in [("i-4", elsewhere.path()), ("i-5", Path::new("../x")), ("i-6", Path::new("i-6"))] {
            symlink(to, outer.path().join(link)).unwrap();
            assert!(!matches!(directory.linked(link), Found::Entry(_)), "{link}");
        }
    }

    #[test]
    fn use_renews_an_old_time_and_leaves_a_recent_one() {
        let (outer, directory) = private();
        let path = outer.path().join(NAME);
        fs::write(&path, "artifact").unwrap();
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(30 * 24 * 3600);
        File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        directory.entry(NAME);
        let renewed = fs::metadata(&path).unwrap().modified().unwrap();
        assert!(renewed > old + std::time::Duration::from_secs(24 * 3600));
        directory.entry(NAME);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), renewed);
    }
}
