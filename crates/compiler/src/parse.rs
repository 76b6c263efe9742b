//! wasm bytes to what the translator and the artifact need.
//!
//! One pass over the sections validates them and fills a [`ModuleInfo`]; function bodies are validated afterwards, on as many
//! threads as asked for, and measured for the choice of their tier on the way ([`body`]). Data segments whose
//! place is known become pages of the artifact ([`image`]).

mod body;
mod image;

use std::collections::{BTreeSet, HashMap};

use mote_artifact::info::{
    DataSegment, ElementItems, ElementSegment, Export, ExportKind, FuncType, FunctionInfo, GlobalInfo,
    GlobalType, Import, ImportKind, Limits as SizeLimits, MemoryType, ModuleInfo, SegmentMode, TableInfo,
    TableType,
};
use mote_artifact::{ContextLayout, ModuleCounts};
use sha2::{Digest, Sha256};
use wasmparser::{
    DataKind, ElementKind, Encoding, ExternalKind, FunctionBody, Operator, Parser, Payload, TableInit,
    TypeRef, ValidPayload, Validator, WasmFeatures,
};

pub(crate) use body::BodySize;

use crate::{CompileError, Limits, Options, value_type};

/// The proposals that are accepted.
pub(crate) const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::THREADS)
    .union(WasmFeatures::MULTI_MEMORY)
    .union(WasmFeatures::MEMORY64)
    .union(WasmFeatures::WIDE_ARITHMETIC)
    .union(WasmFeatures::RELAXED_SIMD)
    .union(WasmFeatures::EXCEPTIONS);

/// A validated module, its bodies still to be translated.
pub(crate) struct Parsed {
    /// What the artifact says about the module; code places are filled in after linking.
    pub(crate) info: ModuleInfo,
    /// Where everything lies in the context block.
    pub(crate) layout: ContextLayout,
    /// The module's type indices to numbers of `info.types`.
    pub(crate) type_numbers: Vec<u32>,
    /// Type number of every function, imports first.
    pub(crate) function_types: Vec<u32>,
    /// Type of every table, imports first.
    pub(crate) tables: Vec<TableType>,
    /// Type of every memory, imports first.
    pub(crate) memories: Vec<MemoryType>,
    /// Type of every global, imports first.
    pub(crate) globals: Vec<GlobalType>,
    /// Type number of every tag, imports first.
    pub(crate) tags: Vec<u32>,
    /// The module throws or catches exceptions.
    pub(crate) exceptions: bool,
}

/// A validated function body and its size.
pub(crate) struct Body<'w> {
    /// The bytes.
    pub(crate) body: FunctionBody<'w>,
    /// How large it is, as far as it matters to the time that LLVM takes.
    pub(crate) size: BodySize,
}

impl Parsed {
    /// Function type number `number`.
    pub(crate) fn ty(&self, number: u32) -> Option<&FuncType> {
        self.info.types.get(number as usize)
    }

    /// The number of the module's type `index`.
    pub(crate) fn type_number(&self, index: u32) -> Result<u32, CompileError> {
        let found = self.type_numbers.get(index as usize).copied();
        found.ok_or_else(|| CompileError::internal(format!("no type {index}")))
    }

    /// The module's type `index`.
    pub(crate) fn module_type(&self, index: u32) -> Result<&FuncType, CompileError> {
        let number = self.type_number(index)?;
        self.ty(number).ok_or_else(|| CompileError::internal(format!("no type number {number}")))
    }

    /// The type of function `index`.
    pub(crate) fn function_type(&self, index: u32) -> Result<&FuncType, CompileError> {
        let number = self.function_types.get(index as usize).copied();
        let found = number.and_then(|number| self.ty(number));
        found.ok_or_else(|| CompileError::internal(format!("no function {index}")))
    }

    /// The type whose parameters are the payload of tag `index`.
    pub(crate) fn tag_type(&self, index: u32) -> Result<&FuncType, CompileError> {
        let number = self.tags.get(index as usize).copied();
        let found = number.and_then(|number| self.ty(number));
        found.ok_or_else(|| CompileError::internal(format!("no tag {index}")))
    }

    /// The name of defined function `index`; `function N` when it has none.
    pub(crate) fn function_name(&self, index: u32) -> String {
        let defined = index.checked_sub(self.info.counts.imported_functions);
        let found = defined.and_then(|defined| self.info.functions.get(defined as usize));
        match found {
            Some(function) if !function.name.is_empty() => function.name.clone(),
            _ => format!("function {index}"),
        }
    }

