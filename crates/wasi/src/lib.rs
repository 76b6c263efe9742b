//! WASI preview 1: what a guest sees of its host.
//!
//! A [`WasiCtxBuilder`] says what a guest gets: arguments, environment, directories, standard streams, sockets. The
//! [`WasiCtx`] it builds has one method per function of the interface, 46 in all, each over a [`GuestMemory`]: any engine's
//! memory will do. A method checks what the guest passed, does its work in a few system calls straight on the guest's memory,
//! and returns an [`Error`]: a number for the guest, or the guest's end.
//!
//! | file | what is in it |
//! |---|---|
//! | `memory`, `iovec` | the checked view of a guest's memory, and vectored transfers without copies |
//! | `witx` | constants and record layouts of both revisions of the interface |
//! | `context`, `descriptor`, `pipe` | what a guest has: strings, limits, the table of descriptors, streams in memory |
//! | `sandbox` | paths beneath a directory and never outside |
//! | `file`, `directory`, `path`, `process`, `socket`, `poll` | the functions |
//! | `linker` | the functions as imports of a module that Mote's runtime runs |
//! | `wait`, `interrupt` | where a guest blocks, and how that is ended from outside |
//!
//! There is no async runtime: a call that waits blocks its thread in `ppoll`, and an [`Interrupt`] ends it.

#![forbid(unsafe_code)]

mod context;
mod descriptor;
mod directory;
mod errno;
mod file;
mod interrupt;
mod iovec;
#[cfg(feature = "runtime")]
mod linker;
mod memory;
mod path;
mod pipe;
mod poll;
mod process;
mod sandbox;
mod socket;
#[cfg(test)]
mod testing;
mod wait;
mod witx;

pub use context::{BuildError, Limits, Stdio, WasiCtx, WasiCtxBuilder};
pub use errno::{Errno, Error};
pub use interrupt::Interrupt;
#[cfg(feature = "runtime")]
pub use linker::{add_to_linker, add_wanted_to_linker};
pub use memory::{GuestMemory, OutOfBounds};
pub use pipe::{InputPipe, OutputPipe};
pub use witx::{Abi, Filetype, rights};
