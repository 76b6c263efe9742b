//! `--profile`: where a guest spends its time.
//!
//! The guest runs in time slices; at the end of each its stack is looked at, and the processor time since the last look counts for the
//! functions on it. A wait in a host function takes no processor time and so counts for nothing; work that the host does counts for
//! the function that asked for it. Without the flag nothing of this is made.

// No HashMap: its random keys would be a thread's memory in every process, profiled or not.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mote_runtime::{Execution, Frame, Func, Step, Store, Trap, Val};
use mote_wasi::WasiCtx;
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::Failure;
use crate::inspect::printable;

/// A little off a millisecond, so that a guest that does something every millisecond is not always met at the same place.
const SLICE: Duration = Duration::from_micros(997);

/// Different stacks that are kept; time of others counts for [`OTHER`].
const STACKS_MAX: usize = 100_000;

const OTHER: &str = "(other stacks)";

/// Functions in the table.
const TABLE_ROWS: usize = 30;

/// What was seen.
#[derive(Debug, Default)]
pub struct Profile {
    /// Processor time by stack, outermost function first, `;` between: "folded" stacks.
    stacks: BTreeMap<String, Duration>,
    samples: u64,
    /// The signal that asks the process to end; 0 before one came.
    signal: Arc<AtomicUsize>,
}

impl Profile {
    /// Nothing yet. From now on SIGINT and SIGTERM end the guest when it next runs, so that the profile is still told; a second one
    /// ends the process.
    pub fn new() -> Self {
        let profile = Self::default();
        let again = Arc::new(AtomicBool::new(false));
        for (signal, number) in [(SIGINT, 2), (SIGTERM, 15)] {
            // Without the handlers the first signal ends the process without a profile.
            let _ = signal_hook::flag::register_conditional_default(signal, again.clone());
            let _ = signal_hook::flag::register(signal, again.clone());
            let _ = signal_hook::flag::register_usize(signal, profile.signal.clone(), number);
        }
        profile
    }

    /// Calls a function of the guest.
    pub fn call(&mut self, store: &mut Store<WasiCtx>, func: Func, params: &[Val]) -> Result<Vec<Val>, Trap> {
        let mut execution = Execution::new(&mut *store, func, params)?;
        execution.set_time_slice(Some(SLICE));
        loop {
            let before = processor_time();
            let step = execution.resume(&mut *store, &[]);
            let spent = processor_time().saturating_sub(before);
            match step {
                Ok(Step::Finished(results)) => return Ok(results),
                Ok(Step::Preempted) => self.sample(&execution.frames(), spent),
                // No function that this program links suspends its guest.
                Ok(Step::Suspended(_)) => return Err(mote_runtime::TrapCode::Interrupted.into()),
                Err(trap) => {
                    self.sample(&trap.frames(), spent);
                    return Err(trap);
                }
            }
            if self.signal.load(Ordering::Relaxed) != 0 {
                return Err(mote_runtime::TrapCode::Interrupted.into());
            }
        }
    }

    /// `frames`: innermost first.
    fn sample(&mut self, frames: &[Frame], spent: Duration) {
        self.samples += 1;
        let names: Vec<_> = frames.iter().rev().map(name).collect();
        let mut stack = names.join(";");
        if self.stacks.len() >= STACKS_MAX && !self.stacks.contains_key(&stack) {
            stack = OTHER.to_owned();
        }
        *self.stacks.entry(stack).or_default() += spent;
    }

    /// Tells what was seen: a table on standard error, and the stacks to a file. After a signal the process then ends by it.
    pub fn finish(&self, stacks: Option<&Path>) -> Result<(), Failure> {
        // Nothing better can be done when standard error is closed.
        let _ = io::stderr().write_all(self.table().as_bytes());
        if let Some(path) = stacks {
            File::create(path).and_then(|mut file| file.write_all(self.folded().as_bytes())).map_err(
                |error| Failure::own(format!("--profile-stacks: cannot write {}: {error}", path.display())),
            )?;
        }
        match self.signal.load(Ordering::Relaxed) {
            0 => {}
            signal => {
                // The second time the signal has its default effect, which is to end the process.
                let _ = signal_hook::low_level::raise(if signal == 2 { SIGINT } else { SIGTERM });
            }
        }
        Ok(())
    }

