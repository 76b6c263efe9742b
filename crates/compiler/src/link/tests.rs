//! Links what LLVM really writes, loads the artifact, and runs it.

use std::path::Path;
use std::process::{Command, Stdio};

use mote_artifact::code::CodeSymbolKind::{Entry, Function, Host, Other};
use mote_artifact::info::{FuncType, FunctionInfo};
use mote_artifact::{Artifact, ModuleInfo, write};

use super::*;

/// The object that `llc-19` makes of LLVM assembly.
pub(super) fn object(assembly: &str, flags: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let (input, output) = (directory.path().join("in.ll"), directory.path().join("out.o"));
    std::fs::write(&input, assembly).unwrap();
    let mut llc = Command::new("llc-19");
    llc.args(["-O2", "-relocation-model=pic", "-filetype=obj", "-o"]).arg(&output).arg(&input);
    let status = llc.args(flags).status().expect("llc-19 comes with llvm-19");
    assert!(status.success());
    std::fs::read(output).unwrap()
}

/// Two functions and thunks: a direct call across objects, a jump table, a vector constant, an invoke, line tables, memcpy.
const FIRST: &str = r#"
target triple = "x86_64-unknown-linux-gnu"
declare i32 @mote_personality(...)
declare hidden tailcc i32 @f3(ptr, i32)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.ubsantrap(i8)
define hidden tailcc i32 @f2(ptr %ctx, i32 %x) uwtable(sync) noredzone personality ptr @mote_personality !dbg !4 {
  switch i32 %x, label %d [ i32 0, label %a
    i32 1, label %b
    i32 2, label %c
    i32 3, label %e
    i32 4, label %f
    i32 5, label %g ], !dbg !7
a: %r = invoke tailcc i32 @f3(ptr %ctx, i32 7) to label %ok unwind label %lp, !dbg !8
ok: ret i32 %r, !dbg !8
b: call void @llvm.ubsantrap(i8 3), !dbg !7
   unreachable, !dbg !7
c: ret i32 77
e: ret i32 12, !dbg !11
f: ret i32 1234
g: %to = getelementptr i8, ptr %ctx, i64 5000
   call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %ctx, i64 5000, i1 false)
   ret i32 8
d: ret i32 5
lp: %z = landingpad { ptr, i32 } catch ptr null
  %w = extractvalue { ptr, i32 } %z, 0
  %q = ptrtoint ptr %w to i32
  ret i32 %q
}
define hidden void @entry0(ptr %ctx, ptr %code, ptr %slots) uwtable(sync) {
  %x = load i32, ptr %slots
  %r = call tailcc i32 %code(ptr %ctx, i32 %x)
  store i32 %r, ptr %slots
  ret void
}
define hidden tailcc i32 @host0(ptr %func, i32 %x) uwtable(sync) {
  %stub = load ptr, ptr %func
  %slots = alloca [16 x i8], align 16
  store i32 %x, ptr %slots
  call void %stub(ptr %func, ptr %slots)
  %r = load i32, ptr %slots
  ret i32 %r
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3, !9}
!0 = distinct !DICompileUnit(language: DW_LANG_C99, file: !1, producer: "mote", isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "m.wasm", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 8, !"PIC Level", i32 2}
!4 = distinct !DISubprogram(name: "second", scope: !1, file: !1, line: 100, scopeLine: 100, type: !5, spFlags: DISPFlagDefinition, unit: !0)
!5 = !DISubroutineType(types: !6)
!6 = !{}
!7 = !DILocation(line: 123, column: 0, scope: !4)
!8 = !DILocation(line: 140, column: 0, scope: !4)
!10 = distinct !DISubprogram(name: "third", scope: !1, file: !1, line: 170, scopeLine: 170, type: !5, spFlags: DISPFlagDefinition, unit: !0)
!11 = !DILocation(line: 175, column: 0, scope: !10, inlinedAt: !12)
!12 = distinct !DILocation(line: 133, column: 0, scope: !4)
!9 = !{i32 7, !"Dwarf Version", i32 5}
"#;

const SECOND: &str = r#"
target triple = "x86_64-unknown-linux-gnu"
declare hidden tailcc i32 @f2(ptr, i32)
define hidden tailcc i32 @f3(ptr %ctx, i32 %x) uwtable(sync) {
  %i = insertelement <4 x i32> zeroinitializer, i32 %x, i32 0
  %s = shufflevector <4 x i32> %i, <4 x i32> zeroinitializer, <4 x i32> zeroinitializer
  %p = mul <4 x i32> %s, <i32 1, i32 20, i32 300, i32 4000>
  %t = call i32 @llvm.vector.reduce.add.v4i32(<4 x i32> %p)
  ret i32 %t
}
declare i32 @llvm.vector.reduce.add.v4i32(<4 x i32>)
define hidden tailcc i32 @f1(ptr %ctx, i32 %x) uwtable(sync) {
  %y = add i32 %x, 1
  %r = musttail call tailcc i32 @f2(ptr %ctx, i32 %y)
  ret i32 %r
}
"#;

