//! Runs the WebAssembly specification's test scripts (`.wast`) on Mote.
//!
//! A script is a list of directives: modules to instantiate, calls, and assertions about their results, traps and errors.
//! [`run`] goes through one: each module's text is encoded, compiled to an artifact in this process, loaded and
//! instantiated; each directive ends as passed, failed or skipped in the [`Report`]. What may be skipped, and why, stands
//! in one list ([`Skips`]).

#![forbid(unsafe_code)]

mod expect;
mod host;
mod script;
mod skips;

pub use script::{Failure, Report, run};
pub use skips::{Skip, Skips};

/// How scripts are run.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How modules are compiled.
    pub options: mote_compiler::Options,
    /// Only compile: calls and what depends on their results are left out.
    pub compile_only: bool,
}
