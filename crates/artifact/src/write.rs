//! Lays a module's facts and its linked code out as one artifact file.
//!
//! [`crate::format`] draws the file. Metadata is encoded into its three sections first, then every section gets its
//! place, then the bytes are written in order and the checksums over them go into the header. Nothing depends on time, addresses of
//! this process or iteration order of maps: the same input gives the same bytes.

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64;
use zerocopy::{FromZeros, IntoBytes};

use crate::code::{CodeLayout, CodeSymbolKind, LinkedCode};
use crate::format::{
    ELF_IDENT, ElfHeader, Header, MACHINE_AARCH64, MACHINE_X86_64, NOTE_NAME, NOTE_OFFSET, NOTE_TYPE,
    NoteHeader, PAGE, ProgramHeader, SectionHeader, Span, Symbol,
};
use crate::info::ModuleInfo;
use crate::tables::encode_metadata;

/// Why an artifact cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The architecture has no machine number here.
    #[error("cannot write an artifact for architecture {0:?}; x86_64 and aarch64 are known")]
    Architecture(String),
    /// Something does not fit its field.
    #[error("module is too large: {what} exceeds {limit}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// The largest that fits.
        limit: u64,
    },
    /// The facts contradict each other or the code.
    #[error("module information is not consistent: {what} {index}: {problem}")]
    Inconsistent {
        /// What kind of thing.
        what: &'static str,
        /// Which one.
        index: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// LLVM's line tables do not decode.
    #[error("cannot decode .debug_line: {0}")]
    Lines(#[from] gimli::Error),
}

/// The bytes of the artifact of this module.
pub fn write(info: &ModuleInfo, code: &LinkedCode) -> Result<Vec<u8>, WriteError> {
    let layout =
        code.layout().ok_or(WriteError::TooLarge { what: "machine code", limit: crate::code::CODE_MAX })?;
    let mut header = Header::new_zeroed();
    let metadata = encode_metadata(info, code, &mut header)?;

    let mut plan = Plan::default();
    plan.section(".note.mote", SHT_NOTE, SHF_ALLOC, NOTE_OFFSET, 4, Cow::Owned(vec![0; NOTE_BYTES]));
    plan_code(&mut plan, code, layout);
    let meta = plan.append(".mote.meta", SHT_PROGBITS, SHF_ALLOC, 8, Cow::Borrowed(&metadata.meta))?;
    let functions =
        plan.append(".mote.functions", SHT_PROGBITS, SHF_ALLOC, 8, Cow::Borrowed(&metadata.functions))?;
    let data = plan.append(".mote.data", SHT_PROGBITS, SHF_ALLOC, 8, Cow::Borrowed(&metadata.data))?;
    let image = plan.append(".mote.image", SHT_PROGBITS, SHF_ALLOC, PAGE, image_bytes(info).into())?;
    for section in &code.debug {
        plan.append(&section.name, SHT_PROGBITS, 0, 1, Cow::Borrowed(&section.bytes))?;
    }
    let names = plan_symbols(&mut plan, info, code, layout)?;
    let file_len = plan.end.checked_next_multiple_of(8).and_then(|at| at.checked_add(plan.header_bytes()));
    let file_len = file_len.ok_or(WriteError::TooLarge { what: "file length", limit: u64::MAX })?;

    header.text = Span::new(layout.text, code.text.len() as u64);
    header.rodata = Span::new(layout.rodata, code.rodata.len() as u64);
    header.eh_frame = Span::new(layout.eh_frame, code.eh_frame.len() as u64);
    header.eh_frame_hdr = Span::new(layout.eh_frame_hdr, code.eh_frame_hdr.len() as u64);
    header.gcc_except_table = Span::new(layout.gcc_except_table, code.gcc_except_table.len() as u64);
    (header.meta, header.functions, header.data, header.image) = (meta, functions, data, image);
    header.file_len = file_len.into();
    header.meta_hash = xxh3_64(&metadata.meta).into();
    let machine = match info.architecture.as_str() {
        "x86_64" => MACHINE_X86_64,
        "aarch64" => MACHINE_AARCH64,
        other => return Err(WriteError::Architecture(other.to_owned())),
    };
    Ok(plan.assemble(header, machine, names, file_len))
}

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_NOTE: u32 = 7;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;
const NOTE_BYTES: usize = size_of::<NoteHeader>() + size_of::<Header>();

/// Section number of `.text`: behind the null section and the note.
const TEXT_SECTION: u16 = 2;

fn plan_code<'a>(plan: &mut Plan<'a>, code: &'a LinkedCode, layout: CodeLayout) {
    let exec = SHF_ALLOC | SHF_EXECINSTR;
    plan.section(".text", SHT_PROGBITS, exec, layout.text, PAGE, Cow::Borrowed(&code.text));
    plan.section(".rodata", SHT_PROGBITS, SHF_ALLOC, layout.rodata, PAGE, Cow::Borrowed(&code.rodata));
    plan.section(".eh_frame", SHT_PROGBITS, SHF_ALLOC, layout.eh_frame, 8, Cow::Borrowed(&code.eh_frame));
    plan.section(
        ".eh_frame_hdr",
        SHT_PROGBITS,
        SHF_ALLOC,
        layout.eh_frame_hdr,
        8,
        Cow::Borrowed(&code.eh_frame_hdr),
    );
    let lsda = Cow::Borrowed(code.gcc_except_table.as_slice());
    plan.section(".gcc_except_table", SHT_PROGBITS, SHF_ALLOC, layout.gcc_except_table, 8, lsda);
}

