//! `mote run`.
//!
//! Options are read, the module becomes an artifact through the cache, the artifact an instance, and the instance is called. What is kept
//! small here stays small for as long as the guest sleeps: nothing is read of the module on a cached start, and host functions are
//! made only for imports that the module has.

pub mod guest;
mod invoke;
pub mod options;
mod profile;
mod report;
mod source;
pub mod stats;

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mote_runtime::{LoadError, Module, program};
use mote_store::{ModuleError, Refusal, Settings};
use mote_wasi::{WasiCtx, WasiCtxBuilder};

use crate::arguments::Arguments;
use crate::exit::Failure;
use crate::inspect::is_artifact_name;
use crate::progress::Progress;
use guest::Ready;
use options::RunOptions;
use stats::Stats;

/// Linux's numbers on every architecture.
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

pub fn main(arguments: Arguments) -> Result<u8, Failure> {
    let mut ready = match prepare(arguments)? {
        Prepared::Ready(ready) => ready,
        Prepared::Ended(code) => return Ok(code),
    };
    // Pages of the stack that only the preparation used would stay with the process for as long as the guest runs.
    program::trim_stack();
    let code = guest::run(&mut ready);
    ready.stats.print();
    // The process ends now, and the system takes everything back at once: unmapping it piece by piece took a tenth of a start.
    std::mem::forget(ready);
    code
}

enum Prepared {
    Ready(Box<Ready>),
    /// The guest ended while it was instantiated.
    Ended(u8),
}

/// A function of its own, so that what it needs of the stack is free when the guest runs.
#[inline(never)]
fn prepare(arguments: Arguments) -> Result<Prepared, Failure> {
    let options = RunOptions::new(arguments)?;
    let mut stats = Stats::new(options.stats);
    program::end_on_signals_as_init(&[SIGINT, SIGTERM]);
    let cache = open_cache(&options);
    let mut preloads = Vec::with_capacity(options.preloads.len());
    for preload in &options.preloads {
        preloads.push((preload.name.clone(), load(&preload.file, &options, &cache, &mut stats)?));
    }
    let module = load(&options.file, &options, &cache, &mut stats)?;
    drop(cache);
    stats.loaded();
    let wasi = context(&options)?;
    match guest::prepare(&options, &module, preloads, wasi, guest::AtSnapshot::Return) {
        Ok(guest) => {
            stats.instantiated();
            Ok(Prepared::Ready(Box::new(Ready { options, module, guest, stats })))
        }
        Err(stopped) => stopped.code(&options).map(Prepared::Ended),
    }
}

/// The cache, after telling what is wrong with its settings.
pub fn open_cache(options: &RunOptions) -> mote_store::Store {
    let mut settings = if options.no_cache { Settings::none() } else { Settings::from_environment() };
    settings.program = program::file().map(PathBuf::from);
    settings.now_seconds = program::now_seconds;
    if let Some(mistake) = settings.mistake.as_ref().filter(|_| !options.quiet) {
        eprintln!("mote: {mistake}");
    }
    mote_store::Store::open(&settings)
}

/// The module or artifact in this file, mapped.
pub fn load(
    path: &Path,
    options: &RunOptions,
    cache: &mote_store::Store,
    stats: &mut Stats,
) -> Result<Module, Failure> {
    if is_artifact_name(path) {
        let file = File::open(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => ModuleError::NotFound { path: path.to_owned() },
            _ => ModuleError::Unreadable { path: path.to_owned(), source },
        })?;
        return Module::from_owned_file(file)
            .map_err(|error| Failure::cannot_run(format!("{}: {error}", path.display())));
    }
    let indexed = cache.indexed(path, &options.compiler, |file| Module::from_owned_file(file).ok());
    if let Some(module) = indexed {
        return Ok(module);
    }
    let module = match path.as_os_str().as_bytes() {
        b"-" => mote_store::Module::from_file(standard_input()?, Path::new("standard input"))?,
        _ => mote_store::Module::open(path)?,
    };
    let mut loading = |file: &File| Module::from_file(file).map_err(refusal);
    let mut progress = Progress::new(options.quiet);
    let obtained = cache.obtain(module, &options.compiler, &mut loading, &mut |event| {
        stats.event(&event);
        progress.event(event);
    });
    progress.clear();
    Ok(obtained?)
}

fn standard_input() -> Result<File, Failure> {
    let duplicate = std::io::stdin().as_fd().try_clone_to_owned();
    duplicate.map(File::from).map_err(|error| Failure::cannot_run(format!("standard input: {error}")))
}

fn refusal(error: LoadError) -> Refusal {
    match error {
        // A file system mounted noexec says EPERM, a security module EACCES.
        LoadError::Execute(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Refusal::Unmappable(error.to_string())
        }
        error => Refusal::Unfit(error.to_string()),
    }
}

/// What the guest gets of the host.
pub fn context(options: &RunOptions) -> Result<WasiCtx, Failure> {
    let mut builder = WasiCtxBuilder::new();
    builder.inherit_stdio();
    for argument in &options.guest_arguments {
        builder.arg(argument.as_bytes());
    }
    for (name, value) in &options.environment {
        builder.env(name.as_bytes(), value.as_bytes());
    }
    for directory in &options.directories {
        builder.preopen(&directory.host, directory.guest.clone(), directory.read_only);
    }
    for address in &options.listen {
        builder.socket(listener(address, options.quiet)?);
    }
    builder.build().map_err(Failure::own)
}

fn listener(address: &str, quiet: bool) -> Result<OwnedFd, Failure> {
    let listener = TcpListener::bind(address)
        .map_err(|error| Failure::own(format!("--listen: cannot listen on {address}: {error}")))?;
    if address.ends_with(":0")
        && !quiet
        && let Ok(bound) = listener.local_addr()
    {
        eprintln!("mote: listening on {bound}");
    }
    Ok(listener.into())
}
