//! Opens artifact files: maps them and reads every table where it lies.
//!
//! [`Artifact::open`] maps the file, refuses what does not match (magic, format version, length, checksum, architecture, CPU
//! features), makes the code executable, verifies the small tables of `.mote.meta` record by record, and copies nothing but the header. Tables that
//! grow with the number of functions are not touched: their records are checked as they are read, so that a large module opens as fast
//! as a small one. Accessors are total: they never fail or panic, whatever the bytes are.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::context::ModuleCounts;
use crate::cpu;
use crate::format::{
    Bytes, ChunkRecord, DefinedRecord, ENTITY_MAX, ENTITY_MUTABLE, ENTITY_SHARED, ENTITY_WIDE, ElementRecord,
    Entity, ExportRecord, FLAG_CONTEXT_IS_MEMORY, FLAG_START, FORMAT_VERSION, FuncRefRecord, FunctionRecord,
    Header, ImportRecord, MACHINE_AARCH64, MACHINE_X86_64, MODE_ACTIVE, MODE_PASSIVE, NO_CODE, PAGE,
    SegmentRecord, Span, Table, ThunkRecord, TypeRecord,
};
use crate::info::{ExportKind, GlobalType, ImportKind, Limits, MemoryType, TableType, ThunkInfo};
use crate::inlined::Inlined;
use crate::lines::Lines;
use crate::map::Mapping;
use crate::verify::{check_header, refuse_short, verify_sections};
use crate::view::{
    ChunkView, DataView, ElementView, ExportView, Expressions, FuncRefView, FuncTypeView, FunctionIndices,
    FunctionView, GlobalView, ImportView, ItemsView, SegmentModeView, TableView, ValueTypes, records, slice,
    value_type,
};

/// Why a file cannot be loaded as an artifact.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The operating system refuses.
    #[error("cannot read or map the artifact: {0}")]
    Io(#[from] io::Error),
    /// The code may not be executed.
    #[error("cannot map the artifact's code executable: {0}; its file system may be mounted noexec")]
    Execute(#[source] io::Error),
    /// Something else.
    #[error("the file is not a Mote artifact; make one with `mote compile`")]
    NotAnArtifact,
    /// Written by another version of Mote.
    #[error(
        "the artifact has format version {found} and this program loads version {FORMAT_VERSION}; compile the module again"
    )]
    Version {
        /// The file's version.
        found: u32,
    },
    /// The file has another length than when it was written.
    #[error(
        "the artifact is truncated or damaged: {found} bytes long instead of {expected}; compile the module again"
    )]
    Length {
        /// Its length.
        found: u64,
        /// The length that its header states.
        expected: u64,
    },
    /// A checksum differs.
    #[error("the artifact is damaged: the checksum of its {what} differs; compile the module again")]
    Checksum {
        /// Of what.
        what: &'static str,
    },
    /// A record makes no sense.
    #[error("the artifact is damaged: its {what} is not valid; compile the module again")]
    Damaged {
        /// Where.
        what: &'static str,
    },
    /// Code for another kind of machine.
    #[error("the artifact holds {found} code and this machine is {host}; compile the module here", host = std::env::consts::ARCH)]
    Architecture {
        /// Whose.
        found: &'static str,
    },
    /// Code for a better CPU.
    #[error(
        "the artifact needs the CPU feature {feature}, which this machine lacks; compile the module here or with an older --cpu"
    )]
    CpuFeature {
        /// LLVM's name of the feature.
        feature: String,
    },
}

/// Inlined calls around one instruction that a backtrace shows, the outermost ones.
const INLINED_MAX: usize = 64;

/// A compiled module, mapped. Cheap to share: put it in an [`std::sync::Arc`].
#[derive(Debug)]
pub struct Artifact {
    header: Header,
    machine: u16,
    mapping: Mapping,
    file: File,
}

/// A function of the program that was running at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeFrame<'a> {
    /// Function index.
    pub function: u32,
    /// Its name, empty when it has none.
    pub name: &'a str,
    /// Byte offset in the wasm file of the operator, when it is known.
    pub wasm_offset: Option<u64>,
}

impl Artifact {
    /// Maps the artifact in this file, ready to run.
    pub fn open(file: &File) -> Result<Self, LoadError> {
        Self::map(file.try_clone()?, true)
    }

