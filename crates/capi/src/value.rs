//! `mote_value`.

use mote_runtime::{Val, ValueType};

use crate::error::Error;

/// `mote_value`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CValue {
    ty: u8,
    of: Of,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Of {
    i32: i32,
    i64: i64,
    f32: u32,
    f64: u64,
    v128: [u8; 16],
}

impl CValue {
    pub(crate) fn from_val(val: &Val) -> Result<Self, Error> {
        let mut of = Of { v128: [0; 16] };
        match *val {
            Val::I32(value) => of.i32 = value,
            Val::I64(value) => of.i64 = value,
            Val::F32(bits) => of.f32 = bits,
            Val::F64(bits) => of.f64 = bits,
            Val::V128(value) => of.v128 = value.to_le_bytes(),
            _ => return Err(Error::message("references do not cross into C")),
        }
        Ok(Self { ty: val.ty() as u8, of })
    }

    /// # Safety
    /// Every byte of the value is initialised (C's `mote_value = {…}` does that).
    pub(crate) unsafe fn to_val(self) -> Result<Val, Error> {
        // SAFETY: every bit pattern is a value of each member.
        unsafe {
            Ok(match value_type(self.ty.into())? {
                ValueType::I32 => Val::I32(self.of.i32),
                ValueType::I64 => Val::I64(self.of.i64),
                ValueType::F32 => Val::F32(self.of.f32),
                ValueType::F64 => Val::F64(self.of.f64),
                _ => Val::V128(u128::from_le_bytes(self.of.v128)),
            })
        }
    }
}

/// A type by `mote_type`'s number.
pub(crate) fn value_type(number: u32) -> Result<ValueType, Error> {
    let ty = u8::try_from(number).ok().and_then(ValueType::from_byte).filter(|ty| !ty.is_ref());
    ty.ok_or_else(|| Error::message(format!("{number:#x} is no mote_type")))
}
