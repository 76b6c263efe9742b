//! Conversions between integer and float lanes, and between float widths.

use inkwell::FloatPredicate::{OEQ, OGE};
use inkwell::values::VectorValue;
use wasmparser::Operator;

use super::super::FunctionTranslator;
use super::Shape::{F32x4, F64x2, I32x4};
use super::float::Extremum;
use super::lanes::Extend::{self, Signed, Unsigned};
use crate::CompileError;

const TWO_31: f64 = 2147483648.0;
/// Adding it to a whole number below 2^52 leaves that number in the low bits of the mantissa.
const TWO_52: f64 = 4503599627370496.0;

pub(super) fn translate(f: &mut FunctionTranslator, op: &Operator) -> Result<bool, CompileError> {
    match op {
        Operator::F32x4ConvertI32x4S => f.convert_i32x4(Signed),
        Operator::F32x4ConvertI32x4U => f.convert_i32x4(Unsigned),
        Operator::F64x2ConvertLowI32x4S => f.convert_low(Signed),
        Operator::F64x2ConvertLowI32x4U => f.convert_low(Unsigned),
        Operator::F32x4DemoteF64x2Zero => {
            let value = f.pop_as(F64x2)?;
            // LLVM would replace demote(promote x) by x, which may be a signalling NaN.
            let value = f.hide(value)?;
            let narrow = f.context.f32_type().vec_type(2);
            let demoted = f.builder.build_float_trunc(value, narrow, "")?;
            let result = f.shuffle(demoted, narrow.const_zero(), 0..4)?;
            f.push_float(result, F32x4)
        }
        Operator::F64x2PromoteLowF32x4 => {
            let value = f.pop_as(F32x4)?;
            let low = f.pick(value, 0..2)?;
            let promoted = f.builder.build_float_ext(low, f.shape_type(F64x2), "")?;
            f.push_float(promoted, F64x2)
        }
        Operator::I32x4TruncSatF32x4S => {
            let value = f.pop_as(F32x4)?;
            let result = f.truncate_f32x4(value, Signed)?;
            f.push_vector(result)
        }
        Operator::I32x4TruncSatF32x4U => {
            let value = f.pop_as(F32x4)?;
            let result = f.truncate_f32x4(value, Unsigned)?;
            f.push_vector(result)
        }
        Operator::I32x4TruncSatF64x2SZero => {
            let value = f.pop_as(F64x2)?;
            let result = f.truncate_f64x2(value, Signed)?;
            f.push_vector(result)
        }
        Operator::I32x4TruncSatF64x2UZero => {
            let value = f.pop_as(F64x2)?;
            let result = f.truncate_f64x2(value, Unsigned)?;
            f.push_vector(result)
        }
        _ => Ok(false),
    }
}

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    fn convert_i32x4(&mut self, from: Extend) -> Result<bool, CompileError> {
        let value = self.pop_as(I32x4)?;
        let ty = self.shape_type(F32x4);
        let result = match from {
            Signed => self.builder.build_signed_int_to_float(value, ty, "")?,
            Unsigned => self.builder.build_unsigned_int_to_float(value, ty, "")?,
        };
        self.push_vector(result)
    }

    fn convert_low(&mut self, from: Extend) -> Result<bool, CompileError> {
        let value = self.pop_as(I32x4)?;
        let low = self.pick(value, 0..2)?;
        let ty = self.shape_type(F64x2);
        let result = match from {
            Signed => self.builder.build_signed_int_to_float(low, ty, "")?,
            Unsigned => self.builder.build_unsigned_int_to_float(low, ty, "")?,
        };
        self.push_vector(result)
    }

    /// Truncates to `i32` lanes, saturating; NaN gives 0.
    ///
    /// On x86 by hand: LLVM takes its own saturating conversion apart lane by lane there.
    pub(super) fn truncate_f32x4(
        &mut self,
        value: VectorValue<'ctx>,
        to: Extend,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        if !self.is_x86() {
            let name = if to == Signed { "llvm.fptosi.sat" } else { "llvm.fptoui.sat" };
            return self.vector_intrinsic(name, &[self.shape_type(I32x4), value.get_type()], &[value]);
        }
        if to == Signed {
            let number = self.nan_to_zero(value)?;
            return self.convert_or_highest(number);
        }
        // max(x, 0), where NaN gives 0 as well.
        let zero = self.shape_type(F32x4).const_zero();
        let number = self.first_if(Extremum::Max, value, zero, F32x4)?;
        if self.has_x86_feature("avx512vl") {
            // Out of range gives all ones, which is what saturation wants.
            return self.convert_unsigned("llvm.x86.avx512.mask.cvttps2udq.128", number);
        }
        // Two signed conversions: of x, which gives 2^31 from there on, and of what x is above that.
        let limit = self.splat_float(F32x4, TWO_31);
        let large = self.builder.build_float_compare(OGE, number, limit, "")?;
        let low = self.vector_intrinsic("llvm.x86.sse2.cvttps2dq", &[], &[number])?;
        let above = self.builder.build_float_sub(number, limit, "")?;
        let high = self.convert_or_highest(above)?;
        let high = self.builder.build_and(high, self.mask(large, I32x4)?, "")?;
        Ok(self.builder.build_int_add(low, high, "")?)
    }

    /// Truncates to the two low `i32` lanes, saturating; the high lanes and NaN give 0.
    pub(super) fn truncate_f64x2(
        &mut self,
        value: VectorValue<'ctx>,
        to: Extend,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        if !self.is_x86() {
            let name = if to == Signed { "llvm.fptosi.sat" } else { "llvm.fptoui.sat" };
            let narrow = self.context.i32_type().vec_type(2);
            let low = self.vector_intrinsic(name, &[narrow, value.get_type()], &[value])?;
            return self.shuffle(low, narrow.const_zero(), 0..4);
        }
        if to == Signed {
            // min(x, 2^31 - 1), with NaN as 0; what is too low gives -2^31 by itself.
            let number = self.nan_to_zero(value)?;
            let highest = self.splat_float(F64x2, TWO_31 - 1.0);
            let number = self.first_if(Extremum::Min, number, highest, F64x2)?;
            return self.vector_intrinsic("llvm.x86.sse2.cvttpd2dq", &[], &[number]);
        }
        let zero = self.shape_type(F64x2).const_zero();
        let number = self.first_if(Extremum::Max, value, zero, F64x2)?;
        if self.has_x86_feature("avx512vl") {
            return self.convert_unsigned("llvm.x86.avx512.mask.cvttpd2udq.128", number);
        }
        let highest = self.splat_float(F64x2, 2.0 * TWO_31 - 1.0);
        let number = self.first_if(Extremum::Min, number, highest, F64x2)?;
        let whole = self.vector_intrinsic("llvm.trunc", &[number.get_type()], &[number])?;
        let shifted = self.builder.build_float_add(whole, self.splat_float(F64x2, TWO_52), "")?;
        let bits = self.vector_cast(shifted, self.shape_type(I32x4))?;
        self.shuffle(bits, self.shape_type(I32x4).const_zero(), [0, 2, 4, 5].into_iter())
    }

    /// NaN lanes become +0.
    fn nan_to_zero(&self, value: VectorValue<'ctx>) -> Result<VectorValue<'ctx>, CompileError> {
        let number = self.builder.build_float_compare(OEQ, value, value, "")?;
        self.choose(number, value, value.get_type().const_zero())
    }

    /// cvttps2dq, whose 2^31 for what is too high is inverted to 2^31 - 1.
    fn convert_or_highest(&mut self, value: VectorValue<'ctx>) -> Result<VectorValue<'ctx>, CompileError> {
        let converted = self.vector_intrinsic("llvm.x86.sse2.cvttps2dq", &[], &[value])?;
        let limit = self.splat_float(F32x4, TWO_31);
        let too_high = self.builder.build_float_compare(OGE, value, limit, "")?;
        let flip = self.mask(too_high, I32x4)?;
        Ok(self.builder.build_xor(converted, flip, "")?)
    }

    /// One of AVX-512's conversions to unsigned: NaN and what is out of range give all ones.
    pub(super) fn convert_unsigned(
        &mut self,
        name: &str,
        value: VectorValue<'ctx>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        let passed_through = self.shape_type(I32x4).const_zero();
        let every_lane = self.context.i8_type().const_all_ones();
        let arguments = [value.into(), passed_through.into(), every_lane.into()];
        Ok(self.call_intrinsic(name, &[], &arguments)?.into_vector_value())
    }
}
