//! What is checked when an artifact is opened: the header first, then the tables of `.mote.meta`.
//!
//! After this, accessors of the loader find every record of `.mote.meta` sound. They stay total all the same: the file may be damaged where
//! nothing is checked at open, or later.

use std::fs::File;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::context::ContextLayout;
use crate::format::{
    Bytes, ChunkRecord, DefinedRecord, ELF_IDENT, ElementRecord, ElfHeader, Entity, ExportRecord, FLAG_START,
    FLAGS, FORMAT_VERSION, FuncRefRecord, FunctionRecord, Header, ImportRecord, MODE_ACTIVE, MODE_DECLARED,
    NOTE_NAME, NOTE_OFFSET, NOTE_TYPE, NoteHeader, PAGE, SegmentRecord, Span, Table, ThunkRecord, TypeRecord,
};
use crate::info::{ExportKind, ValueType};
use crate::load::{Artifact, LoadError, export_kind};
use crate::view::{records, slice};

const PAGE_LEN: usize = PAGE as usize;
const HEADER_OFFSET: usize = NOTE_OFFSET as usize + size_of::<NoteHeader>();

/// Checks the first page of a file; returns the header and ELF's machine number.
pub(crate) fn check_header(file: &[u8]) -> Result<(Header, u16), LoadError> {
    let page = file.get(..PAGE_LEN).ok_or(LoadError::NotAnArtifact)?;
    let (elf, _) = ElfHeader::read_from_prefix(page).map_err(|_| LoadError::NotAnArtifact)?;
    let note = page.get(NOTE_OFFSET as usize..).unwrap_or_default();
    let (note, _) = NoteHeader::read_from_prefix(note).map_err(|_| LoadError::NotAnArtifact)?;
    if elf.ident != ELF_IDENT || note.name != NOTE_NAME || note.kind.get() != NOTE_TYPE {
        return Err(LoadError::NotAnArtifact);
    }
    let rest = page.get(HEADER_OFFSET..).unwrap_or_default();
    let (mut header, rest) = Header::read_from_prefix(rest).map_err(|_| LoadError::NotAnArtifact)?;
    if header.format.get() != FORMAT_VERSION {
        return Err(LoadError::Version { found: header.format.get() });
    }
    // The checksum is that of the page without the checksum.
    let expected = header.header_hash.get();
    header.header_hash = 0.into();
    let mut hasher = Xxh3Default::new();
    for part in [page.get(..HEADER_OFFSET).unwrap_or_default(), header.as_bytes(), rest] {
        hasher.update(part);
    }
    if hasher.digest() != expected {
        return Err(LoadError::Checksum { what: "header" });
    }
    let found = file.len() as u64;
    if found != header.file_len.get() {
        return Err(LoadError::Length { found, expected: header.file_len.get() });
    }
    Ok((header, elf.machine.get()))
}

/// What is wrong with a file that has not even a first page.
pub(crate) fn refuse_short(file: &File) -> LoadError {
    let mut beginning = [0; size_of::<ElfHeader>()];
    match file.read_at(&mut beginning, 0) {
        Err(error) => error.into(),
        Ok(_) => match ElfHeader::read_from_prefix(&beginning) {
            Ok((elf, _)) if elf.ident == ELF_IDENT => {
                let found = file.metadata().map_or(0, |metadata| metadata.len());
                LoadError::Length { found, expected: PAGE }
            }
            _ => LoadError::NotAnArtifact,
        },
    }
}

/// Checks where the sections are; returns the end of those that are loaded.
pub(crate) fn verify_sections(header: &Header) -> Option<u64> {
    let file_len = header.file_len.get();
    let end = header.data.end()?;
    let inside = |span: Span| span.offset.get() >= PAGE && span.end().is_some_and(|last| last <= end);
    let mapped = [
        header.text,
        header.rodata,
        header.eh_frame,
        header.eh_frame_hdr,
        header.gcc_except_table,
        header.meta,
        header.functions,
        header.data,
    ];
    let text_pages = header.text.end()?.checked_next_multiple_of(PAGE)?;
    let alone = mapped.iter().skip(1).all(|span| span.offset.get() >= text_pages);
    let image = header.image.offset.get().is_multiple_of(PAGE) && header.image.end()? <= file_len;
    let functions = header.functions.len.get();
    let grown = fits::<FunctionRecord>(header.function_table, functions)
        && fits::<U32>(header.code_order, functions)
        && fits::<FuncRefRecord>(header.func_refs, functions)
        && fits::<u8>(header.lines, functions)
        && fits::<u8>(header.function_pool, functions);
    let sound = header.text.offset.get() == PAGE
        && mapped.into_iter().all(inside)
        && alone
        && image
        && grown
        && end >= PAGE
        && end <= file_len
        && header.code_order.count == header.function_table.count
        && header.flags.get() & !FLAGS == 0;
    sound.then_some(end)
}

