//! Where each table of an instance lies in its context block.
//!
//! The compiler and the runtime compute the same layout from the same counts. All offsets are bytes from the start
//! of the block; generated code reaches a field at `ctx - CONTEXT_BELOW + offset`.

use crate::abi::{CONTEXT_MAX, func_import, func_ref, header, memory_def, memory_slot, table_def};

/// What a module has, as far as the context block needs it. "Total" counts imports first, then definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModuleCounts {
    /// Imported memories.
    pub imported_memories: u32,
    /// All memories.
    pub memories: u32,
    /// Imported tables.
    pub imported_tables: u32,
    /// All tables.
    pub tables: u32,
    /// Imported globals.
    pub imported_globals: u32,
    /// All globals.
    pub globals: u32,
    /// Imported functions.
    pub imported_functions: u32,
    /// Functions that have a [`func_ref`] in the block.
    pub func_refs: u32,
    /// Distinct function types, as numbered by [`crate::ModuleInfo::types`].
    pub types: u32,
    /// All tags.
    pub tags: u32,
}

/// Offsets into the context block; every accessor returns bytes from the block's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLayout {
    counts: ModuleCounts,
    memory_slots: u64,
    memory_defs: u64,
    table_slots: u64,
    table_defs: u64,
    global_slots: u64,
    global_cells: u64,
    func_imports: u64,
    func_refs: u64,
    type_ids: u64,
    tags: u64,
    size: u64,
}

/// Bytes of a defined global's cell: a `v128` fits.
pub const GLOBAL_CELL: u64 = 16;

impl ContextLayout {
    /// The layout for these counts, or `None` when the block would exceed [`CONTEXT_MAX`].
    pub fn new(counts: ModuleCounts) -> Option<Self> {
        let mut cursor = Cursor { at: header::SIZE };
        let defined_memories = counts.memories.checked_sub(counts.imported_memories)?;
        let defined_tables = counts.tables.checked_sub(counts.imported_tables)?;
        let defined_globals = counts.globals.checked_sub(counts.imported_globals)?;
        let memory_slots = cursor.array(counts.memories, memory_slot::SIZE, 16);
        let memory_defs = cursor.array(defined_memories, memory_def::SIZE, 16);
        let table_slots = cursor.array(counts.tables, 8, 8);
        let table_defs = cursor.array(defined_tables, table_def::SIZE, 16);
        let global_slots = cursor.array(counts.imported_globals, 8, 8);
        let global_cells = cursor.array(defined_globals, GLOBAL_CELL, 16);
        let func_imports = cursor.array(counts.imported_functions, func_import::SIZE, 16);
        let type_ids = cursor.array(counts.types, 4, 4);
        let tags = cursor.array(counts.tags, 8, 8);
        let func_refs = cursor.array(counts.func_refs, func_ref::SIZE, 32);
        let size = cursor.at;
        (size <= CONTEXT_MAX).then_some(Self {
            counts,
            memory_slots,
            memory_defs,
            table_slots,
            table_defs,
            global_slots,
            global_cells,
            func_imports,
            func_refs,
            type_ids,
            tags,
            size,
        })
    }

    /// The counts this layout was made from.
    pub fn counts(&self) -> &ModuleCounts {
        &self.counts
    }

    /// Bytes of the whole block.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The [`memory_slot`] of memory `index`.
    pub fn memory_slot(&self, index: u32) -> u64 {
        self.memory_slots + u64::from(index) * memory_slot::SIZE
    }

    /// The inline [`memory_def`] of memory `index`, when this module defines it and it is not shared (a shared
    /// memory's record is on the heap; its inline record is unused).
    pub fn memory_def(&self, index: u32) -> Option<u64> {
        let defined = index.checked_sub(self.counts.imported_memories)?;
        (index < self.counts.memories).then(|| self.memory_defs + u64::from(defined) * memory_def::SIZE)
    }

