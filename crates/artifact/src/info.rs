//! What an artifact says about its module, as the compiler hands it to the writer.
//!
//! The loader does not rebuild this structure: it reads the same facts in place.

use crate::context::ModuleCounts;

/// A WebAssembly value type; its byte is the binary format's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ValueType {
    /// 32-bit integer.
    I32 = 0x7f,
    /// 64-bit integer.
    I64 = 0x7e,
    /// 32-bit float.
    F32 = 0x7d,
    /// 64-bit float.
    F64 = 0x7c,
    /// 128-bit vector.
    V128 = 0x7b,
    /// Nullable reference to a function.
    FuncRef = 0x70,
    /// Nullable reference to something of the host's.
    ExternRef = 0x6f,
    /// Nullable reference to an exception.
    ExnRef = 0x69,
}

impl ValueType {
    /// The type with this byte.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x7f => Self::I32,
            0x7e => Self::I64,
            0x7d => Self::F32,
            0x7c => Self::F64,
            0x7b => Self::V128,
            0x70 => Self::FuncRef,
            0x6f => Self::ExternRef,
            0x69 => Self::ExnRef,
            _ => return None,
        })
    }

    /// Whether it is a reference.
    pub fn is_ref(self) -> bool {
        matches!(self, Self::FuncRef | Self::ExternRef | Self::ExnRef)
    }
}

/// A function type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FuncType {
    /// Parameters.
    pub params: Vec<ValueType>,
    /// Results.
    pub results: Vec<ValueType>,
}

/// Limits of a memory (in pages) or a table (in elements).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Initial size.
    pub min: u64,
    /// Largest size, when declared.
    pub max: Option<u64>,
}

/// The type of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryType {
    /// Size in pages of 64 KiB.
    pub limits: Limits,
    /// Shared between threads.
    pub shared: bool,
    /// Addresses are 64 bits wide.
    pub memory64: bool,
}

/// The type of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableType {
    /// Element type (a reference).
    pub element: ValueType,
    /// Size in elements.
    pub limits: Limits,
    /// Indices are 64 bits wide.
    pub table64: bool,
}

/// The type of a global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalType {
    /// Type of its value.
    pub value: ValueType,
    /// Whether `global.set` is allowed.
    pub mutable: bool,
}

/// A constant expression: the bytes of its operators, `end` included. Operators: the four `const`, `v128.const`,
/// `ref.null`, `ref.func`, `global.get`, and `add`, `sub`, `mul` on integers. Validated by the compiler.
pub type ConstExpr = Vec<u8>;

/// What an import or export is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportKind {
    /// A function of type number N of [`ModuleInfo::types`].
    Function(u32),
    /// A table.
    Table(TableType),
    /// A memory.
    Memory(MemoryType),
    /// A global.
    Global(GlobalType),
    /// A tag whose payload is the parameters of type number N.
    Tag(u32),
}

/// One import, in the module's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Module name.
    pub module: String,
    /// Field name.
    pub name: String,
    /// What is imported.
    pub kind: ImportKind,
}

/// What an export names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExportKind {
    /// Function index.
    Function = 0,
    /// Table index.
    Table = 1,
    /// Memory index.
    Memory = 2,
    /// Global index.
    Global = 3,
    /// Tag index.
    Tag = 4,
}

/// One export, in the module's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Name.
    pub name: String,
    /// What it names.
    pub kind: ExportKind,
    /// Index in the space of `kind`, imports first.
    pub index: u32,
}

/// A function that the module defines (index = imported functions + position).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionInfo {
    /// Its type, a number of [`ModuleInfo::types`].
    pub ty: u32,
    /// Name from the name section (or an export), empty when there is none.
    pub name: String,
    /// Offset of its code from the start of `.text`, in bytes.
    pub code_offset: u64,
    /// Bytes of its code.
    pub code_size: u64,
    /// Offset of its body in the wasm file, in bytes.
    pub wasm_offset: u64,
    /// Bytes of its body in the wasm file.
    pub wasm_size: u64,
}

