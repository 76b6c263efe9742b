//! Every vector operator, for several CPUs: valid IR, and machine code that calls nothing.

use inkwell::OptimizationLevel;
use inkwell::attributes::AttributeLoc;
use inkwell::context::Context;
use inkwell::targets::{CodeModel, FileType, RelocMode};
use inkwell::types::{BasicMetadataTypeEnum, BasicTypeEnum};
use inkwell::values::{AnyValue, BasicValueEnum};
use mote_artifact::info::{Limits as MemoryLimits, MemoryType, ModuleInfo};
use mote_artifact::{ContextLayout, ModuleCounts};
use wasmparser::{BinaryReader, MemArg, MemArgTarget, Operator, OperatorsReader, V128};

use super::super::{FunctionTranslator, Unit};
use crate::Options;
use crate::optimize::Target;
use crate::parse::Parsed;

/// An immediate for the tests.
trait Sample {
    fn sample() -> Self;
}

impl Sample for MemArg {
    fn sample() -> Self {
        MemArg { align: 0, max_align: 0, offset: 24, target: MemArgTarget::Memory(0), ordering: None }
    }
}

impl Sample for u8 {
    fn sample() -> Self {
        1
    }
}

impl Sample for [u8; 16] {
    fn sample() -> Self {
        [3, 17, 9, 31, 0, 0, 5, 16, 30, 2, 1, 8, 7, 22, 15, 14]
    }
}

impl Sample for V128 {
    fn sample() -> Self {
        // Only the decoder makes one.
        let mut code = vec![0xfd, 0x0c];
        code.extend(1..=16);
        match OperatorsReader::new(BinaryReader::new(&code, 0)).read() {
            Ok(Operator::V128Const { value }) => value,
            other => panic!("{other:?}"),
        }
    }
}

macro_rules! every_operator {
    ($(@$proposal:ident $op:ident $({ $($arg:ident: $ty:ty),* })? => $visit:ident ($($ann:tt)*))*) => {
        vec![$(Operator::$op $({ $($arg: <$ty as Sample>::sample()),* })?),*]
    };
}

fn operators() -> Vec<Operator<'static>> {
    wasmparser::for_each_visit_simd_operator!(every_operator)
}

/// Operand types and whether there is a result, from the operator's name.
fn signature(name: &str) -> (Vec<&'static str>, bool) {
    let lane = match &name[..5] {
        "I64x2" => "i64",
        "F32x4" => "f32",
        "F64x2" => "f64",
        _ => "i32",
    };
    let operands = if name.starts_with("V128Load") && name.ends_with("Lane") {
        vec!["i32", "v128"]
    } else if name.starts_with("V128Load") {
        vec!["i32"]
    } else if name.starts_with("V128Store") {
        return (vec!["i32", "v128"], false);
    } else if name == "V128Const" {
        vec![]
    } else if name.ends_with("Splat") {
        vec![lane]
    } else if name.ends_with("ReplaceLane") {
        vec!["v128", lane]
    } else if ["Shl", "ShrS", "ShrU"].iter().any(|shift| name.ends_with(shift)) {
        vec!["v128", "i32"]
    } else if ["Bitselect", "Laneselect", "madd", "Madd", "AddS"].iter().any(|three| name.ends_with(three)) {
        vec!["v128"; 3]
    } else if [
        "ExtractLane",
        "ExtractLaneS",
        "ExtractLaneU",
        "V128Not",
        "AnyTrue",
        "AllTrue",
        "Bitmask",
        "Abs",
        "Neg",
        "Popcnt",
        "Ceil",
        "Floor",
        "Trunc",
        "Nearest",
        "Sqrt",
    ]
    .iter()
    .any(|one| name.ends_with(one))
        || ["Extend", "ExtAdd", "Convert", "Demote", "Promote", "TruncSat", "RelaxedTrunc"]
            .iter()
            .any(|one| name.contains(one))
    {
        vec!["v128"]
    } else {
        vec!["v128"; 2]
    };
    (operands, true)
}

/// A module with one memory and nothing else.
fn parsed() -> Parsed {
    let memory = MemoryType { limits: MemoryLimits { min: 1, max: None }, shared: false, memory64: false };
    let counts = ModuleCounts { memories: 1, ..ModuleCounts::default() };
    Parsed {
        info: ModuleInfo { memories: vec![memory], context_is_memory: true, counts, ..ModuleInfo::default() },
        layout: ContextLayout::new(counts).unwrap(),
        type_numbers: Vec::new(),
        function_types: Vec::new(),
        tables: Vec::new(),
        memories: vec![memory],
        globals: Vec::new(),
        tags: Vec::new(),
        exceptions: false,
    }
}

