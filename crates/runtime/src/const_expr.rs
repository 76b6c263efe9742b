//! Constant expressions: initial values of globals and tables, offsets of segments, elements. The compiler has validated them; what
//! does not make sense all the same (a damaged artifact) has no value.

use std::ptr::NonNull;

use crate::value::Slot;

/// Evaluates an expression; `global` finds a global's cell, `func` a function's reference.
pub(crate) fn evaluate(
    expression: &[u8],
    global: &dyn Fn(u32) -> Option<NonNull<Slot>>,
    func: &dyn Fn(u32) -> Option<u64>,
) -> Option<Slot> {
    let mut bytes = expression;
    let mut stack: Vec<Slot> = Vec::new();
    loop {
        let value = match u8_of(&mut bytes)? {
            0x0b => return stack.pop().filter(|_| stack.is_empty() && bytes.is_empty()),
            0x41 => Slot::from_u64(u64::from(signed(&mut bytes)? as u32)),
            0x42 => Slot::from_u64(signed(&mut bytes)? as u64),
            0x43 => Slot::from_u64(u64::from(u32::from_le_bytes(array(&mut bytes)?))),
            0x44 => Slot::from_u64(u64::from_le_bytes(array(&mut bytes)?)),
            0x23 => {
                // SAFETY: cells live as long as the store, and globals that come later are not in reach of the expression.
                unsafe { global(unsigned(&mut bytes)?)?.read() }
            }
            0xd0 => {
                signed(&mut bytes)?;
                Slot::ZERO
            }
            0xd2 => Slot::from_u64(func(unsigned(&mut bytes)?)?),
            0xfd => {
                if unsigned(&mut bytes)? != 12 {
                    return None;
                }
                Slot::from_u128(u128::from_le_bytes(array(&mut bytes)?))
            }
            operator @ (0x6a..=0x6c | 0x7c..=0x7e) => {
                let (b, a) = (stack.pop()?.u64(), stack.pop()?.u64());
                let result = match operator {
                    0x6a | 0x7c => a.wrapping_add(b),
                    0x6b | 0x7d => a.wrapping_sub(b),
                    _ => a.wrapping_mul(b),
                };
                Slot::from_u64(if operator < 0x70 { u64::from(result as u32) } else { result })
            }
            _ => return None,
        };
        stack.push(value);
    }
}

fn u8_of(bytes: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(byte)
}

fn array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (array, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*array)
}

fn unsigned(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0_u64;
    for shift in (0..35).step_by(7) {
        let byte = u8_of(bytes)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(value).ok();
        }
    }
    None
}

fn signed(bytes: &mut &[u8]) -> Option<i64> {
    let mut value = 0_i64;
    for shift in (0..70).step_by(7) {
        let byte = u8_of(bytes)?;
        value |= i64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            let unused = 64_u32.saturating_sub(shift + 7);
            return Some(value << unused >> unused);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(expression: &[u8]) -> Option<u64> {
        evaluate(expression, &|_| None, &|index| Some(u64::from(index) + 100)).map(Slot::u64)
    }

    #[test]
    fn extended_constants_wrap_at_their_width() {
        // i32.const -1, i32.const 2, i32.add
        assert_eq!(value(&[0x41, 0x7f, 0x41, 2, 0x6a, 0x0b]), Some(1));
        // i64.const -1, i64.const 2, i64.mul
        assert_eq!(value(&[0x42, 0x7f, 0x42, 2, 0x7e, 0x0b]), Some(-2_i64 as u64));
        // i32.const 0, i32.const 1, i32.sub
        assert_eq!(value(&[0x41, 0, 0x41, 1, 0x6b, 0x0b]), Some(0xffff_ffff));
        // i64.const i64::MIN
        let min = [0x42, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f, 0x0b];
        assert_eq!(value(&min), Some(i64::MIN as u64));
        assert_eq!(value(&[0xd2, 7, 0x0b]), Some(107));
        assert_eq!(value(&[0xd0, 0x70, 0x0b]), Some(0));
    }

    #[test]
    fn malformed_expressions_have_no_value() {
        for bytes in [
            &[][..],
            &[0x0b],
            &[0x41],
            &[0x41, 0x80],
            &[0x6a, 0x0b],
            &[0x41, 1, 0x41, 1, 0x0b],
            &[0xff, 0x0b],
        ] {
            assert_eq!(value(bytes), None, "{bytes:x?}");
        }
    }
}
