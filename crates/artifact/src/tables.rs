//! Encodes a module's facts as records: the writer's half of what [`crate::view`] reads.

// No hash map: its random keys would be a thread's memory in every process.
use std::collections::BTreeMap;

use zerocopy::{Immutable, IntoBytes};

use crate::code::LinkedCode;
use crate::format::{
    Bytes, ChunkRecord, DefinedRecord, ENTITY_MAX, ENTITY_MUTABLE, ENTITY_SHARED, ENTITY_WIDE, ElementRecord,
    Entity, ExportRecord, FLAG_CONTEXT_IS_MEMORY, FLAG_START, FuncRefRecord, FunctionRecord, Header,
    ImportRecord, MODE_ACTIVE, MODE_DECLARED, MODE_PASSIVE, NO_CODE, PAGE, SegmentRecord, Span, TEXT_ADDRESS,
    Table, ThunkRecord, TypeRecord,
};
use crate::info::{
    ConstExpr, ElementItems, ExportKind, GlobalType, ImportKind, MemoryType, ModuleInfo, SegmentMode,
    TableType,
};
use crate::inlined::decode_debug_info;
use crate::lines::{LineRows, decode_debug_line};
use crate::write::WriteError;

/// The three sections of metadata.
pub(crate) struct Metadata {
    pub meta: Vec<u8>,
    pub functions: Vec<u8>,
    pub data: Vec<u8>,
}

/// Encodes everything but the code and the image, and notes in the header where each table is.
pub(crate) fn encode_metadata(
    info: &ModuleInfo,
    code: &LinkedCode,
    header: &mut Header,
) -> Result<Metadata, WriteError> {
    check_consistent(info, code)?;
    let mut meta = Section::default();
    let mut data = Vec::new();
    header.format = crate::format::FORMAT_VERSION.into();
    header.wasm_sha256 = info.wasm_sha256;
    header.counts = info.counts.into();
    let mut flags = 0;
    if info.context_is_memory {
        flags |= FLAG_CONTEXT_IS_MEMORY;
    }
    if let Some(start) = info.start {
        flags |= FLAG_START;
        header.start = start.into();
    }
    header.flags = flags.into();
    header.name = meta.text(&info.name)?;
    header.compiler = meta.text(&info.compiler)?;
    header.options = meta.text(&info.options)?;
    header.cpu_features = meta.table(&info.cpu_features, |meta, name| meta.text(name))?;
    header.types = meta.table(&info.types, |meta, ty| {
        let values: Vec<u8> = ty.params.iter().chain(&ty.results).map(|&value| value as u8).collect();
        Ok(TypeRecord {
            values: meta.pooled(&values)?.offset,
            params: count("parameters", ty.params.len())?.into(),
            results: count("results", ty.results.len())?.into(),
        })
    })?;
    header.thunks = meta.table(&info.thunks, |_, thunk| {
        Ok(ThunkRecord { entry: thunk.entry.into(), host: thunk.host.into() })
    })?;
    header.imports = meta.table(&info.imports, |meta, import| {
        Ok(ImportRecord {
            module: meta.text(&import.module)?,
            name: meta.text(&import.name)?,
            entity: entity(import.kind),
        })
    })?;
    header.exports = meta.table(&info.exports, |meta, export| {
        let name = meta.text(&export.name)?;
        Ok(ExportRecord { name, index: export.index.into(), kind: export.kind as u8, reserved: [0; 3] })
    })?;
    header.tables = meta.table(&info.tables, |meta, table| {
        let init = table.init.as_deref().map_or(Ok(Bytes::default()), |init| meta.pooled(init))?;
        Ok(DefinedRecord { entity: entity(ImportKind::Table(table.ty)), init })
    })?;
    header.memories = meta.table(&info.memories, |_, &memory| Ok(entity(ImportKind::Memory(memory))))?;
    header.globals = meta.table(&info.globals, |meta, global| {
        Ok(DefinedRecord { entity: entity(ImportKind::Global(global.ty)), init: meta.pooled(&global.init)? })
    })?;
    header.tags = meta.table(&info.tags, |_, &tag| Ok(zerocopy::little_endian::U32::new(tag)))?;
    header.elements = meta.table(&info.elements, |meta, segment| {
        let (mode, target, offset) = segment_mode(meta, &segment.mode)?;
        let items = data.len() as u64;
        let (expressions, number) = match &segment.items {
            ElementItems::Functions(functions) => {
                data.extend(functions.iter().flat_map(|function| function.to_le_bytes()));
                (0, functions.len())
            }
            ElementItems::Expressions(list) => {
                encode_expressions(list, &mut data)?;
                (1, list.len())
            }
        };
        Ok(ElementRecord {
            mode,
            element: segment.element as u8,
            expressions,
            reserved: 0,
            target: target.into(),
            offset,
            items: items.into(),
            count: count("elements of a segment", number)?.into(),
            len: (data.len() as u64).saturating_sub(items).into(),
        })
    })?;
    header.segments = meta.table(&info.data, |meta, segment| {
        let (mode, target, offset) = segment_mode(meta, &segment.mode)?;
        let bytes = Span::new(data.len() as u64, segment.bytes.len() as u64);
        data.extend_from_slice(&segment.bytes);
        Ok(SegmentRecord {
            mode,
            in_image: segment.in_image.into(),
            reserved: [0; 2],
            target: target.into(),
            offset,
            bytes,
        })
    })?;
    let mut image_at = 0_u64;
    header.chunks = meta.table(&info.image, |_, chunk| {
        let bytes = Span::new(image_at, chunk.bytes.len() as u64);
        image_at = image_at.saturating_add(chunk.bytes.len() as u64);
        Ok(ChunkRecord {
            memory: chunk.memory.into(),
            reserved: 0.into(),
            address: chunk.address.into(),
            bytes,
        })
    })?;
    let (meta, pool) = meta.finish()?;
    header.pool = pool;
    let functions = encode_functions(info, code, header)?;
    Ok(Metadata { meta, functions, data })
}