/// Assembly of one function per operator for this CPU.
fn assembly(cpu: &str, options: &Options) -> String {
    let context = Context::create();
    let target = Target::new(Some(cpu)).unwrap();
    let parsed = parsed();
    let unit = Unit::new(&context, "simd", &parsed, options, &target);
    for (number, operator) in operators().iter().enumerate() {
        let name = format!("{operator:?}");
        let name = name.split(' ').next().unwrap();
        let (operands, returns) = signature(name);
        let shapes = unit.shapes;
        let types: Vec<BasicTypeEnum> = operands
            .iter()
            .map(|&ty| match ty {
                "i32" => shapes.i32.into(),
                "i64" => shapes.i64.into(),
                "f32" => shapes.f32.into(),
                "f64" => shapes.f64.into(),
                _ => shapes.v128.into(),
            })
            .collect();
        let mut parameters: Vec<BasicMetadataTypeEnum> = vec![shapes.ptr.into(), shapes.ptr.into()];
        parameters.extend(types.iter().map(|&ty| BasicMetadataTypeEnum::from(ty)));
        let function = unit.module.add_function(
            &format!("f{number}_{name}"),
            context.void_type().fn_type(&parameters, false),
            None,
        );
        for (attribute, value) in [("target-cpu", target.cpu()), ("target-features", target.features())] {
            function.add_attribute(AttributeLoc::Function, context.create_string_attribute(attribute, value));
        }
        let subprogram = unit.lines.function(name, name, 1);
        let mut f = FunctionTranslator::begin(&unit, function, subprogram, 1).unwrap();
        let mut values = function.get_param_iter().skip(1);
        let out = values.next().unwrap().into_pointer_value();
        f.stack = values.collect();
        match super::translate(&mut f, operator) {
            Ok(known) => assert!(known, "{name} was not translated"),
            Err(error) => panic!("{name}: {error}"),
        }
        if returns {
            let value: BasicValueEnum = f.pop().unwrap();
            f.builder.build_store(out, value).unwrap();
        }
        assert!(f.stack.is_empty(), "{name} left operands");
        f.builder.build_return(None).unwrap();
        f.finish_entry().unwrap();
        assert!(function.verify(true), "{name}: {}", function.print_to_string());
    }
    unit.lines.finish();
    unit.module.verify().unwrap();
    let machine = inkwell::targets::Target::from_triple(target.triple())
        .unwrap()
        .create_target_machine(
            target.triple(),
            cpu,
            "",
            OptimizationLevel::Default,
            RelocMode::PIC,
            CodeModel::Small,
        )
        .unwrap();
    unit.module.set_data_layout(&machine.get_target_data().get_data_layout());
    let passes = inkwell::passes::PassBuilderOptions::create();
    unit.module.run_passes("default<O1>", &machine, passes).unwrap();
    let text = machine.write_to_memory_buffer(&unit.module, FileType::Assembly).unwrap();
    String::from_utf8(text.as_slice().to_vec()).unwrap()
}

/// Instructions of each function, by operator.
fn instructions(assembly: &str) -> Vec<(String, Vec<String>)> {
    let mut functions: Vec<(String, Vec<String>)> = Vec::new();
    for line in assembly.lines() {
        if let Some(label) =
            line.split(':').next().filter(|label| label.starts_with('f') && label.contains('_'))
        {
            let name = label.split('_').nth(1).unwrap();
            functions.push((name.to_owned(), Vec::new()));
        } else if line.starts_with("\t")
            && !line.starts_with("\t.")
            && let Some((_, body)) = functions.last_mut()
        {
            body.push(line.trim().to_owned());
        }
    }
    functions
}

#[test]
fn there_are_236_simd_and_20_relaxed_operators() {
    let names: Vec<String> = operators().iter().map(|operator| format!("{operator:?}")).collect();
    let relaxed = names.iter().filter(|name| name.contains("Relaxed")).count();
    assert_eq!((names.len() - relaxed, relaxed), (236, 20));
}

#[test]
fn every_operator_is_valid_and_calls_nothing() {
    for cpu in ["x86-64-v2", "x86-64-v3", "znver4"] {
        for canonical_nans in [false, true] {
            let options = Options { canonical_nans, keep_traps: false, ..Options::default() };
            let functions = instructions(&assembly(cpu, &options));
            assert_eq!(functions.len(), 256);
            for (name, body) in functions {
                assert!(!body.is_empty(), "{cpu}: {name} has no code");
                assert!(!body.iter().any(|line| line.contains("call")), "{cpu}: {name}: {body:?}");
            }
        }
    }
}