fn module(flags: &[&str]) -> (ModuleInfo, LinkedCode) {
    let code = link(&[object(FIRST, flags), object(SECOND, flags)]).unwrap();
    let function = |name: &str, wasm_offset, wasm_size| FunctionInfo {
        name: name.into(),
        wasm_offset,
        wasm_size,
        ..FunctionInfo::default()
    };
    let mut info = ModuleInfo {
        name: "linked".into(),
        architecture: "x86_64".into(),
        types: vec![FuncType::default()],
        functions: vec![function("", 50, 10), function("second", 100, 60), function("third", 170, 10)],
        imports: vec![mote_artifact::info::Import {
            module: "m".into(),
            name: "n".into(),
            kind: mote_artifact::info::ImportKind::Function(0),
        }],
        ..ModuleInfo::default()
    };
    info.counts.imported_functions = 1;
    info.counts.types = 1;
    code.place(&mut info).unwrap();
    (info, code)
}

fn load(flags: &[&str]) -> Artifact {
    let (info, code) = module(flags);
    Artifact::from_bytes(&write(&info, &code).unwrap()).unwrap()
}

/// Calls a function through its type's entry thunk.
#[allow(unsafe_code)]
fn call(artifact: &Artifact, index: u32, context: *mut u8, argument: u32) -> u32 {
    let (text, _) = artifact.text();
    let mut slots = [u128::from(argument)];
    let entry = text.wrapping_add(artifact.thunks(0).unwrap().entry as usize);
    let code = text.wrapping_add(artifact.function(index).unwrap().code_offset as usize);
    // SAFETY: `entry` is `entry0` of FIRST, mapped executable, with the C calling convention and these parameters.
    unsafe {
        let entry: extern "C" fn(*mut u8, *const u8, *mut u128) = std::mem::transmute(entry);
        entry(context, code, slots.as_mut_ptr());
    }
    slots[0] as u32
}

#[test]
fn linked_code_runs_with_one_text_section_or_many() {
    for flags in [&[][..], &["-function-sections"]] {
        let artifact = load(flags);
        let mut memory: Vec<u8> = (0..10_000).map(|at| if at < 5000 { (at * 7) as u8 } else { 0 }).collect();
        let context = memory.as_mut_ptr();
        assert_eq!(call(&artifact, 2, context, 2), 77, "a jump table");
        assert_eq!(call(&artifact, 2, context, 9), 5, "its default");
        assert_eq!(call(&artifact, 1, context, 2), 12, "a tail call into another object");
        assert_eq!(call(&artifact, 2, context, 0), 7 * 4321, "a call across objects and a vector constant");
        assert_eq!(call(&artifact, 2, context, 5), 8, "memcpy");
        assert!(memory.iter().take(5000).eq(memory.iter().skip(5000)));
    }
}

#[test]
fn functions_come_by_index_then_thunks_then_builtins() {
    for flags in [&[][..], &["-function-sections"]] {
        let (_, code) = module(flags);
        let kinds: Vec<_> = code.symbols.iter().map(|symbol| symbol.kind.clone()).collect();
        let builtins = [Other("memcpy".into()), Other("memmove".into())];
        let expected = [Function(1), Function(2), Function(3), Entry(0), Host(0)];
        assert_eq!(kinds, [&expected[..], &builtins].concat());
        assert_eq!(code, module(flags).1, "linking is deterministic");
    }
    let (_, code) = module(&["-function-sections"]);
    assert!(code.symbols.windows(2).all(|pair| pair[0].offset <= pair[1].offset));
}

#[test]
fn lines_lead_from_code_to_wasm() {
    let artifact = load(&["-function-sections"]);
    let function = artifact.function(2).unwrap();
    assert_eq!(artifact.function_at(function.code_offset + function.code_size - 1), Some(2));
    let offsets: Vec<_> = function.lines.map(|row| row.wasm_offset).collect();
    assert!(offsets.contains(&123) && offsets.contains(&140), "{offsets:?}");
    let frames = artifact.code_frames(function.code_offset);
    assert_eq!(frames.iter().map(|frame| frame.name).collect::<Vec<_>>(), ["second"]);
    assert!(frames[0].wasm_offset.is_some_and(|at| (100..160).contains(&at)), "{frames:?}");
}

#[test]
fn inlined_calls_are_frames() {
    let artifact = load(&[]);
    let function = artifact.function(2).unwrap();
    let row = function.lines.into_iter().find(|row| row.wasm_offset == 175).unwrap();
    let frames = artifact.code_frames(function.code_offset + row.code_offset);
    let frames: Vec<_> = frames.iter().map(|frame| (frame.function, frame.name, frame.wasm_offset)).collect();
    assert_eq!(frames, [(3, "third", Some(175)), (2, "second", Some(133))]);
    assert_eq!(function.inlined.count(), 1);
}