    /// The number of the `func_ref` of function `index`.
    pub(crate) fn func_ref_number(&self, index: u32) -> Result<u32, CompileError> {
        let found = self.info.func_refs.binary_search(&index).ok();
        found
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| CompileError::internal(format!("function {index} has no reference")))
    }
}

/// Decodes and validates a module.
pub(crate) fn parse<'w>(wasm: &'w [u8], options: &Options) -> Result<(Parsed, Vec<Body<'w>>), CompileError> {
    check("bytes of the module", wasm.len() as u64, options.limits.module_bytes)?;
    refuse_component(wasm)?;
    let mut sections = Sections::new(&options.limits);
    let found = sections.read(wasm).and_then(|()| {
        let functions = std::mem::take(&mut sections.functions);
        let first = sections.counts.imported_functions;
        body::validate_all(functions, first, options)
    });
    let bodies = found.map_err(|error| name_the_feature(error, wasm))?;
    Ok((sections.finish(wasm, &bodies)?, bodies))
}

fn refuse_component(wasm: &[u8]) -> Result<(), CompileError> {
    if Parser::is_component(wasm) {
        let what = "a component (this compiler takes core modules)".to_owned();
        return Err(CompileError::Unsupported { what, offset: 4 });
    }
    Ok(())
}

/// A module that is valid with proposals that are not accepted is not "invalid".
fn name_the_feature(error: CompileError, wasm: &[u8]) -> CompileError {
    let CompileError::Invalid { message, offset } = &error else { return error };
    let refused = [
        (
            "garbage collection and typed function references",
            WasmFeatures::GC | WasmFeatures::FUNCTION_REFERENCES,
        ),
        ("legacy exception handling (recompile with exnref)", WasmFeatures::LEGACY_EXCEPTIONS),
        ("stack switching", WasmFeatures::STACK_SWITCHING | WasmFeatures::FUNCTION_REFERENCES),
        ("custom page sizes", WasmFeatures::CUSTOM_PAGE_SIZES),
        ("memory control", WasmFeatures::MEMORY_CONTROL),
        (
            "shared-everything threads",
            WasmFeatures::SHARED_EVERYTHING_THREADS | WasmFeatures::GC | WasmFeatures::FUNCTION_REFERENCES,
        ),
    ];
    for (name, feature) in refused {
        let features = FEATURES | WasmFeatures::GC_TYPES | feature;
        if Validator::new_with_features(features).validate_all(wasm).is_ok() {
            return CompileError::Unsupported { what: format!("{name}: {message}"), offset: *offset };
        }
    }
    error
}

pub(crate) fn check(what: &'static str, found: u64, limit: u64) -> Result<(), CompileError> {
    if found > limit { Err(CompileError::Limit { what, found, limit, function: None }) } else { Ok(()) }
}

fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}

type FunctionToValidate<'w> = (wasmparser::FuncToValidate<wasmparser::ValidatorResources>, FunctionBody<'w>);

/// What the sections have said so far.
struct Sections<'l, 'w> {
    limits: &'l Limits,
    info: ModuleInfo,
    counts: ModuleCounts,
    numbers: HashMap<FuncType, u32>,
    type_numbers: Vec<u32>,
    function_types: Vec<u32>,
    tables: Vec<TableType>,
    memories: Vec<MemoryType>,
    globals: Vec<GlobalType>,
    tags: Vec<u32>,
    functions: Vec<FunctionToValidate<'w>>,
    names: HashMap<u32, &'w str>,
    referenced: BTreeSet<u32>,
    elements: u64,
}

impl<'l, 'w> Sections<'l, 'w> {
    fn new(limits: &'l Limits) -> Self {
        Self {
            limits,
            info: ModuleInfo::default(),
            counts: ModuleCounts::default(),
            numbers: HashMap::new(),
            type_numbers: Vec::new(),
            function_types: Vec::new(),
            tables: Vec::new(),
            memories: Vec::new(),
            globals: Vec::new(),
            tags: Vec::new(),
            functions: Vec::new(),
            names: HashMap::new(),
            referenced: BTreeSet::new(),
            elements: 0,
        }
    }

