//! Values in scripts: arguments, and the patterns that results must match.

use std::num::NonZeroU64;

use mote_runtime::{ExternRef, Val};
use wast::core::{AbstractHeapType, HeapType, NanPattern, V128Pattern, WastArgCore, WastRetCore};
use wast::token::{F32, F64};
use wast::{WastArg, WastRet};

/// Scripts number host references from 0; the runtime's are not zero.
fn host_reference(number: u32) -> Option<ExternRef> {
    NonZeroU64::new(u64::from(number) + 1).map(ExternRef::new)
}

/// The value of an argument.
pub(crate) fn argument(arg: &WastArg<'_>) -> Result<Val, String> {
    let WastArg::Core(arg) = arg else { return Err("an argument of a component".to_owned()) };
    Ok(match arg {
        WastArgCore::I32(value) => Val::I32(*value),
        WastArgCore::I64(value) => Val::I64(*value),
        WastArgCore::F32(value) => Val::F32(value.bits),
        WastArgCore::F64(value) => Val::F64(value.bits),
        WastArgCore::V128(value) => Val::V128(u128::from_le_bytes(value.to_le_bytes())),
        WastArgCore::RefNull(HeapType::Abstract { ty: AbstractHeapType::Func, .. }) => Val::FuncRef(None),
        WastArgCore::RefNull(HeapType::Abstract { ty: AbstractHeapType::Extern, .. }) => Val::ExternRef(None),
        WastArgCore::RefNull(HeapType::Abstract { ty: AbstractHeapType::Exn, .. }) => Val::ExnRef(None),
        WastArgCore::RefExtern(number) => Val::ExternRef(host_reference(*number)),
        other => return Err(format!("an argument that is not known here: {other:?}")),
    })
}

/// Whether results match what a script expects.
pub(crate) fn check_results(found: &[Val], expected: &[WastRet<'_>]) -> Result<(), String> {
    let matches = found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, expected)| match expected {
            WastRet::Core(expected) => value_matches(found, expected),
            _ => false,
        });
    if matches { Ok(()) } else { Err(format!("expected {expected:?}, got {}", show(found))) }
}

fn value_matches(found: &Val, expected: &WastRetCore<'_>) -> bool {
    match (found, expected) {
        (found, WastRetCore::Either(options)) => options.iter().any(|option| value_matches(found, option)),
        (Val::I32(found), WastRetCore::I32(expected)) => found == expected,
        (Val::I64(found), WastRetCore::I64(expected)) => found == expected,
        (Val::F32(found), WastRetCore::F32(expected)) => f32_matches(*found, expected),
        (Val::F64(found), WastRetCore::F64(expected)) => f64_matches(*found, expected),
        (Val::V128(found), WastRetCore::V128(expected)) => v128_matches(*found, expected),
        (Val::FuncRef(None) | Val::ExternRef(None) | Val::ExnRef(None), WastRetCore::RefNull(None)) => true,
        (found, WastRetCore::RefNull(Some(HeapType::Abstract { ty, .. }))) => match (found, ty) {
            (Val::FuncRef(reference), AbstractHeapType::Func | AbstractHeapType::NoFunc) => {
                reference.is_none()
            }
            (Val::ExternRef(reference), AbstractHeapType::Extern | AbstractHeapType::NoExtern) => {
                reference.is_none()
            }
            (Val::ExnRef(reference), AbstractHeapType::Exn | AbstractHeapType::NoExn) => reference.is_none(),
            _ => false,
        },
        (Val::ExternRef(Some(_)), WastRetCore::RefExtern(None)) => true,
        (Val::ExternRef(found), WastRetCore::RefExtern(Some(number))) => *found == host_reference(*number),
        (Val::FuncRef(Some(_)), WastRetCore::RefFunc(None)) => true,
        _ => false,
    }
}

const F32_CANONICAL: u32 = 0x7fc0_0000;
const F64_CANONICAL: u64 = 0x7ff8_0000_0000_0000;

fn f32_matches(bits: u32, expected: &NanPattern<F32>) -> bool {
    match expected {
        NanPattern::CanonicalNan => bits & 0x7fff_ffff == F32_CANONICAL,
        NanPattern::ArithmeticNan => bits & F32_CANONICAL == F32_CANONICAL,
        NanPattern::Value(value) => bits == value.bits,
    }
}

fn f64_matches(bits: u64, expected: &NanPattern<F64>) -> bool {
    match expected {
        NanPattern::CanonicalNan => bits & (u64::MAX >> 1) == F64_CANONICAL,
        NanPattern::ArithmeticNan => bits & F64_CANONICAL == F64_CANONICAL,
        NanPattern::Value(value) => bits == value.bits,
    }
}

fn v128_matches(found: u128, expected: &V128Pattern) -> bool {
    let lane = |index: usize, bits: usize| (found >> (index * bits)) & (u128::MAX >> (128 - bits));
    match expected {
        V128Pattern::I8x16(lanes) => lanes.iter().enumerate().all(|(i, &it)| lane(i, 8) as i8 == it),
        V128Pattern::I16x8(lanes) => lanes.iter().enumerate().all(|(i, &it)| lane(i, 16) as i16 == it),
        V128Pattern::I32x4(lanes) => lanes.iter().enumerate().all(|(i, &it)| lane(i, 32) as i32 == it),
        V128Pattern::I64x2(lanes) => lanes.iter().enumerate().all(|(i, &it)| lane(i, 64) as i64 == it),
        V128Pattern::F32x4(lanes) => {
            lanes.iter().enumerate().all(|(i, it)| f32_matches(lane(i, 32) as u32, it))
        }
        V128Pattern::F64x2(lanes) => {
            lanes.iter().enumerate().all(|(i, it)| f64_matches(lane(i, 64) as u64, it))
        }
    }
}

/// Values for a message: floats and vectors as bits.
fn show(values: &[Val]) -> String {
    let words: Vec<String> = values
        .iter()
        .map(|value| match value {
            Val::F32(bits) => format!("f32 {bits:#010x} ({:?})", f32::from_bits(*bits)),
            Val::F64(bits) => format!("f64 {bits:#018x} ({:?})", f64::from_bits(*bits)),
            Val::V128(bits) => format!("v128 {bits:#034x}"),
            other => format!("{other:?}"),
        })
        .collect();
    format!("[{}]", words.join(", "))
}

/// Whether an error message is the one that a script expects.
///
/// Scripts expect the reference interpreter's words, sometimes with a detail (`uninitialized element 2`) that is
/// not the same in every engine, sometimes less than all of them (`undefined`).
pub(crate) fn message_matches(found: &str, expected: &str) -> bool {
    found.contains(expected)
        || expected.starts_with(found)
        || (found.contains("null reference") && expected == "null exception reference")
}