#[test]
fn frames_are_found_by_address() {
    let artifact = load(&[]);
    for function in artifact.functions() {
        let entry = artifact.frame_description(function.code_offset + function.code_size / 2).unwrap();
        // Length, distance to the common entry, then the address relative to this field.
        let field = entry[8..].as_ptr();
        let distance = i32::from_le_bytes(entry[8..12].try_into().unwrap());
        let start = field.wrapping_offset(distance as isize);
        assert_eq!(start, artifact.text().0.wrapping_add(function.code_offset as usize));
        assert_eq!(u64::from(u32::from_le_bytes(entry[12..16].try_into().unwrap())), function.code_size);
    }
    assert!(artifact.gcc_except_table().len() > 8);
    assert_eq!(artifact.eh_frame().last_chunk::<4>(), Some(&[0; 4]));
}

#[test]
fn tools_read_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("module.mote");
    let (info, code) = module(&[]);
    std::fs::write(&path, write(&info, &code).unwrap()).unwrap();
    let all = run("readelf", &["-aW"], &path);
    assert!(all.contains("DYN (Shared object file)") && all.contains("GNU_EH_FRAME"), "{all}");
    let names = run("nm", &[], &path);
    for name in ["wasm[1]", "second", "third", "mote_entry[0]", "mote_host[0]", "memcpy"] {
        assert!(names.lines().any(|line| line.ends_with(&format!(" {name}"))), "{name}: {names}");
    }
    let code = run("objdump", &["-d"], &path);
    assert!(code.contains("<second>:") && code.contains("<memcpy>:"), "{code}");
    let lines = run("readelf", &["--debug-dump=decodedline,frames-interp"], &path);
    assert!(lines.contains("m.wasm") && lines.contains("123"), "{lines}");
}

/// What a tool prints; it must end well and warn of nothing.
pub(super) fn run(tool: &str, arguments: &[&str], path: &Path) -> String {
    let output = Command::new(tool).args(arguments).arg(path).stdin(Stdio::null()).output().expect(tool);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{tool}: {errors}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.to_lowercase().contains("warning"), "{tool}: {text}");
    text
}

#[test]
fn missing_symbols_are_named_together() {
    let error = link(&[object(SECOND, &[])]).unwrap_err();
    assert_eq!(error.to_string(), "undefined symbols: f2");
    let calls = "declare void @zeta()\ndeclare void @alpha()\ndefine void @f0() {\n call void @zeta()\n call void @alpha()\n ret void\n}";
    assert_eq!(link(&[object(calls, &[])]).unwrap_err().to_string(), "undefined symbols: alpha, zeta");
}

#[test]
fn what_an_artifact_cannot_hold_is_refused() {
    let twice = object("define void @f0() {\n ret void\n}", &[]);
    let error = link(&[twice.clone(), twice]).unwrap_err().to_string();
    assert_eq!(error, "symbol f0 is defined twice, in objects 0 and 1");
    let data =
        object("@word = global i32 5\ndefine i32 @f0() {\n %x = load i32, ptr @word\n ret i32 %x\n}", &[]);
    let error = link(&[data]).unwrap_err();
    assert!(matches!(error, LinkError::Section { ref section, .. } if section == ".data"), "{error}");
    let pointer = object(
        "@table = constant ptr @f0\ndefine ptr @f0() {\n %x = load ptr, ptr @table\n ret ptr %x\n}",
        &[],
    );
    assert!(matches!(
        link(&[pointer]).unwrap_err(),
        LinkError::Section { .. } | LinkError::Relocation { .. }
    ));
    assert!(matches!(
        link(&[b"\x7fELF and then nothing".to_vec()]).unwrap_err(),
        LinkError::Read { object: 0, .. }
    ));
    assert!(matches!(link(&[vec![]]).unwrap_err(), LinkError::Read { .. }));
    let arm = object("target triple = \"aarch64-linux-gnu\"\ndefine void @f0() {\n ret void\n}", &[]);
    let intel = object("target triple = \"x86_64-linux-gnu\"\ndefine void @f1() {\n ret void\n}", &[]);
    assert!(matches!(link(&[intel, arm]).unwrap_err(), LinkError::Architecture { object: 1, .. }));
}

#[test]
fn nothing_links_to_nothing() {
    assert_eq!(link(&[]).unwrap(), LinkedCode::default());
}

#[test]
fn an_aarch64_object_links() {
    let assembly = SECOND
        .replace("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
        .replace("declare hidden tailcc i32 @f2(ptr, i32)", "")
        + "define hidden tailcc i32 @f2(ptr %ctx, i32 %x) {\n ret i32 %x\n}";
    let code = link(&[object(&assembly, &[])]).unwrap();
    assert_eq!(code.symbols.len(), 3);
    assert!(!code.rodata.is_empty() && !code.eh_frame_hdr.is_empty());
}

#[test]
fn damaged_objects_never_panic() {
    let bytes = object(FIRST, &["-function-sections"]);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x81;
        let _ = link(&[damaged]);
    }
    for len in (0..bytes.len()).step_by(7) {
        let _ = link(&[bytes[..len].to_vec()]);
    }
}
