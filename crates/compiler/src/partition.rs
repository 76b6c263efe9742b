//! Which functions are compiled together, and how hard LLVM tries on each.
//!
//! A partition is one LLVM module: functions are inlined within one, and partitions are compiled in parallel. Both the
//! tier of a function and the cut between partitions depend on sizes and indices alone.

use crate::OptLevel;
use crate::limits::{FULL_TIER, LIGHT_MODULE_BYTES, LIGHT_TIER, OPTIMIZED_FUNCTIONS, OPTIMIZED_MODULE_BYTES};
use crate::parse::Body;

/// Bytes of function bodies after which a partition is full.
const PARTITION_BYTES: u64 = 96 << 10;

/// Functions after which a partition is full.
const PARTITION_FUNCTIONS: usize = 2000;

/// Functions that are compiled together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Positions in the list of bodies.
    pub(crate) functions: Vec<usize>,
    /// How they are compiled.
    pub(crate) level: OptLevel,
    /// Bytes of their bodies.
    pub(crate) bytes: u64,
}

/// Cuts the list of bodies.
pub(crate) fn partition(bodies: &[Body<'_>], level: OptLevel) -> Vec<Partition> {
    let total: u64 = bodies.iter().map(|body| body.size.bytes).sum();
    let level = if bodies.len() > OPTIMIZED_FUNCTIONS || total > OPTIMIZED_MODULE_BYTES {
        OptLevel::O0
    } else if total > LIGHT_MODULE_BYTES {
        level.min(OptLevel::O1)
    } else {
        level
    };
    let mut full = Vec::new();
    for tier in [OptLevel::O3, OptLevel::O1, OptLevel::O0] {
        let mut open: Option<Partition> = None;
        for (position, body) in bodies.iter().enumerate().filter(|(_, body)| tier_of(body, level) == tier) {
            let part = open.get_or_insert_with(|| Partition { functions: Vec::new(), level: tier, bytes: 0 });
            part.functions.push(position);
            part.bytes += body.size.bytes;
            if part.bytes >= PARTITION_BYTES || part.functions.len() >= PARTITION_FUNCTIONS {
                full.extend(open.take());
            }
        }
        full.extend(open);
    }
    full
}

/// The level asked for, or a cheaper one for a function that is too large for it.
fn tier_of(body: &Body<'_>, level: OptLevel) -> OptLevel {
    let affordable = if body.size.fits(&FULL_TIER) {
        OptLevel::O3
    } else if body.size.fits(&LIGHT_TIER) {
        OptLevel::O1
    } else {
        OptLevel::O0
    };
    level.min(affordable)
}
