//! The records of an artifact file, byte for byte.
//!
//! All integers are little-endian and unaligned, so that every record can be read where it lies in the mapped file.
//! The file is one ELF64 shared object in which file offset and virtual address are the same number:
//!
//! ```text
//!  0x0000  ELF header, program headers, .note.mote (the Header record): the one page that open() reads first
//!  0x1000  .text                                         mapped read-execute
//!          .rodata .eh_frame .eh_frame_hdr .gcc_except_table
//!          .mote.meta       small tables, verified when opened
//!          .mote.functions  tables that grow with the number of functions, verified as they are read
//!          .mote.data       contents of segments
//!          .mote.image      page-aligned initial contents of memories, mapped by the runtime
//!          .debug_* .symtab .strtab .shstrtab, section headers: never mapped by the loader
//! ```

// ELF records are only written.
#![cfg_attr(not(feature = "write"), allow(dead_code))]

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::context::ModuleCounts;

/// Number of the format that this crate writes and loads. Raise it when a record or the contract of [`crate::abi`] changes.
pub const FORMAT_VERSION: u32 = 3;

/// Bytes of a page as the file is laid out.
pub const PAGE: u64 = 4096;

/// Where `.text` begins: right behind the page of headers.
pub const TEXT_ADDRESS: u64 = PAGE;

/// Where the note lies in the first page.
pub(crate) const NOTE_OFFSET: u64 = 0x240;

/// Name of the note's owner, with its terminator, padded to eight bytes.
pub(crate) const NOTE_NAME: [u8; 8] = *b"Mote\0\0\0\0";

/// Type of the note that holds the header.
pub(crate) const NOTE_TYPE: u32 = 1;

/// ELF's number of x86-64.
pub(crate) const MACHINE_X86_64: u16 = 62;

/// ELF's number of aarch64.
pub(crate) const MACHINE_AARCH64: u16 = 183;

/// A code offset that stands for "no code here".
pub(crate) const NO_CODE: u64 = u64::MAX;