    /// The word that holds the address of the [`table_def`] of table `index`.
    pub fn table_slot(&self, index: u32) -> u64 {
        self.table_slots + u64::from(index) * 8
    }

    /// The inline [`table_def`] of table `index`, when this module defines it.
    pub fn table_def(&self, index: u32) -> Option<u64> {
        let defined = index.checked_sub(self.counts.imported_tables)?;
        (index < self.counts.tables).then(|| self.table_defs + u64::from(defined) * table_def::SIZE)
    }

    /// Where global `index` is.
    pub fn global(&self, index: u32) -> GlobalPlace {
        match index.checked_sub(self.counts.imported_globals) {
            None => GlobalPlace::Imported(self.global_slots + u64::from(index) * 8),
            Some(defined) => GlobalPlace::Defined(self.global_cells + u64::from(defined) * GLOBAL_CELL),
        }
    }

    /// The [`func_import`] of imported function `index`.
    pub fn func_import(&self, index: u32) -> u64 {
        self.func_imports + u64::from(index) * func_import::SIZE
    }

    /// The [`func_ref`] with this number (a function's `func_ref` number is in [`crate::ModuleInfo`]).
    pub fn func_ref(&self, number: u32) -> u64 {
        self.func_refs + u64::from(number) * func_ref::SIZE
    }

    /// The u32 canonical identifier of function type `index` (of [`crate::ModuleInfo::types`]).
    pub fn type_id(&self, index: u32) -> u64 {
        self.type_ids + u64::from(index) * 4
    }

    /// The word that identifies tag `index`.
    pub fn tag(&self, index: u32) -> u64 {
        self.tags + u64::from(index) * 8
    }
}

/// A global's place in the context block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalPlace {
    /// At this offset lies the address of the cell.
    Imported(u64),
    /// At this offset lies the cell itself.
    Defined(u64),
}

struct Cursor {
    at: u64,
}

impl Cursor {
    fn array(&mut self, count: u32, element: u64, align: u64) -> u64 {
        let start = self.at.next_multiple_of(align);
        self.at = start + u64::from(count) * element;
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_do_not_overlap_and_follow_the_header() {
        let counts = ModuleCounts {
            imported_memories: 1,
            memories: 3,
            imported_tables: 1,
            tables: 2,
            imported_globals: 3,
            globals: 5,
            imported_functions: 7,
            func_refs: 11,
            types: 13,
            tags: 2,
        };
        let layout = ContextLayout::new(counts).unwrap();
        let mut spans = vec![(0, header::SIZE)];
        for i in 0..3 {
            spans.push((layout.memory_slot(i), memory_slot::SIZE));
            spans.extend(layout.memory_def(i).map(|at| (at, memory_def::SIZE)));
        }
        for i in 0..2 {
            spans.push((layout.table_slot(i), 8));
            spans.extend(layout.table_def(i).map(|at| (at, table_def::SIZE)));
        }
        for i in 0..5 {
            spans.push(match layout.global(i) {
                GlobalPlace::Imported(at) => (at, 8),
                GlobalPlace::Defined(at) => (at, GLOBAL_CELL),
            });
        }
        spans.extend((0..7).map(|i| (layout.func_import(i), func_import::SIZE)));
        spans.extend((0..11).map(|i| (layout.func_ref(i), func_ref::SIZE)));
        spans.extend((0..13).map(|i| (layout.type_id(i), 4)));
        spans.extend((0..2).map(|i| (layout.tag(i), 8)));
        spans.sort();
        for pair in spans.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
        let last = spans.last().unwrap();
        assert_eq!(last.0 + last.1, layout.size());
        assert_eq!(layout.memory_def(0), None);
    }

    #[test]
    fn a_block_that_is_too_large_is_refused() {
        let counts = ModuleCounts { func_refs: u32::MAX, ..ModuleCounts::default() };
        assert_eq!(ContextLayout::new(counts), None);
    }
}
