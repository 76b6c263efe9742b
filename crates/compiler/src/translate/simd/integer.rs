//! Integer and bitwise arithmetic, comparisons, tests and shifts.

use inkwell::IntPredicate::{self, EQ, NE, SGE, SGT, SLE, SLT, UGE, UGT, ULE, ULT};
use inkwell::types::VectorType;
use inkwell::values::{IntValue, VectorValue};
use wasmparser::Operator;

use super::super::FunctionTranslator;
use super::Shape::{self, I8x16, I16x8, I32x4, I64x2};
use super::lanes::Extend::{self, Signed, Unsigned};
use crate::CompileError;

/// Which half of the lanes an operator reads.
#[derive(Clone, Copy)]
pub(super) enum Half {
    Low,
    High,
}
use Half::{High, Low};

/// The direction of a shift.
#[derive(Clone, Copy)]
enum Shift {
    Left,
    Right(Extend),
}

pub(super) fn translate(f: &mut FunctionTranslator, op: &Operator) -> Result<bool, CompileError> {
    Ok(bitwise(f, op)? || compare(f, op)? || arithmetic(f, op)? || widening(f, op)?)
}

fn bitwise(f: &mut FunctionTranslator, op: &Operator) -> Result<bool, CompileError> {
    match op {
        Operator::V128Not => f.unary(I64x2, |b, x| b.build_not(x, "")),
        Operator::V128And => f.binary(I64x2, |b, x, y| b.build_and(x, y, "")),
        Operator::V128AndNot => f.binary(I64x2, |b, x, y| b.build_and(x, b.build_not(y, "")?, "")),
        Operator::V128Or => f.binary(I64x2, |b, x, y| b.build_or(x, y, "")),
        Operator::V128Xor => f.binary(I64x2, |b, x, y| b.build_xor(x, y, "")),
        Operator::V128Bitselect => {
            let control = f.pop_as(I64x2)?;
            let otherwise = f.pop_as(I64x2)?;
            let then = f.pop_as(I64x2)?;
            let result = f.bitselect(control, then, otherwise)?;
            f.push_vector(result)
        }
        Operator::V128AnyTrue => {
            let value = f.pop_v128()?;
            let whole = f.context.i128_type();
            let bits = f.builder.build_bit_cast(value, whole, "")?.into_int_value();
            let any = f.builder.build_int_compare(NE, bits, whole.const_zero(), "")?;
            f.push_bool(any)
        }
        Operator::I8x16AllTrue => f.all_true(I8x16),
        Operator::I16x8AllTrue => f.all_true(I16x8),
        Operator::I32x4AllTrue => f.all_true(I32x4),
        Operator::I64x2AllTrue => f.all_true(I64x2),
        Operator::I8x16Bitmask => f.bitmask(I8x16),
        Operator::I16x8Bitmask => f.bitmask(I16x8),
        Operator::I32x4Bitmask => f.bitmask(I32x4),
        Operator::I64x2Bitmask => f.bitmask(I64x2),
        Operator::I8x16Shl => f.shift(I8x16, Shift::Left),
        Operator::I8x16ShrS => f.shift(I8x16, Shift::Right(Signed)),
        Operator::I8x16ShrU => f.shift(I8x16, Shift::Right(Unsigned)),
        Operator::I16x8Shl => f.shift(I16x8, Shift::Left),
        Operator::I16x8ShrS => f.shift(I16x8, Shift::Right(Signed)),
        Operator::I16x8ShrU => f.shift(I16x8, Shift::Right(Unsigned)),
        Operator::I32x4Shl => f.shift(I32x4, Shift::Left),
        Operator::I32x4ShrS => f.shift(I32x4, Shift::Right(Signed)),
        Operator::I32x4ShrU => f.shift(I32x4, Shift::Right(Unsigned)),
        Operator::I64x2Shl => f.shift(I64x2, Shift::Left),
        Operator::I64x2ShrS => f.shift(I64x2, Shift::Right(Signed)),
        Operator::I64x2ShrU => f.shift(I64x2, Shift::Right(Unsigned)),
        _ => Ok(false),
    }
}