    /// The same with a file that the artifact may keep.
    pub fn open_owned(file: File) -> Result<Self, LoadError> {
        Self::map(file, true)
    }

    /// Maps the artifact in this file to be looked at: code for another machine is accepted, and not executable.
    pub fn open_to_inspect(file: &File) -> Result<Self, LoadError> {
        Self::map(file.try_clone()?, false)
    }

    /// Loads an artifact that is in memory, through an anonymous file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LoadError> {
        use std::io::Write;
        let memory = rustix::fs::memfd_create("mote-artifact", rustix::fs::MemfdFlags::CLOEXEC);
        let mut file = File::from(memory.map_err(io::Error::from)?);
        file.write_all(bytes)?;
        Self::open_owned(file)
    }

    fn map(file: File, run: bool) -> Result<Self, LoadError> {
        let len = rustix::fs::fstat(&file).map_err(io::Error::from)?.st_size;
        let len = u64::try_from(len).unwrap_or(0);
        if len < PAGE {
            return Err(refuse_short(&file));
        }
        let mut mapping = Mapping::new(&file, len).map_err(io::Error::from)?;
        let (header, machine) = check_header(mapping.bytes())?;
        if run && machine != HOST_MACHINE {
            return Err(LoadError::Architecture { found: machine_name(machine) });
        }
        verify_sections(&header).ok_or(LoadError::Damaged { what: "section table" })?;
        if run {
            let text = header.text.len.get();
            mapping.make_executable(&file, text).map_err(|error| LoadError::Execute(error.into()))?;
        }
        let artifact = Self { header, machine, mapping, file };
        artifact.verify_metadata()?;
        if run && let Some(feature) = cpu::first_missing(artifact.cpu_features()) {
            return Err(LoadError::CpuFeature { feature: feature.to_owned() });
        }
        Ok(artifact)
    }

    /// Reads the whole file and compares its checksum: finds damage to code, image and names that opening does not look for.
    pub fn verify_contents(&self) -> Result<(), LoadError> {
        let mut hasher = xxhash_rust::xxh3::Xxh3Default::new();
        let mut buffer = vec![0; 1 << 16];
        let mut at = PAGE;
        loop {
            let read = self.file.read_at(&mut buffer, at)?;
            if read == 0 {
                break;
            }
            hasher.update(buffer.get(..read).unwrap_or_default());
            at = at.saturating_add(read as u64);
        }
        let matches = hasher.digest() == self.header.content_hash.get();
        if matches { Ok(()) } else { Err(LoadError::Checksum { what: "contents" }) }
    }

    /// Module name, empty when it has none.
    pub fn name(&self) -> &str {
        self.text_of(self.header.name)
    }

    /// SHA-256 of the wasm file.
    pub fn wasm_sha256(&self) -> [u8; 32] {
        self.header.wasm_sha256
    }

    /// Version of the compiler.
    pub fn compiler(&self) -> &str {
        self.text_of(self.header.compiler)
    }

    /// Options of the compiler, one canonical line.
    pub fn options(&self) -> &str {
        self.text_of(self.header.options)
    }

    /// `x86_64` or `aarch64`.
    pub fn architecture(&self) -> &'static str {
        machine_name(self.machine)
    }

    /// LLVM's names of the CPU features that the code needs.
    pub fn cpu_features(&self) -> impl Iterator<Item = &str> {
        self.meta::<Bytes>(self.header.cpu_features).iter().map(|&name| self.text_of(name))
    }

    /// Counts for the context layout.
    pub fn counts(&self) -> ModuleCounts {
        self.header.counts.into()
    }

    /// Whether the context pointer is the base of memory 0.
    pub fn context_is_memory(&self) -> bool {
        self.header.flags.get() & FLAG_CONTEXT_IS_MEMORY != 0
    }

    /// Index of the start function.
    pub fn start(&self) -> Option<u32> {
        (self.header.flags.get() & FLAG_START != 0).then(|| self.header.start.get())
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> u64 {
        self.header.file_len.get()
    }

    /// Address and length of the code.
    pub fn text(&self) -> (*const u8, usize) {
        let address = self.mapping.address(self.header.text.offset.get()).unwrap_or(std::ptr::null());
        (address, self.section(self.header.text).len())
    }

    /// Addresses of everything that is mapped of the file, the code included. When the file is cut short, a page of it that is touched
    /// raises SIGBUS.
    pub fn mapped(&self) -> std::ops::Range<usize> {
        self.mapping.range()
    }

    /// The code's bytes.
    pub fn text_bytes(&self) -> &[u8] {
        self.section(self.header.text)
    }

    /// `.rodata`.
    pub fn rodata(&self) -> &[u8] {
        self.section(self.header.rodata)
    }

    /// `.eh_frame` where it is mapped: its relative addresses hold.
    pub fn eh_frame(&self) -> &[u8] {
        self.section(self.header.eh_frame)
    }

    /// `.eh_frame_hdr` where it is mapped.
    pub fn eh_frame_hdr(&self) -> &[u8] {
        self.section(self.header.eh_frame_hdr)
    }

    /// `.gcc_except_table` where it is mapped.
    pub fn gcc_except_table(&self) -> &[u8] {
        self.section(self.header.gcc_except_table)
    }

    /// The frame description entry of the code at this offset from the start of `.text`: the bytes of `.eh_frame` from that entry on.
    /// The entry may begin and end before the offset: its own range says so.
    pub fn frame_description(&self, code_offset: u64) -> Option<&[u8]> {
        const TABLE: u64 = 12;
        let search = self.eh_frame_hdr();
        let count = U32::read_from_bytes(slice(search, 8, 4)?).ok()?;
        let rows: &[[zerocopy::little_endian::I32; 2]] = records(search, TABLE, count.get().into())?;
        // Addresses in the table count from the table's own section.
        let base = self.header.eh_frame_hdr.offset.get();
        let address = self.header.text.offset.get().checked_add(code_offset)?;
        let wanted = i64::try_from(address).ok()?.checked_sub(i64::try_from(base).ok()?)?;
        let behind = rows.partition_point(|[start, _]| i64::from(start.get()) <= wanted);
        let [_, entry] = rows.get(behind.checked_sub(1)?)?;
        let entry = base.checked_add_signed(entry.get().into())?;
        let at = entry.checked_sub(self.header.eh_frame.offset.get())?;
        self.eh_frame().get(usize::try_from(at).ok()?..)
    }

    /// Number of distinct function types.
    pub fn type_count(&self) -> u32 {
        self.header.types.count.get()
    }

    /// A function type.
    pub fn func_type(&self, number: u32) -> Option<FuncTypeView<'_>> {
        self.meta::<TypeRecord>(self.header.types).get(number as usize).map(|record| self.type_view(record))
    }

    /// All function types.
    pub fn types(&self) -> impl ExactSizeIterator<Item = FuncTypeView<'_>> {
        self.meta::<TypeRecord>(self.header.types).iter().map(|record| self.type_view(record))
    }

    /// Thunks of a function type, offsets from the start of `.text`.
    pub fn thunks(&self, ty: u32) -> Option<ThunkInfo> {
        let record = self.meta::<ThunkRecord>(self.header.thunks).get(ty as usize)?;
        Some(ThunkInfo { entry: record.entry.get(), host: record.host.get() })
    }

    /// Imports in order.
    pub fn imports(&self) -> impl ExactSizeIterator<Item = ImportView<'_>> {
        self.meta::<ImportRecord>(self.header.imports).iter().map(|record| ImportView {
            module: self.text_of(record.module),
            name: self.text_of(record.name),
            kind: import_kind(&record.entity),
        })
    }

    /// Exports in order.
    pub fn exports(&self) -> impl ExactSizeIterator<Item = ExportView<'_>> {
        self.meta::<ExportRecord>(self.header.exports).iter().map(|record| ExportView {
            name: self.text_of(record.name),
            kind: export_kind(record.kind).unwrap_or(ExportKind::Function),
            index: record.index.get(),
        })
    }

    /// The export with this name.
    pub fn export(&self, name: &str) -> Option<ExportView<'_>> {
        self.exports().find(|export| export.name == name)
    }

    /// Defined tables.
    pub fn tables(&self) -> impl ExactSizeIterator<Item = TableView<'_>> {
        self.meta::<DefinedRecord>(self.header.tables).iter().map(|record| {
            let init = self.pooled(record.init);
            TableView { ty: table_type(&record.entity), init: (!init.is_empty()).then_some(init) }
        })
    }

    /// Defined memories.
    pub fn memories(&self) -> impl ExactSizeIterator<Item = MemoryType> {
        self.meta::<Entity>(self.header.memories).iter().map(memory_type)
    }

    /// Defined globals.
    pub fn globals(&self) -> impl ExactSizeIterator<Item = GlobalView<'_>> {
        self.meta::<DefinedRecord>(self.header.globals)
            .iter()
            .map(|record| GlobalView { ty: global_type(&record.entity), init: self.pooled(record.init) })
    }

    /// Types of defined tags.
    pub fn tags(&self) -> impl ExactSizeIterator<Item = u32> {
        self.meta::<U32>(self.header.tags).iter().map(|ty| ty.get())
    }

    /// Element segments.
    pub fn elements(&self) -> impl ExactSizeIterator<Item = ElementView<'_>> {
        self.meta::<ElementRecord>(self.header.elements).iter().map(|record| self.element_view(record))
    }

    /// An element segment.
    pub fn element(&self, segment: u32) -> Option<ElementView<'_>> {
        let record = self.meta::<ElementRecord>(self.header.elements).get(segment as usize)?;
        Some(self.element_view(record))
    }

    /// Data segments.
    pub fn data(&self) -> impl ExactSizeIterator<Item = DataView<'_>> {
        self.meta::<SegmentRecord>(self.header.segments).iter().map(|record| self.data_view(record))
    }

    /// A data segment.
    pub fn data_segment(&self, segment: u32) -> Option<DataView<'_>> {
        let record = self.meta::<SegmentRecord>(self.header.segments).get(segment as usize)?;
        Some(self.data_view(record))
    }

    /// Initial contents of memories, to be mapped from the file.
    pub fn image(&self) -> impl ExactSizeIterator<Item = ChunkView> {
        let image = self.header.image.offset.get();
        self.meta::<ChunkRecord>(self.header.chunks).iter().map(move |record| ChunkView {
            memory: record.memory.get(),
            address: record.address.get(),
            file_offset: image.saturating_add(record.bytes.offset.get()),
            len: record.bytes.len.get(),
        })
    }

    /// Number of defined functions.
    pub fn defined_functions(&self) -> u32 {
        self.header.function_table.count.get()
    }

    /// All defined functions.
    pub fn functions(&self) -> impl Iterator<Item = FunctionView<'_>> {
        let first = self.header.counts.imported_functions.get();
        (0..self.defined_functions()).filter_map(move |at| self.function(first.checked_add(at)?))
    }

    /// The defined function with this index; `None` for an imported one, and where the file is damaged.
    pub fn function(&self, index: u32) -> Option<FunctionView<'_>> {
        let at = index.checked_sub(self.header.counts.imported_functions.get())?;
        let record = self.grown::<FunctionRecord>(self.header.function_table).get(at as usize)?;
        let code_end = record.code_offset.get().checked_add(record.code_size.get())?;
        let inside = u64::from(code_end) <= self.header.text.len.get() && record.ty.get() < self.type_count();
        let wasm_offset = record.wasm_offset.get().into();
        let lines = self.grown::<u8>(self.header.lines);
        inside.then(|| FunctionView {
            index,
            ty: record.ty.get(),
            name: text(self.grown::<u8>(self.header.function_pool), record.name).unwrap_or_default(),
            code_offset: record.code_offset.get().into(),
            code_size: record.code_size.get().into(),
            wasm_offset,
            wasm_size: record.wasm_size.get().into(),
            lines: Lines::new(bytes(lines, record.lines).unwrap_or_default(), wasm_offset),
            inlined: Inlined::new(bytes(lines, record.inlined).unwrap_or_default(), wasm_offset),
        })
    }

    /// Type number of a function, imported or defined.
    pub fn function_type(&self, index: u32) -> Option<u32> {
        if index < self.header.counts.imported_functions.get() {
            let imported = self.imports().filter_map(|import| match import.kind {
                ImportKind::Function(ty) => Some(ty),
                _ => None,
            });
            return imported.into_iter().nth(index as usize);
        }
        self.function(index).map(|function| function.ty)
    }

    /// Functions that have a func_ref, by its number; those whose record is damaged read as function [`u32::MAX`], which does not exist.
    pub fn func_refs(&self) -> impl ExactSizeIterator<Item = FuncRefView> {
        let (text, types) = (self.header.text.len.get(), self.type_count());
        self.grown::<FuncRefRecord>(self.header.func_refs).iter().map(move |record| {
            let code_offset = record.code_offset.get();
            let inside = record.ty.get() < types && (code_offset < text || code_offset == NO_CODE);
            FuncRefView {
                function: if inside { record.function.get() } else { u32::MAX },
                ty: if inside { record.ty.get() } else { 0 },
                code_offset: (inside && code_offset != NO_CODE).then_some(code_offset),
            }
        })
    }

    /// Number of the func_ref of this function.
    pub fn func_ref_number(&self, function: u32) -> Option<u32> {
        let records = self.grown::<FuncRefRecord>(self.header.func_refs);
        let at = records.binary_search_by_key(&function, |record| record.function.get()).ok()?;
        u32::try_from(at).ok()
    }

    /// Index of the function whose code is at this offset from the start of `.text`.
    pub fn function_at(&self, code_offset: u64) -> Option<u32> {
        let records = self.grown::<FunctionRecord>(self.header.function_table);
        let order = self.grown::<U32>(self.header.code_order);
        let begin = |at: &U32| {
            records.get(at.get() as usize).map_or(u64::MAX, |record| record.code_offset.get().into())
        };
        let behind = order.partition_point(|at| begin(at) <= code_offset);
        let at = order.get(behind.checked_sub(1)?)?.get();
        let index = at.checked_add(self.header.counts.imported_functions.get())?;
        let function = self.function(index)?;
        (code_offset.checked_sub(function.code_offset)? < function.code_size).then_some(index)
    }

    /// The functions that were running at the instruction at this offset from the start of `.text`, innermost first: those that the compiler
    /// inlined, then the one whose code it is; empty outside functions. For a frame that waits for a call to return, ask for the
    /// offset of the return address less one.
    pub fn code_frames(&self, code_offset: u64) -> Vec<CodeFrame<'_>> {
        let function = self.function_at(code_offset).and_then(|index| self.function(index));
        let Some((function, at)) =
            function.and_then(|function| Some((function, code_offset.checked_sub(function.code_offset)?)))
        else {
            return Vec::new();
        };
        // Each call leads from the function that holds its operator; the operator of the instruction itself comes last.
        let calls = function.inlined.calls_at(at).take(INLINED_MAX).map(|call| Some(call.wasm_offset));
        let mut operators: Vec<_> = calls.collect();
        operators.push(function.lines.wasm_offset(at));
        let mut frames = Vec::new();
        for (depth, &wasm_offset) in operators.iter().enumerate().rev() {
            let inner = wasm_offset.and_then(|at| self.function(self.function_of_operator(at)?));
            let running = if depth == 0 { Some(function) } else { inner };
            frames.extend(running.map(|running| CodeFrame {
                function: running.index,
                name: running.name,
                wasm_offset,
            }));
        }
        frames
    }

    /// Index of the function whose body holds this byte of the wasm file.
    pub fn function_of_operator(&self, wasm_offset: u64) -> Option<u32> {
        let records = self.grown::<FunctionRecord>(self.header.function_table);
        let behind = records.partition_point(|record| u64::from(record.wasm_offset.get()) <= wasm_offset);
        let at = behind.checked_sub(1)?;
        let record = records.get(at)?;
        let inside =
            wasm_offset.checked_sub(record.wasm_offset.get().into())? < record.wasm_size.get().into();
        let index = u32::try_from(at).ok()?.checked_add(self.header.counts.imported_functions.get())?;
        inside.then_some(index)
    }
}