fn fits<T>(table: Table, section: u64) -> bool {
    let len = u64::from(table.count.get()).saturating_mul(size_of::<T>() as u64);
    u64::from(table.offset.get()).saturating_add(len) <= section
}

/// How many things of each kind an index may name.
struct Totals {
    functions: u64,
    tables: u64,
    memories: u64,
    globals: u64,
    tags: u64,
    types: u32,
}

/// One check of a table, with the words for what it found wrong.
type Check = Result<(), LoadError>;

fn check(what: &'static str, sound: bool) -> Check {
    if sound { Ok(()) } else { Err(LoadError::Damaged { what }) }
}

/// The metadata under verification.
struct Meta<'a> {
    header: &'a Header,
    section: &'a [u8],
    pool: &'a [u8],
    totals: Totals,
}

impl Artifact {
    /// Checks `.mote.meta`.
    pub(crate) fn verify_metadata(&self) -> Check {
        let header = self.header();
        let section = self.section(header.meta);
        if xxh3_64(section) != header.meta_hash.get() {
            return Err(LoadError::Checksum { what: "metadata" });
        }
        let pool = table::<u8>(section, header.pool, "string pool")?;
        let counts = self.counts();
        let totals = Totals {
            functions: u64::from(counts.imported_functions) + u64::from(header.function_table.count.get()),
            tables: counts.tables.into(),
            memories: counts.memories.into(),
            globals: counts.globals.into(),
            tags: counts.tags.into(),
            types: header.types.count.get(),
        };
        let meta = Meta { header, section, pool, totals };
        check("context layout", ContextLayout::new(counts).is_some())?;
        meta.verify_strings()?;
        meta.verify_types()?;
        meta.verify_imports_and_exports()?;
        meta.verify_definitions()?;
        meta.verify_segments()?;
        meta.verify_image()
    }
}