    fn read(&mut self, wasm: &'w [u8]) -> Result<(), CompileError> {
        let mut validator = Validator::new_with_features(FEATURES);
        let mut parser = Parser::new(0);
        parser.set_features(FEATURES);
        for payload in parser.parse_all(wasm) {
            let payload = payload?;
            if let Payload::CustomSection(section) = &payload {
                if section.name() == "name" {
                    let reader = wasmparser::BinaryReader::new(section.data(), section.data_offset());
                    self.read_names(wasmparser::NameSectionReader::new(reader));
                }
                continue;
            }
            if let ValidPayload::Func(function, body) = validator.payload(&payload)? {
                check(
                    "bytes of a function",
                    body.range().end - body.range().start,
                    self.limits.function_bytes,
                )
                .map_err(|error| {
                    error.in_function(self.counts.imported_functions + count(self.functions.len()))
                })?;
                self.functions.push((function, body));
            }
            self.read_payload(payload)?;
        }
        Ok(())
    }

    fn read_payload(&mut self, payload: Payload<'w>) -> Result<(), CompileError> {
        match payload {
            Payload::Version { encoding: Encoding::Component, .. } => {
                let what = "a component (this compiler takes core modules)".to_owned();
                Err(CompileError::Unsupported { what, offset: 4 })
            }
            Payload::TypeSection(section) => self.read_types(section),
            Payload::ImportSection(section) => self.read_imports(section),
            Payload::FunctionSection(section) => {
                for ty in section {
                    let number = self.number_of(ty?)?;
                    self.function_types.push(number);
                }
                check("functions", self.function_types.len() as u64, self.limits.functions.into())
            }
            Payload::TableSection(section) => self.read_tables(section),
            Payload::MemorySection(section) => {
                for memory in section {
                    let memory = memory_type(memory?);
                    self.memories.push(memory);
                    self.info.memories.push(memory);
                }
                check("memories", self.memories.len() as u64, self.limits.memories.into())
            }
            Payload::TagSection(section) => {
                for tag in section {
                    let number = self.number_of(tag?.func_type_idx)?;
                    self.tags.push(number);
                    self.info.tags.push(number);
                }
                check("tags", self.tags.len() as u64, self.limits.tags.into())
            }
            Payload::GlobalSection(section) => self.read_globals(section),
            Payload::ExportSection(section) => self.read_exports(section),
            Payload::StartSection { func, .. } => {
                self.info.start = Some(func);
                Ok(())
            }
            Payload::ElementSection(section) => self.read_elements(section),
            Payload::DataSection(section) => self.read_data(section),
            _ => Ok(()),
        }
    }

    fn number_of(&self, type_index: u32) -> Result<u32, CompileError> {
        let found = self.type_numbers.get(type_index as usize).copied();
        found.ok_or_else(|| CompileError::internal(format!("no type {type_index}")))
    }

    fn read_types(&mut self, section: wasmparser::TypeSectionReader<'w>) -> Result<(), CompileError> {
        let offset = section.range().start;
        for ty in section.into_iter_err_on_gc_types() {
            let ty = ty?;
            let convert = |types: &[wasmparser::ValType]| {
                types.iter().map(|&ty| value_type(ty, offset)).collect::<Result<Vec<_>, _>>()
            };
            let ty = FuncType { params: convert(ty.params())?, results: convert(ty.results())? };
            check("parameters of a function type", ty.params.len() as u64, self.limits.params.into())?;
            check("results of a function type", ty.results.len() as u64, self.limits.results.into())?;
            let next = count(self.info.types.len());
            let number = *self.numbers.entry(ty.clone()).or_insert(next);
            if number == next {
                self.info.types.push(ty);
            }
            self.type_numbers.push(number);
        }
        check("function types", self.info.types.len() as u64, self.limits.types.into())
    }

    fn read_imports(&mut self, section: wasmparser::ImportSectionReader<'w>) -> Result<(), CompileError> {
        for import in section.into_imports_with_offsets() {
            let (offset, import) = import?;
            let kind = match import.ty {
                TypeRef::Func(index) | TypeRef::FuncExact(index) => {
                    let number = self.number_of(index)?;
                    self.function_types.push(number);
                    self.counts.imported_functions += 1;
                    ImportKind::Function(number)
                }
                TypeRef::Table(table) => {
                    let table = table_type(table, offset)?;
                    self.tables.push(table);
                    self.counts.imported_tables += 1;
                    ImportKind::Table(table)
                }
                TypeRef::Memory(memory) => {
                    let memory = memory_type(memory);
                    self.memories.push(memory);
                    self.counts.imported_memories += 1;
                    ImportKind::Memory(memory)
                }
                TypeRef::Global(global) => {
                    let global = global_type(global, offset)?;
                    self.globals.push(global);
                    self.counts.imported_globals += 1;
                    ImportKind::Global(global)
                }
                TypeRef::Tag(tag) => {
                    let number = self.number_of(tag.func_type_idx)?;
                    self.tags.push(number);
                    ImportKind::Tag(number)
                }
            };
            let (module, name) = (import.module.to_owned(), import.name.to_owned());
            self.info.imports.push(Import { module, name, kind });
        }
        check("imports", self.info.imports.len() as u64, self.limits.imports.into())
    }