fn image_bytes(info: &ModuleInfo) -> Vec<u8> {
    info.image.iter().flat_map(|chunk| &chunk.bytes).copied().collect()
}

/// Adds `.symtab`, `.strtab` and `.shstrtab`; returns the section number of the last.
fn plan_symbols(
    plan: &mut Plan<'_>,
    info: &ModuleInfo,
    code: &LinkedCode,
    layout: CodeLayout,
) -> Result<u16, WriteError> {
    const STT_FUNC: u8 = 2;
    let mut symbols = vec![Symbol::new_zeroed()];
    let mut strings = Strings::new();
    let mut ordered: Vec<_> = code.symbols.iter().collect();
    ordered.sort_by_key(|symbol| symbol.offset);
    for symbol in ordered {
        let name = strings.add(&symbol_name(info, &symbol.kind))?;
        symbols.push(Symbol {
            name: name.into(),
            info: STT_FUNC,
            other: 0,
            section: TEXT_SECTION.into(),
            value: layout.text.saturating_add(symbol.offset).into(),
            size: symbol.size.into(),
        });
    }
    let count = u32::try_from(symbols.len())
        .map_err(|_| WriteError::TooLarge { what: "number of symbols", limit: u32::MAX.into() })?;
    plan.append(".symtab", SHT_SYMTAB, 0, 8, Cow::Owned(symbols.as_bytes().to_vec()))?;
    plan.append(".strtab", SHT_STRTAB, 0, 1, Cow::Owned(strings.bytes))?;
    if let [.., symtab, strtab] = plan.sections.as_mut_slice() {
        // All symbols are local: the index behind the last local one is the count.
        symtab.header.info = count.into();
        symtab.header.entry_len = (size_of::<Symbol>() as u64).into();
        symtab.header.link = strtab.number.into();
    }
    plan.append(".shstrtab", SHT_STRTAB, 0, 1, Cow::Owned(Vec::new()))?;
    let names = plan.name_sections()?;
    let number = plan.sections.last().map_or(0, |last| last.number);
    if let Some(last) = plan.sections.last_mut() {
        last.header.len = (names.len() as u64).into();
        plan.end = plan.end.saturating_add(names.len() as u64);
        last.bytes = Cow::Owned(names);
    }
    u16::try_from(number)
        .map_err(|_| WriteError::TooLarge { what: "number of sections", limit: u16::MAX.into() })
}

