//! A guest's world: its arguments and environment, its descriptors, and what it may use of the host.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use crate::descriptor::{Descriptor, HostFd, Object, Table};
use crate::memory::GuestMemory;
use crate::sandbox::Sandbox;
use crate::witx::{Filetype, rights};
use crate::{Errno, InputPipe, Interrupt, OutputPipe};

/// Bounds on what a guest can make the host hold or do in one call.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open descriptors, the standard three and preopens included.
    pub descriptors: u32,
    /// Buffers in one vectored call; more is EINVAL. At most 1024 (the kernel's own bound).
    pub iovecs: u32,
    /// Bytes in a path; more is ENAMETOOLONG.
    pub path_bytes: u32,
    /// Subscriptions in one `poll_oneoff`; more is EINVAL.
    pub subscriptions: u32,
    /// Bytes of all arguments, and of all environment variables; the builder refuses more.
    pub strings_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        // PATH_MAX, IOV_MAX and ARG_MAX as on Linux; descriptors as its default RLIMIT_NOFILE.
        Limits {
            descriptors: 1024,
            iovecs: 1024,
            path_bytes: 4096,
            subscriptions: 1024,
            strings_bytes: 2 << 20,
        }
    }
}

/// One of the guest's three standard streams.
#[derive(Debug, Default)]
pub enum Stdio {
    /// The host process's own.
    Inherit,
    /// Reads as ended; swallows what is written.
    #[default]
    Null,
    /// Reads these bytes.
    Input(InputPipe),
    /// Keeps what is written.
    Output(OutputPipe),
    /// A descriptor of the host; its flags are left as they are.
    Fd(OwnedFd),
}

/// Why a context cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// An argument or environment variable cannot be passed as a C string.
    #[error("{what} {index} contains a NUL byte")]
    Nul {
        /// `argument` or `environment variable`.
        what: &'static str,
        /// Which, from 0.
        index: u32,
    },
    /// A variable's name is empty or contains `=`.
    #[error("environment variable {index} has the name {name:?}: a name is not empty and has no '='")]
    Name {
        /// Which, from 0.
        index: u32,
        /// As given.
        name: String,
    },
    /// More than [`Limits::strings_bytes`].
    #[error("the {what}s take {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// `argument` or `environment variable`.
        what: &'static str,
        /// What they take, NULs included.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A directory that cannot be opened.
    #[error("cannot open the directory {} for the guest: {source}", host.display())]
    Preopen {
        /// On the host.
        host: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A descriptor that cannot be used.
    #[error("cannot use the {what} given to the guest: {source}")]
    Descriptor {
        /// `standard input`, `listening socket`, …
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// More descriptors than [`Limits::descriptors`].
    #[error("more than {limit} descriptors are given to the guest")]
    Descriptors {
        /// The limit.
        limit: u32,
    },
}

/// NUL-terminated strings, one after the other, as the guest gets them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strings {
    pub bytes: Vec<u8>,
    pub count: u32,
}

impl Strings {
    fn push(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.push(0);
        self.count = self.count.saturating_add(1);
    }

    fn check(&self, what: &'static str, limit: usize) -> Result<(), BuildError> {
        let bytes = self.bytes.len();
        if bytes > limit { Err(BuildError::TooLarge { what, bytes, limit }) } else { Ok(()) }
    }
}

struct Preopen {
    host: PathBuf,
    guest: String,
    readonly: bool,
}

/// Says what a guest gets. Without a word it gets nothing: no arguments, no environment, no directories, null streams.
#[derive(Default)]
pub struct WasiCtxBuilder {
    args: Strings,
    env: Strings,
    preopens: Vec<Preopen>,
    sockets: Vec<OwnedFd>,
    stdin: Stdio,
    stdout: Stdio,
    stderr: Stdio,
    limits: Limits,
    interrupt: Option<Interrupt>,
    error: Option<BuildError>,
}

impl WasiCtxBuilder {
    /// Nothing yet.
    pub fn new() -> WasiCtxBuilder {
        WasiCtxBuilder::default()
    }