fn compare(f: &mut FunctionTranslator, op: &Operator) -> Result<bool, CompileError> {
    let (shape, predicate) = match op {
        Operator::I8x16Eq => (I8x16, EQ),
        Operator::I8x16Ne => (I8x16, NE),
        Operator::I8x16LtS => (I8x16, SLT),
        Operator::I8x16LtU => (I8x16, ULT),
        Operator::I8x16GtS => (I8x16, SGT),
        Operator::I8x16GtU => (I8x16, UGT),
        Operator::I8x16LeS => (I8x16, SLE),
        Operator::I8x16LeU => (I8x16, ULE),
        Operator::I8x16GeS => (I8x16, SGE),
        Operator::I8x16GeU => (I8x16, UGE),
        Operator::I16x8Eq => (I16x8, EQ),
        Operator::I16x8Ne => (I16x8, NE),
        Operator::I16x8LtS => (I16x8, SLT),
        Operator::I16x8LtU => (I16x8, ULT),
        Operator::I16x8GtS => (I16x8, SGT),
        Operator::I16x8GtU => (I16x8, UGT),
        Operator::I16x8LeS => (I16x8, SLE),
        Operator::I16x8LeU => (I16x8, ULE),
        Operator::I16x8GeS => (I16x8, SGE),
        Operator::I16x8GeU => (I16x8, UGE),
        Operator::I32x4Eq => (I32x4, EQ),
        Operator::I32x4Ne => (I32x4, NE),
        Operator::I32x4LtS => (I32x4, SLT),
        Operator::I32x4LtU => (I32x4, ULT),
        Operator::I32x4GtS => (I32x4, SGT),
        Operator::I32x4GtU => (I32x4, UGT),
        Operator::I32x4LeS => (I32x4, SLE),
        Operator::I32x4LeU => (I32x4, ULE),
        Operator::I32x4GeS => (I32x4, SGE),
        Operator::I32x4GeU => (I32x4, UGE),
        Operator::I64x2Eq => (I64x2, EQ),
        Operator::I64x2Ne => (I64x2, NE),
        Operator::I64x2LtS => (I64x2, SLT),
        Operator::I64x2GtS => (I64x2, SGT),
        Operator::I64x2LeS => (I64x2, SLE),
        Operator::I64x2GeS => (I64x2, SGE),
        _ => return Ok(false),
    };
    f.compare_lanes(shape, predicate)
}