/// What `perf`, `gdb` and `nm` show.
fn symbol_name<'a>(info: &'a ModuleInfo, kind: &'a CodeSymbolKind) -> Cow<'a, str> {
    match kind {
        CodeSymbolKind::Function(index) => {
            let position = index.checked_sub(info.counts.imported_functions);
            let function = position.and_then(|position| info.functions.get(position as usize));
            match function {
                // A zero byte would end the name early.
                Some(function) if !function.name.is_empty() && !function.name.contains('\0') => {
                    Cow::Borrowed(&function.name)
                }
                _ => Cow::Owned(format!("wasm[{index}]")),
            }
        }
        CodeSymbolKind::Entry(ty) => Cow::Owned(format!("mote_entry[{ty}]")),
        CodeSymbolKind::Host(ty) => Cow::Owned(format!("mote_host[{ty}]")),
        CodeSymbolKind::Other(name) => Cow::Borrowed(name),
    }
}

/// A string table under construction: names end with a zero byte, offset 0 is the empty name.
struct Strings {
    bytes: Vec<u8>,
}

impl Strings {
    fn new() -> Self {
        Self { bytes: vec![0] }
    }

    fn add(&mut self, name: &str) -> Result<u32, WriteError> {
        let at = u32::try_from(self.bytes.len())
            .map_err(|_| WriteError::TooLarge { what: "string table", limit: u32::MAX.into() })?;
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        Ok(at)
    }
}

struct Section<'a> {
    name: String,
    number: u32,
    header: SectionHeader,
    bytes: Cow<'a, [u8]>,
}

/// Sections in file order, each with its place.
#[derive(Default)]
struct Plan<'a> {
    sections: Vec<Section<'a>>,
    end: u64,
}

