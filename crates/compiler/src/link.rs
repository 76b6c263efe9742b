//! Links LLVM's object files into the code sections of an artifact.
//!
//! ```text
//! objects ──read──▶ pieces (one per input section) ──order──▶ offsets ──CodeLayout──▶ addresses
//!         ──relocate──▶ LinkedCode, final: nothing is left for the loader to do
//! ```
//!
//! Artifacts have no global offset table, no procedure linkage table and no data that needs an address at load time: whatever would
//! is refused here. Functions come in the order of their index, then thunks, then `memcpy` and its kin, which are
//! linked in only when something calls them (see [`builtins`]).

mod builtins;
mod frames;
mod relocate;

use std::collections::HashMap;

use mote_artifact::code::{
    CODE_MAX, CodeLayout, CodeSizes, CodeSymbol, CodeSymbolKind, DebugSection, LinkedCode,
};
use object::{
    Architecture, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags,
    SectionIndex, SymbolSection,
};

pub use builtins::Builtins;

/// Why objects cannot be linked.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// LLVM's output is not an object file as we know it.
    #[error("object {object} cannot be read: {source}")]
    Read {
        /// Position in the list of objects.
        object: usize,
        /// The reader's words.
        source: object::Error,
    },
    /// Objects are for several machines, or for one that has no linker here.
    #[error(
        "object {object} holds code for {architecture:?}, which does not fit the others or has no linker here"
    )]
    Architecture {
        /// Position in the list of objects.
        object: usize,
        /// Its machine.
        architecture: Architecture,
    },
    /// A section would be loaded, but an artifact has no place for it.
    #[error("object {object} has a section {section} of {len} bytes, for which an artifact has no place")]
    Section {
        /// Position in the list of objects.
        object: usize,
        /// Its name.
        section: String,
        /// Its length.
        len: u64,
    },
    /// Nothing defines these symbols.
    #[error("undefined symbols: {}", .names.join(", "))]
    Undefined {
        /// Their names, sorted.
        names: Vec<String>,
    },
    /// Two objects define the same symbol.
    #[error("symbol {name} is defined twice, in objects {first} and {second}")]
    Duplicate {
        /// Its name.
        name: String,
        /// Position in the list of objects.
        first: usize,
        /// Position in the list of objects.
        second: usize,
    },
    /// A relocation that needs a linker or loader with more than this one has.
    #[error(
        "object {object}, section {section}, offset {offset:#x}: relocation type {kind} against {symbol}: {problem}"
    )]
    Relocation {
        /// Position in the list of objects.
        object: usize,
        /// The section that it changes.
        section: String,
        /// Where in that section.
        offset: u64,
        /// ELF's number of the type.
        kind: u32,
        /// What it refers to.
        symbol: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// `.eh_frame` has a form that LLVM does not write.
    #[error(".eh_frame is not as expected: {problem} at offset {offset:#x}")]
    Frames {
        /// Where.
        offset: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// More code than 32-bit displacements reach.
    #[error("the code and its constants exceed {CODE_MAX} bytes")]
    TooLarge,
}

/// Links objects; `memcpy` and its kin are made for any x86-64-v2 machine.
pub fn link(objects: &[Vec<u8>]) -> Result<LinkedCode, LinkError> {
    link_with(objects, Builtins::Baseline)
}

/// Links objects with the given variant of `memcpy` and its kin.
pub fn link_with(objects: &[Vec<u8>], builtins: Builtins) -> Result<LinkedCode, LinkError> {
    let mut linker = Linker::default();
    for bytes in objects {
        linker.add_object(bytes)?;
    }
    linker.add_builtins(builtins)?;
    linker.check_symbols()?;
    linker.place_pieces()?;
    linker.finish()
}

/// Where an input section goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Output {
    Text,
    Rodata,
    EhFrame,
    ExceptTable,
    /// A number of [`Linker::debug`].
    Debug(usize),
}