// Readers of records.
impl Artifact {
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn std_file(&self) -> &File {
        &self.file
    }

    pub(crate) fn section(&self, span: Span) -> &[u8] {
        self.mapping.section(span).unwrap_or_default()
    }

    /// Records of `.mote.meta`.
    fn meta<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self, table: Table) -> &[T] {
        let section = self.section(self.header.meta);
        records(section, table.offset.get().into(), table.count.get().into()).unwrap_or_default()
    }

    /// Records of `.mote.functions`.
    fn grown<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self, table: Table) -> &[T] {
        let section = self.section(self.header.functions);
        records(section, table.offset.get().into(), table.count.get().into()).unwrap_or_default()
    }

    fn pooled(&self, place: Bytes) -> &[u8] {
        bytes(self.meta::<u8>(self.header.pool), place).unwrap_or_default()
    }

    fn text_of(&self, place: Bytes) -> &str {
        std::str::from_utf8(self.pooled(place)).unwrap_or_default()
    }

    fn type_view(&self, record: &TypeRecord) -> FuncTypeView<'_> {
        let pool = self.meta::<u8>(self.header.pool);
        let params = u64::from(record.params.get());
        let values = u64::from(record.values.get());
        FuncTypeView {
            params: ValueTypes { bytes: slice(pool, values, params).unwrap_or_default() },
            results: ValueTypes {
                bytes: slice(pool, values.saturating_add(params), record.results.get().into())
                    .unwrap_or_default(),
            },
        }
    }

    fn mode(&self, mode: u8, target: U32, offset: Bytes) -> SegmentModeView<'_> {
        match mode {
            MODE_ACTIVE => SegmentModeView::Active { target: target.get(), offset: self.pooled(offset) },
            MODE_PASSIVE => SegmentModeView::Passive,
            _ => SegmentModeView::Declared,
        }
    }

    fn element_view(&self, record: &ElementRecord) -> ElementView<'_> {
        let data = self.section(self.header.data);
        let items = slice(data, record.items.get(), record.len.get()).unwrap_or_default();
        let count = record.count.get().into();
        ElementView {
            mode: self.mode(record.mode, record.target, record.offset),
            element: value_type(record.element),
            items: if record.expressions == 0 {
                ItemsView::Functions(FunctionIndices { items: records(items, 0, count).unwrap_or_default() })
            } else {
                let places = records(items, 0, count).unwrap_or_default();
                ItemsView::Expressions(Expressions { places, bytes: items })
            },
        }
    }

    fn data_view(&self, record: &SegmentRecord) -> DataView<'_> {
        let data = self.section(self.header.data);
        DataView {
            mode: self.mode(record.mode, record.target, record.offset),
            bytes: slice(data, record.bytes.offset.get(), record.bytes.len.get()).unwrap_or_default(),
            in_image: record.in_image != 0,
        }
    }
}

