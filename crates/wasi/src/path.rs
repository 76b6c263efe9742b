//! `path_*`: files by name, beneath a directory the guest has open.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Mode, OFlags, linkat, mkdirat, readlinkat, renameat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno as HostErrno;

use crate::descriptor::Descriptor;
use crate::file::{opened, timestamps};
use crate::memory::GuestMemory;
use crate::sandbox::Parent;
use crate::witx::{Abi, Filestat, SYMLINK_FOLLOW, fdflags, oflags, rights};
use crate::{Errno, Error, WasiCtx};

/// Whether to follow a link in the last component.
fn follows(lookupflags: u32) -> Result<bool, Errno> {
    if lookupflags & !SYMLINK_FOLLOW != 0 { Err(Errno::Inval) } else { Ok(lookupflags != 0) }
}

/// One component that is neither `.` nor `..`: it names an entry of the directory itself.
fn is_plain_name(path: &str) -> bool {
    path != "." && path != ".." && !path.contains('/')
}

/// A path and the directory it begins in, as the guest passes them.
struct Place {
    descriptor: Arc<Descriptor>,
    path: String,
    /// What is needed of the directory.
    right: u64,
}

impl Place {
    fn directory(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.descriptor.as_directory(self.right)
    }
}

impl WasiCtx {
    fn place<M: GuestMemory + ?Sized>(
        &self,
        memory: &M,
        fd: u32,
        path: u32,
        path_len: u32,
        right: u64,
    ) -> Result<Place, Errno> {
        let descriptor = self.table.get(fd)?;
        let place = Place { descriptor, path: self.path(memory, path, path_len)?, right };
        place.directory()?;
        Ok(place)
    }

