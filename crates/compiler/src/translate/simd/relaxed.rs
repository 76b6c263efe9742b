//! Relaxed SIMD: of the results that the specification allows, the one that costs a single instruction.
//!
//! What each operator does, for programs that depend on it (they should not):
//!
//! | operator | with the feature | otherwise |
//! |---|---|---|
//! | `relaxed_swizzle` | pshufb (SSSE3): indices 16–127 wrap, from 128 give 0 | as `i8x16.swizzle` |
//! | `relaxed_trunc` signed | cvttps2dq, cvttpd2dq: NaN and out of range give `i32::MIN` | saturating |
//! | `relaxed_trunc` unsigned | AVX-512VL: NaN and out of range give `u32::MAX` | saturating |
//! | `relaxed_madd`, `relaxed_nmadd` | fused (FMA, aarch64) | rounded twice |
//! | `relaxed_laneselect` | bit select with AVX-512VL or without SSE4.1, and always for 16-bit lanes | by the lane's top bit |
//! | `relaxed_min`, `relaxed_max` | as `pmin`, `pmax` (x86) | as `min`, `max` |
//! | `relaxed_q15mulr_s` | pmulhrsw (SSSE3): -1.0 squared wraps | saturating |
//! | `relaxed_dot_i8x16_i7x16` | pmaddubsw (SSSE3): second operand unsigned, sums saturate | both signed, sums wrap |
//! | `relaxed_dot_…_add` | vpdpbusd (AVX-512VNNI and VL, AVX-VNNI): second operand unsigned, no intermediate sums | two steps |

use inkwell::values::VectorValue;
use wasmparser::Operator;

use super::super::FunctionTranslator;
use super::Shape::{self, F32x4, F64x2, I8x16, I16x8, I32x4, I64x2};
use super::float::Extremum::{self, Max, Min};
use super::lanes::Extend::{self, Signed, Unsigned};
use crate::CompileError;

