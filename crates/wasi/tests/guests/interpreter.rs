//! Runs a guest on wasmi: the functions over another engine's memory, so that what fails here is theirs and not our engine's.

use mote_wasi::{Abi, Error, GuestMemory, WasiCtx};
use wasmi::{Caller, Engine, ExternType, Linker, Module, Store, Val};

use crate::{End, Program};

pub struct Memory<'m>(pub &'m mut [u8]);

impl GuestMemory for Memory<'_> {
    fn byte_len(&self) -> u64 {
        self.0.byte_len()
    }
    fn read(&self, address: u32, into: &mut [u8]) -> Result<(), mote_wasi::OutOfBounds> {
        self.0.read(address, into)
    }
    fn write(&mut self, address: u32, from: &[u8]) -> Result<(), mote_wasi::OutOfBounds> {
        self.0.write(address, from)
    }
    fn bytes(&self) -> Option<&[u8]> {
        Some(self.0)
    }
    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(self.0)
    }
}

/// How a guest left its host function.
#[derive(Debug)]
struct Left(Error);

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl wasmi::errors::HostError for Left {}

pub fn run(program: &Program, ctx: WasiCtx) -> End {
    let engine = Engine::default();
    let module = Module::new(&engine, &program.wasm).unwrap();
    let mut store = Store::new(&engine, ctx);
    let mut linker = Linker::new(&engine);
    for import in module.imports() {
        let ExternType::Func(ty) = import.ty() else { panic!("{import:?}") };
        assert_eq!(import.module(), "wasi_snapshot_preview1");
        let name = import.name().to_owned();
        let host = move |mut caller: Caller<'_, WasiCtx>, args: &[Val], results: &mut [Val]| {
            let memory = caller.get_export("memory").and_then(|it| it.into_memory()).unwrap();
            let (bytes, ctx) = memory.data_and_store_mut(&mut caller);
            let number = match call(&name, ctx, &mut Memory(bytes), args) {
                Ok(()) => 0,
                Err(Error::Errno(errno)) => errno as i32,
                Err(end) => return Err(wasmi::Error::host(Left(end))),
            };
            if let Some(result) = results.first_mut() {
                *result = Val::I32(number);
            }
            Ok(())
        };
        linker.func_new(import.module(), import.name(), ty.clone(), host).unwrap();
    }
    let instance = linker.instantiate_and_start(&mut store, &module).unwrap();
    let start = instance.get_typed_func::<(), ()>(&store, "_start").unwrap();
    match start.call(&mut store, ()) {
        Ok(()) => End::Exit(0),
        Err(error) => match error.downcast_ref::<Left>() {
            Some(Left(Error::Interrupted)) => End::Interrupted,
            Some(Left(end)) => End::Exit(end.exit_status().unwrap()),
            None => End::Trap,
        },
    }
}

