//! Numbers and records that generated code and the runtime agree on.
//!
//! Every wasm function is compiled to `tailcc R @f(ptr ctx, params…)`. `ctx` is the *context pointer*: where the
//! module defines memory 0 as a plain 32-bit memory, it is also the base address of that memory, so one register
//! serves both. The context block (see [`crate::context`]) lies [`CONTEXT_BELOW`] bytes under it.
//!
//! ```text
//!  ctx - CONTEXT_BELOW      context block (read-write, a few pages)
//!  ...                      unmapped; at least LOW_GUARD bytes directly below ctx are never mapped
//!  ctx                      memory 0 (when owned): up to 4 GiB accessible
//!  ctx + 4 GiB              unmapped guard up to MEMORY_RESERVE
//! ```

/// Distance from the start of the context block up to the context pointer, in bytes.
pub const CONTEXT_BELOW: u64 = 0x5000_0000 - CONTEXT_IN_PAGE;

/// Where in a page the context block begins: a stack that grows down from there shares the page, half of it for each.
pub const CONTEXT_IN_PAGE: u64 = 2048;

/// Bytes directly below a linear memory's base that are never mapped: negative sums of addresses end here.
pub const LOW_GUARD: u64 = 1 << 30;

/// Largest size of a context block, so that it never reaches the low guard.
pub const CONTEXT_MAX: u64 = CONTEXT_BELOW - LOW_GUARD;

/// Address space reserved from a 32-bit memory's base upwards: 4 GiB, then a guard that takes static offsets.
pub const MEMORY_RESERVE: u64 = (6 << 30) + WASM_PAGE;

/// Static offsets (plus access size) below this need no check on 32-bit memories: the guard takes them.
pub const OFFSET_GUARD: u64 = 2 << 30;

/// Generated code moves a constant of up to this many bytes out of the 32-bit sum of an address (`cpp/offsets.cpp` of the
/// compiler has the proof). Where that changes the sum, both the old and the new address must be outside of every memory.
pub const OFFSET_SPAN: u64 = 1 << 16;

/// Largest byte length of a memory with 32-bit addresses: four [`OFFSET_SPAN`]s less than 4 GiB.
pub const MEMORY32_MAX: u64 = (4 << 30) - 4 * OFFSET_SPAN;

/// Bytes in a WebAssembly page.
pub const WASM_PAGE: u64 = 65536;

/// Largest byte length of a memory with 64-bit addresses that a compiled module may ask to reserve.
pub const MEMORY64_MAX: u64 = 1 << 40;

/// Values that cross between host and guest travel in slots of this many bytes (a `v128` fits), little-endian,
/// unused upper bytes undefined.
pub const SLOT_BYTES: u64 = 16;

/// Results beyond this number travel through a buffer of the caller's instead of registers.
///
/// A function with at most this many results returns them directly (one value, or a struct of two). A function with
/// more returns `void` and has one more parameter, the last: the address of one slot ([`SLOT_BYTES`]) per result, which it
/// fills right before it returns. A tail call passes the caller's own buffer on: both have the same results.
pub const MAX_DIRECT_RESULTS: usize = 2;

/// Offsets of the fixed words at the start of the context block.
pub mod header {
    /// [`super::CONTEXT_MAGIC`].
    pub const MAGIC: u64 = 0;
    /// The runtime's store that this instance lives in (opaque to generated code).
    pub const STORE: u64 = 8;
    /// Address of the table of built-in functions, an array of code addresses indexed by [`super::Builtin`].
    pub const BUILTINS: u64 = 16;
    /// The runtime's instance (opaque to generated code).
    pub const INSTANCE: u64 = 24;
    /// Bytes of the fixed header.
    pub const SIZE: u64 = 64;
}

/// First word of every context block.
pub const CONTEXT_MAGIC: u64 = u64::from_le_bytes(*b"motectx\0");

/// A linear memory as the generated code reads it; offsets of its fields.
///
/// One lives in the context block of the instance that defines the memory (or on the heap when the memory is the host's
/// or shared). `base` never changes. `byte_len` grows, with release ordering when the memory is shared.
pub mod memory_def {
    /// Base address.
    pub const BASE: u64 = 0;
    /// Current length in bytes.
    pub const BYTE_LEN: u64 = 8;
    /// Bytes of the record.
    pub const SIZE: u64 = 16;
}

