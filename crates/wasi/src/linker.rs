//! The functions as imports of a module: `wasi_snapshot_preview1`, and the older `wasi_unstable`.

use mote_runtime::{Caller, HostError, IntoHostFunc, Linker, SharedMemory, TrapCode};

use crate::memory::{GuestMemory, OutOfBounds};
use crate::witx::Abi;
use crate::{Error, WasiCtx};

/// Adds all functions of both revisions. `get` finds the context in a store's data.
///
/// ```
/// use mote_runtime::Linker;
/// use mote_wasi::{WasiCtx, add_to_linker};
/// let mut linker = Linker::<WasiCtx>::new();
/// add_to_linker(&mut linker, |ctx| ctx);
/// assert!(linker.contains("wasi_snapshot_preview1", "fd_write"));
/// ```
///
/// A guest that ends itself is a trap whose error is an [`Error`]: see [`Error::exit_status`].
pub fn add_to_linker<T: 'static>(
    linker: &mut Linker<T>,
    get: impl Fn(&mut T) -> &mut WasiCtx + Copy + Send + Sync + 'static,
) {
    add_wanted_to_linker(linker, get, |_, _| true);
}

/// Adds the functions that `wanted` says yes to, given module and name. A program that runs one module adds what this one
/// imports: every function of a linker takes some two hundred bytes.
pub fn add_wanted_to_linker<T: 'static>(
    linker: &mut Linker<T>,
    get: impl Fn(&mut T) -> &mut WasiCtx + Copy + Send + Sync + 'static,
    wanted: impl Fn(&str, &str) -> bool,
) {
    for (abi, module) in [(Abi::Preview1, "wasi_snapshot_preview1"), (Abi::Unstable, "wasi_unstable")] {
        add_revision(&mut Imports { linker, module, wanted: &wanted }, get, abi);
    }
}

struct Imports<'l, T, W> {
    linker: &'l mut Linker<T>,
    module: &'static str,
    wanted: W,
}

impl<T: 'static, W: Fn(&str, &str) -> bool> Imports<'_, T, W> {
    fn add<P, R>(&mut self, name: &'static str, func: impl IntoHostFunc<T, P, R>) {
        if (self.wanted)(self.module, name) {
            self.linker.func_wrap(self.module, name, func);
        }
    }
}

/// Calls a function on the context and the memory that the calling instance exports.
fn with_memory<T: 'static>(
    mut caller: Caller<'_, T>,
    get: impl Fn(&mut T) -> &mut WasiCtx,
    call: impl FnOnce(&WasiCtx, &mut dyn GuestMemory) -> Result<(), Error>,
) -> Result<u32, HostError> {
    let memory = caller.memory().ok_or_else(|| {
        HostError::message("a module that calls WASI functions must export its memory as \"memory\"")
    })?;
    match memory.data_and_store_mut(&mut caller) {
        Some((bytes, data)) => finish(call(get(data), &mut Plain(bytes))),
        None => {
            let shared = memory.to_shared(&caller).ok_or_else(|| HostError::message("the memory is gone"))?;
            finish(call(get(caller.data_mut()), &mut Shared(shared)))
        }
    }
}

/// Calls a function that needs no memory.
fn with_context<T: 'static>(
    mut caller: Caller<'_, T>,
    get: impl Fn(&mut T) -> &mut WasiCtx,
    call: impl FnOnce(&WasiCtx) -> Result<(), Error>,
) -> Result<u32, HostError> {
    finish(call(get(caller.data_mut())))
}

/// What the guest gets, or its end.
fn finish(result: Result<(), Error>) -> Result<u32, HostError> {
    match result {
        Ok(()) => Ok(0),
        Err(Error::Errno(errno)) => Ok(errno as u32),
        // The same end as that of a guest that is stopped while it computes.
        Err(Error::Interrupted) => Err(HostError::trap(TrapCode::Interrupted)),
        Err(end) => Err(HostError::from(end)),
    }
}

/// A memory that only its instance uses.
struct Plain<'m>(&'m mut [u8]);

impl GuestMemory for Plain<'_> {
    fn byte_len(&self) -> u64 {
        self.0.byte_len()
    }

    fn read(&self, address: u32, into: &mut [u8]) -> Result<(), OutOfBounds> {
        self.0.read(address, into)
    }

    fn write(&mut self, address: u32, from: &[u8]) -> Result<(), OutOfBounds> {
        self.0.write(address, from)
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self.0)
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(self.0)
    }
}

/// A memory that other threads read and write meanwhile.
struct Shared(SharedMemory);

impl GuestMemory for Shared {
    fn byte_len(&self) -> u64 {
        self.0.byte_len()
    }

    fn read(&self, address: u32, into: &mut [u8]) -> Result<(), OutOfBounds> {
        self.0.read(address.into(), into).map_err(|_| OutOfBounds)
    }

    fn write(&mut self, address: u32, from: &[u8]) -> Result<(), OutOfBounds> {
        self.0.write(address.into(), from).map_err(|_| OutOfBounds)
    }

