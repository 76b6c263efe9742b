//! What a person sees while a module is being compiled.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use mote_store::Event;

/// A compile that is done before this needs no bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// Columns of the bar itself.
const BAR: u64 = 30;

/// Turns the store's events into remarks and, on a terminal, a bar.
#[derive(Debug)]
pub struct Progress {
    started: Option<Instant>,
    terminal: bool,
    quiet: bool,
    drawn: bool,
}

impl Progress {
    pub fn new(quiet: bool) -> Self {
        Self { started: None, terminal: false, quiet, drawn: false }
    }

    /// Takes an event.
    pub fn event(&mut self, event: Event) {
        if self.quiet {
            return;
        }
        match event {
            Event::Uncached(why) => self.remark(format_args!("not cached: {why}")),
            Event::Rebuild(why) => {
                self.remark(format_args!("compiling again: the cache's entry is unfit: {why}"))
            }
            Event::Waiting => {
                self.remark(format_args!("waiting for another process that compiles this module"))
            }
            Event::Compiling => {
                self.started = Some(Instant::now());
                self.terminal = io::stderr().is_terminal();
            }
            Event::Progress { done, total } => self.draw(done, total),
            Event::Compiled => self.clear(),
        }
    }

    /// Removes the bar, when there is one.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    fn remark(&mut self, remark: std::fmt::Arguments<'_>) {
        self.clear();
        // Nothing better can be done when standard error is closed.
        let _ = writeln!(io::stderr(), "mote: {remark}");
    }

    fn draw(&mut self, done: u64, total: u64) {
        if !self.terminal || total == 0 || self.started.is_none_or(|started| started.elapsed() < PATIENCE) {
            return;
        }
        self.drawn = true;
        let _ = write!(io::stderr(), "\r{}\x1b[K", bar(done, total));
    }
}

fn bar(done: u64, total: u64) -> String {
    let done = done.min(total);
    let share = |of: u64| u128::from(done) * u128::from(of) / u128::from(total.max(1));
    let filled = usize::try_from(share(BAR)).unwrap_or(0);
    let empty = usize::try_from(BAR).unwrap_or(0).saturating_sub(filled);
    format!("mote: compiling [{}{}] {:3} %", "#".repeat(filled), ".".repeat(empty), share(100))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_bar_fills_and_never_overflows() {
        assert_eq!(super::bar(0, 10), format!("mote: compiling [{}]   0 %", ".".repeat(30)));
        assert_eq!(super::bar(u64::MAX, u64::MAX), format!("mote: compiling [{}] 100 %", "#".repeat(30)));
        assert!(super::bar(11, 10).ends_with("100 %"));
        assert!(super::bar(5, 10).ends_with(" 50 %"));
    }
}
