//! The node's cache of compiled modules.
//!
//! A caller has a module (a file) and wants its artifact, loaded. [`Store::obtain`] passes through these stages and stops at
//! the first that gives one:
//!
//! 1. *Index*: the module's device, inode, size and times, with the compiler's, name a link that names the entry. The module is
//!    neither read nor hashed, and nothing is written.
//! 2. *Entry*: the SHA-256 of module, compiler, options and CPU names the file that holds the artifact.
//! 3. *Compile*: under a lock of the entry's own, so that of many processes one compiles and the others wait for its result. The
//!    program `mote-compile` writes into memory; the result is then copied into the store, synced and renamed into place.
//!
//! What is found is never trusted for being there: an entry that is not the caller's own regular file, that others may write, or
//! that the caller's loader refuses is deleted and built again. Whatever the directory's state, a module can run: where the
//! store cannot be used the artifact stays in memory and [`Event::Uncached`] says why.

#![forbid(unsafe_code)]

mod compile;
mod directory;
mod error;
mod evict;
mod key;
mod limits;
mod location;
mod lock;
mod memory_file;
mod module;
mod obtain;

pub use compile::Compiler;
pub use error::{ModuleError, StoreError};
pub use evict::{Entry, Pruned};
pub use key::{OptLevel, Options};
pub use limits::{CAPACITY_BYTES, MODULE_MAX_BYTES};
pub use location::{Settings, default_directory, parse_bytes};
pub use module::Module;
pub use obtain::{Event, Refusal, Store};