    fn bytes(&self) -> Option<&[u8]> {
        None
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        None
    }
}

/// One line per function: its parameters as in the specification (pointers and lengths are `u32`), and its call.
macro_rules! functions {
    ($imports:ident, $get:ident, $with:ident:
        $($name:ident($($param:ident: $type:ty),*) => $call:expr;)*) => {
        $($imports.add(stringify!($name), move |caller: Caller<'_, T>, $($param: $type),*| {
            $with(caller, $get, $call)
        });)*
    };
}

fn add_revision<T: 'static>(
    imports: &mut Imports<'_, T, impl Fn(&str, &str) -> bool>,
    get: impl Fn(&mut T) -> &mut WasiCtx + Copy + Send + Sync + 'static,
    abi: Abi,
) {
    add_process(imports, get);
    add_descriptors(imports, get, abi);
    add_paths(imports, get, abi);
    add_sockets(imports, get);
}

fn add_process<T: 'static>(
    imports: &mut Imports<'_, T, impl Fn(&str, &str) -> bool>,
    get: impl Fn(&mut T) -> &mut WasiCtx + Copy + Send + Sync + 'static,
) {
    functions! { imports, get, with_memory:
        args_get(argv: u32, argv_buf: u32) => |ctx, memory| ctx.args_get(memory, argv, argv_buf);
        args_sizes_get(argc: u32, size: u32) => |ctx, memory| ctx.args_sizes_get(memory, argc, size);
        environ_get(environ: u32, buf: u32) => |ctx, memory| ctx.environ_get(memory, environ, buf);
        environ_sizes_get(count: u32, size: u32) => |ctx, memory| ctx.environ_sizes_get(memory, count, size);
        clock_res_get(id: u32, result: u32) => |ctx, memory| ctx.clock_res_get(memory, id, result);
        clock_time_get(id: u32, precision: u64, result: u32) =>
            |ctx, memory| ctx.clock_time_get(memory, id, precision, result);
        random_get(buf: u32, buf_len: u32) => |ctx, memory| ctx.random_get(memory, buf, buf_len);
    }
    functions! { imports, get, with_context:
        proc_raise(signal: u32) => |ctx| ctx.proc_raise(signal);
        sched_yield() => |ctx| ctx.sched_yield();
    }
    // Returns nothing, and not to the guest.
    imports.add("proc_exit", move |mut caller: Caller<'_, T>, code: u32| -> Result<(), HostError> {
        Err(HostError::from(get(caller.data_mut()).proc_exit(code)))
    });
}

fn add_descriptors<T: 'static>(
    imports: &mut Imports<'_, T, impl Fn(&str, &str) -> bool>,
    get: impl Fn(&mut T) -> &mut WasiCtx + Copy + Send + Sync + 'static,
    abi: Abi,
) {
    functions! { imports, get, with_context:
        fd_advise(fd: u32, offset: u64, len: u64, advice: u32) => |ctx| ctx.fd_advise(fd, offset, len, advice);
        fd_allocate(fd: u32, offset: u64, len: u64) => |ctx| ctx.fd_allocate(fd, offset, len);
        fd_close(fd: u32) => |ctx| ctx.fd_close(fd);
        fd_datasync(fd: u32) => |ctx| ctx.fd_datasync(fd);
        fd_fdstat_set_flags(fd: u32, flags: u32) => |ctx| ctx.fd_fdstat_set_flags(fd, flags);
        fd_fdstat_set_rights(fd: u32, base: u64, inheriting: u64) =>
            |ctx| ctx.fd_fdstat_set_rights(fd, base, inheriting);
        fd_filestat_set_size(fd: u32, size: u64) => |ctx| ctx.fd_filestat_set_size(fd, size);
        fd_filestat_set_times(fd: u32, atim: u64, mtim: u64, flags: u32) =>
            |ctx| ctx.fd_filestat_set_times(fd, atim, mtim, flags);
        fd_renumber(fd: u32, to: u32) => |ctx| ctx.fd_renumber(fd, to);
        fd_sync(fd: u32) => |ctx| ctx.fd_sync(fd);
    }
    functions! { imports, get, with_memory:
        fd_fdstat_get(fd: u32, stat: u32) => |ctx, memory| ctx.fd_fdstat_get(memory, fd, stat);
        fd_filestat_get(fd: u32, stat: u32) => |ctx, memory| ctx.fd_filestat_get(abi, memory, fd, stat);
        fd_pread(fd: u32, iovs: u32, iovs_len: u32, offset: u64, nread: u32) =>
            |ctx, memory| ctx.fd_pread(memory, fd, iovs, iovs_len, offset, nread);
        fd_prestat_get(fd: u32, prestat: u32) => |ctx, memory| ctx.fd_prestat_get(memory, fd, prestat);
        fd_prestat_dir_name(fd: u32, path: u32, path_len: u32) =>
            |ctx, memory| ctx.fd_prestat_dir_name(memory, fd, path, path_len);
        fd_pwrite(fd: u32, iovs: u32, iovs_len: u32, offset: u64, nwritten: u32) =>
            |ctx, memory| ctx.fd_pwrite(memory, fd, iovs, iovs_len, offset, nwritten);
        fd_read(fd: u32, iovs: u32, iovs_len: u32, nread: u32) =>
            |ctx, memory| ctx.fd_read(memory, fd, iovs, iovs_len, nread);
        fd_readdir(fd: u32, buf: u32, buf_len: u32, cookie: u64, bufused: u32) =>
            |ctx, memory| ctx.fd_readdir(memory, fd, buf, buf_len, cookie, bufused);
        fd_seek(fd: u32, offset: i64, whence: u32, newoffset: u32) =>
            |ctx, memory| ctx.fd_seek(abi, memory, fd, offset, whence, newoffset);
        fd_tell(fd: u32, offset: u32) => |ctx, memory| ctx.fd_tell(memory, fd, offset);
        fd_write(fd: u32, iovs: u32, iovs_len: u32, nwritten: u32) =>
            |ctx, memory| ctx.fd_write(memory, fd, iovs, iovs_len, nwritten);
        poll_oneoff(subscriptions: u32, events: u32, count: u32, nevents: u32) =>
            |ctx, memory| ctx.poll_oneoff(abi, memory, subscriptions, events, count, nevents);
    }
}

