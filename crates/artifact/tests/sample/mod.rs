//! A module with one of everything and a little machine code made by hand.

use mote_artifact::code::{CodeSymbol, CodeSymbolKind, DebugSection, LinkedCode};
use mote_artifact::info::*;
use mote_artifact::{ModuleCounts, ModuleInfo};

/// What the first defined function returns.
pub const ANSWER: u32 = 0x1234_5678;

pub fn info() -> ModuleInfo {
    let constant = vec![0x41, 0x2a, 0x0b];
    let table =
        TableType { element: ValueType::FuncRef, limits: Limits { min: 3, max: Some(9) }, table64: false };
    let memory = MemoryType { limits: Limits { min: 1, max: None }, shared: false, memory64: false };
    let global = GlobalType { value: ValueType::I32, mutable: true };
    let import = |name: &str, kind| Import { module: "env".into(), name: name.into(), kind };
    ModuleInfo {
        name: "sample".into(),
        wasm_sha256: [7; 32],
        compiler: "mote-compile 0.1.0".into(),
        options: "-O3".into(),
        architecture: std::env::consts::ARCH.into(),
        cpu_features: vec![],
        counts: ModuleCounts {
            imported_memories: 0,
            memories: 1,
            imported_tables: 1,
            tables: 2,
            imported_globals: 1,
            globals: 2,
            imported_functions: 2,
            func_refs: 3,
            types: 2,
            tags: 2,
        },
        types: vec![
            FuncType::default(),
            FuncType { params: vec![ValueType::I64, ValueType::V128], results: vec![ValueType::I32] },
        ],
        thunks: vec![ThunkInfo { entry: 16, host: 24 }, ThunkInfo { entry: 32, host: 40 }],
        imports: vec![
            import("first", ImportKind::Function(1)),
            import("second", ImportKind::Function(0)),
            import("table", ImportKind::Table(table)),
            import("global", ImportKind::Global(global)),
            import("tag", ImportKind::Tag(0)),
        ],
        exports: vec![
            Export { name: "answer".into(), kind: ExportKind::Function, index: 2 },
            Export { name: "memory".into(), kind: ExportKind::Memory, index: 0 },
            Export { name: "".into(), kind: ExportKind::Tag, index: 1 },
        ],
        functions: vec![
            FunctionInfo {
                ty: 0,
                name: "answer".into(),
                code_offset: 0,
                code_size: 6,
                wasm_offset: 100,
                wasm_size: 20,
            },
            FunctionInfo {
                ty: 1,
                name: String::new(),
                code_offset: 6,
                code_size: 1,
                wasm_offset: 121,
                wasm_size: 9,
            },
        ],
        func_refs: vec![0, 2, 3],
        tables: vec![TableInfo { ty: table, init: Some(constant.clone()) }],
        memories: vec![memory],
        context_is_memory: true,
        globals: vec![GlobalInfo { ty: global, init: constant.clone() }],
        tags: vec![0],
        elements: vec![
            ElementSegment {
                mode: SegmentMode::Active { target: 1, offset: constant.clone() },
                element: ValueType::FuncRef,
                items: ElementItems::Functions(vec![0, 3, 2]),
            },
            ElementSegment {
                mode: SegmentMode::Declared,
                element: ValueType::FuncRef,
                items: ElementItems::Expressions(vec![vec![0xd2, 0, 0x0b], vec![0xd0, 0x70, 0x0b]]),
            },
        ],
        data: vec![
            DataSegment { mode: SegmentMode::Passive, bytes: b"passive".to_vec(), in_image: false },
            DataSegment {
                mode: SegmentMode::Active { target: 0, offset: constant },
                bytes: vec![],
                in_image: true,
            },
        ],
        image: vec![
            ImageChunk { memory: 0, address: 0, bytes: vec![1; 4096] },
            ImageChunk { memory: 0, address: 8192, bytes: vec![2; 8192] },
        ],
        start: Some(3),
    }
}

pub fn code() -> LinkedCode {
    let mut text = vec![0xcc; 48];
    // mov eax, ANSWER; ret — and a lone ret
    text[0] = 0xb8;
    text[1..5].copy_from_slice(&ANSWER.to_le_bytes());
    text[5] = 0xc3;
    text[6] = 0xc3;
    let symbol = |kind, offset, size| CodeSymbol { kind, offset, size };
    LinkedCode {
        text,
        rodata: vec![9; 40],
        eh_frame: vec![0; 4],
        eh_frame_hdr: vec![],
        gcc_except_table: vec![],
        debug: vec![DebugSection { name: ".debug_str".into(), bytes: b"text\0".to_vec() }],
        symbols: vec![
            symbol(CodeSymbolKind::Function(2), 0, 6),
            symbol(CodeSymbolKind::Function(3), 6, 1),
            symbol(CodeSymbolKind::Entry(0), 16, 8),
            symbol(CodeSymbolKind::Entry(1), 32, 8),
            symbol(CodeSymbolKind::Host(0), 24, 8),
            symbol(CodeSymbolKind::Host(1), 40, 8),
        ],
    }
}