    /// The directory that holds the entry, and the entry's name in it.
    fn entry<'p>(&self, place: &'p Place) -> Result<(Parent<'p>, &'p str), Errno> {
        self.sandbox.parent(place.directory()?, &place.path)
    }

    /// Opens or creates a file.
    #[expect(clippy::too_many_arguments, reason = "the specification's parameters")]
    pub fn path_open<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        fd: u32,
        dirflags: u32,
        path: u32,
        path_len: u32,
        oflags: u32,
        rights_base: u64,
        // Descriptors beneath inherit what their directory passes on, whatever is asked: programs rely on it.
        _rights_inheriting: u64,
        fdflags: u32,
        opened_fd: u32,
    ) -> Result<(), Error> {
        let parent = self.table.get(fd)?;
        memory.check(opened_fd, 4)?;
        let follow = follows(dirflags)?;
        let flags = u16::try_from(fdflags).ok().filter(|flags| flags & !fdflags::ALL == 0);
        let flags = flags.ok_or(Errno::Inval)?;
        if oflags & !oflags::ALL != 0 {
            return Err(Errno::Inval.into());
        }
        let path = self.path(memory, path, path_len)?;
        let dir = parent.as_directory(rights::PATH_OPEN)?;
        if oflags & oflags::CREAT != 0 && oflags & oflags::DIRECTORY != 0 {
            // Linux before 6.4 creates a file and then fails.
            return Err(Errno::Inval.into());
        }
        if rights_base & rights::FD_WRITE & !parent.inheriting() != 0 {
            return Err(Errno::NotCapable.into());
        }
        let writing = rights::ACCESS & !rights::FD_READ;
        let directory = oflags & oflags::DIRECTORY != 0;
        let write = rights_base & writing != 0 && !directory;
        let read = rights_base & rights::FD_READ != 0;
        let mut host = match (read, write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        // A FIFO or a device must not hang the open, and a terminal not become the process's own.
        host |= OFlags::NONBLOCK | OFlags::NOCTTY;
        host.set(OFlags::NOFOLLOW, !follow);
        host.set(OFlags::DIRECTORY, directory);
        host.set(OFlags::TRUNC, oflags & oflags::TRUNC != 0);
        host.set(OFlags::APPEND, flags & fdflags::APPEND != 0);
        host.set(OFlags::DSYNC, flags & fdflags::DSYNC != 0);
        host.set(OFlags::SYNC, flags & (fdflags::SYNC | fdflags::RSYNC) != 0);
        let create = oflags & oflags::CREAT != 0;
        if parent.readonly {
            if write || oflags & oflags::TRUNC != 0 {
                return Err(Errno::Rofs.into());
            }
        } else {
            parent.require(if create { rights::PATH_CREATE_FILE } else { 0 })?;
            parent.require(if host.contains(OFlags::TRUNC) { rights::PATH_FILESTAT_SET_SIZE } else { 0 })?;
            host.set(OFlags::CREATE, create);
            host.set(OFlags::EXCL, oflags & oflags::EXCL != 0);
        }
        if self.table.is_full() {
            return Err(Errno::Mfile.into());
        }
        let mode = if host.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
        let file = match self.sandbox.open(dir, &path, host, mode) {
            // On a read-only file system a file that is there may be "created".
            Err(Errno::NoEnt) if create && parent.readonly => return Err(Errno::Rofs.into()),
            Ok(_) if create && parent.readonly && oflags & oflags::EXCL != 0 => {
                return Err(Errno::Exist.into());
            }
            other => other?,
        };
        // Who may write may also cut and grow.
        let asked = if write { rights_base | writing & !rights::FD_WRITE } else { rights_base & !writing };
        let number = self.table.insert(opened(file, asked, &parent, flags)?)?;
        Ok(memory.write_u32(opened_fd, number)?)
    }

    /// Makes a directory.
    pub fn path_create_directory<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        fd: u32,
        path: u32,
        path_len: u32,
    ) -> Result<(), Error> {
        let place = self.place(memory, fd, path, path_len, rights::PATH_CREATE_DIRECTORY)?;
        let (parent, name) = self.entry(&place)?;
        Ok(mkdirat(parent, name, Mode::from_raw_mode(0o777))?)
    }

    /// Removes an empty directory.
    pub fn path_remove_directory<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        fd: u32,
        path: u32,
        path_len: u32,
    ) -> Result<(), Error> {
        let place = self.place(memory, fd, path, path_len, rights::PATH_REMOVE_DIRECTORY)?;
        let (parent, name) = self.entry(&place)?;
        Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes a file.
    pub fn path_unlink_file<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        fd: u32,
        path: u32,
        path_len: u32,
    ) -> Result<(), Error> {
        let place = self.place(memory, fd, path, path_len, rights::PATH_UNLINK_FILE)?;
        let (parent, name) = self.entry(&place)?;
        Ok(unlinkat(parent, name, AtFlags::empty())?)
    }

    /// Moves a file or directory.
    #[expect(clippy::too_many_arguments, reason = "the specification's parameters")]
    pub fn path_rename<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        fd: u32,
        old_path: u32,
        old_path_len: u32,
        new_fd: u32,
        new_path: u32,
        new_path_len: u32,
    ) -> Result<(), Error> {
        let old = self.place(memory, fd, old_path, old_path_len, rights::PATH_RENAME_SOURCE)?;
        let new = self.place(memory, new_fd, new_path, new_path_len, rights::PATH_RENAME_TARGET)?;
        let (old_parent, old_name) = self.entry(&old)?;
        let (new_parent, new_name) = self.entry(&new)?;
        Ok(renameat(old_parent, old_name, new_parent, new_name)?)
    }

    /// Gives a file another name. Links are linked themselves; asking to follow them is EINVAL, as in other hosts.
    #[expect(clippy::too_many_arguments, reason = "the specification's parameters")]
    pub fn path_link<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        old_fd: u32,
        old_flags: u32,
        old_path: u32,
        old_path_len: u32,
        new_fd: u32,
        new_path: u32,
        new_path_len: u32,
    ) -> Result<(), Error> {
        let old = self.place(memory, old_fd, old_path, old_path_len, rights::PATH_LINK_SOURCE)?;
        let new = self.place(memory, new_fd, new_path, new_path_len, rights::PATH_LINK_TARGET)?;
        if follows(old_flags)? {
            return Err(Errno::Inval.into());
        }
        let (old_parent, old_name) = self.entry(&old)?;
        if !is_plain_name(old_name) {
            // "name/", "." and "..": a directory or nothing. The kernel would follow a link to it.
            self.sandbox.open(
                old.directory()?,
                &old.path,
                OFlags::PATH | OFlags::DIRECTORY,
                Mode::empty(),
            )?;
            return Err(Errno::Perm.into());
        }
        let (new_parent, new_name) = self.entry(&new)?;
        Ok(linkat(old_parent, old_name, new_parent, new_name, AtFlags::empty())?)
    }

    /// Makes a symbolic link. Its target is relative, so that it means nothing outside; what leads out of the directory is
    /// refused when it is followed.
    pub fn path_symlink<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        old_path: u32,
        old_path_len: u32,
        fd: u32,
        new_path: u32,
        new_path_len: u32,
    ) -> Result<(), Error> {
        let target = self.path(memory, old_path, old_path_len)?;
        let place = self.place(memory, fd, new_path, new_path_len, rights::PATH_SYMLINK)?;
        let (parent, name) = self.entry(&place)?;
        Ok(symlinkat(target.as_str(), parent, name)?)
    }

    /// Reads what a symbolic link points to; cut where the buffer ends.
    #[expect(clippy::too_many_arguments, reason = "the specification's parameters")]
    pub fn path_readlink<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        fd: u32,
        path: u32,
        path_len: u32,
        buf: u32,
        buf_len: u32,
        bufused: u32,
    ) -> Result<(), Error> {
        let place = self.place(memory, fd, path, path_len, rights::PATH_READLINK)?;
        memory.check(buf, buf_len)?;
        memory.check(bufused, 4)?;
        let (dir, path) = (place.directory()?, place.path.as_str());
        let target = if is_plain_name(path) {
            readlinkat(dir, path, Vec::new())?
        } else {
            let link = self.sandbox.locate(dir, path, false)?;
            readlinkat(&link, c"", Vec::new()).map_err(|errno| match errno {
                // What the kernel says of a descriptor that is no link.
                HostErrno::NOENT => Errno::Inval,
                other => other.into(),
            })?
        };
        let target = target.to_str().map_err(|_| Errno::Ilseq)?.as_bytes();
        let target = target.get(..buf_len as usize).unwrap_or(target);
        memory.write(buf, target)?;
        Ok(memory.write_u32(bufused, target.len() as u32)?)
    }

    /// Size, times and identity of a file by name.
    #[expect(clippy::too_many_arguments, reason = "the specification's parameters")]
    pub fn path_filestat_get<M: GuestMemory + ?Sized>(
        &self,
        abi: Abi,
        memory: &mut M,
        fd: u32,
        flags: u32,
        path: u32,
        path_len: u32,
        filestat: u32,
    ) -> Result<(), Error> {
        let place = self.place(memory, fd, path, path_len, rights::PATH_FILESTAT_GET)?;
        let follow = follows(flags)?;
        let (dir, path) = (place.directory()?, place.path.as_str());
        let found = if is_plain_name(path) {
            // One system call instead of three for what is no link to be followed.
            let stat = rustix::fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW)?;
            let link = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Symlink;
            (!(link && follow)).then_some(stat)
        } else {
            None
        };
        let stat = match found {
            Some(stat) => stat,
            None => rustix::fs::fstat(self.sandbox.locate(dir, path, follow)?)?,
        };
        Ok(Filestat::from(&stat).write(abi, memory, filestat)?)
    }

    /// Sets the times of a file by name.
    #[expect(clippy::too_many_arguments, reason = "the specification's parameters")]
    pub fn path_filestat_set_times<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        fd: u32,
        flags: u32,
        path: u32,
        path_len: u32,
        atim: u64,
        mtim: u64,
        fst_flags: u32,
    ) -> Result<(), Error> {
        let place = self.place(memory, fd, path, path_len, rights::PATH_FILESTAT_SET_TIMES)?;
        let follow = follows(flags)?;
        let times = timestamps(atim, mtim, fst_flags)?;
        let (dir, path) = (place.directory()?, place.path.as_str());
        let file = self.sandbox.locate(dir, path, follow)?;
        match utimensat(&file, c"", &times, AtFlags::EMPTY_PATH) {
            // Linux before 5.8 needs a name or an open file.
            Err(HostErrno::INVAL | HostErrno::NOENT) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                let flags = if follow { flags } else { flags | OFlags::NOFOLLOW };
                let file = self.sandbox.open(dir, path, flags, Mode::empty())?;
                Ok(rustix::fs::futimens(file, &times)?)
            }
            other => Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests;
