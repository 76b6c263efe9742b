//! The laboratory behind `mote-lab`: measures WebAssembly runtimes side by side, from the same bytes, and shows what follows.
//!
//! A *suite* (`suites/*.toml`) names workloads, subjects and metrics. A *peer* (`peers/*.toml`) says how a runtime is found, installed, asked
//! for its version and run. A run records samples ([`record`]); analysis adds estimates and verdicts; tables and the page show them.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod compare;
pub mod corpus;
pub mod install;
pub mod machine;
pub mod options;
pub mod peer;
pub mod record;
pub mod report;
pub mod run;
pub mod statistics;
pub mod suite;
pub mod table;