    /// A line for each stack: its functions, and its time in microseconds.
    fn folded(&self) -> String {
        let mut text = String::new();
        for (stack, time) in &self.stacks {
            let _ = writeln!(text, "{stack} {}", time.as_micros());
        }
        text
    }

    /// The functions that took the most time by themselves.
    fn table(&self) -> String {
        let total: Duration = self.stacks.values().sum();
        let mut functions: BTreeMap<&str, (Duration, Duration)> = BTreeMap::new();
        for (stack, &time) in &self.stacks {
            let mut seen = BTreeSet::new();
            for name in stack.split(';').filter(|name| seen.insert(*name)) {
                functions.entry(name).or_default().1 += time;
            }
            functions.entry(stack.rsplit(';').next().unwrap_or(stack)).or_default().0 += time;
        }
        let mut rows: Vec<_> = functions.into_iter().collect();
        rows.sort_by(|(a, (a_self, a_total)), (b, (b_self, b_total))| {
            b_self.cmp(a_self).then(b_total.cmp(a_total)).then(a.cmp(b))
        });
        let mut text = format!("mote: profile: {} samples, {total:.2?} of processor time\n", self.samples);
        if rows.is_empty() {
            return text;
        }
        text.push_str("   self   total  function\n");
        let share = |time: Duration| 100.0 * time.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
        for (name, (own, all)) in rows.iter().take(TABLE_ROWS) {
            let _ = writeln!(text, "{:>5.1} % {:>5.1} %  {name}", share(*own), share(*all));
        }
        if rows.len() > TABLE_ROWS {
            let _ = writeln!(text, "                 and {} more", rows.len() - TABLE_ROWS);
        }
        text
    }
}

/// A function's name, without what separates names.
fn name(frame: &Frame) -> String {
    match frame.name.as_str() {
        "" => format!("function {}", frame.function),
        name => printable(name).replace(';', ":"),
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs().try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str) -> Frame {
        Frame { module: String::new(), function: 7, name: name.to_owned(), wasm_offset: None }
    }

    #[test]
    fn time_counts_once_for_each_function_on_a_stack() {
        let mut profile = Profile::default();
        let ms = Duration::from_millis;
        profile.sample(&[frame("leaf"), frame("main")], ms(30));
        profile.sample(&[frame("fib"), frame("fib"), frame("main")], ms(60));
        profile.sample(&[frame("a;b"), frame("")], ms(10));
        assert_eq!(profile.folded(), "function 7;a:b 10000\nmain;fib;fib 60000\nmain;leaf 30000\n");
        let table = profile.table();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[0], "mote: profile: 3 samples, 100.00ms of processor time");
        assert_eq!(lines[2], " 60.0 %  60.0 %  fib");
        assert_eq!(lines[3], " 30.0 %  30.0 %  leaf");
        assert_eq!(lines[4], " 10.0 %  10.0 %  a:b");
        assert_eq!(lines[5], "  0.0 %  90.0 %  main");
    }

    #[test]
    fn stacks_are_bounded() {
        let mut profile = Profile::default();
        for number in 0..STACKS_MAX + 10 {
            profile.sample(&[frame(&format!("f{number}"))], Duration::from_micros(1));
        }
        assert_eq!(profile.stacks.len(), STACKS_MAX + 1);
        assert_eq!(profile.stacks[OTHER], Duration::from_micros(10));
        assert!(profile.table().contains("and 99971 more"));
    }

    #[test]
    fn a_guest_that_was_too_quick_has_no_rows() {
        assert_eq!(Profile::default().table(), "mote: profile: 0 samples, 0.00ns of processor time\n");
    }
}