fn arithmetic(f: &mut FunctionTranslator, op: &Operator) -> Result<bool, CompileError> {
    match op {
        Operator::I8x16Add => f.binary(I8x16, |b, x, y| b.build_int_add(x, y, "")),
        Operator::I16x8Add => f.binary(I16x8, |b, x, y| b.build_int_add(x, y, "")),
        Operator::I32x4Add => f.binary(I32x4, |b, x, y| b.build_int_add(x, y, "")),
        Operator::I64x2Add => f.binary(I64x2, |b, x, y| b.build_int_add(x, y, "")),
        Operator::I8x16Sub => f.binary(I8x16, |b, x, y| b.build_int_sub(x, y, "")),
        Operator::I16x8Sub => f.binary(I16x8, |b, x, y| b.build_int_sub(x, y, "")),
        Operator::I32x4Sub => f.binary(I32x4, |b, x, y| b.build_int_sub(x, y, "")),
        Operator::I64x2Sub => f.binary(I64x2, |b, x, y| b.build_int_sub(x, y, "")),
        Operator::I16x8Mul => f.binary(I16x8, |b, x, y| b.build_int_mul(x, y, "")),
        Operator::I32x4Mul => f.binary(I32x4, |b, x, y| b.build_int_mul(x, y, "")),
        Operator::I64x2Mul => f.binary(I64x2, |b, x, y| b.build_int_mul(x, y, "")),
        Operator::I8x16Neg => f.unary(I8x16, |b, x| b.build_int_neg(x, "")),
        Operator::I16x8Neg => f.unary(I16x8, |b, x| b.build_int_neg(x, "")),
        Operator::I32x4Neg => f.unary(I32x4, |b, x| b.build_int_neg(x, "")),
        Operator::I64x2Neg => f.unary(I64x2, |b, x| b.build_int_neg(x, "")),
        Operator::I8x16Abs => f.absolute(I8x16),
        Operator::I16x8Abs => f.absolute(I16x8),
        Operator::I32x4Abs => f.absolute(I32x4),
        Operator::I64x2Abs => f.absolute(I64x2),
        Operator::I8x16Popcnt => {
            let value = f.pop_as(I8x16)?;
            let count = f.vector_intrinsic("llvm.ctpop", &[value.get_type()], &[value])?;
            f.push_vector(count)
        }
        Operator::I8x16AddSatS => f.binary_intrinsic(I8x16, "llvm.sadd.sat"),
        Operator::I8x16AddSatU => f.binary_intrinsic(I8x16, "llvm.uadd.sat"),
        Operator::I8x16SubSatS => f.binary_intrinsic(I8x16, "llvm.ssub.sat"),
        Operator::I8x16SubSatU => f.binary_intrinsic(I8x16, "llvm.usub.sat"),
        Operator::I16x8AddSatS => f.binary_intrinsic(I16x8, "llvm.sadd.sat"),
        Operator::I16x8AddSatU => f.binary_intrinsic(I16x8, "llvm.uadd.sat"),
        Operator::I16x8SubSatS => f.binary_intrinsic(I16x8, "llvm.ssub.sat"),
        Operator::I16x8SubSatU => f.binary_intrinsic(I16x8, "llvm.usub.sat"),
        Operator::I8x16MinS => f.binary_intrinsic(I8x16, "llvm.smin"),
        Operator::I8x16MinU => f.binary_intrinsic(I8x16, "llvm.umin"),
        Operator::I8x16MaxS => f.binary_intrinsic(I8x16, "llvm.smax"),
        Operator::I8x16MaxU => f.binary_intrinsic(I8x16, "llvm.umax"),
        Operator::I16x8MinS => f.binary_intrinsic(I16x8, "llvm.smin"),
        Operator::I16x8MinU => f.binary_intrinsic(I16x8, "llvm.umin"),
        Operator::I16x8MaxS => f.binary_intrinsic(I16x8, "llvm.smax"),
        Operator::I16x8MaxU => f.binary_intrinsic(I16x8, "llvm.umax"),
        Operator::I32x4MinS => f.binary_intrinsic(I32x4, "llvm.smin"),
        Operator::I32x4MinU => f.binary_intrinsic(I32x4, "llvm.umin"),
        Operator::I32x4MaxS => f.binary_intrinsic(I32x4, "llvm.smax"),
        Operator::I32x4MaxU => f.binary_intrinsic(I32x4, "llvm.umax"),
        Operator::I8x16AvgrU => f.average(I8x16),
        Operator::I16x8AvgrU => f.average(I16x8),
        _ => Ok(false),
    }
}

