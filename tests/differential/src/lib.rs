//! Differential tests: a generated module runs on Mote and on wasmi, and everything that can be seen from outside is
//! compared.
//!
//! ```text
//! seed ──generate──▶ wasm ──┬──mote──▶ Trace ──┐
//!                           └─wasmi──▶ Trace ──┴──▶ compare
//! ```
//!
//! A [`Trace`] is what the start function and each exported function returned or how they trapped, with arguments
//! made from the seed, and at the end the contents of every exported memory, global and table. Modules terminate
//! (wasm-smith adds a counter) and canonicalise their NaNs (wasm-smith again), so that both engines must
//! agree bit by bit.

#![forbid(unsafe_code)]

mod generate;
mod mote;
mod oracle;
mod trace;

use std::fmt;

use mote_compiler::{OptLevel, Options};

pub use generate::{Random, module, module_from_bytes};
pub use trace::{End, Outcome, State, Trace, Value};

/// How two traces differ, or what else went wrong.
#[derive(Clone, Debug)]
pub struct Difference(pub String);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a comparison found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both engines did the same.
    Same,
    /// Nothing to compare: an engine reached a limit of its own.
    Inconclusive(&'static str),
}

/// How a module is compiled for the comparison.
pub fn options(opt_level: OptLevel, strict_traps: bool) -> Options {
    Options { opt_level, strict_traps, ..Options::default() }
}

/// Runs `wasm` on both engines; the arguments of calls come from `seed`.
pub fn compare(wasm: &[u8], seed: u64, options: &Options) -> Result<Verdict, Difference> {
    let expected = match oracle::run(wasm, seed) {
        Ok(trace) => trace,
        Err(reason) => return Ok(Verdict::Inconclusive(reason)),
    };
    let found = match mote::run(wasm, seed, options)? {
        Ok(trace) => trace,
        Err(reason) => return Ok(Verdict::Inconclusive(reason)),
    };
    trace::compare(&expected, &found, options.strict_traps)
}

/// An argument of the same type as `kind`: numbers that programs use and any others.
pub(crate) fn argument(random: &mut Random, kind: Value) -> Value {
    const EDGES: [u64; 8] = [0, 1, 2, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, u64::MAX, 1 << 63];
    let edge = EDGES.get(random.below(16) as usize).copied();
    let bits = edge.unwrap_or_else(|| random.next_word() >> random.below(64));
    match kind {
        Value::I32(_) => Value::I32(bits as u32),
        Value::I64(_) => Value::I64(bits),
        // Numbers, not bits: NaNs come from within, where they are canonicalised.
        Value::F32(_) => Value::F32((bits as i64 as f32).to_bits()),
        Value::F64(_) => Value::F64((bits as i64 as f64).to_bits()),
        Value::V128(_) => Value::V128(u128::from(bits) << 64 | u128::from(random.next_word())),
        null => null,
    }
}

/// Result number `number` of a host function: a hash of what it was called with.
pub(crate) fn host_result(arguments: &[Value], number: usize, kind: Value) -> Value {
    let mut hash = Random::new(number as u64);
    for argument in arguments {
        let word = match *argument {
            Value::I32(bits) | Value::F32(bits) => u64::from(bits),
            Value::I64(bits) | Value::F64(bits) => bits,
            Value::V128(bits) => bits as u64 ^ (bits >> 64) as u64,
            Value::FuncRef(null) | Value::ExternRef(null) => u64::from(null),
        };
        hash = Random::new(hash.next_word() ^ word);
    }
    argument(&mut hash, kind)
}
