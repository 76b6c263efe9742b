//! Runs compiled WebAssembly modules.
//!
//! A [`Module`] is a mapped artifact. A [`Linker`] finds what it imports and makes an [`Instance`] in a [`Store`]: a context block, a
//! range of reserved address space, and mappings of the artifact; nothing is copied. Guests run on stacks of their own (fibers), so
//! that a host function can suspend them and a timer can stop them wherever they stand; a fault in guest code becomes a [`Trap`], which
//! unwinds guest frames only.
//!
//! How a call passes through: [`TypedFunc::call`] writes arguments to slots and enters a fiber; the artifact's entry thunk loads them
//! into registers and calls the function; a call of an import goes through the artifact's host thunk and the runtime's stub back onto
//! the host's stack; results return the same way.

mod allocator;
mod arch;
mod atomics;
mod backtrace;
mod builtins;
mod canonical_types;
mod code;
mod const_expr;
mod deadline;
mod exception;
mod execution;
mod fiber;
mod func;
mod global;
mod imports;
mod instance;
mod limits;
mod linker;
mod mapping;
mod memory;
mod module;
mod pages;
pub mod program;
mod reset;
mod segments;
mod signals;
#[cfg(feature = "snapshot")]
mod snapshot;
mod store;
mod table;
mod tag;
mod trap;
mod unwind;
mod value;

pub use allocator::SmallHeap;
pub use deadline::{Interrupt, InterruptHandle};
pub use execution::{Execution, Step};
pub use func::{Func, FuncTypeError, HostFunc, HostResult, IntoHostFunc, TypedFunc};
pub use global::{Global, GlobalError, GlobalType};
pub use instance::{ExportError, Extern, Instance, InstantiateError};
pub use limits::Limits;
pub use linker::Linker;
pub use memory::{Memory, MemoryAccessError, MemoryError, MemoryType, SharedMemory};
pub use module::{ExportType, ExternType, ImportType, Module};
pub use mote_artifact::{Artifact, LoadError};
pub use reset::ResetError;
#[cfg(feature = "snapshot")]
pub use snapshot::{SnapshotError, SnapshotOptions};
pub use store::{AsStore, AsStoreMut, Caller, Store, StoreId};
pub use table::{Table, TableError, TableType};
pub use tag::Tag;
pub use trap::{Frame, HostError, Trap, TrapCode};
pub use value::{ExnRef, ExternRef, FuncType, Val, ValueType, WasmValue, WasmValues};
