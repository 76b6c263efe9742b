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

use mote_runtime::{LoadError, Module};
use mote_store::{ModuleError, Refusal, Settings};
use mote_wasi::{WasiCtx, WasiCtxBuilder};

use crate::arguments::Arguments;
use crate::exit::Failure;
use crate::inspect::is_artifact_name;
use crate::progress::Progress;
use options::RunOptions;
use stats::Stats;

pub fn main(arguments: Arguments) -> Result<u8, Failure> {
    let options = RunOptions::new(arguments)?;
    let mut stats = Stats::new(options.stats);
    end_on_signals_as_init();
    let cache = open_cache(&options);
    let mut preloads = Vec::with_capacity(options.preloads.len());
    for preload in &options.preloads {
        preloads.push((preload.name.clone(), load(&preload.file, &options, &cache, &mut stats)?));
    }
    let module = load(&options.file, &options, &cache, &mut stats)?;
    drop(cache);
    stats.loaded();
    let wasi = context(&options)?;
    let code = guest::run(&options, &module, preloads, wasi, &mut stats);
    stats.print();
    // As with the store: the process ends now.
    std::mem::forget(module);
    code
}

/// The cache, after telling what is wrong with its settings.
pub fn open_cache(options: &RunOptions) -> mote_store::Store {
    let mut settings = if options.no_cache { Settings::none() } else { Settings::from_environment() };
    settings.program = mote_runtime::program::file().map(PathBuf::from);
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
        return Module::from_file(&file)
            .map_err(|error| Failure::cannot_run(format!("{}: {error}", path.display())));
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

/// Signals keep their default effect: a guest ends at once wherever it stands, and the parent sees by what. Process 1 of a container has
/// no default effects, so there the same is done by handlers.
fn end_on_signals_as_init() {
    if rustix::process::getpid() != rustix::process::Pid::INIT {
        return;
    }
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let always = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        // Without a handler the signal has no effect, as before.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, always);
    }
}