/// A memory slot of the context block: one per memory index, imported or defined.
pub mod memory_slot {
    /// Base address (invariant for the life of the instance).
    pub const BASE: u64 = 0;
    /// Address of the [`super::memory_def`] (invariant).
    pub const DEF: u64 = 8;
    /// Bytes of the record.
    pub const SIZE: u64 = 16;
}

/// A table as generated code reads it. Elements are 8 bytes: a funcref is the address of a [`func_ref`] or 0 for null;
/// an externref is an opaque word or 0 for null; an exnref is the address of an [`exception`] or 0 for null.
///
/// Slot `len` (one past the last element) always exists and is 0: an index clamped to `len` reads null.
pub mod table_def {
    /// Address of element 0.
    pub const ELEMENTS: u64 = 0;
    /// Number of elements.
    pub const LEN: u64 = 8;
    /// Bytes of the record.
    pub const SIZE: u64 = 16;
}

/// An imported function as generated code calls it: `tailcc code(ctx, params…)`.
pub mod func_import {
    /// Code address.
    pub const CODE: u64 = 0;
    /// First argument: the callee's context pointer, or the address of a [`super::host_func`].
    pub const CTX: u64 = 8;
    /// Bytes of the record.
    pub const SIZE: u64 = 16;
}

/// What a non-null funcref points to.
pub mod func_ref {
    /// Code address, as in [`super::func_import`].
    pub const CODE: u64 = 0;
    /// Context argument, as in [`super::func_import`].
    pub const CTX: u64 = 8;
    /// The canonical type identifier (u32, zero-extended): equal if and only if the function types are equal.
    pub const TYPE_ID: u64 = 16;
    /// The runtime's own word.
    pub const OWNER: u64 = 24;
    /// Bytes of the record.
    pub const SIZE: u64 = 32;
}

/// A host function as generated code reads it. `ctx` of a host function's import or funcref is the address of one.
pub mod host_func {
    /// Address of the runtime's array-calling stub: `ccc void stub(ptr host_func, ptr slots)`.
    ///
    /// The `host` thunk of a function type (see [`crate::info::ThunkInfo`]) writes the arguments to slots, calls this, and
    /// reads the results from the same slots. It does not return when the host function traps.
    pub const ARRAY_STUB: u64 = 0;
}

/// What a non-null exnref points to.
pub mod exception {
    /// The tag's identity: compared with the words of the context's tag array.
    pub const TAG: u64 = 0;
    /// A u64 that generated code sets to 1 when a handler takes a reference to the exception (`catch_ref`, `catch_all_ref`):
    /// from then on [`super::Builtin::ExceptionFree`] must leave it alone.
    pub const ESCAPED: u64 = 8;
    /// First payload slot ([`super::SLOT_BYTES`] each).
    pub const PAYLOAD: u64 = 16;
}

/// Functions of the runtime that generated code calls through the context's built-in table, `ccc`, first argument `ctx`.
/// All other arguments and results are integers in registers. They run on the host's stack and may not return (trap, throw).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Builtin {
    /// `(ctx, memory: i32, delta_pages: i64) -> i64`: previous size in pages, or -1.
    MemoryGrow = 0,
    /// `(ctx, memory: i32, segment: i32, dst: i64, src: i32, len: i32)`; traps when out of bounds.
    MemoryInit = 1,
    /// `(ctx, segment: i32)`.
    DataDrop = 2,
    /// `(ctx, table: i32, init: i64, delta: i64) -> i64`: previous length, or -1.
    TableGrow = 3,
    /// `(ctx, table: i32, segment: i32, dst: i64, src: i32, len: i32)`; traps when out of bounds.
    TableInit = 4,
    /// `(ctx, segment: i32)`.
    ElemDrop = 5,
    /// `(ctx, table: i32, start: i64, value: i64, len: i64)`; traps when out of bounds.
    TableFill = 6,
    /// `(ctx, dst_table: i32, src_table: i32, dst: i64, src: i64, len: i64)`; traps when out of bounds.
    TableCopy = 7,
    /// `(ctx, memory: i32, address: i64, expected: i32, timeout_ns: i64) -> i32`. `address` has the static offset added
    /// (saturating); bounds and alignment are checked by the runtime.
    AtomicWait32 = 8,
    /// `(ctx, memory: i32, address: i64, expected: i64, timeout_ns: i64) -> i32`.
    AtomicWait64 = 9,
    /// `(ctx, memory: i32, address: i64, count: i32) -> i32`.
    AtomicNotify = 10,
    /// `(ctx, tag: i32, slots: ptr) -> i64`: allocates an exception with the payload in `slots`; traps at the limit.
    ExceptionNew = 11,
    /// `(ctx, exnref: i64)`: unwinds to the next handler; traps when null; never returns.
    Throw = 12,
    /// `(ctx, exnref: i64)`: the exception was caught without a reference to it and its payload has been read: it may be freed
    /// unless [`exception::ESCAPED`] is set.
    ExceptionFree = 13,
}

