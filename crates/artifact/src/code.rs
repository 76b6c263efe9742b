//! Linked machine code, and where each part of it lies in the file.
//!
//! Relocations between sections need final addresses, and addresses depend on the file's layout. The code comes first in the file,
//! so its layout follows from the sizes of its sections alone: the linker makes a [`CodeLayout`], applies its relocations,
//! and hands [`LinkedCode`] to the writer, which puts each section where the layout says.

use crate::format::{PAGE, TEXT_ADDRESS};
use crate::info::ModuleInfo;

/// Bytes of each loaded code section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeSizes {
    /// `.text`.
    pub text: u64,
    /// `.rodata`.
    pub rodata: u64,
    /// `.eh_frame`.
    pub eh_frame: u64,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: u64,
    /// `.gcc_except_table`.
    pub gcc_except_table: u64,
}

/// Virtual address (and file offset) of each loaded code section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLayout {
    /// `.text`, at the start of a page; no other section shares its pages.
    pub text: u64,
    /// `.rodata`, at the start of a page.
    pub rodata: u64,
    /// `.eh_frame`.
    pub eh_frame: u64,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: u64,
    /// `.gcc_except_table`.
    pub gcc_except_table: u64,
    /// End of the last one.
    pub end: u64,
}

/// Largest sum of code sections: 32-bit displacements reach from any of them to any other.
pub const CODE_MAX: u64 = (1 << 31) - (1 << 20);

impl CodeLayout {
    /// The layout for these sizes, or `None` when they exceed [`CODE_MAX`].
    pub fn new(sizes: CodeSizes) -> Option<Self> {
        let text = TEXT_ADDRESS;
        let rodata = text.checked_add(sizes.text)?.checked_next_multiple_of(PAGE)?;
        let eh_frame = rodata.checked_add(sizes.rodata)?.checked_next_multiple_of(8)?;
        let eh_frame_hdr = eh_frame.checked_add(sizes.eh_frame)?.checked_next_multiple_of(8)?;
        let gcc_except_table = eh_frame_hdr.checked_add(sizes.eh_frame_hdr)?.checked_next_multiple_of(8)?;
        let end = gcc_except_table.checked_add(sizes.gcc_except_table)?;
        (end <= CODE_MAX).then_some(Self { text, rodata, eh_frame, eh_frame_hdr, gcc_except_table, end })
    }
}

/// What a symbol of the code names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeSymbolKind {
    /// The wasm function with this index.
    Function(u32),
    /// The host-to-guest thunk of this type.
    Entry(u32),
    /// The guest-to-host thunk of this type.
    Host(u32),
    /// Anything else by its own name: `memcpy`, parts that LLVM split off.
    Other(String),
}

/// A piece of `.text` that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeSymbol {
    /// What it is.
    pub kind: CodeSymbolKind,
    /// Offset from the start of `.text`, in bytes.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// A section that is not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugSection {
    /// Its name, `.debug_line` and the like.
    pub name: String,
    /// Its contents, relocated.
    pub bytes: Vec<u8>,
}

/// Machine code with every relocation applied for the addresses of [`LinkedCode::layout`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkedCode {
    /// `.text`.
    pub text: Vec<u8>,
    /// `.rodata`.
    pub rodata: Vec<u8>,
    /// `.eh_frame`, with its terminator when it is not empty.
    pub eh_frame: Vec<u8>,
    /// `.eh_frame_hdr`: the sorted search table of `.eh_frame`.
    pub eh_frame_hdr: Vec<u8>,
    /// `.gcc_except_table`.
    pub gcc_except_table: Vec<u8>,
    /// `.debug_*` sections.
    pub debug: Vec<DebugSection>,
    /// Symbols of `.text`, by kind.
    pub symbols: Vec<CodeSymbol>,
}

/// The code lacks something that the module needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingCode {
    /// A function has none.
    #[error("the code has no symbol f{0} for wasm function {0}")]
    Function(u32),
    /// A type has no thunk.
    #[error("the code has no symbol entry{0} for function type {0}")]
    Entry(u32),
    /// A type has no thunk.
    #[error("the code has no symbol host{0} for function type {0}")]
    Host(u32),
}

impl LinkedCode {
    /// Sizes of the loaded sections.
    pub fn sizes(&self) -> CodeSizes {
        CodeSizes {
            text: self.text.len() as u64,
            rodata: self.rodata.len() as u64,
            eh_frame: self.eh_frame.len() as u64,
            eh_frame_hdr: self.eh_frame_hdr.len() as u64,
            gcc_except_table: self.gcc_except_table.len() as u64,
        }
    }

    /// Where the loaded sections lie; the relocations were applied for these addresses.
    pub fn layout(&self) -> Option<CodeLayout> {
        CodeLayout::new(self.sizes())
    }

    /// The symbol of this kind.
    pub fn symbol(&self, kind: &CodeSymbolKind) -> Option<&CodeSymbol> {
        let at = self.symbols.binary_search_by(|symbol| symbol.kind.cmp(kind)).ok()?;
        self.symbols.get(at)
    }

    /// Fills the code offsets and sizes of `info`'s functions and thunks from the symbols.
    pub fn place(&self, info: &mut ModuleInfo) -> Result<(), MissingCode> {
        for (index, function) in (info.counts.imported_functions..).zip(&mut info.functions) {
            let symbol = self.symbol(&CodeSymbolKind::Function(index)).ok_or(MissingCode::Function(index))?;
            function.code_offset = symbol.offset;
            function.code_size = symbol.size;
        }
        let types = u32::try_from(info.types.len()).unwrap_or(u32::MAX);
        info.thunks.clear();
        for ty in 0..types {
            let entry = self.symbol(&CodeSymbolKind::Entry(ty)).ok_or(MissingCode::Entry(ty))?.offset;
            let host = self.symbol(&CodeSymbolKind::Host(ty)).ok_or(MissingCode::Host(ty))?.offset;
            info.thunks.push(crate::info::ThunkInfo { entry, host });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_follow_each_other_and_text_has_its_pages_alone() {
        let sizes = CodeSizes { text: 4097, rodata: 3, eh_frame: 9, eh_frame_hdr: 1, gcc_except_table: 5 };
        let layout = CodeLayout::new(sizes).unwrap();
        assert_eq!(layout.text, PAGE);
        assert_eq!(layout.rodata, 3 * PAGE);
        assert_eq!(layout.eh_frame, 3 * PAGE + 8);
        assert_eq!(layout.eh_frame_hdr, 3 * PAGE + 24);
        assert_eq!(layout.gcc_except_table, 3 * PAGE + 32);
        assert_eq!(layout.end, 3 * PAGE + 37);
        assert_eq!(CodeLayout::new(CodeSizes { text: CODE_MAX, ..sizes }), None);
        assert_eq!(CodeLayout::new(CodeSizes { text: u64::MAX, ..sizes }), None);
    }

    #[test]
    fn a_function_without_code_is_named() {
        let mut info = ModuleInfo { functions: vec![Default::default()], ..ModuleInfo::default() };
        info.counts.imported_functions = 4;
        assert_eq!(LinkedCode::default().place(&mut info), Err(MissingCode::Function(4)));
    }
}