macro_rules! record {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        $vis struct $name { $($(#[$field_doc])* pub $field: $type,)* }
    };
}

record! {
    /// A range of the file, in bytes.
    pub(crate) struct Span {
        offset: U64,
        len: U64,
    }
}

impl Span {
    pub(crate) fn new(offset: u64, len: u64) -> Self {
        Self { offset: offset.into(), len: len.into() }
    }

    /// End of the range, or `None` when it overflows.
    pub(crate) fn end(self) -> Option<u64> {
        self.offset.get().checked_add(self.len.get())
    }
}

record! {
    /// `count` records at `offset` bytes into their section.
    pub(crate) struct Table {
        offset: U32,
        count: U32,
    }
}

record! {
    /// `len` bytes at `offset` into the pool of the section that holds this record.
    pub(crate) struct Bytes {
        offset: U32,
        len: U32,
    }
}

record! {
    /// [`ModuleCounts`].
    pub(crate) struct Counts {
        imported_memories: U32,
        memories: U32,
        imported_tables: U32,
        tables: U32,
        imported_globals: U32,
        globals: U32,
        imported_functions: U32,
        func_refs: U32,
        types: U32,
        tags: U32,
    }
}

impl From<ModuleCounts> for Counts {
    fn from(counts: ModuleCounts) -> Self {
        let ModuleCounts {
            imported_memories,
            memories,
            imported_tables,
            tables,
            imported_globals,
            globals,
            imported_functions,
            func_refs,
            types,
            tags,
        } = counts;
        Self {
            imported_memories: imported_memories.into(),
            memories: memories.into(),
            imported_tables: imported_tables.into(),
            tables: tables.into(),
            imported_globals: imported_globals.into(),
            globals: globals.into(),
            imported_functions: imported_functions.into(),
            func_refs: func_refs.into(),
            types: types.into(),
            tags: tags.into(),
        }
    }
}

impl From<Counts> for ModuleCounts {
    fn from(counts: Counts) -> Self {
        Self {
            imported_memories: counts.imported_memories.get(),
            memories: counts.memories.get(),
            imported_tables: counts.imported_tables.get(),
            tables: counts.tables.get(),
            imported_globals: counts.imported_globals.get(),
            globals: counts.globals.get(),
            imported_functions: counts.imported_functions.get(),
            func_refs: counts.func_refs.get(),
            types: counts.types.get(),
            tags: counts.tags.get(),
        }
    }
}

record! {
    /// What the note holds: where everything is, and what the code needs.
    pub(crate) struct Header {
        format: U32,
        flags: U32,
        /// XXH3 of the first page, this field zero.
        header_hash: U64,
        /// XXH3 of `.mote.meta`.
        meta_hash: U64,
        /// XXH3 of everything behind the first page; checked only on request.
        content_hash: U64,
        file_len: U64,
        start: U32,
        reserved: U32,
        wasm_sha256: [u8; 32],
        counts: Counts,
        // Sections. All but `image` are mapped.
        text: Span,
        rodata: Span,
        eh_frame: Span,
        eh_frame_hdr: Span,
        gcc_except_table: Span,
        meta: Span,
        functions: Span,
        data: Span,
        image: Span,
        // In `meta`.
        name: Bytes,
        compiler: Bytes,
        options: Bytes,
        cpu_features: Table,
        types: Table,
        thunks: Table,
        imports: Table,
        exports: Table,
        tables: Table,
        memories: Table,
        globals: Table,
        tags: Table,
        elements: Table,
        segments: Table,
        chunks: Table,
        pool: Table,
        // In `functions`.
        function_table: Table,
        code_order: Table,
        func_refs: Table,
        lines: Table,
        function_pool: Table,
    }
}

/// The context pointer is the base of memory 0.
pub(crate) const FLAG_CONTEXT_IS_MEMORY: u32 = 1;
/// `start` is a function index.
pub(crate) const FLAG_START: u32 = 2;
/// Every flag of the header.
pub(crate) const FLAGS: u32 = FLAG_CONTEXT_IS_MEMORY | FLAG_START;

record! {
    /// An ELF note in front of its contents.
    pub(crate) struct NoteHeader {
        name_len: U32,
        desc_len: U32,
        kind: U32,
        name: [u8; 8],
    }
}

record! {
    /// A function type: `params + results` bytes of value types in the pool.
    pub(crate) struct TypeRecord {
        values: U32,
        params: U32,
        results: U32,
    }
}

record! {
    /// Thunks of one function type.
    pub(crate) struct ThunkRecord {
        entry: U64,
        host: U64,
    }
}

record! {
    /// The type of anything that can be imported. `kind` is a byte of [`crate::info::ExportKind`].
    pub(crate) struct Entity {
        kind: u8,
        /// Type of a global's value or a table's elements.
        value: u8,
        flags: u8,
        reserved: u8,
        /// Type number of a function or tag.
        ty: U32,
        min: U64,
        max: U64,
    }
}

/// The limits have a maximum.
pub(crate) const ENTITY_MAX: u8 = 1;
/// A shared memory.
pub(crate) const ENTITY_SHARED: u8 = 2;
/// 64-bit addresses or indices.
pub(crate) const ENTITY_WIDE: u8 = 4;
/// A mutable global.
pub(crate) const ENTITY_MUTABLE: u8 = 8;

record! {
    /// An import.
    pub(crate) struct ImportRecord {
        module: Bytes,
        name: Bytes,
        entity: Entity,
    }
}

record! {
    /// An export.
    pub(crate) struct ExportRecord {
        name: Bytes,
        index: U32,
        kind: u8,
        reserved: [u8; 3],
    }
}

record! {
    /// A table or global: its type and initial value; no bytes stand for a table without one.
    pub(crate) struct DefinedRecord {
        entity: Entity,
        init: Bytes,
    }
}

/// Segment modes.
pub(crate) const MODE_ACTIVE: u8 = 0;
pub(crate) const MODE_PASSIVE: u8 = 1;
pub(crate) const MODE_DECLARED: u8 = 2;

record! {
    /// An element segment. Items lie in `.mote.data`: function indices as `U32`, or expressions as [`Bytes`] relative to `items`.
    pub(crate) struct ElementRecord {
        mode: u8,
        element: u8,
        expressions: u8,
        reserved: u8,
        target: U32,
        offset: Bytes,
        items: U64,
        count: U32,
        /// Bytes of all the items.
        len: U64,
    }
}

record! {
    /// A data segment; its bytes lie in `.mote.data`.
    pub(crate) struct SegmentRecord {
        mode: u8,
        in_image: u8,
        reserved: [u8; 2],
        target: U32,
        offset: Bytes,
        bytes: Span,
    }
}

record! {
    /// A piece of a memory's initial contents; `bytes` is a range of the file.
    pub(crate) struct ChunkRecord {
        memory: U32,
        reserved: U32,
        address: U64,
        bytes: Span,
    }
}

record! {
    /// A defined function. Offsets of code count from the start of `.text`.
    pub(crate) struct FunctionRecord {
        ty: U32,
        name: Bytes,
        code_offset: U32,
        code_size: U32,
        wasm_offset: U32,
        wasm_size: U32,
        lines: Bytes,
        inlined: Bytes,
    }
}

record! {
    /// A function that has a func_ref. `code_offset` is [`NO_CODE`] for an imported one.
    pub(crate) struct FuncRefRecord {
        function: U32,
        ty: U32,
        code_offset: U64,
    }
}

// ELF's own records (System V ABI, chapters 4 and 5).

record! {
    /// `Elf64_Ehdr`.
    pub(crate) struct ElfHeader {
        ident: [u8; 16],
        kind: U16,
        machine: U16,
        version: U32,
        entry: U64,
        program_headers: U64,
        section_headers: U64,
        flags: U32,
        header_len: U16,
        program_header_len: U16,
        program_header_count: U16,
        section_header_len: U16,
        section_header_count: U16,
        section_names: U16,
    }
}

/// Class 64, little-endian, version 1, System V.
pub(crate) const ELF_IDENT: [u8; 16] = [0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];

record! {
    /// `Elf64_Phdr`.
    pub(crate) struct ProgramHeader {
        kind: U32,
        flags: U32,
        offset: U64,
        address: U64,
        physical: U64,
        file_len: U64,
        memory_len: U64,
        align: U64,
    }
}

record! {
    /// `Elf64_Shdr`.
    pub(crate) struct SectionHeader {
        name: U32,
        kind: U32,
        flags: U64,
        address: U64,
        offset: U64,
        len: U64,
        link: U32,
        info: U32,
        align: U64,
        entry_len: U64,
    }
}

record! {
    /// `Elf64_Sym`.
    pub(crate) struct Symbol {
        name: U32,
        info: u8,
        other: u8,
        section: U16,
        value: U64,
        size: U64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_note_fit_the_first_page() {
        let note = NOTE_OFFSET + (size_of::<NoteHeader>() + size_of::<Header>()) as u64;
        assert!(note <= PAGE, "{note}");
        assert_eq!(size_of::<ElfHeader>(), 64);
        assert_eq!(size_of::<ProgramHeader>(), 56);
        assert_eq!(size_of::<SectionHeader>(), 64);
        assert_eq!(size_of::<Symbol>(), 24);
        assert_eq!(size_of::<Header>() % 4, 0, "a note's contents are a multiple of four bytes");
    }
}
