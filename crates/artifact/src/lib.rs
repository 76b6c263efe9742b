//! The compiled module on disk, and the contract that compiled code and the runtime share.
//!
//! Data passes through this crate in one direction: `compiler` fills a [`ModuleInfo`] and links machine code,
//! the writer lays both out as one ELF file, and the loader maps that file and lets `runtime` read every table in
//! place. [`abi`] and [`context`] are the contract itself: numbers that generated code has built in.

pub mod abi;
pub mod context;
pub mod info;

pub use context::{ContextLayout, ModuleCounts};
pub use info::ModuleInfo;
