//! What the writer writes, the loader reads back, and code in it runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod sample;

use mote_artifact::info::*;
use mote_artifact::view::{ItemsView, SegmentModeView};
use mote_artifact::{Artifact, LoadError, ModuleInfo, WriteError, write};

#[test]
fn everything_reads_back() {
    let info = sample::info();
    let bytes = write(&info, &sample::code()).unwrap();
    let artifact = Artifact::from_bytes(&bytes).unwrap();
    assert_eq!(artifact.name(), info.name);
    assert_eq!(artifact.wasm_sha256(), info.wasm_sha256);
    assert_eq!(artifact.compiler(), info.compiler);
    assert_eq!(artifact.options(), info.options);
    assert_eq!(artifact.architecture(), info.architecture);
    assert_eq!(artifact.counts(), info.counts);
    assert_eq!(artifact.context_is_memory(), info.context_is_memory);
    assert_eq!(artifact.start(), info.start);
    assert_eq!(artifact.file_len(), bytes.len() as u64);
    for (ty, view) in info.types.iter().zip(artifact.types()) {
        assert_eq!(view.params.iter().collect::<Vec<_>>(), ty.params);
        assert_eq!(view.results.iter().collect::<Vec<_>>(), ty.results);
    }
    assert_eq!(artifact.types().len(), 2);
    assert_eq!(artifact.func_type(1).unwrap().params.get(1), Some(ValueType::V128));
    assert_eq!(artifact.func_type(2), None);
    assert_eq!(artifact.thunks(1), Some(info.thunks[1]));
    assert_eq!(artifact.imports().len(), info.imports.len());
    for (import, view) in info.imports.iter().zip(artifact.imports()) {
        assert_eq!((view.module, view.name, view.kind), (&*import.module, &*import.name, import.kind));
    }
    assert_eq!(artifact.exports().len(), info.exports.len());
    for (export, view) in info.exports.iter().zip(artifact.exports()) {
        assert_eq!((view.name, view.kind, view.index), (&*export.name, export.kind, export.index));
    }
    assert_eq!(artifact.export("memory").unwrap().kind, ExportKind::Memory);
    assert_eq!(artifact.export("nothing"), None);
    let table = artifact.tables().next().unwrap();
    assert_eq!((table.ty, table.init), (info.tables[0].ty, info.tables[0].init.as_deref()));
    assert_eq!(artifact.memories().collect::<Vec<_>>(), info.memories);
    let global = artifact.globals().next().unwrap();
    assert_eq!((global.ty, global.init), (info.globals[0].ty, &*info.globals[0].init));
    assert_eq!(artifact.tags().collect::<Vec<_>>(), info.tags);
}

#[test]
fn segments_and_image_read_back() {
    let info = sample::info();
    let bytes = write(&info, &sample::code()).unwrap();
    let artifact = Artifact::from_bytes(&bytes).unwrap();
    let offset = [0x41, 0x2a, 0x0b].as_slice();
    let first = artifact.element(0).unwrap();
    assert_eq!(first.mode, SegmentModeView::Active { target: 1, offset });
    let ItemsView::Functions(functions) = first.items else { panic!("{first:?}") };
    assert_eq!(functions.iter().collect::<Vec<_>>(), [0, 3, 2]);
    let second = artifact.element(1).unwrap();
    assert_eq!(second.mode, SegmentModeView::Declared);
    let ItemsView::Expressions(expressions) = second.items else { panic!("{second:?}") };
    assert_eq!(expressions.iter().collect::<Vec<_>>(), [&[0xd2, 0, 0x0b], &[0xd0, 0x70, 0x0b]]);
    let data: Vec<_> = artifact.data().collect();
    assert_eq!(
        (data[0].mode, data[0].bytes, data[0].in_image),
        (SegmentModeView::Passive, &b"passive"[..], false)
    );
    assert_eq!(data[1].mode, SegmentModeView::Active { target: 0, offset });
    assert!(data[1].in_image && data[1].bytes.is_empty());
    let chunks: Vec<_> = artifact.image().collect();
    assert_eq!(chunks.len(), 2);
    for (chunk, expected) in chunks.iter().zip(&info.image) {
        assert_eq!((chunk.memory, chunk.address), (expected.memory, expected.address));
        assert_eq!(chunk.file_offset % 4096, 0);
        let at = chunk.file_offset as usize;
        assert_eq!(&bytes[at..at + chunk.len as usize], expected.bytes);
    }
}

#[test]
fn functions_are_found_by_index_and_by_address() {
    let artifact = Artifact::from_bytes(&write(&sample::info(), &sample::code()).unwrap()).unwrap();
    assert_eq!(artifact.defined_functions(), 2);
    let functions: Vec<_> = artifact.functions().collect();
    assert_eq!((functions[0].index, functions[0].name, functions[0].code_size), (2, "answer", 6));
    assert_eq!((functions[1].wasm_offset, functions[1].wasm_size), (121, 9));
    assert!(artifact.function(1).is_none() && artifact.function(4).is_none());
    let types: Vec<_> = (0..5).map(|index| artifact.function_type(index)).collect();
    assert_eq!(types, [Some(1), Some(0), Some(0), Some(1), None]);
    let found: Vec<_> = [0, 5, 6, 7, 40, u64::MAX].map(|at| artifact.function_at(at)).into();
    assert_eq!(found, [Some(2), Some(2), Some(3), None, None, None]);
    let refs: Vec<_> = artifact.func_refs().map(|view| (view.function, view.ty, view.code_offset)).collect();
    assert_eq!(refs, [(0, 1, None), (2, 0, Some(0)), (3, 1, Some(6))]);
    assert_eq!([0, 1, 2, 3].map(|index| artifact.func_ref_number(index)), [Some(0), None, Some(1), Some(2)]);
    assert_eq!(
        [99, 100, 119, 120, 121, 130].map(|at| artifact.function_of_operator(at)),
        [None, Some(2), Some(2), None, Some(3), None]
    );
}