fn widening(f: &mut FunctionTranslator, op: &Operator) -> Result<bool, CompileError> {
    match op {
        Operator::I16x8ExtendLowI8x16S => f.extend_half(I8x16, Low, Signed),
        Operator::I16x8ExtendHighI8x16S => f.extend_half(I8x16, High, Signed),
        Operator::I16x8ExtendLowI8x16U => f.extend_half(I8x16, Low, Unsigned),
        Operator::I16x8ExtendHighI8x16U => f.extend_half(I8x16, High, Unsigned),
        Operator::I32x4ExtendLowI16x8S => f.extend_half(I16x8, Low, Signed),
        Operator::I32x4ExtendHighI16x8S => f.extend_half(I16x8, High, Signed),
        Operator::I32x4ExtendLowI16x8U => f.extend_half(I16x8, Low, Unsigned),
        Operator::I32x4ExtendHighI16x8U => f.extend_half(I16x8, High, Unsigned),
        Operator::I64x2ExtendLowI32x4S => f.extend_half(I32x4, Low, Signed),
        Operator::I64x2ExtendHighI32x4S => f.extend_half(I32x4, High, Signed),
        Operator::I64x2ExtendLowI32x4U => f.extend_half(I32x4, Low, Unsigned),
        Operator::I64x2ExtendHighI32x4U => f.extend_half(I32x4, High, Unsigned),
        Operator::I16x8ExtMulLowI8x16S => f.multiply_half(I8x16, Low, Signed),
        Operator::I16x8ExtMulHighI8x16S => f.multiply_half(I8x16, High, Signed),
        Operator::I16x8ExtMulLowI8x16U => f.multiply_half(I8x16, Low, Unsigned),
        Operator::I16x8ExtMulHighI8x16U => f.multiply_half(I8x16, High, Unsigned),
        Operator::I32x4ExtMulLowI16x8S => f.multiply_half(I16x8, Low, Signed),
        Operator::I32x4ExtMulHighI16x8S => f.multiply_half(I16x8, High, Signed),
        Operator::I32x4ExtMulLowI16x8U => f.multiply_half(I16x8, Low, Unsigned),
        Operator::I32x4ExtMulHighI16x8U => f.multiply_half(I16x8, High, Unsigned),
        Operator::I64x2ExtMulLowI32x4S => f.multiply_half(I32x4, Low, Signed),
        Operator::I64x2ExtMulHighI32x4S => f.multiply_half(I32x4, High, Signed),
        Operator::I64x2ExtMulLowI32x4U => f.multiply_half(I32x4, Low, Unsigned),
        Operator::I64x2ExtMulHighI32x4U => f.multiply_half(I32x4, High, Unsigned),
        Operator::I16x8ExtAddPairwiseI8x16S => f.add_pairs(I8x16, Signed),
        Operator::I16x8ExtAddPairwiseI8x16U => f.add_pairs(I8x16, Unsigned),
        Operator::I32x4ExtAddPairwiseI16x8S => f.add_pairs(I16x8, Signed),
        Operator::I32x4ExtAddPairwiseI16x8U => f.add_pairs(I16x8, Unsigned),
        Operator::I32x4DotI16x8S => {
            let right = f.pop_as(I16x8)?;
            let left = f.pop_as(I16x8)?;
            let result = f.dot(left, right)?;
            f.push_vector(result)
        }
        Operator::I16x8Q15MulrSatS => {
            let right = f.pop_as(I16x8)?;
            let left = f.pop_as(I16x8)?;
            let result = f.multiply_q15(left, right)?;
            f.push_vector(result)
        }
        Operator::I8x16NarrowI16x8S => f.narrow(I16x8, Signed),
        Operator::I8x16NarrowI16x8U => f.narrow(I16x8, Unsigned),
        Operator::I16x8NarrowI32x4S => f.narrow(I32x4, Signed),
        Operator::I16x8NarrowI32x4U => f.narrow(I32x4, Unsigned),
        _ => Ok(false),
    }
}