/// Functions, their order in the code, func_refs, line streams.
fn encode_functions(
    info: &ModuleInfo,
    code: &LinkedCode,
    header: &mut Header,
) -> Result<Vec<u8>, WriteError> {
    let mut section = Section::default();
    let lines = code.debug.iter().find(|section| section.name == ".debug_line");
    let rows = lines.map_or(Ok(LineRows::default()), |lines| decode_debug_line(&lines.bytes))?;
    let calls = decode_debug_info(&code.debug)?;
    let mut streams = Vec::new();
    let place = |begin: usize, end: usize| {
        let len = count("line table of a function", end.saturating_sub(begin))?;
        Ok::<_, WriteError>(Bytes { offset: count("line tables", begin)?.into(), len: len.into() })
    };
    header.function_table = section.table(&info.functions, |section, function| {
        let begin = streams.len();
        let address = TEXT_ADDRESS.saturating_add(function.code_offset);
        rows.encode(address, function.code_size, function.wasm_offset, &mut streams);
        let middle = streams.len();
        calls.encode(address, function.code_size, function.wasm_offset, &mut streams);
        Ok(FunctionRecord {
            ty: function.ty.into(),
            name: section.text(&function.name)?,
            code_offset: small("code offset of a function", function.code_offset)?.into(),
            code_size: small("code of a function", function.code_size)?.into(),
            wasm_offset: small("wasm file", function.wasm_offset)?.into(),
            wasm_size: small("wasm body of a function", function.wasm_size)?.into(),
            lines: place(begin, middle)?,
            inlined: place(middle, streams.len())?,
        })
    })?;
    let mut order: Vec<u32> = (0..count("functions", info.functions.len())?).collect();
    order.sort_by_key(|&at| info.functions.get(at as usize).map(|function| function.code_offset));
    header.code_order = section.table(&order, |_, &at| Ok(zerocopy::little_endian::U32::new(at)))?;
    let imported: Vec<u32> = info
        .imports
        .iter()
        .filter_map(|import| if let ImportKind::Function(ty) = import.kind { Some(ty) } else { None })
        .collect();
    header.func_refs = section.table(&info.func_refs, |_, &function| {
        let defined = function.checked_sub(info.counts.imported_functions);
        let defined = defined.and_then(|at| info.functions.get(at as usize));
        let (ty, code_offset) = match defined {
            Some(function) => (function.ty, function.code_offset),
            None => (imported.get(function as usize).copied().unwrap_or(0), NO_CODE),
        };
        Ok(FuncRefRecord { function: function.into(), ty: ty.into(), code_offset: code_offset.into() })
    })?;
    header.lines = section.table(&streams, |_, &byte| Ok(byte))?;
    let (bytes, pool) = section.finish()?;
    header.function_pool = pool;
    Ok(bytes)
}