fn bytes(pool: &[u8], place: Bytes) -> Option<&[u8]> {
    slice(pool, place.offset.get().into(), place.len.get().into())
}

fn text(pool: &[u8], place: Bytes) -> Option<&str> {
    std::str::from_utf8(bytes(pool, place)?).ok()
}

fn limits(entity: &Entity) -> Limits {
    Limits { min: entity.min.get(), max: (entity.flags & ENTITY_MAX != 0).then(|| entity.max.get()) }
}

fn table_type(entity: &Entity) -> TableType {
    TableType {
        element: value_type(entity.value),
        limits: limits(entity),
        table64: entity.flags & ENTITY_WIDE != 0,
    }
}

fn memory_type(entity: &Entity) -> MemoryType {
    MemoryType {
        limits: limits(entity),
        shared: entity.flags & ENTITY_SHARED != 0,
        memory64: entity.flags & ENTITY_WIDE != 0,
    }
}

fn global_type(entity: &Entity) -> GlobalType {
    GlobalType { value: value_type(entity.value), mutable: entity.flags & ENTITY_MUTABLE != 0 }
}

pub(crate) fn export_kind(byte: u8) -> Option<ExportKind> {
    Some(match byte {
        0 => ExportKind::Function,
        1 => ExportKind::Table,
        2 => ExportKind::Memory,
        3 => ExportKind::Global,
        4 => ExportKind::Tag,
        _ => return None,
    })
}

fn import_kind(entity: &Entity) -> ImportKind {
    match export_kind(entity.kind) {
        Some(ExportKind::Table) => ImportKind::Table(table_type(entity)),
        Some(ExportKind::Memory) => ImportKind::Memory(memory_type(entity)),
        Some(ExportKind::Global) => ImportKind::Global(global_type(entity)),
        Some(ExportKind::Tag) => ImportKind::Tag(entity.ty.get()),
        Some(ExportKind::Function) | None => ImportKind::Function(entity.ty.get()),
    }
}

#[cfg(target_arch = "x86_64")]
const HOST_MACHINE: u16 = MACHINE_X86_64;
#[cfg(target_arch = "aarch64")]
const HOST_MACHINE: u16 = MACHINE_AARCH64;

fn machine_name(machine: u16) -> &'static str {
    match machine {
        MACHINE_X86_64 => "x86_64",
        MACHINE_AARCH64 => "aarch64",
        _ => "unknown",
    }
}
