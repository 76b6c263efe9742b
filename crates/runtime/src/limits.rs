//! Every limit that a store sets on its guests, with its default.

/// Limits of one [`crate::Store`].
///
/// ```
/// use mote_runtime::{Limits, Store};
/// let mut limits = Limits::default();
/// limits.memory_bytes = 64 << 20;
/// let store = Store::with_limits((), limits);
/// assert_eq!(store.limits().memory_bytes, 64 << 20);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Largest byte length of one linear memory. A module whose memory begins larger is refused; `memory.grow` past it
    /// returns -1. A memory with 32-bit addresses ends 256 KiB (65532 pages) before 4 GiB in any case. For memories with 64-bit addresses this much address space is reserved.
    pub memory_bytes: u64,
    /// Largest number of elements of one table.
    pub table_elements: u64,
    /// Largest number of instances.
    pub instances: usize,
    /// Largest number of memories over all instances.
    pub memories: usize,
    /// Largest number of tables over all instances.
    pub tables: usize,
    /// Bytes of stack that a guest may use; rounded up to whole pages.
    pub stack_bytes: usize,
    /// How deep calls host → guest → host → guest … may nest: each level also takes stack of the host.
    pub nested_calls: u32,
    /// Largest number of exception objects alive at once.
    pub exceptions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 4 << 30,
            table_elements: 10_000_000,
            instances: 10_000,
            memories: 10_000,
            tables: 10_000,
            stack_bytes: 4 << 20,
            nested_calls: 100,
            exceptions: 100_000,
        }
    }
}