    /// Appends an argument; the first is the program's name.
    pub fn arg(&mut self, arg: impl AsRef<[u8]>) -> &mut Self {
        if arg.as_ref().contains(&0) {
            let index = self.args.count;
            self.error.get_or_insert(BuildError::Nul { what: "argument", index });
        }
        self.args.push(&[arg.as_ref()]);
        self
    }

    /// Appends an environment variable.
    pub fn env(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let (name, value) = (name.as_ref(), value.as_ref());
        let index = self.env.count;
        if name.is_empty() || name.contains(&b'=') {
            let name = String::from_utf8_lossy(name).into_owned();
            self.error.get_or_insert(BuildError::Name { index, name });
        }
        if name.contains(&0) || value.contains(&0) {
            self.error.get_or_insert(BuildError::Nul { what: "environment variable", index });
        }
        self.env.push(&[name, b"=", value]);
        self
    }

    /// Gives the guest the directory `host` under the name `guest`. They are numbered from 3 in the order given.
    pub fn preopen(&mut self, host: impl AsRef<Path>, guest: impl Into<String>, readonly: bool) -> &mut Self {
        self.preopens.push(Preopen { host: host.as_ref().to_owned(), guest: guest.into(), readonly });
        self
    }

    /// Gives the guest a socket, listening or connected. They are numbered after the directories: a libc looks for
    /// directories from 3 on and stops at the first descriptor that is none.
    pub fn socket(&mut self, socket: impl Into<OwnedFd>) -> &mut Self {
        self.sockets.push(socket.into());
        self
    }

    /// Sets descriptor 0.
    pub fn stdin(&mut self, stdio: Stdio) -> &mut Self {
        self.stdin = stdio;
        self
    }

    /// Sets descriptor 1.
    pub fn stdout(&mut self, stdio: Stdio) -> &mut Self {
        self.stdout = stdio;
        self
    }

    /// Sets descriptor 2.
    pub fn stderr(&mut self, stdio: Stdio) -> &mut Self {
        self.stderr = stdio;
        self
    }

    /// All three standard streams are the host process's.
    pub fn inherit_stdio(&mut self) -> &mut Self {
        self.stdin(Stdio::Inherit).stdout(Stdio::Inherit).stderr(Stdio::Inherit)
    }

    /// Other limits than the default ones.
    pub fn limits(&mut self, limits: Limits) -> &mut Self {
        self.limits = limits;
        self
    }

    /// Waits of the guest end when `interrupt` is raised. Without one a waiting guest ends with its process only.
    pub fn interrupt(&mut self, interrupt: Interrupt) -> &mut Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Opens everything that was named.
    pub fn build(self) -> Result<WasiCtx, BuildError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let limits = Limits { iovecs: self.limits.iovecs.min(1024), ..self.limits };
        self.args.check("argument", limits.strings_bytes)?;
        self.env.check("environment variable", limits.strings_bytes)?;
        let table = Table::new(limits.descriptors);
        let full = |_| BuildError::Descriptors { limit: limits.descriptors };
        let standard = |stdio, own: fn() -> HostFd, base, what| -> Result<(), BuildError> {
            let failed = |errno: rustix::io::Errno| BuildError::Descriptor { what, source: errno.into() };
            let descriptor = match stdio {
                Stdio::Inherit => match Descriptor::standard(own(), base) {
                    // The process was started without this stream.
                    Err(rustix::io::Errno::BADF) => null(base),
                    other => other.map_err(failed)?,
                },
                Stdio::Fd(fd) => Descriptor::standard(HostFd::Owned(fd), base).map_err(failed)?,
                Stdio::Null => null(base),
                Stdio::Input(pipe) => memory(Object::Input(pipe), base & rights::FD_READ),
                Stdio::Output(pipe) => memory(Object::Output(pipe), base & rights::FD_WRITE),
            };
            table.insert(descriptor).map(drop).map_err(full)
        };
        let own_stdin = || HostFd::Standard(rustix::stdio::stdin());
        let own_stdout = || HostFd::Standard(rustix::stdio::stdout());
        let own_stderr = || HostFd::Standard(rustix::stdio::stderr());
        standard(self.stdin, own_stdin, rights::FD_READ, "standard input")?;
        standard(self.stdout, own_stdout, rights::FD_WRITE, "standard output")?;
        standard(self.stderr, own_stderr, rights::FD_WRITE, "standard error")?;
        for Preopen { host, guest, readonly } in self.preopens {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = match rustix::fs::open(&host, flags | OFlags::RDONLY, Mode::empty()) {
                // May be entered but not listed.
                Err(rustix::io::Errno::ACCESS) => {
                    rustix::fs::openat(CWD, &host, flags | OFlags::PATH, Mode::empty())
                }
                other => other,
            };
            let fd = opened.map_err(|errno| BuildError::Preopen { host, source: errno.into() })?;
            let mut descriptor = Descriptor::directory(fd, readonly, rights::ALL, 0);
            descriptor.preopen = Some(guest.into_boxed_str());
            table.insert(descriptor).map_err(full)?;
        }
        for socket in self.sockets {
            let descriptor = Descriptor::socket(socket, 0)
                .map_err(|errno| BuildError::Descriptor { what: "socket", source: errno.into() })?;
            table.insert(descriptor).map_err(full)?;
        }
        Ok(WasiCtx {
            args: self.args,
            env: self.env,
            table,
            limits,
            interrupt: self.interrupt,
            sandbox: Sandbox::default(),
        })
    }
}

