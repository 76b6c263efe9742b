//! `--stats`: where the time went, and how much memory it took.

use std::fs;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use mote_store::Event;

use crate::values::shown_bytes;

/// What is known so far.
#[derive(Debug)]
pub struct Stats {
    /// When the program began; the clock is asked only when it is wanted.
    started: Option<Instant>,
    compiling: Option<Instant>,
    compiled: Duration,
    load: Duration,
    instantiate: Duration,
    run: Duration,
    memory_bytes: u64,
}

impl Stats {
    pub fn new(wanted: bool) -> Self {
        let zero = Duration::ZERO;
        Self {
            started: wanted.then(Instant::now),
            compiling: None,
            compiled: zero,
            load: zero,
            instantiate: zero,
            run: zero,
            memory_bytes: 0,
        }
    }

    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Compiling => self.compiling = Some(Instant::now()),
            Event::Compiled => {
                self.compiled += self.compiling.take().map_or(Duration::ZERO, |since| since.elapsed())
            }
            _ => {}
        }
    }

    fn elapsed(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| started.elapsed())
    }

    /// The artifacts are mapped.
    pub fn loaded(&mut self) {
        self.load = self.elapsed().saturating_sub(self.compiled);
    }

    /// The instances are there.
    pub fn instantiated(&mut self) {
        self.instantiate = self.elapsed().saturating_sub(self.load + self.compiled);
    }

    /// The guest has ended; its memory was this large.
    pub fn ended(&mut self, memory_bytes: u64) {
        self.run = self.elapsed().saturating_sub(self.load + self.compiled + self.instantiate);
        self.memory_bytes = memory_bytes;
    }

    pub fn print(&self) {
        if self.started.is_none() {
            return;
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kilobytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            line.trim_start_matches(':').trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        };
        let resident = kilobytes("VmHWM").map_or("unknown".to_owned(), |peak| shown_bytes(peak * 1024));
        let compiled = if self.compiled.is_zero() {
            "from the cache".to_owned()
        } else {
            format!("{:.1?}", self.compiled)
        };
        // Nothing better can be done when standard error is closed.
        let _ = writeln!(
            io::stderr(),
            "mote: compile {compiled}, load {:.1?}, instantiate {:.1?}, run {:.1?}; guest memory {}, resident peak {resident}",
            self.load,
            self.instantiate,
            self.run,
            shown_bytes(self.memory_bytes),
        );
    }
}