/// Thunks of one function type; offsets from the start of `.text`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThunkInfo {
    /// Host to guest: `ccc void entry(ptr ctx, ptr code, ptr slots)` calls `code` with `ctx` and the arguments read from `slots`, then
    /// writes the results over `slots` (which also serve as the buffer of a function with many results).
    pub entry: u64,
    /// Guest to host: `tailcc R host(ptr host_func, params…)` (and the result buffer, as any function) writes the arguments to slots on its stack, calls the host function's
    /// array stub, and returns the results read from the slots. `code` of a host function's import or funcref.
    pub host: u64,
}

/// When a segment is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentMode {
    /// Copied at instantiation to this memory or table at the offset of the expression.
    Active {
        /// Memory or table index.
        target: u32,
        /// Offset.
        offset: ConstExpr,
    },
    /// For `memory.init` or `table.init`.
    Passive,
    /// Only declares functions that may be referenced.
    Declared,
}

/// A data segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSegment {
    /// When it is used.
    pub mode: SegmentMode,
    /// Its bytes; empty when `in_image`.
    pub bytes: Vec<u8>,
    /// Its bytes are part of the memory's [`ImageChunk`]s already: nothing to copy, and it counts as dropped.
    pub in_image: bool,
}

/// An element segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementSegment {
    /// When it is used.
    pub mode: SegmentMode,
    /// Type of its elements.
    pub element: ValueType,
    /// Its elements.
    pub items: ElementItems,
}

/// Elements of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementItems {
    /// Function indices.
    Functions(Vec<u32>),
    /// Constant expressions.
    Expressions(Vec<ConstExpr>),
}

/// A page-aligned piece of a memory's initial contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageChunk {
    /// Memory index.
    pub memory: u32,
    /// Byte address in the memory, a multiple of 4096.
    pub address: u64,
    /// Contents; the length is a multiple of 4096.
    pub bytes: Vec<u8>,
}

/// A table this module defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its type.
    pub ty: TableType,
    /// Initial value of each element; null when absent.
    pub init: Option<ConstExpr>,
}

/// A global this module defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalInfo {
    /// Its type.
    pub ty: GlobalType,
    /// Initial value.
    pub init: ConstExpr,
}

/// Everything about a module but its machine code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleInfo {
    /// Module name from the name section, empty when there is none.
    pub name: String,
    /// SHA-256 of the wasm file.
    pub wasm_sha256: [u8; 32],
    /// Version of the compiler that made it, as `mote-compile --version` prints it.
    pub compiler: String,
    /// Options that shaped the code, one canonical line.
    pub options: String,
    /// Target triple's architecture: `x86_64` or `aarch64`.
    pub architecture: String,
    /// CPU features that the code uses, LLVM's names (`avx512f`, `bmi2`…), sorted; the loader refuses a CPU without one of them.
    pub cpu_features: Vec<String>,
    /// Counts for the context layout.
    pub counts: ModuleCounts,
    /// Distinct function types; the module's type indices are mapped to these by the compiler.
    pub types: Vec<FuncType>,
    /// One per entry of `types`.
    pub thunks: Vec<ThunkInfo>,
    /// Imports in order.
    pub imports: Vec<Import>,
    /// Exports in order.
    pub exports: Vec<Export>,
    /// Defined functions.
    pub functions: Vec<FunctionInfo>,
    /// Function index of each func_ref number, ascending: functions that are exported, in elements, or named by `ref.func`.
    pub func_refs: Vec<u32>,
    /// Defined tables.
    pub tables: Vec<TableInfo>,
    /// Defined memories.
    pub memories: Vec<MemoryType>,
    /// Whether the context pointer is the base of memory 0: memory 0 is defined here, 32-bit and not shared.
    pub context_is_memory: bool,
    /// Defined globals.
    pub globals: Vec<GlobalInfo>,
    /// Types of defined tags.
    pub tags: Vec<u32>,
    /// Element segments.
    pub elements: Vec<ElementSegment>,
    /// Data segments.
    pub data: Vec<DataSegment>,
    /// Initial contents of memories: applied before `data`.
    pub image: Vec<ImageChunk>,
    /// Start function index.
    pub start: Option<u32>,
}
