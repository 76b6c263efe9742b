//! The compiled module on disk, and the contract that compiled code and the runtime share.
//!
//! Data passes through this crate in one direction: `compiler` fills a [`ModuleInfo`] and links machine code,
//! the writer lays both out as one ELF file, and the loader maps that file and lets `runtime` read every table in
//! place. [`abi`] and [`context`] are the contract itself: numbers that generated code has built in.

// Constants and conversions of records that only the writer uses.
#![cfg_attr(not(feature = "write"), allow(dead_code))]

pub mod abi;
pub mod code;
pub mod context;
mod cpu;
pub mod format;
pub mod info;
pub mod inlined;
pub mod lines;
mod load;
mod map;
#[cfg(feature = "write")]
mod parts;
mod sections;
#[cfg(feature = "write")]
mod tables;
mod verify;
pub mod view;
#[cfg(feature = "write")]
mod write;

pub use code::LinkedCode;
pub use context::{ContextLayout, ModuleCounts};
pub use cpu::{host_has, host_signature};
pub use info::ModuleInfo;
pub use load::{Artifact, CodeFrame, LoadError};
pub use sections::Section;
#[cfg(feature = "write")]
pub use write::{WriteError, write};
