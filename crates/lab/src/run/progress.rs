//! What is being done and how long it will take: a bar on a terminal, a line per phase elsewhere.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Shown on standard error.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A bar when standard error is a terminal.
    pub fn new() -> Progress {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            if let Ok(style) = ProgressStyle::with_template("{prefix:>18} {bar:30} {pos:>4}/{len:<4} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Progress { bar }
    }

    /// Something with so many steps begins.
    pub fn phase(&self, name: &str, steps: usize) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(steps as u64);
                bar.set_position(0);
                bar.set_prefix(name.to_string());
            }
            None => eprintln!("mote-lab: {name}, {steps} steps"),
        }
    }

    /// The next step begins.
    pub fn step(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_string());
            bar.inc(1);
        }
    }

    /// The next step begins; all that follows will take about so long, as far as is known.
    pub fn step_with_time_left(&self, what: &str, left: Duration) {
        if left.is_zero() {
            return self.step(what);
        }
        self.step(&format!("{} left  {what}", short(left)));
    }

    /// Nothing follows.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Minutes and seconds, or hours and minutes.
fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let shown = [5, 65, 7265].map(|seconds| short(Duration::from_secs(seconds)));
        assert_eq!(shown, ["5 s", "1 min 05 s", "2 h 01 min"]);
    }
}