/// Number of built-in functions.
pub const BUILTIN_COUNT: usize = 14;

/// Why a guest stopped. Explicit traps are `llvm.ubsantrap(code)`; the fault handler reads the code from the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TrapCode {
    /// `unreachable` was executed.
    Unreachable = 1,
    /// Division or remainder by zero.
    IntegerDivideByZero = 2,
    /// Signed division overflow or a float too large for the integer type.
    IntegerOverflow = 3,
    /// A NaN converted to an integer.
    InvalidConversionToInteger = 4,
    /// A memory access outside the memory.
    MemoryOutOfBounds = 5,
    /// A table access outside the table.
    TableOutOfBounds = 6,
    /// An indirect call through a null element.
    UninitializedElement = 7,
    /// An indirect call through a table index outside the table.
    UndefinedElement = 8,
    /// An indirect call to a function of another type.
    IndirectCallTypeMismatch = 9,
    /// An atomic access that is not aligned.
    UnalignedAtomic = 10,
    /// `throw_ref` on null, or another use of a null reference.
    NullReference = 11,
    /// The guest's stack is exhausted.
    StackOverflow = 12,
    /// An atomic wait on a memory that is not shared.
    ExpectedSharedMemory = 13,
    /// An exception that no handler caught.
    UncaughtException = 14,
    /// The guest was stopped by a deadline or a cancellation.
    Interrupted = 15,
    /// A limit on exceptions, tables or memory that the host set was reached where the guest cannot be told otherwise.
    ResourceLimit = 16,
}

impl TrapCode {
    /// The code that a trap instruction carries.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Unreachable,
            2 => Self::IntegerDivideByZero,
            3 => Self::IntegerOverflow,
            4 => Self::InvalidConversionToInteger,
            5 => Self::MemoryOutOfBounds,
            6 => Self::TableOutOfBounds,
            7 => Self::UninitializedElement,
            8 => Self::UndefinedElement,
            9 => Self::IndirectCallTypeMismatch,
            10 => Self::UnalignedAtomic,
            11 => Self::NullReference,
            12 => Self::StackOverflow,
            13 => Self::ExpectedSharedMemory,
            14 => Self::UncaughtException,
            15 => Self::Interrupted,
            16 => Self::ResourceLimit,
            _ => return None,
        })
    }

    /// The specification's words for this trap, as its test suite expects them.
    pub fn message(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::IntegerDivideByZero => "integer divide by zero",
            Self::IntegerOverflow => "integer overflow",
            Self::InvalidConversionToInteger => "invalid conversion to integer",
            Self::MemoryOutOfBounds => "out of bounds memory access",
            Self::TableOutOfBounds => "out of bounds table access",
            Self::UninitializedElement => "uninitialized element",
            Self::UndefinedElement => "undefined element",
            Self::IndirectCallTypeMismatch => "indirect call type mismatch",
            Self::UnalignedAtomic => "unaligned atomic",
            Self::NullReference => "null reference",
            Self::StackOverflow => "call stack exhausted",
            Self::ExpectedSharedMemory => "expected shared memory",
            Self::UncaughtException => "unhandled exception",
            Self::Interrupted => "interrupted",
            Self::ResourceLimit => "resource limit exceeded",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trap_codes_round_trip() {
        let mut known = 0;
        for byte in 0..=u8::MAX {
            if let Some(code) = TrapCode::from_byte(byte) {
                assert_eq!(code as u8, byte);
                assert!(!code.message().is_empty());
                known += 1;
            }
        }
        assert_eq!(known, 16);
    }

    #[test]
    fn the_context_block_cannot_reach_the_low_guard() {
        assert_eq!(CONTEXT_BELOW - CONTEXT_MAX, LOW_GUARD);
        const { assert!(4 * OFFSET_SPAN <= LOW_GUARD) };
        assert!(CONTEXT_BELOW < i32::MAX as u64, "context fields are reached by a 32-bit displacement");
    }
}