pub(super) fn translate(f: &mut FunctionTranslator, op: &Operator) -> Result<bool, CompileError> {
    match op {
        Operator::I8x16RelaxedSwizzle => {
            let indices = f.pop_as(I8x16)?;
            let table = f.pop_as(I8x16)?;
            let result = if f.has_x86_feature("ssse3") {
                f.vector_intrinsic("llvm.x86.ssse3.pshuf.b.128", &[], &[table, indices])?
            } else {
                f.swizzle_by_lane(table, indices)?
            };
            f.push_vector(result)
        }
        Operator::I32x4RelaxedTruncF32x4S => f.relaxed_truncate(F32x4, Signed),
        Operator::I32x4RelaxedTruncF32x4U => f.relaxed_truncate(F32x4, Unsigned),
        Operator::I32x4RelaxedTruncF64x2SZero => f.relaxed_truncate(F64x2, Signed),
        Operator::I32x4RelaxedTruncF64x2UZero => f.relaxed_truncate(F64x2, Unsigned),
        Operator::F32x4RelaxedMadd => f.multiply_add(F32x4, false),
        Operator::F32x4RelaxedNmadd => f.multiply_add(F32x4, true),
        Operator::F64x2RelaxedMadd => f.multiply_add(F64x2, false),
        Operator::F64x2RelaxedNmadd => f.multiply_add(F64x2, true),
        Operator::I8x16RelaxedLaneselect => f.lane_select(I8x16),
        Operator::I16x8RelaxedLaneselect => f.lane_select(I16x8),
        Operator::I32x4RelaxedLaneselect => f.lane_select(I32x4),
        Operator::I64x2RelaxedLaneselect => f.lane_select(I64x2),
        Operator::F32x4RelaxedMin => f.relaxed_extremum(F32x4, Min),
        Operator::F32x4RelaxedMax => f.relaxed_extremum(F32x4, Max),
        Operator::F64x2RelaxedMin => f.relaxed_extremum(F64x2, Min),
        Operator::F64x2RelaxedMax => f.relaxed_extremum(F64x2, Max),
        Operator::I16x8RelaxedQ15mulrS => {
            let right = f.pop_as(I16x8)?;
            let left = f.pop_as(I16x8)?;
            let result = if f.has_x86_feature("ssse3") {
                f.vector_intrinsic("llvm.x86.ssse3.pmul.hr.sw.128", &[], &[left, right])?
            } else {
                f.multiply_q15_wide(left, right)?
            };
            f.push_vector(result)
        }
        Operator::I16x8RelaxedDotI8x16I7x16S => {
            let right = f.pop_as(I8x16)?;
            let left = f.pop_as(I8x16)?;
            let result = f.dot_bytes(left, right)?;
            f.push_vector(result)
        }
        Operator::I32x4RelaxedDotI8x16I7x16AddS => {
            let sum = f.pop_as(I32x4)?;
            let right = f.pop_as(I8x16)?;
            let left = f.pop_as(I8x16)?;
            let result = f.dot_bytes_add(left, right, sum)?;
            f.push_vector(result)
        }
        _ => Ok(false),
    }
}

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    fn relaxed_truncate(&mut self, from: Shape, to: Extend) -> Result<bool, CompileError> {
        let value = self.pop_as(from)?;
        let result = match (from, to) {
            (F32x4, Signed) if self.is_x86() => {
                self.vector_intrinsic("llvm.x86.sse2.cvttps2dq", &[], &[value])?
            }
            (_, Signed) if self.is_x86() => {
                self.vector_intrinsic("llvm.x86.sse2.cvttpd2dq", &[], &[value])?
            }
            (F32x4, Unsigned) if self.has_x86_feature("avx512vl") => {
                self.convert_unsigned("llvm.x86.avx512.mask.cvttps2udq.128", value)?
            }
            (_, Unsigned) if self.has_x86_feature("avx512vl") => {
                self.convert_unsigned("llvm.x86.avx512.mask.cvttpd2udq.128", value)?
            }
            (F32x4, to) => self.truncate_f32x4(value, to)?,
            (_, to) => self.truncate_f64x2(value, to)?,
        };
        self.push_vector(result)
    }

    /// `a * b + c`, or `c - a * b` when `negate`.
    fn multiply_add(&mut self, shape: Shape, negate: bool) -> Result<bool, CompileError> {
        let addend = self.pop_as(shape)?;
        let right = self.pop_as(shape)?;
        let left = self.pop_as(shape)?;
        let left = if negate { self.builder.build_float_neg(left, "")? } else { left };
        // Without the instruction llvm.fma would be a call into libm.
        let result = if self.has_x86_feature("fma") || self.is_aarch64() {
            self.vector_intrinsic("llvm.fma", &[left.get_type()], &[left, right, addend])?
        } else {
            let product = self.builder.build_float_mul(left, right, "")?;
            self.builder.build_float_add(product, addend, "")?
        };
        self.push_float(result, shape)
    }

    fn lane_select(&mut self, shape: Shape) -> Result<bool, CompileError> {
        let control = self.pop_as(shape)?;
        let otherwise = self.pop_as(shape)?;
        let then = self.pop_as(shape)?;
        let blends = self.has_x86_feature("sse4.1") && !self.has_x86_feature("avx512vl");
        let result = if blends && shape != I16x8 {
            let chosen = self.sign_bits(control)?;
            self.choose(chosen, then, otherwise)?
        } else {
            self.bitselect(control, then, otherwise)?
        };
        self.push_vector(result)
    }

    fn relaxed_extremum(&mut self, shape: Shape, extremum: Extremum) -> Result<bool, CompileError> {
        let right = self.pop_as(shape)?;
        let left = self.pop_as(shape)?;
        let result = if self.is_x86() {
            self.first_if(extremum, right, left, shape)?
        } else {
            let name = if extremum == Min { "llvm.minimum" } else { "llvm.maximum" };
            self.vector_intrinsic(name, &[left.get_type()], &[left, right])?
        };
        self.push_float(result, shape)
    }

    /// Products of signed bytes by 7-bit bytes, neighbouring ones added in 16 bits.
    fn dot_bytes(
        &mut self,
        left: VectorValue<'ctx>,
        right: VectorValue<'ctx>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        if self.has_x86_feature("ssse3") {
            return self.vector_intrinsic("llvm.x86.ssse3.pmadd.ub.sw.128", &[], &[right, left]);
        }
        let product = |first: u32| -> Result<VectorValue<'ctx>, CompileError> {
            let lanes = || (0..8).map(|lane| 2 * lane + first);
            let left = self.widen(self.pick(left, lanes())?, I16x8, Signed)?;
            let right = self.widen(self.pick(right, lanes())?, I16x8, Signed)?;
            Ok(self.builder.build_int_mul(left, right, "")?)
        };
        let (even, odd) = (product(0)?, product(1)?);
        Ok(self.builder.build_int_add(even, odd, "")?)
    }

    /// Sums of four such products, added to the lanes of `sum`.
    fn dot_bytes_add(
        &mut self,
        left: VectorValue<'ctx>,
        right: VectorValue<'ctx>,
        sum: VectorValue<'ctx>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        let by_512 = self.has_x86_feature("avx512vnni") && self.has_x86_feature("avx512vl");
        if by_512 || self.has_x86_feature("avxvnni") {
            // The intrinsic's operands are <4 x i32> whatever their bytes mean.
            let (left, right) =
                (self.vector_cast(left, sum.get_type())?, self.vector_cast(right, sum.get_type())?);
            return self.vector_intrinsic("llvm.x86.avx512.vpdpbusd.128", &[], &[sum, right, left]);
        }
        let pairs = self.dot_bytes(left, right)?;
        let fours = self.sum_of_pairs(pairs, I16x8, Signed)?;
        Ok(self.builder.build_int_add(fours, sum, "")?)
    }
}