fn null(base: u64) -> Descriptor {
    let base = base | rights::STREAM & !(rights::FD_READ | rights::FD_WRITE);
    // As /dev/null: a character device that can seek, so that it is not taken for a terminal.
    let seek = rights::FD_SEEK | rights::FD_TELL;
    Descriptor::new(Object::Null, Filetype::CharacterDevice, base | seek, 0, 0)
}

fn memory(object: Object, base: u64) -> Descriptor {
    let base = base | rights::STREAM & !(rights::FD_READ | rights::FD_WRITE);
    Descriptor::new(object, Filetype::Unknown, base, 0, 0)
}

/// The state behind the functions. They take `&self`: threads of one guest share a context without one lock around it.
pub struct WasiCtx {
    pub(crate) args: Strings,
    pub(crate) env: Strings,
    pub(crate) table: Table,
    pub(crate) limits: Limits,
    pub(crate) interrupt: Option<Interrupt>,
    pub(crate) sandbox: Sandbox,
}

impl WasiCtx {
    /// From now on the guest's waits end when `interrupt` is raised; for a host that has the handle only after the context.
    pub fn set_interrupt(&mut self, interrupt: Interrupt) {
        self.interrupt = Some(interrupt);
    }

    /// What a snapshot of the guest would lose: open descriptors other than the standard three and the preopened directories.
    pub fn opened(&self) -> Vec<u32> {
        let open = self.table.open().into_iter();
        open.filter(|(number, descriptor)| *number > 2 && descriptor.preopen.is_none())
            .map(|(number, _)| number)
            .collect()
    }

    /// A path from the guest: relative, UTF-8, not empty, without NUL.
    pub(crate) fn path<M: GuestMemory + ?Sized>(
        &self,
        memory: &M,
        address: u32,
        len: u32,
    ) -> Result<String, Errno> {
        let path = self.string(memory, address, len)?;
        if path.is_empty() {
            Err(Errno::NoEnt)
        } else if path.starts_with('/') {
            // Absolute paths are resolved by the guest's libc; one that comes here names nothing the guest was given.
            Err(Errno::Perm)
        } else {
            Ok(path)
        }
    }

    /// UTF-8 without NUL of a bounded length.
    pub(crate) fn string<M: GuestMemory + ?Sized>(
        &self,
        memory: &M,
        address: u32,
        len: u32,
    ) -> Result<String, Errno> {
        memory.check(address, len)?;
        if len > self.limits.path_bytes {
            return Err(Errno::NameTooLong);
        }
        let mut bytes = vec![0; len as usize];
        memory.read(address, &mut bytes)?;
        if bytes.contains(&0) {
            return Err(Errno::Inval);
        }
        String::from_utf8(bytes).map_err(|_| Errno::Ilseq)
    }
}

#[cfg(test)]
mod tests;
