//! Standard output of Mote's own commands.

use std::io::{self, ErrorKind, Write};

use crate::exit::Failure;

/// Writes it all. A reader that went away (`mote cache list | head -1`) has what it wanted: that is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::own(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