impl<'a> Plan<'a> {
    fn section(&mut self, name: &str, kind: u32, flags: u64, at: u64, align: u64, bytes: Cow<'a, [u8]>) {
        let header = SectionHeader {
            kind: kind.into(),
            flags: flags.into(),
            address: if flags & SHF_ALLOC == 0 { 0 } else { at }.into(),
            offset: at.into(),
            len: (bytes.len() as u64).into(),
            align: align.into(),
            ..SectionHeader::default()
        };
        let number = u32::try_from(self.sections.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.end = self.end.max(at.saturating_add(bytes.len() as u64));
        self.sections.push(Section { name: name.to_owned(), number, header, bytes });
    }

    fn append(
        &mut self,
        name: &str,
        kind: u32,
        flags: u64,
        align: u64,
        bytes: Cow<'a, [u8]>,
    ) -> Result<Span, WriteError> {
        let at = self.end.checked_next_multiple_of(align);
        let at = at.ok_or(WriteError::TooLarge { what: "file length", limit: u64::MAX })?;
        let span = Span::new(at, bytes.len() as u64);
        self.section(name, kind, flags, at, align, bytes);
        Ok(span)
    }

    /// Names every section; returns the contents of `.shstrtab`.
    fn name_sections(&mut self) -> Result<Vec<u8>, WriteError> {
        let mut strings = Strings::new();
        for section in &mut self.sections {
            section.header.name = strings.add(&section.name)?.into();
        }
        Ok(strings.bytes)
    }

    /// Bytes of the section header table, its null entry included.
    fn header_bytes(&self) -> u64 {
        (self.sections.len() as u64).saturating_add(1).saturating_mul(size_of::<SectionHeader>() as u64)
    }

    fn assemble(&self, mut header: Header, machine: u16, names: u16, file_len: u64) -> Vec<u8> {
        let section_headers = file_len.saturating_sub(self.header_bytes());
        let program_headers = self.program_headers();
        let mut file = Vec::with_capacity(usize::try_from(file_len).unwrap_or(0));
        let elf = ElfHeader {
            ident: ELF_IDENT,
            kind: 3.into(), // ET_DYN
            machine: machine.into(),
            version: 1.into(),
            program_headers: (size_of::<ElfHeader>() as u64).into(),
            section_headers: section_headers.into(),
            header_len: (size_of::<ElfHeader>() as u16).into(),
            program_header_len: (size_of::<ProgramHeader>() as u16).into(),
            program_header_count: (program_headers.len() as u16).into(),
            section_header_len: (size_of::<SectionHeader>() as u16).into(),
            section_header_count: (self.sections.len() as u16).saturating_add(1).into(),
            section_names: names.into(),
            ..ElfHeader::default()
        };
        file.extend_from_slice(elf.as_bytes());
        file.extend_from_slice(program_headers.as_bytes());
        let note = NoteHeader {
            name_len: 5.into(), // the terminator counts, the padding does not
            desc_len: (size_of::<Header>() as u32).into(),
            kind: NOTE_TYPE.into(),
            name: NOTE_NAME,
        };
        for section in self.sections.iter().skip(1) {
            file.resize(usize::try_from(section.header.offset.get()).unwrap_or(0).max(file.len()), 0);
            file.extend_from_slice(&section.bytes);
        }
        file.resize(usize::try_from(section_headers).unwrap_or(0).max(file.len()), 0);
        file.extend_from_slice(SectionHeader::new_zeroed().as_bytes());
        for section in &self.sections {
            file.extend_from_slice(section.header.as_bytes());
        }
        let page = usize::try_from(PAGE).unwrap_or(0).min(file.len());
        let (first, rest) = file.split_at_mut(page);
        header.content_hash = xxh3_64(rest).into();
        write_note(first, &note, &header);
        header.header_hash = xxh3_64(first).into();
        write_note(first, &note, &header);
        file
    }

    /// Headers and note, code, everything else that is loaded; then what points into them.
    fn program_headers(&self) -> Vec<ProgramHeader> {
        const PT_LOAD: u32 = 1;
        const PT_NOTE: u32 = 4;
        const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
        const PT_GNU_STACK: u32 = 0x6474_e551;
        const EXECUTE: u32 = 1;
        const WRITE: u32 = 2;
        const READ: u32 = 4;
        let find = |name: &str| self.sections.iter().find(|section| section.name == name);
        let span = |name: &str| {
            find(name).map_or((0, 0), |section| (section.header.offset.get(), section.header.len.get()))
        };
        let (note, note_len) = span(".note.mote");
        let (text, text_len) = span(".text");
        let (read, _) = span(".rodata");
        let (image, image_len) = span(".mote.image");
        let (search, search_len) = span(".eh_frame_hdr");
        let mut headers = vec![
            segment(PT_LOAD, READ, 0, note.saturating_add(note_len), PAGE),
            segment(PT_LOAD, READ | EXECUTE, text, text_len, PAGE),
            segment(PT_LOAD, READ, read, image.saturating_add(image_len).saturating_sub(read), PAGE),
            segment(PT_NOTE, READ, note, note_len, 4),
            segment(PT_GNU_STACK, READ | WRITE, 0, 0, 16),
        ];
        if search_len != 0 {
            headers.push(segment(PT_GNU_EH_FRAME, READ, search, search_len, 8));
        }
        headers
    }
}

fn segment(kind: u32, flags: u32, at: u64, len: u64, align: u64) -> ProgramHeader {
    ProgramHeader {
        kind: kind.into(),
        flags: flags.into(),
        offset: at.into(),
        address: at.into(),
        physical: at.into(),
        file_len: len.into(),
        memory_len: len.into(),
        align: align.into(),
    }
}

fn write_note(first_page: &mut [u8], note: &NoteHeader, header: &Header) {
    let at = usize::try_from(NOTE_OFFSET).unwrap_or(0);
    let bytes = first_page.iter_mut().skip(at);
    for (place, &byte) in bytes.zip(note.as_bytes().iter().chain(header.as_bytes())) {
        *place = byte;
    }
}
