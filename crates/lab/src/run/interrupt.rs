//! Ctrl-C: the first ends the run after what is running was killed, keeping what was measured; the second ends the lab at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The exit code of a run that was interrupted, as shells have it for SIGINT.
pub const EXIT_CODE: u8 = 130;

/// Whether the user wants an end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes SIGINT and SIGTERM from now on.
    pub fn install() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, EXIT_CODE.into(), Arc::clone(&interrupt.0))
                .and_then(|_| flag::register(signal, Arc::clone(&interrupt.0)))
                .context("cannot take signals")?;
        }
        Ok(interrupt)
    }

    /// Whether a signal came.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
