//! What can be seen of a module's run, in words that belong to neither engine.

use crate::{Difference, Verdict};

/// A value, with floats and vectors as bits and references as whether they are null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// 32-bit integer.
    I32(u32),
    /// 64-bit integer.
    I64(u64),
    /// Bits of a 32-bit float.
    F32(u32),
    /// Bits of a 64-bit float.
    F64(u64),
    /// 128-bit vector.
    V128(u128),
    /// A function reference; whether it is null.
    FuncRef(bool),
    /// A host reference; whether it is null.
    ExternRef(bool),
}

/// Why a call did not return. Engines name the ways of failing to call indirectly differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `unreachable`, or no fuel left.
    Unreachable,
    /// An access outside of a memory.
    MemoryOutOfBounds,
    /// An access outside of a table, an indirect call through an index outside of it included.
    TableOutOfBounds,
    /// An indirect call through a null element.
    NullElement,
    /// An indirect call to a function of another type.
    BadSignature,
    /// Division by zero.
    DivisionByZero,
    /// Overflow of a division or a conversion.
    IntegerOverflow,
    /// A NaN converted to an integer.
    BadConversion,
    /// Too many calls.
    StackOverflow,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With these results.
    Returned(Vec<Value>),
    /// With this trap.
    Trapped(End),
}

/// What is left when all calls were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Contents of exported memories.
    pub memories: Vec<(String, Vec<u8>)>,
    /// Values of exported globals.
    pub globals: Vec<(String, Value)>,
    /// Elements of exported tables.
    pub tables: Vec<(String, Vec<Value>)>,
}

impl State {
    /// Engines list exports in different orders.
    pub(crate) fn sort(&mut self) {
        self.memories.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.globals.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.tables.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
}

/// What could be seen of a module's run.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Instantiation (`start`, without results), then each call by name, each with the state of the module after it. After a
    /// trap the next call finds a new instance, whose start is a step again.
    pub steps: Vec<(String, Outcome, State)>,
}

/// Compares what Mote did with what was expected.
///
/// Without strict traps, a plain store may be moved past an access that traps: after a trap on a memory access what is in
/// memory and globals is not compared.
pub(crate) fn compare(expected: &Trace, found: &Trace, strict_traps: bool) -> Result<Verdict, Difference> {
    for (expected, found) in expected.steps.iter().zip(&found.steps) {
        let (name, outcome, state) = expected;
        let (_, found_outcome, found_state) = found;
        let overflow = Outcome::Trapped(End::StackOverflow);
        if *outcome == overflow || *found_outcome == overflow {
            // How deep calls may go is each engine's own.
            return Ok(Verdict::Inconclusive("stack overflow"));
        }
        if outcome != found_outcome {
            return Err(Difference(format!("{name}: expected {outcome:?}, got {found_outcome:?}")));
        }
        if !strict_traps && *outcome == Outcome::Trapped(End::MemoryOutOfBounds) {
            continue;
        }
        if let Some(difference) = state_difference(state, found_state) {
            return Err(Difference(format!("after {name}: {difference}")));
        }
    }
    if expected.steps.len() != found.steps.len() {
        return Err(Difference(format!("{} steps, expected {}", found.steps.len(), expected.steps.len())));
    }
    Ok(Verdict::Same)
}

fn state_difference(expected: &State, found: &State) -> Option<String> {
    for ((name, expected), (_, found)) in expected.memories.iter().zip(&found.memories) {
        if expected.len() != found.len() {
            return Some(format!("memory {name} has {} bytes, expected {}", found.len(), expected.len()));
        }
        if expected != found {
            let at = expected.iter().zip(found).position(|(a, b)| a != b)?;
            let end = (at + 16).min(expected.len());
            let (expected, found) = (expected.get(at..end), found.get(at..end));
            return Some(format!("memory {name} at {at:#x}: expected {expected:02x?}, got {found:02x?}"));
        }
    }
    for (expected, found) in expected.globals.iter().zip(&found.globals) {
        if expected != found {
            return Some(format!("global: expected {expected:x?}, got {found:x?}"));
        }
    }
    for ((name, expected), (_, found)) in expected.tables.iter().zip(&found.tables) {
        if expected != found {
            return Some(format!("table {name}: expected {expected:?}, got {found:?}"));
        }
    }
    (expected.memories.len() != found.memories.len()
        || expected.globals.len() != found.globals.len()
        || expected.tables.len() != found.tables.len())
    .then(|| "exports differ".to_owned())
}
