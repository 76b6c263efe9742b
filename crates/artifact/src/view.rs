//! Copies of records that a loaded artifact hands out; everything of unknown length is borrowed from the mapped file.

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::format::Bytes;
use crate::info::{ExportKind, GlobalType, ImportKind, TableType, ValueType};
use crate::inlined::Inlined;
use crate::lines::Lines;

/// Types of values, read in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueTypes<'a> {
    pub(crate) bytes: &'a [u8],
}

impl<'a> ValueTypes<'a> {
    /// How many.
    pub fn len(self) -> usize {
        self.bytes.len()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// One of them.
    pub fn get(self, at: usize) -> Option<ValueType> {
        self.bytes.get(at).map(|&byte| value_type(byte))
    }

    /// All of them.
    pub fn iter(self) -> impl ExactSizeIterator<Item = ValueType> + 'a {
        self.bytes.iter().map(|&byte| value_type(byte))
    }
}

/// The bytes were checked when the artifact was opened.
pub(crate) fn value_type(byte: u8) -> ValueType {
    ValueType::from_byte(byte).unwrap_or(ValueType::I64)
}

/// A function type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FuncTypeView<'a> {
    /// Parameters.
    pub params: ValueTypes<'a>,
    /// Results.
    pub results: ValueTypes<'a>,
}

/// An import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportView<'a> {
    /// Module name.
    pub module: &'a str,
    /// Field name.
    pub name: &'a str,
    /// What is imported.
    pub kind: ImportKind,
}

/// An export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportView<'a> {
    /// Name.
    pub name: &'a str,
    /// What it names.
    pub kind: ExportKind,
    /// Index in the space of `kind`, imports first.
    pub index: u32,
}

/// A defined function; code offsets count from the start of `.text`.
#[derive(Clone, Copy, Debug)]
pub struct FunctionView<'a> {
    /// Function index, imports first.
    pub index: u32,
    /// Number of its type.
    pub ty: u32,
    /// Its name, empty when it has none.
    pub name: &'a str,
    /// Offset of its code.
    pub code_offset: u64,
    /// Bytes of its code.
    pub code_size: u64,
    /// Offset of its body in the wasm file.
    pub wasm_offset: u64,
    /// Bytes of its body in the wasm file.
    pub wasm_size: u64,
    /// From code to wasm operators.
    pub lines: Lines<'a>,
    /// Calls that were inlined into it.
    pub inlined: Inlined<'a>,
}

/// A function that has a func_ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuncRefView {
    /// Function index.
    pub function: u32,
    /// Number of its type.
    pub ty: u32,
    /// Offset of its code from the start of `.text`; `None` for an imported function.
    pub code_offset: Option<u64>,
}

/// A defined table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableView<'a> {
    /// Its type.
    pub ty: TableType,
    /// Initial value of each element; null when absent.
    pub init: Option<&'a [u8]>,
}

/// A defined global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalView<'a> {
    /// Its type.
    pub ty: GlobalType,
    /// Initial value, a constant expression.
    pub init: &'a [u8],
}

/// When a segment is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentModeView<'a> {
    /// At instantiation, in this memory or table at the offset of the constant expression.
    Active {
        /// Memory or table index.
        target: u32,
        /// Offset.
        offset: &'a [u8],
    },
    /// When the program says so.
    Passive,
    /// Never: it only declares functions.
    Declared,
}

/// A data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataView<'a> {
    /// When it is used.
    pub mode: SegmentModeView<'a>,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Its bytes are part of the image already.
    pub in_image: bool,
}

/// An element segment.
#[derive(Clone, Copy, Debug)]
pub struct ElementView<'a> {
    /// When it is used.
    pub mode: SegmentModeView<'a>,
    /// Type of its elements.
    pub element: ValueType,
    /// Its elements.
    pub items: ItemsView<'a>,
}

/// Elements of a segment.
#[derive(Clone, Copy, Debug)]
pub enum ItemsView<'a> {
    /// Function indices.
    Functions(FunctionIndices<'a>),
    /// Constant expressions.
    Expressions(Expressions<'a>),
}

impl ItemsView<'_> {
    /// How many elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Functions(functions) => functions.len(),
            Self::Expressions(expressions) => expressions.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Function indices of an element segment.
#[derive(Clone, Copy, Debug)]
pub struct FunctionIndices<'a> {
    pub(crate) items: &'a [U32],
}

impl<'a> FunctionIndices<'a> {
    /// How many.
    pub fn len(self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.items.is_empty()
    }

    /// One of them.
    pub fn get(self, at: usize) -> Option<u32> {
        self.items.get(at).map(|item| item.get())
    }

    /// All of them.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.items.iter().map(|item| item.get())
    }
}

/// Constant expressions of an element segment.
#[derive(Clone, Copy, Debug)]
pub struct Expressions<'a> {
    pub(crate) places: &'a [Bytes],
    pub(crate) bytes: &'a [u8],
}

impl<'a> Expressions<'a> {
    /// How many.
    pub fn len(self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.places.is_empty()
    }

    /// One of them; `None` past the end or in a damaged file.
    pub fn get(self, at: usize) -> Option<&'a [u8]> {
        let place = self.places.get(at)?;
        slice(self.bytes, place.offset.get().into(), place.len.get().into())
    }

    /// All of them.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [u8]> + 'a {
        (0..self.places.len()).map(move |at| self.get(at).unwrap_or_default())
    }
}

/// A piece of a memory's initial contents: map `len` bytes of the file from `file_offset` at `address` of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkView {
    /// Memory index.
    pub memory: u32,
    /// Byte address in the memory, page-aligned.
    pub address: u64,
    /// Page-aligned offset in the artifact file.
    pub file_offset: u64,
    /// Bytes, a multiple of a page.
    pub len: u64,
}

/// A range of a slice, or `None` when it is not inside.
pub(crate) fn slice(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let end = offset.checked_add(len)?;
    bytes.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
}

/// Records in place, or `None` when they are not inside.
pub(crate) fn records<T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned>(
    bytes: &[u8],
    offset: u64,
    count: u64,
) -> Option<&[T]> {
    let len = count.checked_mul(size_of::<T>() as u64)?;
    let bytes = slice(bytes, offset, len)?;
    <[T]>::ref_from_bytes_with_elems(bytes, usize::try_from(count).ok()?).ok()
}