fn add_paths<T: 'static>(
    imports: &mut Imports<'_, T, impl Fn(&str, &str) -> bool>,
    get: impl Fn(&mut T) -> &mut WasiCtx + Copy + Send + Sync + 'static,
    abi: Abi,
) {
    functions! { imports, get, with_memory:
        path_create_directory(fd: u32, path: u32, path_len: u32) =>
            |ctx, memory| ctx.path_create_directory(memory, fd, path, path_len);
        path_filestat_get(fd: u32, flags: u32, path: u32, path_len: u32, stat: u32) =>
            |ctx, memory| ctx.path_filestat_get(abi, memory, fd, flags, path, path_len, stat);
        path_filestat_set_times(fd: u32, flags: u32, path: u32, path_len: u32, atim: u64, mtim: u64, set: u32) =>
            |ctx, memory| ctx.path_filestat_set_times(memory, fd, flags, path, path_len, atim, mtim, set);
        path_link(old_fd: u32, flags: u32, old: u32, old_len: u32, new_fd: u32, new: u32, new_len: u32) =>
            |ctx, memory| ctx.path_link(memory, old_fd, flags, old, old_len, new_fd, new, new_len);
        path_open(
            fd: u32, dirflags: u32, path: u32, path_len: u32, oflags: u32,
            base: u64, inheriting: u64, fdflags: u32, opened: u32
        ) => |ctx, memory| {
            ctx.path_open(memory, fd, dirflags, path, path_len, oflags, base, inheriting, fdflags, opened)
        };
        path_readlink(fd: u32, path: u32, path_len: u32, buf: u32, buf_len: u32, bufused: u32) =>
            |ctx, memory| ctx.path_readlink(memory, fd, path, path_len, buf, buf_len, bufused);
        path_remove_directory(fd: u32, path: u32, path_len: u32) =>
            |ctx, memory| ctx.path_remove_directory(memory, fd, path, path_len);
        path_rename(fd: u32, old: u32, old_len: u32, new_fd: u32, new: u32, new_len: u32) =>
            |ctx, memory| ctx.path_rename(memory, fd, old, old_len, new_fd, new, new_len);
        path_symlink(old: u32, old_len: u32, fd: u32, new: u32, new_len: u32) =>
            |ctx, memory| ctx.path_symlink(memory, old, old_len, fd, new, new_len);
        path_unlink_file(fd: u32, path: u32, path_len: u32) =>
            |ctx, memory| ctx.path_unlink_file(memory, fd, path, path_len);
    }
}

fn add_sockets<T: 'static>(
    imports: &mut Imports<'_, T, impl Fn(&str, &str) -> bool>,
    get: impl Fn(&mut T) -> &mut WasiCtx + Copy + Send + Sync + 'static,
) {
    functions! { imports, get, with_memory:
        sock_accept(fd: u32, flags: u32, accepted: u32) =>
            |ctx, memory| ctx.sock_accept(memory, fd, flags, accepted);
        sock_recv(fd: u32, data: u32, data_len: u32, flags: u32, received: u32, out_flags: u32) =>
            |ctx, memory| ctx.sock_recv(memory, fd, data, data_len, flags, received, out_flags);
        sock_send(fd: u32, data: u32, data_len: u32, flags: u32, sent: u32) =>
            |ctx, memory| ctx.sock_send(memory, fd, data, data_len, flags, sent);
    }
    functions! { imports, get, with_context:
        sock_shutdown(fd: u32, how: u32) => |ctx| ctx.sock_shutdown(fd, how);
    }
}