/// Calls a function by its name.
pub fn call(name: &str, ctx: &WasiCtx, memory: &mut dyn GuestMemory, args: &[Val]) -> Result<(), Error> {
    let i = |index: usize| match args[index] {
        Val::I32(value) => value as u32,
        ref other => panic!("{name}: {other:?}"),
    };
    let l = |index: usize| match args[index] {
        Val::I64(value) => value as u64,
        ref other => panic!("{name}: {other:?}"),
    };
    let abi = Abi::Preview1;
    match name {
        "args_get" => ctx.args_get(memory, i(0), i(1)),
        "args_sizes_get" => ctx.args_sizes_get(memory, i(0), i(1)),
        "environ_get" => ctx.environ_get(memory, i(0), i(1)),
        "environ_sizes_get" => ctx.environ_sizes_get(memory, i(0), i(1)),
        "clock_res_get" => ctx.clock_res_get(memory, i(0), i(1)),
        "clock_time_get" => ctx.clock_time_get(memory, i(0), l(1), i(2)),
        "fd_advise" => ctx.fd_advise(i(0), l(1), l(2), i(3)),
        "fd_allocate" => ctx.fd_allocate(i(0), l(1), l(2)),
        "fd_close" => ctx.fd_close(i(0)),
        "fd_datasync" => ctx.fd_datasync(i(0)),
        "fd_fdstat_get" => ctx.fd_fdstat_get(memory, i(0), i(1)),
        "fd_fdstat_set_flags" => ctx.fd_fdstat_set_flags(i(0), i(1)),
        "fd_fdstat_set_rights" => ctx.fd_fdstat_set_rights(i(0), l(1), l(2)),
        "fd_filestat_get" => ctx.fd_filestat_get(abi, memory, i(0), i(1)),
        "fd_filestat_set_size" => ctx.fd_filestat_set_size(i(0), l(1)),
        "fd_filestat_set_times" => ctx.fd_filestat_set_times(i(0), l(1), l(2), i(3)),
        "fd_pread" => ctx.fd_pread(memory, i(0), i(1), i(2), l(3), i(4)),
        "fd_prestat_get" => ctx.fd_prestat_get(memory, i(0), i(1)),
        "fd_prestat_dir_name" => ctx.fd_prestat_dir_name(memory, i(0), i(1), i(2)),
        "fd_pwrite" => ctx.fd_pwrite(memory, i(0), i(1), i(2), l(3), i(4)),
        "fd_read" => ctx.fd_read(memory, i(0), i(1), i(2), i(3)),
        "fd_readdir" => ctx.fd_readdir(memory, i(0), i(1), i(2), l(3), i(4)),
        "fd_renumber" => ctx.fd_renumber(i(0), i(1)),
        "fd_seek" => ctx.fd_seek(abi, memory, i(0), l(1) as i64, i(2), i(3)),
        "fd_sync" => ctx.fd_sync(i(0)),
        "fd_tell" => ctx.fd_tell(memory, i(0), i(1)),
        "fd_write" => ctx.fd_write(memory, i(0), i(1), i(2), i(3)),
        "path_create_directory" => ctx.path_create_directory(memory, i(0), i(1), i(2)),
        "path_filestat_get" => ctx.path_filestat_get(abi, memory, i(0), i(1), i(2), i(3), i(4)),
        "path_filestat_set_times" => {
            ctx.path_filestat_set_times(memory, i(0), i(1), i(2), i(3), l(4), l(5), i(6))
        }
        "path_link" => ctx.path_link(memory, i(0), i(1), i(2), i(3), i(4), i(5), i(6)),
        "path_open" => ctx.path_open(memory, i(0), i(1), i(2), i(3), i(4), l(5), l(6), i(7), i(8)),
        "path_readlink" => ctx.path_readlink(memory, i(0), i(1), i(2), i(3), i(4), i(5)),
        "path_remove_directory" => ctx.path_remove_directory(memory, i(0), i(1), i(2)),
        "path_rename" => ctx.path_rename(memory, i(0), i(1), i(2), i(3), i(4), i(5)),
        "path_symlink" => ctx.path_symlink(memory, i(0), i(1), i(2), i(3), i(4)),
        "path_unlink_file" => ctx.path_unlink_file(memory, i(0), i(1), i(2)),
        "poll_oneoff" => ctx.poll_oneoff(abi, memory, i(0), i(1), i(2), i(3)),
        "proc_exit" => Err(ctx.proc_exit(i(0))),
        "proc_raise" => ctx.proc_raise(i(0)),
        "random_get" => ctx.random_get(memory, i(0), i(1)),
        "sched_yield" => ctx.sched_yield(),
        "sock_accept" => ctx.sock_accept(memory, i(0), i(1), i(2)),
        "sock_recv" => ctx.sock_recv(memory, i(0), i(1), i(2), i(3), i(4), i(5)),
        "sock_send" => ctx.sock_send(memory, i(0), i(1), i(2), i(3), i(4)),
        "sock_shutdown" => ctx.sock_shutdown(i(0), i(1)),
        other => panic!("no function of preview 1: {other}"),
    }
}