fn segment_mode(meta: &mut Section, mode: &SegmentMode) -> Result<(u8, u32, Bytes), WriteError> {
    Ok(match mode {
        SegmentMode::Active { target, offset } => (MODE_ACTIVE, *target, meta.pooled(offset)?),
        SegmentMode::Passive => (MODE_PASSIVE, 0, Bytes::default()),
        SegmentMode::Declared => (MODE_DECLARED, 0, Bytes::default()),
    })
}

/// `count` records that say where each expression is, then the expressions.
fn encode_expressions(list: &[ConstExpr], data: &mut Vec<u8>) -> Result<(), WriteError> {
    let mut at = list.len().saturating_mul(size_of::<Bytes>());
    for expression in list {
        let bytes = Bytes {
            offset: count("expressions of an element segment", at)?.into(),
            len: count("constant expression", expression.len())?.into(),
        };
        at = at.saturating_add(expression.len());
        data.extend_from_slice(bytes.as_bytes());
    }
    list.iter().for_each(|expression| data.extend_from_slice(expression));
    Ok(())
}

fn entity(kind: ImportKind) -> Entity {
    fn limits(entity: &mut Entity, min: u64, max: Option<u64>) {
        entity.min = min.into();
        if let Some(max) = max {
            entity.max = max.into();
            entity.flags |= ENTITY_MAX;
        }
    }
    let mut entity = Entity::default();
    match kind {
        ImportKind::Function(ty) => {
            entity.kind = ExportKind::Function as u8;
            entity.ty = ty.into();
        }
        ImportKind::Table(TableType { element, limits: size, table64 }) => {
            entity.kind = ExportKind::Table as u8;
            entity.value = element as u8;
            entity.flags = if table64 { ENTITY_WIDE } else { 0 };
            limits(&mut entity, size.min, size.max);
        }
        ImportKind::Memory(MemoryType { limits: size, shared, memory64 }) => {
            entity.kind = ExportKind::Memory as u8;
            entity.flags = if shared { ENTITY_SHARED } else { 0 } | if memory64 { ENTITY_WIDE } else { 0 };
            limits(&mut entity, size.min, size.max);
        }
        ImportKind::Global(GlobalType { value, mutable }) => {
            entity.kind = ExportKind::Global as u8;
            entity.value = value as u8;
            entity.flags = if mutable { ENTITY_MUTABLE } else { 0 };
        }
        ImportKind::Tag(ty) => {
            entity.kind = ExportKind::Tag as u8;
            entity.ty = ty.into();
        }
    }
    entity
}

/// Tables one behind the other, then a pool of strings and bytes.
#[derive(Default)]
struct Section {
    bytes: Vec<u8>,
    pool: Vec<u8>,
    /// Where each piece of the pool is; only looked up, never iterated.
    pooled: BTreeMap<Vec<u8>, Bytes>,
}

impl Section {
    fn table<T, R: IntoBytes + Immutable>(
        &mut self,
        items: &[T],
        mut record: impl FnMut(&mut Self, &T) -> Result<R, WriteError>,
    ) -> Result<Table, WriteError> {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let offset = count("metadata", self.bytes.len())?;
        for item in items {
            let record = record(self, item)?;
            self.bytes.extend_from_slice(record.as_bytes());
        }
        Ok(Table { offset: offset.into(), count: count("metadata table", items.len())?.into() })
    }

    fn text(&mut self, text: &str) -> Result<Bytes, WriteError> {
        self.pooled(text.as_bytes())
    }