    fn read_tables(&mut self, section: wasmparser::TableSectionReader<'w>) -> Result<(), CompileError> {
        let offset = section.range().start;
        for table in section {
            let table = table?;
            let ty = table_type(table.ty, offset)?;
            let init = match table.init {
                TableInit::RefNull => None,
                TableInit::Expr(expr) => Some(self.const_expr(&expr)?),
            };
            self.tables.push(ty);
            self.info.tables.push(TableInfo { ty, init });
        }
        check("tables", self.tables.len() as u64, self.limits.tables.into())
    }

    fn read_globals(&mut self, section: wasmparser::GlobalSectionReader<'w>) -> Result<(), CompileError> {
        let offset = section.range().start;
        for global in section {
            let global = global?;
            let ty = global_type(global.ty, offset)?;
            let init = self.const_expr(&global.init_expr)?;
            self.globals.push(ty);
            self.info.globals.push(GlobalInfo { ty, init });
        }
        check("globals", self.globals.len() as u64, self.limits.globals.into())
    }

    fn read_exports(&mut self, section: wasmparser::ExportSectionReader<'w>) -> Result<(), CompileError> {
        for export in section {
            let export = export?;
            let kind = match export.kind {
                ExternalKind::Func | ExternalKind::FuncExact => ExportKind::Function,
                ExternalKind::Table => ExportKind::Table,
                ExternalKind::Memory => ExportKind::Memory,
                ExternalKind::Global => ExportKind::Global,
                ExternalKind::Tag => ExportKind::Tag,
            };
            if kind == ExportKind::Function {
                self.referenced.insert(export.index);
            }
            self.info.exports.push(Export { name: export.name.to_owned(), kind, index: export.index });
        }
        check("exports", self.info.exports.len() as u64, self.limits.exports.into())
    }

    fn read_elements(&mut self, section: wasmparser::ElementSectionReader<'w>) -> Result<(), CompileError> {
        for segment in section {
            let segment = segment?;
            let offset = segment.range.start;
            let mode = match segment.kind {
                ElementKind::Passive => SegmentMode::Passive,
                ElementKind::Declared => SegmentMode::Declared,
                ElementKind::Active { table_index, offset_expr } => SegmentMode::Active {
                    target: table_index.unwrap_or(0),
                    offset: self.const_expr(&offset_expr)?,
                },
            };
            let (element, items) = match segment.items {
                wasmparser::ElementItems::Functions(items) => {
                    self.count_elements(items.count())?;
                    let items = items.into_iter().collect::<Result<Vec<_>, _>>()?;
                    self.referenced.extend(&items);
                    (mote_artifact::info::ValueType::FuncRef, ElementItems::Functions(items))
                }
                wasmparser::ElementItems::Expressions(ty, items) => {
                    self.count_elements(items.count())?;
                    let element = value_type(wasmparser::ValType::Ref(ty), offset)?;
                    let mut expressions = Vec::new();
                    for item in items {
                        expressions.push(self.const_expr(&item?)?);
                    }
                    (element, ElementItems::Expressions(expressions))
                }
            };
            self.info.elements.push(ElementSegment { mode, element, items });
        }
        Ok(())
    }

    fn count_elements(&mut self, items: u32) -> Result<(), CompileError> {
        self.elements += u64::from(items);
        check("elements of element segments", self.elements, self.limits.elements.into())
    }

    fn read_data(&mut self, section: wasmparser::DataSectionReader<'w>) -> Result<(), CompileError> {
        check("data segments", section.count().into(), self.limits.data_segments.into())?;
        for segment in section {
            let segment = segment?;
            let mode = match segment.kind {
                DataKind::Passive => SegmentMode::Passive,
                DataKind::Active { memory_index, offset_expr } => {
                    SegmentMode::Active { target: memory_index, offset: self.const_expr(&offset_expr)? }
                }
            };
            self.info.data.push(DataSegment { mode, bytes: segment.data.to_vec(), in_image: false });
        }
        Ok(())
    }