#[test]
#[cfg(target_arch = "x86_64")]
fn mapped_code_runs() {
    let artifact = Artifact::from_bytes(&write(&sample::info(), &sample::code()).unwrap()).unwrap();
    let (text, len) = artifact.text();
    assert_eq!(len, 48);
    // SAFETY: the first function of the sample is `mov eax, ANSWER; ret` at offset 0, mapped executable.
    let answer: extern "C" fn() -> u32 = unsafe { std::mem::transmute(text) };
    assert_eq!(answer(), sample::ANSWER);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let first = write(&sample::info(), &sample::code()).unwrap();
    assert_eq!(first, write(&sample::info(), &sample::code()).unwrap());
}

#[test]
fn an_empty_module_is_an_artifact() {
    let info = ModuleInfo { architecture: std::env::consts::ARCH.into(), ..ModuleInfo::default() };
    let artifact = Artifact::from_bytes(&write(&info, &Default::default()).unwrap()).unwrap();
    assert_eq!(artifact.defined_functions(), 0);
    assert_eq!(artifact.text().1, 0);
    assert_eq!(artifact.function_at(0), None);
}

#[test]
fn what_does_not_fit_the_host_is_refused_by_name() {
    let open = |info: &ModuleInfo| Artifact::from_bytes(&write(info, &sample::code()).unwrap()).unwrap_err();
    let other = if cfg!(target_arch = "x86_64") { "aarch64" } else { "x86_64" };
    let error = open(&ModuleInfo { architecture: other.into(), ..sample::info() });
    assert!(matches!(error, LoadError::Architecture { found } if found == other), "{error}");
    let error = open(&ModuleInfo { cpu_features: vec!["warp".into()], ..sample::info() });
    assert!(error.to_string().contains("needs the CPU feature warp"), "{error}");
    let error =
        write(&ModuleInfo { architecture: "vax".into(), ..sample::info() }, &sample::code()).unwrap_err();
    assert!(matches!(error, WriteError::Architecture(_)), "{error}");
}

#[test]
fn contradictions_are_not_written() {
    let refuse = |change: &dyn Fn(&mut ModuleInfo)| {
        let mut info = sample::info();
        change(&mut info);
        let error = write(&info, &sample::code()).unwrap_err();
        assert!(matches!(error, WriteError::Inconsistent { .. }), "{error}");
    };
    refuse(&|info| info.functions[1].code_size = 1000);
    refuse(&|info| info.functions[1].ty = 2);
    refuse(&|info| info.thunks[0].entry = 48);
    refuse(&|info| info.counts.memories = 2);
    refuse(&|info| info.image[0].address = 1);
    refuse(&|info| info.func_refs = vec![3, 2, 0]);
    refuse(&|info| info.start = Some(4));
    refuse(&|info| info.thunks.truncate(1));
}

#[test]
fn an_artifact_comes_apart_and_is_written_again() {
    let (mut info, mut code) = (sample::info(), sample::code());
    code.symbols.push(mote_artifact::code::CodeSymbol {
        kind: mote_artifact::code::CodeSymbolKind::Other("memcpy".into()),
        offset: 44,
        size: 4,
    });
    let bytes = write(&info, &code).unwrap();
    let (info_again, code_again) = Artifact::from_bytes(&bytes).unwrap().to_parts().unwrap();
    assert_eq!(info_again, info);
    assert_eq!(code_again, code);
    assert_eq!(write(&info_again, &code_again).unwrap(), bytes);
    // A snapshot: the same code, other contents.
    info.image[0].bytes.fill(0x77);
    let artifact = Artifact::from_bytes(&write(&info, &code_again).unwrap()).unwrap();
    assert_eq!(artifact.to_parts().unwrap().0, info);
}

#[test]
fn sections_are_listed() {
    let artifact = Artifact::from_bytes(&write(&sample::info(), &sample::code()).unwrap()).unwrap();
    let sections = artifact.sections().unwrap();
    let names: Vec<_> = sections.iter().map(|section| &*section.name).collect();
    assert_eq!(names[..4], [".note.mote", ".text", ".rodata", ".eh_frame"]);
    let debug = sections.iter().find(|section| section.name == ".debug_str").unwrap();
    assert!(!debug.loaded && debug.len == 5);
    assert_eq!(artifact.read_section(debug).unwrap(), b"text\0");
    let text = sections.iter().find(|section| section.name == ".text").unwrap();
    assert!(text.loaded);
    assert_eq!(artifact.read_section(text).unwrap(), artifact.text_bytes());
}