/// Operators that must be this instruction, and no other but moves, on this CPU.
const SINGLE: &[(&str, &str, &str)] = &[
    ("x86-64-v3", "I8x16Add", "vpaddb"),
    ("x86-64-v3", "I8x16AddSatS", "vpaddsb"),
    ("x86-64-v3", "I16x8SubSatU", "vpsubusw"),
    ("x86-64-v3", "I8x16MinU", "vpminub"),
    ("x86-64-v3", "I32x4MaxS", "vpmaxsd"),
    ("x86-64-v3", "I8x16AvgrU", "vpavgb"),
    ("x86-64-v3", "I16x8AvgrU", "vpavgw"),
    ("x86-64-v3", "I32x4Abs", "vpabsd"),
    ("x86-64-v3", "I16x8Mul", "vpmullw"),
    ("x86-64-v3", "I32x4DotI16x8S", "vpmaddwd"),
    ("x86-64-v3", "I16x8ExtendLowI8x16S", "vpmovsxbw"),
    ("x86-64-v3", "I8x16NarrowI16x8S", "vpacksswb"),
    ("x86-64-v3", "I8x16NarrowI16x8U", "vpackuswb"),
    ("x86-64-v3", "I16x8NarrowI32x4U", "vpackusdw"),
    ("x86-64-v3", "I8x16Bitmask", "vpmovmskb"),
    ("x86-64-v3", "F32x4Add", "vaddps"),
    ("x86-64-v3", "F64x2Sqrt", "vsqrtpd"),
    ("x86-64-v3", "F32x4Nearest", "vroundps"),
    ("x86-64-v3", "F32x4PMin", "vminps"),
    ("x86-64-v3", "F64x2PMax", "vmaxpd"),
    ("x86-64-v3", "F32x4RelaxedMin", "vminps"),
    ("x86-64-v3", "F64x2RelaxedMax", "vmaxpd"),
    ("x86-64-v3", "F32x4RelaxedMadd", "vfmadd213ps"),
    ("x86-64-v3", "F64x2RelaxedNmadd", "vfnmadd213pd"),
    ("x86-64-v3", "I8x16RelaxedSwizzle", "vpshufb"),
    ("x86-64-v3", "I16x8RelaxedQ15mulrS", "vpmulhrsw"),
    ("x86-64-v3", "I16x8RelaxedDotI8x16I7x16S", "vpmaddubsw"),
    ("x86-64-v3", "I32x4RelaxedTruncF32x4S", "vcvttps2dq"),
    ("x86-64-v3", "I8x16RelaxedLaneselect", "vpblendvb"),
    ("x86-64-v3", "F32x4DemoteF64x2Zero", "vcvtpd2ps"),
    ("x86-64-v3", "F64x2PromoteLowF32x4", "vcvtps2pd"),
    ("x86-64-v3", "F32x4ConvertI32x4S", "vcvtdq2ps"),
    ("znver4", "I8x16Popcnt", "vpopcntb"),
    ("znver4", "I64x2Mul", "vpmullq"),
    ("znver4", "I64x2Abs", "vpabsq"),
    ("znver4", "F32x4ConvertI32x4U", "vcvtudq2ps"),
    ("znver4", "I32x4RelaxedTruncF32x4U", "vcvttps2udq"),
    ("znver4", "I32x4RelaxedDotI8x16I7x16AddS", "vpdpbusd"),
    ("znver4", "V128Bitselect", "vpternlogq"),
];

#[test]
fn operators_with_an_instruction_of_their_own_are_that_instruction() {
    for cpu in ["x86-64-v3", "znver4"] {
        let options = Options { keep_traps: false, ..Options::default() };
        let functions = instructions(&assembly(cpu, &options));
        for &(_, operator, instruction) in SINGLE.iter().filter(|(on, ..)| *on == cpu) {
            let (_, body) = functions.iter().find(|(name, _)| name == operator).unwrap();
            let work: Vec<&str> = body
                .iter()
                .map(|line| line.split_whitespace().next().unwrap())
                .filter(|word| !word.contains("mov") || *word == instruction)
                .filter(|word| *word != "retq")
                .collect();
            assert_eq!(work, [instruction], "{cpu}: {operator}: {body:?}");
        }
    }
}