    fn pooled(&mut self, bytes: &[u8]) -> Result<Bytes, WriteError> {
        if let Some(&known) = self.pooled.get(bytes) {
            return Ok(known);
        }
        let offset = count("metadata strings", self.pool.len())?;
        let place = Bytes { offset: offset.into(), len: count("a name or expression", bytes.len())?.into() };
        self.pool.extend_from_slice(bytes);
        self.pooled.insert(bytes.to_vec(), place);
        Ok(place)
    }

    fn finish(mut self) -> Result<(Vec<u8>, Table), WriteError> {
        let pool = std::mem::take(&mut self.pool);
        let table = self.table(&pool, |_, &byte| Ok(byte))?;
        Ok((self.bytes, table))
    }
}

fn count(what: &'static str, len: usize) -> Result<u32, WriteError> {
    small(what, len as u64)
}

fn small(what: &'static str, value: u64) -> Result<u32, WriteError> {
    u32::try_from(value).map_err(|_| WriteError::TooLarge { what, limit: u32::MAX.into() })
}

/// What the loader will ask of the records, so that nothing is written that it refuses.
fn check_consistent(info: &ModuleInfo, code: &LinkedCode) -> Result<(), WriteError> {
    let check = |holds: bool, what, index, problem| {
        if holds { Ok(()) } else { Err(WriteError::Inconsistent { what, index, problem }) }
    };
    let text = code.text.len() as u64;
    let counts = info.counts;
    let defined = |total: u32, imported: u32, len: usize| {
        total.checked_sub(imported).is_some_and(|defined| defined as usize == len)
    };
    let problem = "the count for the context block differs";
    check(defined(counts.memories, counts.imported_memories, info.memories.len()), "memories", 0, problem)?;
    check(defined(counts.tables, counts.imported_tables, info.tables.len()), "tables", 0, problem)?;
    check(defined(counts.globals, counts.imported_globals, info.globals.len()), "globals", 0, problem)?;
    check(counts.types as usize == info.types.len(), "types", 0, problem)?;
    check(counts.func_refs as usize == info.func_refs.len(), "func_refs", 0, problem)?;
    check(info.thunks.len() == info.types.len(), "thunks", 0, "there must be one pair for each type")?;
    for (index, thunk) in info.thunks.iter().enumerate() {
        check(thunk.entry < text && thunk.host < text, "thunk", index, "it lies outside the code")?;
    }
    let known = |ty: u32| (ty as usize) < info.types.len();
    for (index, function) in info.functions.iter().enumerate() {
        let end = function.code_offset.checked_add(function.code_size);
        check(end.is_some_and(|end| end <= text), "function", index, "its code lies outside the code")?;
        check(known(function.ty), "function", index, "its type does not exist")?;
    }
    for (index, import) in info.imports.iter().enumerate() {
        if let ImportKind::Function(ty) | ImportKind::Tag(ty) = import.kind {
            check(known(ty), "import", index, "its type does not exist")?;
        }
    }
    for (index, &tag) in info.tags.iter().enumerate() {
        check(known(tag), "tag", index, "its type does not exist")?;
    }
    check(info.func_refs.is_sorted_by(|a, b| a < b), "func_refs", 0, "they are not in ascending order")?;
    let functions = u64::from(counts.imported_functions).saturating_add(info.functions.len() as u64);
    let last = info.func_refs.last().is_none_or(|&last| u64::from(last) < functions);
    check(last, "func_refs", info.func_refs.len(), "the function does not exist")?;
    let start = info.start.is_none_or(|start| u64::from(start) < functions);
    check(start, "start function", info.start.unwrap_or(0) as usize, "the function does not exist")?;
    for (index, chunk) in info.image.iter().enumerate() {
        let aligned = chunk.address % PAGE == 0 && (chunk.bytes.len() as u64).is_multiple_of(PAGE);
        check(aligned, "image chunk", index, "it is not page-aligned")?;
        check(chunk.memory < counts.memories, "image chunk", index, "its memory does not exist")?;
    }
    for (index, global) in info.globals.iter().enumerate() {
        check(!global.init.is_empty(), "global", index, "it has no initial value")?;
    }
    Ok(())
}
