//! The module that comes in and the artifact that goes out. Both are opened before the system-call filter is in place.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};

/// The module's file.
pub(crate) struct Input {
    file: File,
}

impl Input {
    /// Opens `path`; `-` or nothing is standard input.
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let file = match path {
            Some(path) if path != Path::new("-") => {
                File::open(path).with_context(|| format!("cannot open {}", path.display()))?
            }
            _ => {
                let stdin = rustix::stdio::stdin();
                let mut file = File::from(rustix::io::dup(stdin).context("cannot use standard input")?);
                // An open file is passed on: its position is nobody's promise. Pipes cannot seek and need not.
                let _ = file.seek(SeekFrom::Start(0));
                file
            }
        };
        Ok(Self { file })
    }

    /// All bytes, but no more than one over the limit: enough to see that it is exceeded.
    pub(crate) fn read(self, limit: u64) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.take(limit.saturating_add(1)).read_to_end(&mut bytes).context("cannot read the module")?;
        Ok(bytes)
    }
}

/// The artifact's file: standard output, or a path where it appears whole or not at all.
pub(crate) enum Output {
    Stdout,
    Path { file: File, named: Option<PathBuf>, directory: OwnedFd, path: PathBuf },
}

impl Output {
    /// Opens a file without a name in `path`'s directory, so that an interrupted run leaves nothing behind.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let failed = || format!("cannot write in {}", parent.display());
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent, flags, Mode::empty()).with_context(failed)?;
        let mode = Mode::from_raw_mode(0o644);
        let unnamed = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let (fd, named) = match rustix::fs::openat(&directory, ".", unnamed, mode) {
            Ok(fd) => (fd, None),
            // Not every file system has files without names.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::INVAL) => {
                let name = temporary_name(path);
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                (rustix::fs::openat(&directory, &name, flags, mode).with_context(failed)?, Some(name))
            }
            Err(error) => return Err(anyhow::Error::from(error).context(failed())),
        };
        Ok(Self::Path { file: File::from(fd), named, directory, path: path.to_owned() })
    }

    /// Writes the artifact and puts it in its place.
    pub(crate) fn write(self, artifact: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = std::io::stdout().lock();
                stdout
                    .write_all(artifact)
                    .and_then(|()| stdout.flush())
                    .context("cannot write to standard output")
            }
            Self::Path { mut file, named, directory, path } => {
                let failed = || format!("cannot write {}", path.display());
                let target = path.file_name().map(PathBuf::from).with_context(failed)?;
                let temporary = named.clone().unwrap_or_else(|| temporary_name(&path));
                let written = file.write_all(artifact).map_err(anyhow::Error::from).and_then(|()| {
                    if named.is_none() {
                        let unnamed = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
                        let follow = AtFlags::SYMLINK_FOLLOW;
                        rustix::fs::linkat(rustix::fs::CWD, unnamed, &directory, &temporary, follow)?;
                    }
                    let flags = RenameFlags::empty();
                    Ok(rustix::fs::renameat_with(&directory, &temporary, &directory, &target, flags)?)
                });
                if written.is_err() {
                    let _ = rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty());
                }
                written.with_context(failed)
            }
        }
    }
}

fn temporary_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    PathBuf::from(format!(".{name}.{}.tmp", std::process::id()))
}