/// One input section that is part of the output.
#[derive(Debug)]
struct Piece<'a> {
    object: usize,
    section: SectionIndex,
    name: &'a str,
    output: Output,
    align: u64,
    bytes: &'a [u8],
    /// The first symbol of a piece of code, which decides its place.
    order: Option<CodeSymbolKind>,
    /// Offset in the output section, once placed.
    offset: u64,
}

/// A symbol that other objects see.
#[derive(Clone, Copy, Debug)]
struct Global {
    object: usize,
    section: SectionIndex,
    offset: u64,
    weak: bool,
}

#[derive(Default)]
struct Linker<'a> {
    files: Vec<object::File<'a>>,
    architecture: Option<Architecture>,
    pieces: Vec<Piece<'a>>,
    /// The piece of a section.
    piece_of: HashMap<(usize, SectionIndex), usize>,
    globals: HashMap<&'a str, Global>,
    debug: Vec<String>,
    /// Whether an object refers to a personality routine through its `DW.ref` word.
    personality: bool,
    layout: Option<CodeLayout>,
    sizes: CodeSizes,
    debug_len: Vec<u64>,
}

impl<'a> Linker<'a> {
    fn add_object(&mut self, bytes: &'a [u8]) -> Result<(), LinkError> {
        let object = self.files.len();
        let read = |source| LinkError::Read { object, source };
        let file = object::File::parse(bytes).map_err(read)?;
        let architecture = file.architecture();
        let known = matches!(architecture, Architecture::X86_64 | Architecture::Aarch64);
        if !known || *self.architecture.get_or_insert(architecture) != architecture {
            return Err(LinkError::Architecture { object, architecture });
        }
        for section in file.sections() {
            let name = section.name().map_err(read)?;
            let Some(output) = self.output_of(object, name, &section)? else { continue };
            let bytes = section.data().map_err(read)?;
            let at = self.pieces.len();
            self.piece_of.insert((object, section.index()), at);
            self.pieces.push(Piece {
                object,
                section: section.index(),
                name,
                output,
                // Frames follow each other without a gap, which would read as a terminator.
                align: if output == Output::EhFrame { 4 } else { section.align().max(1) },
                bytes: if output == Output::EhFrame { frames::without_terminator(bytes)? } else { bytes },
                order: None,
                offset: 0,
            });
        }
        for symbol in file.symbols() {
            self.add_symbol(object, &symbol)?;
        }
        self.files.push(file);
        Ok(())
    }

    /// What becomes of a section; `None` when nothing does.
    fn output_of(
        &mut self,
        object: usize,
        name: &str,
        section: &object::Section<'_, '_>,
    ) -> Result<Option<Output>, LinkError> {
        use object::elf::{SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_WRITE};
        let SectionFlags::Elf { sh_flags: flags } = section.flags() else { return Ok(None) };
        let has = |flag: u32| flags & u64::from(flag) != 0;
        if !has(SHF_ALLOC) {
            let is_debug = name.starts_with(".debug_") && section.size() != 0;
            return Ok(is_debug.then(|| Output::Debug(self.debug_number(name))));
        }
        if name.starts_with(".data.DW.ref.") || name.starts_with(".data.rel.local.DW.ref.") {
            // The word that would hold the personality routine's address: one null word stands for all of them.
            self.personality = true;
            return Ok(None);
        }
        if name == ".eh_frame" {
            return Ok(Some(Output::EhFrame));
        }
        if name == ".gcc_except_table" || name.starts_with(".gcc_except_table.") {
            return Ok(Some(Output::ExceptTable));
        }
        if has(SHF_EXECINSTR) && !has(SHF_WRITE) {
            return Ok(Some(Output::Text));
        }
        if !has(SHF_WRITE) && !has(SHF_TLS) && !name.starts_with(".note") {
            return Ok(Some(Output::Rodata));
        }
        if section.size() == 0 || name.starts_with(".note") {
            return Ok(None);
        }
        Err(LinkError::Section { object, section: name.to_owned(), len: section.size() })
    }

