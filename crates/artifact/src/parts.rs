//! Takes an artifact apart again into what the writer takes, so that it can be written once more with other initial contents: a snapshot.

use std::collections::{BTreeMap, BTreeSet};

use zerocopy::FromBytes;

use crate::code::{CodeSymbol, CodeSymbolKind, DebugSection, LinkedCode};
use crate::format::Symbol;
use crate::info::{
    DataSegment, ElementItems, ElementSegment, Export, FuncType, FunctionInfo, GlobalInfo, ImageChunk,
    Import, ModuleInfo, SegmentMode, TableInfo,
};
use crate::load::{Artifact, LoadError};
use crate::sections::name_at;
use crate::view::{ItemsView, SegmentModeView};

impl Artifact {
    /// What was written: [`crate::write`] makes the same bytes of it again.
    pub fn to_parts(&self) -> Result<(ModuleInfo, LinkedCode), LoadError> {
        Ok((self.to_info()?, self.to_code()?))
    }

    fn to_info(&self) -> Result<ModuleInfo, LoadError> {
        let functions: Vec<_> = self
            .functions()
            .map(|function| FunctionInfo {
                ty: function.ty,
                name: function.name.to_owned(),
                code_offset: function.code_offset,
                code_size: function.code_size,
                wasm_offset: function.wasm_offset,
                wasm_size: function.wasm_size,
            })
            .collect();
        if functions.len() as u64 != u64::from(self.defined_functions()) {
            return Err(LoadError::Damaged { what: "function table" });
        }
        Ok(ModuleInfo {
            name: self.name().to_owned(),
            wasm_sha256: self.wasm_sha256(),
            compiler: self.compiler().to_owned(),
            options: self.options().to_owned(),
            architecture: self.architecture().to_owned(),
            cpu_features: self.cpu_features().map(str::to_owned).collect(),
            counts: self.counts(),
            types: self
                .types()
                .map(|ty| FuncType {
                    params: ty.params.iter().collect(),
                    results: ty.results.iter().collect(),
                })
                .collect(),
            thunks: (0..self.type_count()).filter_map(|ty| self.thunks(ty)).collect(),
            imports: self
                .imports()
                .map(|import| Import {
                    module: import.module.to_owned(),
                    name: import.name.to_owned(),
                    kind: import.kind,
                })
                .collect(),
            exports: self
                .exports()
                .map(|export| Export { name: export.name.to_owned(), kind: export.kind, index: export.index })
                .collect(),
            functions,
            func_refs: self.func_refs().map(|func_ref| func_ref.function).collect(),
            tables: self
                .tables()
                .map(|table| TableInfo { ty: table.ty, init: table.init.map(<[u8]>::to_vec) })
                .collect(),
            memories: self.memories().collect(),
            context_is_memory: self.context_is_memory(),
            globals: self
                .globals()
                .map(|global| GlobalInfo { ty: global.ty, init: global.init.to_vec() })
                .collect(),
            tags: self.tags().collect(),
            elements: self.elements().map(|segment| element_segment(&segment)).collect(),
            data: self
                .data()
                .map(|segment| DataSegment {
                    mode: segment_mode(segment.mode),
                    bytes: segment.bytes.to_vec(),
                    in_image: segment.in_image,
                })
                .collect(),
            image: self
                .image()
                .map(|chunk| {
                    let bytes = self.read_range(chunk.file_offset, chunk.len)?;
                    Ok(ImageChunk { memory: chunk.memory, address: chunk.address, bytes })
                })
                .collect::<Result<_, LoadError>>()?,
            start: self.start(),
        })
    }

    fn to_code(&self) -> Result<LinkedCode, LoadError> {
        let sections = self.sections()?;
        let debug = sections.iter().filter(|section| !section.loaded && section.name.starts_with(".debug_"));
        let debug = debug
            .map(|section| {
                Ok(DebugSection { name: section.name.clone(), bytes: self.read_section(section)? })
            })
            .collect::<Result<_, LoadError>>()?;
        let read = |name: &str| {
            let section = sections.iter().find(|section| section.name == name);
            section.map_or(Ok(Vec::new()), |section| self.read_section(section))
        };
        Ok(LinkedCode {
            text: self.text_bytes().to_vec(),
            rodata: self.rodata().to_vec(),
            eh_frame: self.eh_frame().to_vec(),
            eh_frame_hdr: self.eh_frame_hdr().to_vec(),
            gcc_except_table: self.gcc_except_table().to_vec(),
            debug,
            symbols: self.code_symbols(&read(".symtab")?, &read(".strtab")?),
        })
    }

    /// Functions and thunks are known by their tables; the rest is what the symbol table names beside them.
    fn code_symbols(&self, symtab: &[u8], names: &[u8]) -> Vec<CodeSymbol> {
        let table = <[Symbol]>::ref_from_bytes(symtab).unwrap_or_default().get(1..).unwrap_or_default();
        let text = self.header().text.offset.get();
        let offset_of = |symbol: &Symbol| symbol.value.get().saturating_sub(text);
        let sizes: BTreeMap<u64, u64> =
            table.iter().map(|symbol| (offset_of(symbol), symbol.size.get())).collect();
        let size_at = |offset| sizes.get(&offset).copied().unwrap_or(0);
        let mut symbols: Vec<_> = self
            .functions()
            .map(|function| CodeSymbol {
                kind: CodeSymbolKind::Function(function.index),
                offset: function.code_offset,
                size: function.code_size,
            })
            .collect();
        for ty in 0..self.type_count() {
            let Some(thunks) = self.thunks(ty) else { continue };
            for (kind, offset) in
                [(CodeSymbolKind::Entry(ty), thunks.entry), (CodeSymbolKind::Host(ty), thunks.host)]
            {
                symbols.push(CodeSymbol { kind, offset, size: size_at(offset) });
            }
        }
        let known: BTreeSet<u64> = symbols.iter().map(|symbol| symbol.offset).collect();
        for symbol in table {
            let offset = offset_of(symbol);
            if !known.contains(&offset) {
                let kind = CodeSymbolKind::Other(name_at(names, symbol.name.get()));
                symbols.push(CodeSymbol { kind, offset, size: symbol.size.get() });
            }
        }
        symbols.sort_by(|a, b| (&a.kind, a.offset).cmp(&(&b.kind, b.offset)));
        symbols
    }
}

fn segment_mode(mode: SegmentModeView<'_>) -> SegmentMode {
    match mode {
        SegmentModeView::Active { target, offset } => SegmentMode::Active { target, offset: offset.to_vec() },
        SegmentModeView::Passive => SegmentMode::Passive,
        SegmentModeView::Declared => SegmentMode::Declared,
    }
}

fn element_segment(segment: &crate::view::ElementView<'_>) -> ElementSegment {
    ElementSegment {
        mode: segment_mode(segment.mode),
        element: segment.element,
        items: match segment.items {
            ItemsView::Functions(functions) => ElementItems::Functions(functions.iter().collect()),
            ItemsView::Expressions(list) => {
                ElementItems::Expressions(list.iter().map(<[u8]>::to_vec).collect())
            }
        },
    }
}