impl<'a> Meta<'a> {
    fn table<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &self,
        place: Table,
        what: &'static str,
    ) -> Result<&'a [T], LoadError> {
        table(self.section, place, what)
    }

    fn is_text(&self, place: Bytes) -> bool {
        let bytes = slice(self.pool, place.offset.get().into(), place.len.get().into());
        bytes.is_some_and(|bytes| std::str::from_utf8(bytes).is_ok())
    }

    fn is_pooled(&self, place: Bytes) -> bool {
        slice(self.pool, place.offset.get().into(), place.len.get().into()).is_some()
    }

    fn verify_strings(&self) -> Check {
        let Header { name, compiler, options, start, flags, .. } = self.header;
        let texts = [*name, *compiler, *options];
        check("name", texts.into_iter().all(|place| self.is_text(place)))?;
        let features = self.table::<Bytes>(self.header.cpu_features, "list of CPU features")?;
        check("list of CPU features", features.iter().all(|&place| self.is_text(place)))?;
        let has_start = flags.get() & FLAG_START != 0;
        check("start function", !has_start || u64::from(start.get()) < self.totals.functions)
    }

    fn verify_types(&self) -> Check {
        let types = self.table::<TypeRecord>(self.header.types, "type table")?;
        check("type table", self.header.counts.types == self.header.types.count)?;
        for record in types {
            let len = u64::from(record.params.get()) + u64::from(record.results.get());
            let values = slice(self.pool, record.values.get().into(), len);
            let known = |values: &[u8]| values.iter().all(|&byte| ValueType::from_byte(byte).is_some());
            check("type table", values.is_some_and(known))?;
        }
        let thunks = self.table::<ThunkRecord>(self.header.thunks, "thunk table")?;
        let text = self.header.text.len.get();
        let inside = thunks.iter().all(|thunk| thunk.entry.get() < text && thunk.host.get() < text);
        check("thunk table", inside && thunks.len() == types.len())
    }

    fn verify_entity(&self, entity: &Entity) -> Option<ExportKind> {
        let kind = export_kind(entity.kind)?;
        let sound = match kind {
            ExportKind::Function | ExportKind::Tag => entity.ty.get() < self.totals.types,
            ExportKind::Table => ValueType::from_byte(entity.value).is_some_and(ValueType::is_ref),
            ExportKind::Global => ValueType::from_byte(entity.value).is_some(),
            ExportKind::Memory => true,
        };
        sound.then_some(kind)
    }

    fn verify_imports_and_exports(&self) -> Check {
        let mut imported = [0_u32; 5];
        for import in self.table::<ImportRecord>(self.header.imports, "import table")? {
            check("import table", self.is_text(import.module) && self.is_text(import.name))?;
            let kind =
                self.verify_entity(&import.entity).ok_or(LoadError::Damaged { what: "import table" })?;
            if let Some(count) = imported.get_mut(kind as usize) {
                *count = count.saturating_add(1);
            }
        }
        let counts = &self.header.counts;
        let expected = [
            counts.imported_functions,
            counts.imported_tables,
            counts.imported_memories,
            counts.imported_globals,
            counts.tags.get().saturating_sub(self.header.tags.count.get()).into(),
        ];
        check(
            "import table",
            imported.iter().zip(expected).all(|(&found, expected)| found == expected.get()),
        )?;
        for export in self.table::<ExportRecord>(self.header.exports, "export table")? {
            let total = match export_kind(export.kind).ok_or(LoadError::Damaged { what: "export table" })? {
                ExportKind::Function => self.totals.functions,
                ExportKind::Table => self.totals.tables,
                ExportKind::Memory => self.totals.memories,
                ExportKind::Global => self.totals.globals,
                ExportKind::Tag => self.totals.tags,
            };
            check("export table", self.is_text(export.name) && u64::from(export.index.get()) < total)?;
        }
        Ok(())
    }

    fn verify_definitions(&self) -> Check {
        let Header { counts, tables, memories, globals, tags, func_refs, .. } = self.header;
        let defined = |total: U32, imported: U32| total.get().checked_sub(imported.get());
        check("table of tables", defined(counts.tables, counts.imported_tables) == Some(tables.count.get()))?;
        check(
            "memory table",
            defined(counts.memories, counts.imported_memories) == Some(memories.count.get()),
        )?;
        check("global table", defined(counts.globals, counts.imported_globals) == Some(globals.count.get()))?;
        check("tag table", tags.count.get() <= counts.tags.get())?;
        check("table of function references", counts.func_refs == func_refs.count)?;
        for record in self.table::<DefinedRecord>(*tables, "table of tables")? {
            let kind = self.verify_entity(&record.entity);
            check("table of tables", kind == Some(ExportKind::Table) && self.is_pooled(record.init))?;
        }
        for record in self.table::<Entity>(*memories, "memory table")? {
            check("memory table", self.verify_entity(record) == Some(ExportKind::Memory))?;
        }
        for record in self.table::<DefinedRecord>(*globals, "global table")? {
            let kind = self.verify_entity(&record.entity);
            check("global table", kind == Some(ExportKind::Global) && self.is_pooled(record.init))?;
        }
        let tags = self.table::<U32>(*tags, "tag table")?;
        check("tag table", tags.iter().all(|ty| ty.get() < self.totals.types))
    }

    fn verify_segments(&self) -> Check {
        let data = self.header.data.len.get();
        let inside = |at: u64, len: u64| at.checked_add(len).is_some_and(|end| end <= data);
        for record in self.table::<ElementRecord>(self.header.elements, "element segments")? {
            let item = if record.expressions == 0 { size_of::<U32>() } else { size_of::<Bytes>() };
            let records = u64::from(record.count.get()).saturating_mul(item as u64);
            let sound = record.mode <= MODE_DECLARED
                && ValueType::from_byte(record.element).is_some_and(ValueType::is_ref)
                && (record.mode != MODE_ACTIVE || u64::from(record.target.get()) < self.totals.tables)
                && self.is_pooled(record.offset)
                && inside(record.items.get(), record.len.get())
                && records <= record.len.get();
            check("element segments", sound)?;
        }
        for record in self.table::<SegmentRecord>(self.header.segments, "data segments")? {
            let sound = record.mode < MODE_DECLARED
                && (record.mode != MODE_ACTIVE || u64::from(record.target.get()) < self.totals.memories)
                && self.is_pooled(record.offset)
                && inside(record.bytes.offset.get(), record.bytes.len.get());
            check("data segments", sound)?;
        }
        Ok(())
    }

    fn verify_image(&self) -> Check {
        let image = self.header.image.len.get();
        for record in self.table::<ChunkRecord>(self.header.chunks, "image")? {
            let (offset, len, address) =
                (record.bytes.offset.get(), record.bytes.len.get(), record.address.get());
            let sound = u64::from(record.memory.get()) < self.totals.memories
                && [offset, len, address].iter().all(|at| at.is_multiple_of(PAGE))
                && record.bytes.end().is_some_and(|end| end <= image)
                && address.checked_add(len).is_some();
            check("image", sound)?;
        }
        Ok(())
    }
}

fn table<'a, T: FromBytes + KnownLayout + Immutable + Unaligned>(
    section: &'a [u8],
    place: Table,
    what: &'static str,
) -> Result<&'a [T], LoadError> {
    records(section, place.offset.get().into(), place.count.get().into()).ok_or(LoadError::Damaged { what })
}