    fn debug_number(&mut self, name: &str) -> usize {
        self.debug.iter().position(|known| known == name).unwrap_or_else(|| {
            self.debug.push(name.to_owned());
            self.debug.len().saturating_sub(1)
        })
    }

    fn add_symbol(&mut self, object: usize, symbol: &object::Symbol<'a, '_>) -> Result<(), LinkError> {
        let SymbolSection::Section(section) = symbol.section() else { return Ok(()) };
        let name = symbol.name().map_err(|source| LinkError::Read { object, source })?;
        if let Some(kind) = code_symbol_kind(name, symbol)
            && let Some(piece) = self.piece_of.get(&(object, section)).and_then(|&at| self.pieces.get_mut(at))
            && piece.output == Output::Text
            && piece.order.as_ref().is_none_or(|first| kind < *first)
        {
            piece.order = Some(kind);
        }
        if !symbol.is_global() {
            return Ok(());
        }
        let global = Global { object, section, offset: symbol.address(), weak: symbol.is_weak() };
        match self.globals.get(name) {
            Some(known) if !known.weak && !global.weak => {
                Err(LinkError::Duplicate { name: name.to_owned(), first: known.object, second: object })
            }
            Some(known) if !known.weak => Ok(()),
            Some(_) if global.weak => Ok(()),
            _ => {
                self.globals.insert(name, global);
                Ok(())
            }
        }
    }

