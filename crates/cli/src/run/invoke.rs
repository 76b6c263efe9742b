//! Arguments of `--invoke`, typed by the function they are for, and its results as text.

use std::ffi::OsString;
use std::fmt::Write as _;

use mote_runtime::{FuncType, Val, ValueType};

use crate::exit::Failure;

/// Reads the arguments by the function's type.
pub fn arguments(name: &str, ty: &FuncType, given: &[OsString]) -> Result<Vec<Val>, Failure> {
    if given.len() != ty.params.len() {
        return Err(Failure::usage(format!(
            "{name} takes {} arguments {}, and {} are given",
            ty.params.len(),
            types(&ty.params),
            given.len()
        )));
    }
    let mut values = Vec::with_capacity(given.len());
    for (position, (text, &ty)) in given.iter().zip(&ty.params).enumerate() {
        let value = text.to_str().and_then(|text| value(text, ty)).ok_or_else(|| {
            Failure::usage(format!(
                "{name}: argument {}: {} is not a value of type {}",
                position + 1,
                text.display(),
                type_name(ty)
            ))
        })?;
        values.push(value);
    }
    Ok(values)
}

/// One result a line.
pub fn results(values: &[Val]) -> String {
    let mut text = String::new();
    for value in values {
        let _ = match value {
            Val::I32(value) => writeln!(text, "{value}"),
            Val::I64(value) => writeln!(text, "{value}"),
            Val::F32(bits) => writeln!(
                text,
                "{}",
                float(f64::from(f32::from_bits(*bits)), f32::from_bits(*bits).to_string())
            ),
            Val::F64(bits) => {
                writeln!(text, "{}", float(f64::from_bits(*bits), f64::from_bits(*bits).to_string()))
            }
            Val::V128(value) => writeln!(text, "{value:#034x}"),
            Val::FuncRef(reference) => writeln!(text, "{}", reference_name(reference.is_some(), "funcref")),
            Val::ExternRef(reference) => {
                writeln!(text, "{}", reference_name(reference.is_some(), "externref"))
            }
            Val::ExnRef(reference) => writeln!(text, "{}", reference_name(reference.is_some(), "exnref")),
        };
    }
    text
}

fn float(value: f64, shown: String) -> String {
    match (value.is_nan(), value.is_sign_negative()) {
        (true, true) => "-nan".to_owned(),
        (true, false) => "nan".to_owned(),
        _ => shown,
    }
}

fn reference_name(is_some: bool, name: &str) -> &str {
    if is_some { name } else { "null" }
}

fn types(types: &[ValueType]) -> String {
    let names: Vec<_> = types.iter().map(|&ty| type_name(ty)).collect();
    format!("({})", names.join(", "))
}

fn type_name(ty: ValueType) -> &'static str {
    match ty {
        ValueType::I32 => "i32",
        ValueType::I64 => "i64",
        ValueType::F32 => "f32",
        ValueType::F64 => "f64",
        ValueType::V128 => "v128",
        ValueType::FuncRef => "funcref",
        ValueType::ExternRef => "externref",
        ValueType::ExnRef => "exnref",
    }
}

fn value(text: &str, ty: ValueType) -> Option<Val> {
    match ty {
        // Both the signed and the unsigned reading of the bits are meant.
        ValueType::I32 => integer(text)
            .and_then(|value| {
                i32::try_from(value).ok().or_else(|| u32::try_from(value).ok().map(u32::cast_signed))
            })
            .map(Val::I32),
        ValueType::I64 => integer(text)
            .and_then(|value| {
                i64::try_from(value).ok().or_else(|| u64::try_from(value).ok().map(u64::cast_signed))
            })
            .map(Val::I64),
        ValueType::F32 => text.parse::<f32>().ok().map(|value| Val::F32(value.to_bits())),
        ValueType::F64 => text.parse::<f64>().ok().map(|value| Val::F64(value.to_bits())),
        ValueType::V128 => u128::from_str_radix(text.strip_prefix("0x")?, 16).ok().map(Val::V128),
        ValueType::FuncRef if text == "null" => Some(Val::FuncRef(None)),
        ValueType::ExternRef if text == "null" => Some(Val::ExternRef(None)),
        ValueType::ExnRef if text == "null" => Some(Val::ExnRef(None)),
        ValueType::FuncRef | ValueType::ExternRef | ValueType::ExnRef => None,
    }
}

fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let value = match digits.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    // "--5" or "-+5": the sign was taken already.
    let value = value
        .ok()
        .filter(|_| !digits.starts_with(['-', '+']) && !digits.contains("x+") && !digits.contains("x-"))?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, ty: ValueType) -> Option<String> {
        value(text, ty).map(|value| results(&[value]).trim_end().to_owned())
    }

    #[test]
    fn integers_wrap_once_and_no_further() {
        for (text, expected) in [
            ("-1", Some("-1")),
            ("4294967295", Some("-1")),
            ("0xffffffff", Some("-1")),
            ("-0x80000000", Some("-2147483648")),
            ("4294967296", None),
            ("-2147483649", None),
            ("", None),
            ("--1", None),
            ("-+1", None),
            ("0x-1", None),
            ("1.0", None),
        ] {
            assert_eq!(shown(text, ValueType::I32).as_deref(), expected, "{text}");
        }
        assert_eq!(shown("18446744073709551615", ValueType::I64).as_deref(), Some("-1"));
        assert_eq!(shown("18446744073709551616", ValueType::I64), None);
    }

    #[test]
    fn floats_and_vectors() {
        assert_eq!(shown("0.1", ValueType::F32).as_deref(), Some("0.1"));
        assert_eq!(shown("1e3", ValueType::F64).as_deref(), Some("1000"));
        assert_eq!(shown("-inf", ValueType::F64).as_deref(), Some("-inf"));
        assert_eq!(shown("nan", ValueType::F32).as_deref(), Some("nan"));
        assert_eq!(shown("0x10", ValueType::V128).as_deref(), Some("0x00000000000000000000000000000010"));
        assert_eq!(shown("10", ValueType::V128), None);
        assert_eq!(shown("null", ValueType::ExternRef).as_deref(), Some("null"));
        assert_eq!(shown("1", ValueType::FuncRef), None);
    }

    #[test]
    fn a_wrong_count_or_value_is_told() {
        let ty = FuncType { params: vec![ValueType::I32, ValueType::F64], results: vec![] };
        let given =
            |words: &[&str]| arguments("f", &ty, &words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(given(&["1", "2"]).unwrap().len(), 2);
        assert!(
            given(&["1"]).unwrap_err().to_string().contains("takes 2 arguments (i32, f64), and 1 are given")
        );
        assert!(
            given(&["1", "x"]).unwrap_err().to_string().contains("argument 2: x is not a value of type f64")
        );
    }
}
