//! What can go wrong, in words for the user.

use std::io;
use std::path::PathBuf;

/// A module file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// There is no such file.
    #[error("{}: no such file", path.display())]
    NotFound {
        /// As the user named it.
        path: PathBuf,
    },
    /// It is there and cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// As the user named it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a directory.
    #[error("{}: is a directory", path.display())]
    Directory {
        /// As the user named it.
        path: PathBuf,
    },
    /// It is larger than any module may be.
    #[error("{}: larger than the limit of {limit} bytes", path.display())]
    TooLarge {
        /// As the user named it.
        path: PathBuf,
        /// [`crate::MODULE_MAX_BYTES`].
        limit: u64,
    },
}

/// Why no artifact could be had.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The module file.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The compiler looked at the module and refused it.
    #[error("{module}: {message}")]
    Invalid {
        /// The module's name.
        module: String,
        /// The compiler's own line.
        message: String,
    },
    /// The module was written to while it was being compiled.
    #[error("{module}: changed while it was compiled; run again")]
    Changed {
        /// The module's name.
        module: String,
    },
    /// No compiler was found.
    #[error("mote-compile not found beside {} nor on PATH; set MOTE_COMPILE to its path", beside.display())]
    NoCompiler {
        /// The running program.
        beside: PathBuf,
    },
    /// The compiler could not be started.
    #[error("cannot start {}: {source}", path.display())]
    CannotStart {
        /// The compiler's path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The compiler ended with a failure that is not the module's fault.
    #[error("{module}: the compiler failed: {message}")]
    CompilerFailed {
        /// The module's name.
        module: String,
        /// The compiler's own line, or its exit code.
        message: String,
    },
    /// The compiler was ended by a signal.
    #[error("{module}: the compiler was killed by signal {signal}{hint}")]
    CompilerKilled {
        /// The module's name.
        module: String,
        /// Signal number.
        signal: i32,
        /// What that usually means.
        hint: &'static str,
    },
    /// What the compiler wrote is not what the loader takes.
    #[error("{module}: the compiled artifact cannot be loaded: {message}")]
    Unloadable {
        /// The module's name.
        module: String,
        /// The loader's own line.
        message: String,
    },
    /// The system refused something that no fallback replaces.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The store itself was asked for (to list, prune or clear it) and cannot be used.
    #[error("{reason}")]
    Unusable {
        /// Why, with what to do.
        reason: String,
    },
}