    /// Names that are referred to and defined nowhere, sorted.
    fn undefined(&self) -> Vec<&'a str> {
        let mut names = Vec::new();
        for file in &self.files {
            for symbol in file.symbols().filter(ObjectSymbol::is_undefined) {
                let Ok(name) = symbol.name() else { continue };
                // Only `DW.ref` words, which are left out, refer to the personality routine.
                if !name.is_empty() && name != PERSONALITY && !self.globals.contains_key(name) {
                    names.push(name);
                }
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Links in the builtins that are called, and those that they call.
    fn add_builtins(&mut self, builtins: Builtins) -> Result<(), LinkError> {
        // Each round defines at least one more symbol.
        loop {
            let found = self.undefined().into_iter().find_map(|name| builtins.object_of(name));
            let Some(bytes) = found else { return Ok(()) };
            self.add_object(bytes)?;
        }
    }

    fn check_symbols(&self) -> Result<(), LinkError> {
        let names = self.undefined();
        if names.is_empty() {
            return Ok(());
        }
        Err(LinkError::Undefined { names: names.into_iter().map(str::to_owned).collect() })
    }

    /// Orders the pieces and gives each its offset in its output section.
    fn place_pieces(&mut self) -> Result<(), LinkError> {
        let mut order: Vec<usize> = (0..self.pieces.len()).collect();
        order.sort_by_cached_key(|&at| {
            self.pieces.get(at).map(|piece| {
                let unnamed = piece.output == Output::Text && piece.order.is_none();
                (piece.output, unnamed, piece.order.clone(), piece.object, piece.section.0)
            })
        });
        self.debug_len = vec![0; self.debug.len()];
        for at in order {
            let Some(piece) = self.pieces.get_mut(at) else { continue };
            let mut none = 0;
            let len = match piece.output {
                Output::Text => &mut self.sizes.text,
                Output::Rodata => &mut self.sizes.rodata,
                Output::EhFrame => &mut self.sizes.eh_frame,
                Output::ExceptTable => &mut self.sizes.gcc_except_table,
                Output::Debug(number) => self.debug_len.get_mut(number).unwrap_or(&mut none),
            };
            let align = if matches!(piece.output, Output::Debug(_)) { 1 } else { piece.align };
            piece.offset = len.checked_next_multiple_of(align).ok_or(LinkError::TooLarge)?;
            *len = piece.offset.saturating_add(piece.bytes.len() as u64);
        }
        if self.personality {
            self.sizes.rodata = self.sizes.rodata.next_multiple_of(8).saturating_add(8);
        }
        let frames = self.pieces.iter().filter(|piece| piece.output == Output::EhFrame);
        let mut entries = 0;
        for piece in frames {
            entries += frames::entries(piece.bytes)?;
        }
        if entries != 0 {
            self.sizes.eh_frame = self.sizes.eh_frame.saturating_add(4);
            self.sizes.eh_frame_hdr = frames::search_table_len(entries);
        }
        self.layout = Some(CodeLayout::new(self.sizes).ok_or(LinkError::TooLarge)?);
        Ok(())
    }

    /// Virtual address of a piece.
    fn address(&self, piece: &Piece<'_>) -> u64 {
        let base = self.layout.map_or(0, |layout| match piece.output {
            Output::Text => layout.text,
            Output::Rodata => layout.rodata,
            Output::EhFrame => layout.eh_frame,
            Output::ExceptTable => layout.gcc_except_table,
            Output::Debug(_) => 0,
        });
        base.saturating_add(piece.offset)
    }

    /// Copies every piece to its place, relocated.
    fn finish(self) -> Result<LinkedCode, LinkError> {
        let layout = self.layout.ok_or(LinkError::TooLarge)?;
        let padding = if self.architecture == Some(Architecture::X86_64) { 0xcc } else { 0 };
        let mut code = LinkedCode {
            text: filled(self.sizes.text, padding),
            rodata: filled(self.sizes.rodata, 0),
            eh_frame: filled(self.sizes.eh_frame, 0),
            eh_frame_hdr: Vec::new(),
            gcc_except_table: filled(self.sizes.gcc_except_table, 0),
            debug: Vec::new(),
            symbols: self.code_symbols()?,
        };
        let mut debug: Vec<_> = self.debug_len.iter().map(|&len| filled(len, 0)).collect();
        for piece in &self.pieces {
            let bytes = self.relocated(piece)?;
            let output = match piece.output {
                Output::Text => Some(&mut code.text),
                Output::Rodata => Some(&mut code.rodata),
                Output::EhFrame => Some(&mut code.eh_frame),
                Output::ExceptTable => Some(&mut code.gcc_except_table),
                Output::Debug(number) => debug.get_mut(number),
            };
            let start = usize::try_from(piece.offset).unwrap_or(usize::MAX);
            let place = output.and_then(|output| output.get_mut(start..)?.get_mut(..bytes.len()));
            place.ok_or(LinkError::TooLarge)?.copy_from_slice(&bytes);
        }
        code.eh_frame_hdr = frames::search_table(&code.eh_frame, layout.eh_frame, layout.eh_frame_hdr)?;
        code.debug =
            self.debug.into_iter().zip(debug).map(|(name, bytes)| DebugSection { name, bytes }).collect();
        code.debug.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(code)
    }

    /// The bytes of a piece with its relocations applied.
    fn relocated(&self, piece: &Piece<'_>) -> Result<Vec<u8>, LinkError> {
        let mut bytes = piece.bytes.to_vec();
        let Some(file) = self.files.get(piece.object) else { return Ok(bytes) };
        let read = |source| LinkError::Read { object: piece.object, source };
        let section = file.section_by_index(piece.section).map_err(read)?;
        let base = self.address(piece);
        for (offset, relocation) in section.relocations() {
            let RelocationFlags::Elf { r_type: kind } = relocation.flags() else { continue };
            let (target, symbol) = self.target(piece.object, file, relocation.target())?;
            let error = |problem| LinkError::Relocation {
                object: piece.object,
                section: piece.name.to_owned(),
                offset,
                kind,
                symbol: symbol.to_owned(),
                problem,
            };
            let target = target.ok_or_else(|| error("the symbol lies in a section that is not linked"))?;
            let site = relocate::Site {
                address: base.wrapping_add(offset),
                offset: usize::try_from(offset).map_err(|_| error("the offset is too large"))?,
                target,
                addend: relocation.addend(),
                loaded: !matches!(piece.output, Output::Debug(_)),
            };
            relocate::apply(file.architecture(), kind, &site, &mut bytes).map_err(error)?;
        }
        Ok(bytes)
    }

    /// Address and name of what a relocation refers to.
    fn target<'file>(
        &self,
        object: usize,
        file: &'file object::File<'a>,
        target: RelocationTarget,
    ) -> Result<(Option<u64>, &'a str), LinkError>
    where
        'a: 'file,
    {
        let read = |source| LinkError::Read { object, source };
        let RelocationTarget::Symbol(index) = target else { return Ok((None, "an absolute value")) };
        let symbol = file.symbol_by_index(index).map_err(read)?;
        let mut name = symbol.name().map_err(read)?;
        if name.starts_with("DW.ref.") {
            return Ok((self.null_word(), name));
        }
        let place = match symbol.section() {
            SymbolSection::Section(section) if symbol.is_weak() => {
                let global = self.globals.get(name).copied();
                Some(
                    global
                        .map_or((object, section, symbol.address()), |at| (at.object, at.section, at.offset)),
                )
            }
            SymbolSection::Section(section) => {
                if name.is_empty() {
                    name = file.section_by_index(section).map_err(read)?.name().map_err(read)?;
                }
                Some((object, section, symbol.address()))
            }
            SymbolSection::Undefined => {
                self.globals.get(name).map(|global| (global.object, global.section, global.offset))
            }
            _ => None,
        };
        let address = place.and_then(|(object, section, offset)| {
            let piece = self.pieces.get(*self.piece_of.get(&(object, section))?)?;
            Some(self.address(piece).wrapping_add(offset))
        });
        Ok((address, name))
    }

    /// The null word that stands for personality routines: the last of `.rodata`.
    fn null_word(&self) -> Option<u64> {
        let end = self.layout?.rodata.checked_add(self.sizes.rodata)?;
        if self.personality { end.checked_sub(8) } else { None }
    }

    /// Symbols of the code, by kind.
    fn code_symbols(&self) -> Result<Vec<CodeSymbol>, LinkError> {
        let mut symbols = Vec::new();
        for (object, file) in self.files.iter().enumerate() {
            for symbol in file.symbols() {
                let SymbolSection::Section(section) = symbol.section() else { continue };
                let Some(&at) = self.piece_of.get(&(object, section)) else { continue };
                let Some(piece) = self.pieces.get(at).filter(|piece| piece.output == Output::Text) else {
                    continue;
                };
                let name = symbol.name().map_err(|source| LinkError::Read { object, source })?;
                if let Some(kind) = code_symbol_kind(name, &symbol) {
                    let offset = piece.offset.saturating_add(symbol.address());
                    symbols.push(CodeSymbol { kind, offset, size: symbol.size() });
                }
            }
        }
        symbols.sort_by(|a, b| (&a.kind, a.offset).cmp(&(&b.kind, b.offset)));
        Ok(symbols)
    }
}

/// The routine that invokes of the guest name; our unwinder does not call it.
const PERSONALITY: &str = "mote_personality";

fn filled(len: u64, byte: u8) -> Vec<u8> {
    // Within CODE_MAX, or as long as an input for debug sections.
    vec![byte; usize::try_from(len).unwrap_or(0)]
}

/// What a symbol names, when it names code.
fn code_symbol_kind(name: &str, symbol: &object::Symbol<'_, '_>) -> Option<CodeSymbolKind> {
    let is_label = name.is_empty() || name.starts_with('$') || name.starts_with(".L");
    if is_label || symbol.kind() != object::SymbolKind::Text {
        return None;
    }
    let number = |prefix: &str| {
        let digits = name.strip_prefix(prefix)?;
        let canonical = digits == "0" || !digits.starts_with(['0', '+']);
        if canonical { digits.parse().ok() } else { None }
    };
    Some(if let Some(index) = number("f") {
        CodeSymbolKind::Function(index)
    } else if let Some(ty) = number("entry") {
        CodeSymbolKind::Entry(ty)
    } else if let Some(ty) = number("host") {
        CodeSymbolKind::Host(ty)
    } else {
        CodeSymbolKind::Other(name.to_owned())
    })
}

#[cfg(test)]
mod tests;