/// The shape with half as many lanes, twice as wide.
fn wider(shape: Shape) -> Shape {
    match shape {
        I8x16 => I16x8,
        I16x8 => I32x4,
        _ => I64x2,
    }
}

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    /// Bits of `then` where `control` is 1, of `otherwise` where it is 0.
    pub(super) fn bitselect(
        &self,
        control: VectorValue<'ctx>,
        then: VectorValue<'ctx>,
        otherwise: VectorValue<'ctx>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        let kept = self.builder.build_and(then, control, "")?;
        let inverse = self.builder.build_not(control, "")?;
        let rest = self.builder.build_and(otherwise, inverse, "")?;
        Ok(self.builder.build_or(kept, rest, "")?)
    }

    /// Pushes an `i1` as the `i32` 0 or 1.
    fn push_bool(&mut self, value: IntValue<'ctx>) -> Result<bool, CompileError> {
        let wide = self.builder.build_int_z_extend(value, self.context.i32_type(), "")?;
        self.push(wide);
        Ok(true)
    }

    /// A `<N x i1>` as an integer of N bits.
    fn condition_bits(
        &self,
        condition: VectorValue<'ctx>,
        shape: Shape,
    ) -> Result<IntValue<'ctx>, CompileError> {
        let ty = self.int_type(shape.lanes())?;
        Ok(self.builder.build_bit_cast(condition, ty, "")?.into_int_value())
    }

    fn all_true(&mut self, shape: Shape) -> Result<bool, CompileError> {
        let value = self.pop_as(shape)?;
        let zero_lanes = self.builder.build_int_compare(EQ, value, value.get_type().const_zero(), "")?;
        let bits = self.condition_bits(zero_lanes, shape)?;
        let none = self.builder.build_int_compare(EQ, bits, bits.get_type().const_zero(), "")?;
        self.push_bool(none)
    }

    fn bitmask(&mut self, shape: Shape) -> Result<bool, CompileError> {
        let value = self.pop_as(shape)?;
        let negative = self.sign_bits(value)?;
        let bits = self.condition_bits(negative, shape)?;
        self.push_bool(bits)
    }

    /// Shifts every lane by the `i32` operand modulo the lane's width.
    fn shift(&mut self, shape: Shape, shift: Shift) -> Result<bool, CompileError> {
        let amount = self.pop_i32()?;
        let value = self.pop_as(shape)?;
        let limit = self.context.i32_type().const_int(u64::from(shape.lane_bits() - 1), false);
        let amount = self.builder.build_and(amount, limit, "")?;
        let lane = self.int_type(shape.lane_bits())?;
        let amount = self.builder.build_int_cast_sign_flag(amount, lane, false, "")?;
        let amounts = self.splat(shape, amount.into())?;
        let result = match shift {
            Shift::Left => self.builder.build_left_shift(value, amounts, "")?,
            Shift::Right(extend) => self.builder.build_right_shift(value, amounts, extend == Signed, "")?,
        };
        self.push_vector(result)
    }

    fn compare_lanes(&mut self, shape: Shape, predicate: IntPredicate) -> Result<bool, CompileError> {
        let right = self.pop_as(shape)?;
        let left = self.pop_as(shape)?;
        let condition = self.builder.build_int_compare(predicate, left, right, "")?;
        let mask = self.mask(condition, shape)?;
        self.push_vector(mask)
    }

    fn absolute(&mut self, shape: Shape) -> Result<bool, CompileError> {
        let value = self.pop_as(shape)?;
        // The flag would make abs(MIN) poison; WebAssembly wants MIN.
        let defined_at_min = self.context.bool_type().const_zero();
        let overloads = [value.get_type().into()];
        let result = self.call_intrinsic("llvm.abs", &overloads, &[value.into(), defined_at_min.into()])?;
        self.push_vector(result.into_vector_value())
    }

    /// Unsigned average, rounding up; the backend matches this pattern to pavgb and pavgw.
    fn average(&mut self, shape: Shape) -> Result<bool, CompileError> {
        let right = self.pop_as(shape)?;
        let left = self.pop_as(shape)?;
        let narrow = left.get_type();
        let wide = self.int_type(shape.lane_bits() * 2)?.vec_type(shape.lanes());
        let left = self.builder.build_int_z_extend(left, wide, "")?;
        let right = self.builder.build_int_z_extend(right, wide, "")?;
        let one = wide.get_element_type().into_int_type().const_int(1, false);
        let ones = VectorType::const_vector(&vec![one; shape.lanes() as usize]);
        let sum = self.builder.build_int_nuw_add(left, right, "")?;
        let sum = self.builder.build_int_nuw_add(sum, ones, "")?;
        let half = self.builder.build_right_shift(sum, ones, false, "")?;
        let result = self.builder.build_int_truncate(half, narrow, "")?;
        self.push_vector(result)
    }

    /// One half of the lanes of `shape`, widened.
    fn widen_half(
        &self,
        value: VectorValue<'ctx>,
        shape: Shape,
        half: Half,
        extend: Extend,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        let count = shape.lanes() / 2;
        let first = match half {
            Low => 0,
            High => count,
        };
        let lanes = self.pick(value, first..first + count)?;
        self.widen(lanes, wider(shape), extend)
    }

    fn extend_half(&mut self, shape: Shape, half: Half, extend: Extend) -> Result<bool, CompileError> {
        let value = self.pop_as(shape)?;
        let result = self.widen_half(value, shape, half, extend)?;
        self.push_vector(result)
    }

    fn multiply_half(&mut self, shape: Shape, half: Half, extend: Extend) -> Result<bool, CompileError> {
        let right = self.pop_as(shape)?;
        let left = self.pop_as(shape)?;
        let right = self.widen_half(right, shape, half, extend)?;
        let left = self.widen_half(left, shape, half, extend)?;
        let result = self.builder.build_int_mul(left, right, "")?;
        self.push_vector(result)
    }

    /// Adds neighbouring lanes of `shape` at twice their width.
    fn add_pairs(&mut self, shape: Shape, extend: Extend) -> Result<bool, CompileError> {
        let value = self.pop_as(shape)?;
        let result = self.sum_of_pairs(value, shape, extend)?;
        self.push_vector(result)
    }

    /// The sums of neighbouring lanes of `shape` at twice their width.
    pub(super) fn sum_of_pairs(
        &mut self,
        value: VectorValue<'ctx>,
        shape: Shape,
        extend: Extend,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        let ones = self.splat_int(shape, 1);
        match (shape, extend) {
            // pmaddubsw multiplies unsigned bytes of its first operand by signed bytes of its second and adds
            // pairs; with ones neither sum saturates.
            (I8x16, Unsigned) if self.has_x86_feature("ssse3") => {
                return self.vector_intrinsic("llvm.x86.ssse3.pmadd.ub.sw.128", &[], &[value, ones]);
            }
            (I8x16, Signed) if self.has_x86_feature("ssse3") => {
                return self.vector_intrinsic("llvm.x86.ssse3.pmadd.ub.sw.128", &[], &[ones, value]);
            }
            (I16x8, Signed) if self.is_x86() => {
                return self.vector_intrinsic("llvm.x86.sse2.pmadd.wd", &[], &[value, ones]);
            }
            _ => {}
        }
        let wide = wider(shape);
        let pairs = self.vector_cast(value, self.shape_type(wide))?;
        let bits = self.splat_int(wide, u64::from(shape.lane_bits()));
        let signed = extend == Signed;
        let odd = self.builder.build_right_shift(pairs, bits, signed, "")?;
        let even = self.builder.build_left_shift(pairs, bits, "")?;
        let even = self.builder.build_right_shift(even, bits, signed, "")?;
        Ok(self.builder.build_int_add(even, odd, "")?)
    }

    /// Products of signed 16-bit lanes, neighbouring ones added: pmaddwd.
    pub(super) fn dot(
        &mut self,
        left: VectorValue<'ctx>,
        right: VectorValue<'ctx>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        if self.is_x86() {
            return self.vector_intrinsic("llvm.x86.sse2.pmadd.wd", &[], &[left, right]);
        }
        let product = |first: u32| -> Result<VectorValue<'ctx>, CompileError> {
            let lanes = || (0..4).map(|lane| 2 * lane + first);
            let left = self.widen(self.pick(left, lanes())?, I32x4, Signed)?;
            let right = self.widen(self.pick(right, lanes())?, I32x4, Signed)?;
            Ok(self.builder.build_int_mul(left, right, "")?)
        };
        let (even, odd) = (product(0)?, product(1)?);
        Ok(self.builder.build_int_add(even, odd, "")?)
    }

    /// `(a * b + 0x4000) >> 15`, saturating: only -1.0 times -1.0 overflows.
    fn multiply_q15(
        &mut self,
        left: VectorValue<'ctx>,
        right: VectorValue<'ctx>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        if self.has_x86_feature("ssse3") {
            // pmulhrsw wraps that one case to 0x8000, which no other product gives: invert it there.
            let product = self.vector_intrinsic("llvm.x86.ssse3.pmul.hr.sw.128", &[], &[left, right])?;
            let lowest = self.splat_int(I16x8, 0x8000);
            let wrapped = self.builder.build_int_compare(EQ, product, lowest, "")?;
            let flip = self.mask(wrapped, I16x8)?;
            return Ok(self.builder.build_xor(product, flip, "")?);
        }
        self.multiply_q15_wide(left, right)
    }

    /// The same by way of 32-bit products, for targets without the instruction.
    pub(super) fn multiply_q15_wide(
        &mut self,
        left: VectorValue<'ctx>,
        right: VectorValue<'ctx>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        let lane = self.context.i32_type();
        let wide = lane.vec_type(8);
        let all = |value: u64| VectorType::const_vector(&[lane.const_int(value, false); 8]);
        let left = self.builder.build_int_s_extend(left, wide, "")?;
        let right = self.builder.build_int_s_extend(right, wide, "")?;
        let product = self.builder.build_int_mul(left, right, "")?;
        let rounded = self.builder.build_int_add(product, all(0x4000), "")?;
        let shifted = self.builder.build_right_shift(rounded, all(15), true, "")?;
        let largest = all(0x7fff);
        let saturated = self.vector_intrinsic("llvm.smin", &[wide], &[shifted, largest])?;
        Ok(self.builder.build_int_truncate(saturated, self.shape_type(I16x8), "")?)
    }

    /// Lanes of two vectors of `shape` (signed) cut to half their width, saturating as `to` says.
    fn narrow(&mut self, shape: Shape, to: Extend) -> Result<bool, CompileError> {
        let right = self.pop_as(shape)?;
        let left = self.pop_as(shape)?;
        let x86 = match (shape, to) {
            (I16x8, Signed) => Some(("sse2", "llvm.x86.sse2.packsswb.128")),
            (I16x8, Unsigned) => Some(("sse2", "llvm.x86.sse2.packuswb.128")),
            (I32x4, Signed) => Some(("sse2", "llvm.x86.sse2.packssdw.128")),
            (I32x4, Unsigned) => Some(("sse4.1", "llvm.x86.sse41.packusdw")),
            _ => None,
        };
        if let Some((feature, name)) = x86
            && self.has_x86_feature(feature)
        {
            let result = self.vector_intrinsic(name, &[], &[left, right])?;
            return self.push_vector(result);
        }
        let bits = shape.lane_bits();
        let lane = self.int_type(bits)?;
        let all = self.shuffle(left, right, 0..2 * shape.lanes())?;
        let ty = all.get_type();
        let constant = |value: i64| {
            let value = value as u64 & (u64::MAX >> (64 - bits));
            VectorType::const_vector(&vec![lane.const_int(value, false); 2 * shape.lanes() as usize])
        };
        let (lowest, highest) = match to {
            Signed => (-(1 << (bits / 2 - 1)), (1 << (bits / 2 - 1)) - 1),
            Unsigned => (0, (1 << (bits / 2)) - 1),
        };
        let (lowest, highest) = (constant(lowest), constant(highest));
        let low_done = self.vector_intrinsic("llvm.smax", &[ty], &[all, lowest])?;
        let high_done = self.vector_intrinsic("llvm.smin", &[ty], &[low_done, highest])?;
        let narrow = self.int_type(bits / 2)?.vec_type(2 * shape.lanes());
        let result = self.builder.build_int_truncate(high_done, narrow, "")?;
        self.push_vector(result)
    }
}