    /// The bytes of a constant expression; functions that it names get references.
    fn const_expr(&mut self, expr: &wasmparser::ConstExpr<'w>) -> Result<Vec<u8>, CompileError> {
        for op in expr.get_operators_reader() {
            if let Operator::RefFunc { function_index } = op? {
                self.referenced.insert(function_index);
            }
        }
        let mut reader = expr.get_binary_reader();
        Ok(reader.read_bytes(reader.bytes_remaining())?.to_vec())
    }

    /// Names are for people: a broken name section is ignored from where it breaks.
    fn read_names(&mut self, names: wasmparser::NameSectionReader<'w>) {
        for name in names {
            match name {
                Ok(wasmparser::Name::Module { name, .. }) => self.info.name = name.to_owned(),
                Ok(wasmparser::Name::Function(functions)) => {
                    for naming in functions {
                        let Ok(naming) = naming else { return };
                        self.names.insert(naming.index, naming.name);
                    }
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    fn finish(mut self, wasm: &[u8], bodies: &[Body<'_>]) -> Result<Parsed, CompileError> {
        let mut info = std::mem::take(&mut self.info);
        info.wasm_sha256 = Sha256::digest(wasm).into();
        info.func_refs = self.referenced.into_iter().collect();
        info.context_is_memory = self.counts.imported_memories == 0
            && self.memories.first().is_some_and(|memory| !memory.memory64 && !memory.shared);
        let exported: HashMap<u32, &str> = info
            .exports
            .iter()
            .rev()
            .filter(|export| export.kind == ExportKind::Function)
            .map(|export| (export.index, export.name.as_str()))
            .collect();
        let first = self.counts.imported_functions;
        let mut functions = Vec::with_capacity(bodies.len());
        for (index, body) in (first..).zip(bodies) {
            let ty = self.function_types.get(index as usize).copied();
            let named = self.names.get(&index).copied().filter(|name| !name.is_empty());
            let range = body.body.range();
            functions.push(FunctionInfo {
                ty: ty.ok_or_else(|| CompileError::internal("a body without a type"))?,
                name: named.or_else(|| exported.get(&index).copied()).unwrap_or_default().to_owned(),
                code_offset: 0,
                code_size: 0,
                wasm_offset: range.start,
                wasm_size: range.end.saturating_sub(range.start),
            });
        }
        info.functions = functions;
        image::build(&mut info, self.counts.imported_memories, self.limits);
        let counts = ModuleCounts {
            memories: count(self.memories.len()),
            tables: count(self.tables.len()),
            globals: count(self.globals.len()),
            func_refs: count(info.func_refs.len()),
            types: count(info.types.len()),
            tags: count(self.tags.len()),
            ..self.counts
        };
        info.counts = counts;
        let layout = ContextLayout::new(counts).ok_or(CompileError::Limit {
            what: "bytes of an instance's context block",
            found: u64::from(counts.globals) * 16 + u64::from(counts.func_refs) * 32,
            limit: mote_artifact::abi::CONTEXT_MAX,
            function: None,
        })?;
        let exceptions = !self.tags.is_empty() || bodies.iter().any(|body| body.size.exceptions);
        Ok(Parsed {
            info,
            layout,
            type_numbers: self.type_numbers,
            function_types: self.function_types,
            tables: self.tables,
            memories: self.memories,
            globals: self.globals,
            tags: self.tags,
            exceptions,
        })
    }
}

fn memory_type(memory: wasmparser::MemoryType) -> MemoryType {
    MemoryType {
        limits: SizeLimits { min: memory.initial, max: memory.maximum },
        shared: memory.shared,
        memory64: memory.memory64,
    }
}

fn table_type(table: wasmparser::TableType, offset: u64) -> Result<TableType, CompileError> {
    Ok(TableType {
        element: value_type(wasmparser::ValType::Ref(table.element_type), offset)?,
        limits: SizeLimits { min: table.initial, max: table.maximum },
        table64: table.table64,
    })
}

fn global_type(global: wasmparser::GlobalType, offset: u64) -> Result<GlobalType, CompileError> {
    Ok(GlobalType { value: value_type(global.content_type, offset)?, mutable: global.mutable })
}
