//! How `mote` ends: exit codes, and the one line that goes before.

use std::fmt;

/// Mote itself failed.
pub const FAILED: u8 = 125;
/// The module cannot run.
pub const CANNOT_RUN: u8 = 126;
/// The file is not there.
pub const NOT_FOUND: u8 = 127;
/// The guest trapped: what a shell shows for a process that aborted.
pub const TRAPPED: u8 = 134;
/// The command line is wrong. `mote run` says [`FAILED`] instead: 2 may be its guest's.
pub const USAGE: u8 = 2;

/// The end of a command that did not succeed.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub code: u8,
    /// One line; empty when everything was said.
    pub message: String,
}

impl Failure {
    pub fn new(code: u8, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }

    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(USAGE, message)
    }

    pub fn own(message: impl fmt::Display) -> Self {
        Self::new(FAILED, message)
    }

    pub fn cannot_run(message: impl fmt::Display) -> Self {
        Self::new(CANNOT_RUN, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<mote_store::ModuleError> for Failure {
    fn from(error: mote_store::ModuleError) -> Self {
        use mote_store::ModuleError;
        let code = match error {
            ModuleError::NotFound { .. } => NOT_FOUND,
            ModuleError::Unreadable { .. } | ModuleError::Directory { .. } | ModuleError::TooLarge { .. } => {
                CANNOT_RUN
            }
        };
        Self::new(code, error)
    }
}

impl From<mote_store::StoreError> for Failure {
    fn from(error: mote_store::StoreError) -> Self {
        use mote_store::StoreError;
        match error {
            StoreError::Module(error) => error.into(),
            StoreError::Invalid { .. } => Self::cannot_run(error),
            _ => Self::own(error),
        }
    }
}
