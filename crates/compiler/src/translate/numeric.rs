//! Constants, arithmetic, comparisons and conversions of numbers.

use inkwell::types::{BasicTypeEnum, FloatType, IntType};
use inkwell::values::{BasicValue, FloatValue, InstructionOpcode, IntValue};
use inkwell::{FloatPredicate, IntPredicate};
use mote_artifact::abi::TrapCode;
use wasmparser::Operator;

use super::FunctionTranslator;
use crate::CompileError;

/// The two operands of a binary operator, the second popped first.
type Pair<T> = (T, T);

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    /// Translates `op` when it is a numeric operator; `false` when it is not.
    pub(super) fn translate_numeric(&mut self, op: &Operator<'_>) -> Result<bool, CompileError> {
        let s = self.shapes;
        match op {
            Operator::I32Const { value } => {
                self.push(s.i32.const_int(u64::from(value.cast_unsigned()), false))
            }
            Operator::I64Const { value } => self.push(s.i64.const_int(value.cast_unsigned(), false)),
            Operator::F32Const { value } => {
                let bits = s.i32.const_int(u64::from(value.bits()), false);
                self.float_constant(bits, s.f32, is_identity(f64::from(f32::from_bits(value.bits()))))?;
            }
            Operator::F64Const { value } => {
                let bits = s.i64.const_int(value.bits(), false);
                self.float_constant(bits, s.f64, is_identity(f64::from_bits(value.bits())))?;
            }

            Operator::I32Eqz | Operator::I64Eqz => {
                let value = self.pop_int()?;
                let zero = value.get_type().const_zero();
                self.compare_values(IntPredicate::EQ, value, zero)?;
            }
            Operator::I32Eq | Operator::I64Eq => self.compare(IntPredicate::EQ)?,
            Operator::I32Ne | Operator::I64Ne => self.compare(IntPredicate::NE)?,
            Operator::I32LtS | Operator::I64LtS => self.compare(IntPredicate::SLT)?,
            Operator::I32LtU | Operator::I64LtU => self.compare(IntPredicate::ULT)?,
            Operator::I32GtS | Operator::I64GtS => self.compare(IntPredicate::SGT)?,
            Operator::I32GtU | Operator::I64GtU => self.compare(IntPredicate::UGT)?,
            Operator::I32LeS | Operator::I64LeS => self.compare(IntPredicate::SLE)?,
            Operator::I32LeU | Operator::I64LeU => self.compare(IntPredicate::ULE)?,
            Operator::I32GeS | Operator::I64GeS => self.compare(IntPredicate::SGE)?,
            Operator::I32GeU | Operator::I64GeU => self.compare(IntPredicate::UGE)?,
            Operator::F32Eq | Operator::F64Eq => self.compare_scalar_floats(FloatPredicate::OEQ)?,
            Operator::F32Ne | Operator::F64Ne => self.compare_scalar_floats(FloatPredicate::UNE)?,
            Operator::F32Lt | Operator::F64Lt => self.compare_scalar_floats(FloatPredicate::OLT)?,
            Operator::F32Gt | Operator::F64Gt => self.compare_scalar_floats(FloatPredicate::OGT)?,
            Operator::F32Le | Operator::F64Le => self.compare_scalar_floats(FloatPredicate::OLE)?,
            Operator::F32Ge | Operator::F64Ge => self.compare_scalar_floats(FloatPredicate::OGE)?,

            Operator::I32Clz | Operator::I64Clz => self.count_zeros("llvm.ctlz")?,
            Operator::I32Ctz | Operator::I64Ctz => self.count_zeros("llvm.cttz")?,
            Operator::I32Popcnt | Operator::I64Popcnt => {
                let value = self.pop_int()?;
                let count = self.call_intrinsic("llvm.ctpop", &[value.get_type().into()], &[value.into()])?;
                self.push(count);
            }
            Operator::I32Add | Operator::I64Add => {
                let (a, b) = self.pop_ints()?;
                let result = self.builder.build_int_add(a, b, "")?;
                self.push(result);
            }
            Operator::I32Sub | Operator::I64Sub => {
                let (a, b) = self.pop_ints()?;
                let result = self.builder.build_int_sub(a, b, "")?;
                self.push(result);
            }
            Operator::I32Mul | Operator::I64Mul => {
                let (a, b) = self.pop_ints()?;
                let result = self.builder.build_int_mul(a, b, "")?;
                self.push(result);
            }
            Operator::I32DivS | Operator::I64DivS => self.divide_signed()?,
            Operator::I32DivU | Operator::I64DivU => {
                let (a, b) = self.pop_ints()?;
                self.trap_if_zero(b)?;
                let result = self.builder.build_int_unsigned_div(a, b, "")?;
                self.push(result);
            }
            Operator::I32RemS | Operator::I64RemS => self.remainder_signed()?,
            Operator::I32RemU | Operator::I64RemU => {
                let (a, b) = self.pop_ints()?;
                self.trap_if_zero(b)?;
                let result = self.builder.build_int_unsigned_rem(a, b, "")?;
                self.push(result);
            }
            Operator::I32And | Operator::I64And => {
                let (a, b) = self.pop_ints()?;
                let result = self.builder.build_and(a, b, "")?;
                self.push(result);
            }
            Operator::I32Or | Operator::I64Or => {
                let (a, b) = self.pop_ints()?;
                let result = self.builder.build_or(a, b, "")?;
                self.push(result);
            }
            Operator::I32Xor | Operator::I64Xor => {
                let (a, b) = self.pop_ints()?;
                let result = self.builder.build_xor(a, b, "")?;
                self.push(result);
            }
            Operator::I32Shl | Operator::I64Shl => {
                let (a, b) = self.pop_shift()?;
                let result = self.builder.build_left_shift(a, b, "")?;
                self.push(result);
            }
            Operator::I32ShrS | Operator::I64ShrS => {
                let (a, b) = self.pop_shift()?;
                let result = self.builder.build_right_shift(a, b, true, "")?;
                self.push(result);
            }
            Operator::I32ShrU | Operator::I64ShrU => {
                let (a, b) = self.pop_shift()?;
                let result = self.builder.build_right_shift(a, b, false, "")?;
                self.push(result);
            }
            Operator::I32Rotl | Operator::I64Rotl => self.rotate("llvm.fshl")?,
            Operator::I32Rotr | Operator::I64Rotr => self.rotate("llvm.fshr")?,

            Operator::F32Abs | Operator::F64Abs => self.float_bit_op("llvm.fabs")?,
            Operator::F32Neg | Operator::F64Neg => {
                // fneg flips the sign bit and nothing else, of NaNs too.
                let value = self.pop_float()?;
                let result = self.builder.build_float_neg(value, "")?;
                self.push(result);
            }
            Operator::F32Copysign | Operator::F64Copysign => {
                let (a, b) = self.pop_floats()?;
                let result =
                    self.call_intrinsic("llvm.copysign", &[a.get_type().into()], &[a.into(), b.into()])?;
                self.push(result);
            }
            Operator::F32Ceil | Operator::F64Ceil => self.round("llvm.ceil")?,
            Operator::F32Floor | Operator::F64Floor => self.round("llvm.floor")?,
            Operator::F32Trunc | Operator::F64Trunc => self.round("llvm.trunc")?,
            Operator::F32Nearest | Operator::F64Nearest => self.round("llvm.roundeven")?,
            Operator::F32Sqrt | Operator::F64Sqrt => self.round("llvm.sqrt")?,
            Operator::F32Add | Operator::F64Add => {
                let (a, b) = self.pop_floats()?;
                let result = self.builder.build_float_add(a, b, "")?;
                self.push_arithmetic(result)?;
            }
            Operator::F32Sub | Operator::F64Sub => {
                let (a, b) = self.pop_floats()?;
                let result = self.builder.build_float_sub(a, b, "")?;
                self.push_arithmetic(result)?;
            }
            Operator::F32Mul | Operator::F64Mul => {
                let (a, b) = self.pop_floats()?;
                let result = self.builder.build_float_mul(a, b, "")?;
                self.push_arithmetic(result)?;
            }
            Operator::F32Div | Operator::F64Div => {
                let (a, b) = self.pop_floats()?;
                let result = self.builder.build_float_div(a, b, "")?;
                self.push_arithmetic(result)?;
            }
            Operator::F32Min | Operator::F64Min => self.scalar_extremum(Extremum::Min)?,
            Operator::F32Max | Operator::F64Max => self.scalar_extremum(Extremum::Max)?,

            Operator::I32WrapI64 => {
                let value = self.pop_i64()?;
                let result = self.builder.build_int_truncate(value, s.i32, "")?;
                self.push(result);
            }
            Operator::I64ExtendI32S => {
                let value = self.pop_i32()?;
                let result = self.builder.build_int_s_extend(value, s.i64, "")?;
                self.push(result);
            }
            Operator::I64ExtendI32U => {
                let value = self.pop_i32()?;
                let result = self.builder.build_int_z_extend(value, s.i64, "")?;
                self.push(result);
            }
            Operator::I32Extend8S | Operator::I64Extend8S => self.sign_extend_low(s.i8)?,
            Operator::I32Extend16S | Operator::I64Extend16S => self.sign_extend_low(s.i16)?,
            Operator::I64Extend32S => self.sign_extend_low(s.i32)?,

            Operator::I32TruncF32S => self.truncate(s.i32, true, -2147483648.0, true, 2147483648.0)?,
            Operator::I32TruncF32U => self.truncate(s.i32, false, -1.0, false, 4294967296.0)?,
            Operator::I32TruncF64S => self.truncate(s.i32, true, -2147483649.0, false, 2147483648.0)?,
            Operator::I32TruncF64U => self.truncate(s.i32, false, -1.0, false, 4294967296.0)?,
            Operator::I64TruncF32S | Operator::I64TruncF64S => {
                self.truncate(s.i64, true, -9223372036854775808.0, true, 9223372036854775808.0)?;
            }
            Operator::I64TruncF32U | Operator::I64TruncF64U => {
                self.truncate(s.i64, false, -1.0, false, 18446744073709551616.0)?;
            }
            Operator::I32TruncSatF32S | Operator::I32TruncSatF64S => {
                self.saturate("llvm.fptosi.sat", s.i32)?
            }
            Operator::I32TruncSatF32U | Operator::I32TruncSatF64U => {
                self.saturate("llvm.fptoui.sat", s.i32)?
            }
            Operator::I64TruncSatF32S | Operator::I64TruncSatF64S => {
                self.saturate("llvm.fptosi.sat", s.i64)?
            }
            Operator::I64TruncSatF32U | Operator::I64TruncSatF64U => {
                self.saturate("llvm.fptoui.sat", s.i64)?
            }
            Operator::F32ConvertI32S | Operator::F32ConvertI64S => self.convert(s.f32, true)?,
            Operator::F32ConvertI32U | Operator::F32ConvertI64U => self.convert(s.f32, false)?,
            Operator::F64ConvertI32S | Operator::F64ConvertI64S => self.convert(s.f64, true)?,
            Operator::F64ConvertI32U | Operator::F64ConvertI64U => self.convert(s.f64, false)?,
            Operator::F32DemoteF64 => {
                let value = self.pop_f64()?;
                let value = if may_be_promoted(value) { self.fence(value)? } else { value };
                let result = self.builder.build_float_trunc(value, s.f32, "")?;
                self.push_arithmetic(result)?;
            }
            Operator::F64PromoteF32 => {
                let value = self.pop_f32()?;
                let result = self.builder.build_float_ext(value, s.f64, "")?;
                self.push_arithmetic(result)?;
            }
            Operator::I32ReinterpretF32 => self.reinterpret(s.i32.into())?,
            Operator::I64ReinterpretF64 => self.reinterpret(s.i64.into())?,
            Operator::F32ReinterpretI32 => self.reinterpret_as_float(s.f32)?,
            Operator::F64ReinterpretI64 => self.reinterpret_as_float(s.f64)?,

            Operator::I64Add128 => self.wide_sum(false)?,
            Operator::I64Sub128 => self.wide_sum(true)?,
            Operator::I64MulWideS => self.wide_product(true)?,
            Operator::I64MulWideU => self.wide_product(false)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn pop_ints(&mut self) -> Result<Pair<IntValue<'ctx>>, CompileError> {
        let b = self.pop_int()?;
        let a = self.pop_int()?;
        Ok((a, b))
    }

    fn pop_floats(&mut self) -> Result<Pair<FloatValue<'ctx>>, CompileError> {
        let b = self.pop_float()?;
        let a = self.pop_float()?;
        Ok((a, b))
    }

    /// Shift counts count modulo the width; LLVM's shifts are poison beyond it.
    fn pop_shift(&mut self) -> Result<Pair<IntValue<'ctx>>, CompileError> {
        let (a, b) = self.pop_ints()?;
        let mask = a.get_type().const_int(u64::from(a.get_type().get_bit_width()) - 1, false);
        Ok((a, self.builder.build_and(b, mask, "")?))
    }

    fn compare(&mut self, predicate: IntPredicate) -> Result<(), CompileError> {
        let (a, b) = self.pop_ints()?;
        self.compare_values(predicate, a, b)
    }

    fn compare_values(
        &mut self,
        predicate: IntPredicate,
        a: IntValue<'ctx>,
        b: IntValue<'ctx>,
    ) -> Result<(), CompileError> {
        let flag = self.builder.build_int_compare(predicate, a, b, "")?;
        self.push_flag(flag)
    }

    fn compare_scalar_floats(&mut self, predicate: FloatPredicate) -> Result<(), CompileError> {
        let (a, b) = self.pop_floats()?;
        let flag = self.builder.build_float_compare(predicate, a, b, "")?;
        self.push_flag(flag)
    }

    /// Pushes an `i1` as wasm's i32.
    pub(super) fn push_flag(&mut self, flag: IntValue<'ctx>) -> Result<(), CompileError> {
        let wide = self.builder.build_int_z_extend(flag, self.shapes.i32, "")?;
        self.push(wide);
        Ok(())
    }

    fn count_zeros(&mut self, intrinsic: &str) -> Result<(), CompileError> {
        let value = self.pop_int()?;
        let defined_at_zero = self.shapes.i1.const_zero();
        let count = self.call_intrinsic(
            intrinsic,
            &[value.get_type().into()],
            &[value.into(), defined_at_zero.into()],
        )?;
        self.push(count);
        Ok(())
    }

    fn rotate(&mut self, intrinsic: &str) -> Result<(), CompileError> {
        let (a, b) = self.pop_ints()?;
        let result =
            self.call_intrinsic(intrinsic, &[a.get_type().into()], &[a.into(), a.into(), b.into()])?;
        self.push(result);
        Ok(())
    }

    fn trap_if_zero(&mut self, divisor: IntValue<'ctx>) -> Result<(), CompileError> {
        let zero = divisor.get_type().const_zero();
        let is_zero = self.builder.build_int_compare(IntPredicate::EQ, divisor, zero, "")?;
        self.trap_if(is_zero, TrapCode::IntegerDivideByZero)
    }

    fn divide_signed(&mut self) -> Result<(), CompileError> {
        let (a, b) = self.pop_ints()?;
        self.trap_if_zero(b)?;
        let overflow = self.overflows(a, b)?;
        self.trap_if(overflow, TrapCode::IntegerOverflow)?;
        let result = self.builder.build_int_signed_div(a, b, "")?;
        self.push(result);
        Ok(())
    }

    /// The smallest integer divided by -1.
    fn overflows(&mut self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> Result<IntValue<'ctx>, CompileError> {
        let ty = a.get_type();
        let smallest = ty.const_int(1 << (ty.get_bit_width() - 1), false);
        let is_smallest = self.builder.build_int_compare(IntPredicate::EQ, a, smallest, "")?;
        let is_minus_one = self.builder.build_int_compare(IntPredicate::EQ, b, ty.const_all_ones(), "")?;
        Ok(self.builder.build_and(is_smallest, is_minus_one, "")?)
    }

    fn remainder_signed(&mut self) -> Result<(), CompileError> {
        let (a, b) = self.pop_ints()?;
        self.trap_if_zero(b)?;
        // x rem -1 is 0 = x rem 1, without the overflow that `srem` has for the smallest integer.
        let ty = a.get_type();
        let is_minus_one = self.builder.build_int_compare(IntPredicate::EQ, b, ty.const_all_ones(), "")?;
        let divisor =
            self.builder.build_select(is_minus_one, ty.const_int(1, false), b, "")?.into_int_value();
        let result = self.builder.build_int_signed_rem(a, divisor, "")?;
        self.push(result);
        Ok(())
    }

    fn sign_extend_low(&mut self, low: IntType<'ctx>) -> Result<(), CompileError> {
        let value = self.pop_int()?;
        let part = self.builder.build_int_truncate(value, low, "")?;
        let result = self.builder.build_int_s_extend(part, value.get_type(), "")?;
        self.push(result);
        Ok(())
    }

    /// LLVM folds `x * 1.0`, `x - 0.0` and the like to `x`, which leaves a signalling NaN signalling where
    /// WebAssembly's arithmetic makes it quiet. The constants that are neutral to some operator are hidden from it.
    fn float_constant(
        &mut self,
        bits: IntValue<'ctx>,
        ty: FloatType<'ctx>,
        neutral: bool,
    ) -> Result<(), CompileError> {
        let value = self.builder.build_bit_cast(bits, ty, "")?.into_float_value();
        let value = if neutral { self.fence(value)? } else { value };
        self.push(value);
        Ok(())
    }

    /// The same value, about which LLVM knows nothing; costs no instruction.
    pub(super) fn fence(&mut self, value: FloatValue<'ctx>) -> Result<FloatValue<'ctx>, CompileError> {
        let fenced =
            self.call_intrinsic("llvm.arithmetic.fence", &[value.get_type().into()], &[value.into()])?;
        Ok(fenced.into_float_value())
    }

    /// Pushes the result of an arithmetic operator.
    fn push_arithmetic(&mut self, value: FloatValue<'ctx>) -> Result<(), CompileError> {
        let value = if self.options().canonical_nans { self.canonical(value)? } else { value };
        self.push(value);
        Ok(())
    }

    fn canonical(&mut self, value: FloatValue<'ctx>) -> Result<FloatValue<'ctx>, CompileError> {
        let ty = value.get_type();
        let is_nan = self.builder.build_float_compare(FloatPredicate::UNO, value, value, "")?;
        let bits = if ty == self.shapes.f32 {
            self.shapes.i32.const_int(0x7fc0_0000, false)
        } else {
            self.shapes.i64.const_int(0x7ff8_0000_0000_0000, false)
        };
        let nan = self.builder.build_bit_cast(bits, ty, "")?.into_float_value();
        Ok(self.builder.build_select(is_nan, nan, value, "")?.into_float_value())
    }

    fn float_bit_op(&mut self, intrinsic: &str) -> Result<(), CompileError> {
        let value = self.pop_float()?;
        let result = self.call_intrinsic(intrinsic, &[value.get_type().into()], &[value.into()])?;
        self.push(result);
        Ok(())
    }

    fn round(&mut self, intrinsic: &str) -> Result<(), CompileError> {
        let value = self.pop_float()?;
        let result = self.call_intrinsic(intrinsic, &[value.get_type().into()], &[value.into()])?;
        self.push_arithmetic(result.into_float_value())
    }

    /// The smaller or larger operand; -0.0 is smaller than 0.0; a NaN when one operand is.
    fn scalar_extremum(&mut self, extremum: Extremum) -> Result<(), CompileError> {
        let (a, b) = self.pop_floats()?;
        let ty = a.get_type();
        let int = if ty == self.shapes.f32 { self.shapes.i32 } else { self.shapes.i64 };
        let a_bits = self.builder.build_bit_cast(a, int, "")?.into_int_value();
        let b_bits = self.builder.build_bit_cast(b, int, "")?.into_int_value();
        // Equal operands differ at most in their sign bit.
        let (better, merged) = match extremum {
            Extremum::Min => (FloatPredicate::OLT, self.builder.build_or(a_bits, b_bits, "")?),
            Extremum::Max => (FloatPredicate::OGT, self.builder.build_and(a_bits, b_bits, "")?),
        };
        let merged = self.builder.build_bit_cast(merged, ty, "")?.into_float_value();
        let is_better = self.builder.build_float_compare(better, a, b, "")?;
        let chosen = self.builder.build_select(is_better, a, b, "")?.into_float_value();
        let are_equal = self.builder.build_float_compare(FloatPredicate::OEQ, a, b, "")?;
        let ordered = self.builder.build_select(are_equal, merged, chosen, "")?.into_float_value();
        let unordered = self.builder.build_float_compare(FloatPredicate::UNO, a, b, "")?;
        let sum = self.builder.build_float_add(a, b, "")?;
        let result = self.builder.build_select(unordered, sum, ordered, "")?.into_float_value();
        self.push_arithmetic(result)
    }

    /// Float to integer; traps when the truncated value is not in range: below (or at, unless `low_included`) `low`, or
    /// at or above `high`.
    fn truncate(
        &mut self,
        ty: IntType<'ctx>,
        signed: bool,
        low: f64,
        low_included: bool,
        high: f64,
    ) -> Result<(), CompileError> {
        let value = self.pop_float()?;
        let float = value.get_type();
        let above = if low_included { FloatPredicate::OGE } else { FloatPredicate::OGT };
        let above = self.builder.build_float_compare(above, value, float.const_float(low), "")?;
        let below =
            self.builder.build_float_compare(FloatPredicate::OLT, value, float.const_float(high), "")?;
        let inside = self.builder.build_and(above, below, "")?;
        let bad = self.new_block();
        let good = self.new_block();
        self.builder.build_conditional_branch(inside, good, bad)?;
        self.builder.position_at_end(bad);
        let is_nan = self.builder.build_float_compare(FloatPredicate::UNO, value, value, "")?;
        self.trap_if(is_nan, TrapCode::InvalidConversionToInteger)?;
        self.trap(TrapCode::IntegerOverflow)?;
        self.builder.position_at_end(good);
        let result = if signed {
            self.builder.build_float_to_signed_int(value, ty, "")?
        } else {
            self.builder.build_float_to_unsigned_int(value, ty, "")?
        };
        self.push(result);
        Ok(())
    }

    fn saturate(&mut self, intrinsic: &str, ty: IntType<'ctx>) -> Result<(), CompileError> {
        let value = self.pop_float()?;
        let result =
            self.call_intrinsic(intrinsic, &[ty.into(), value.get_type().into()], &[value.into()])?;
        self.push(result);
        Ok(())
    }

    fn convert(&mut self, ty: FloatType<'ctx>, signed: bool) -> Result<(), CompileError> {
        let value = self.pop_int()?;
        let result = if signed {
            self.builder.build_signed_int_to_float(value, ty, "")?
        } else {
            self.builder.build_unsigned_int_to_float(value, ty, "")?
        };
        let result = if value.is_const() { self.fence(result)? } else { result };
        self.push(result);
        Ok(())
    }

    fn reinterpret(&mut self, ty: BasicTypeEnum<'ctx>) -> Result<(), CompileError> {
        let value = self.pop()?;
        let result = self.builder.build_bit_cast(value, ty, "")?;
        self.push(result);
        Ok(())
    }

    fn reinterpret_as_float(&mut self, ty: FloatType<'ctx>) -> Result<(), CompileError> {
        let value = self.pop_int()?;
        let result = self.builder.build_bit_cast(value, ty, "")?.into_float_value();
        let result = if value.is_const() { self.fence(result)? } else { result };
        self.push(result);
        Ok(())
    }

    fn pop_wide(&mut self) -> Result<IntValue<'ctx>, CompileError> {
        let high = self.pop_i64()?;
        let low = self.pop_i64()?;
        let wide = self.shapes.i128;
        let low = self.builder.build_int_z_extend(low, wide, "")?;
        let high = self.builder.build_int_z_extend(high, wide, "")?;
        let high = self.builder.build_left_shift(high, wide.const_int(64, false), "")?;
        Ok(self.builder.build_or(high, low, "")?)
    }

    fn push_wide(&mut self, value: IntValue<'ctx>) -> Result<(), CompileError> {
        let low = self.builder.build_int_truncate(value, self.shapes.i64, "")?;
        let shifted =
            self.builder.build_right_shift(value, self.shapes.i128.const_int(64, false), false, "")?;
        let high = self.builder.build_int_truncate(shifted, self.shapes.i64, "")?;
        self.push(low);
        self.push(high);
        Ok(())
    }

    fn wide_sum(&mut self, subtract: bool) -> Result<(), CompileError> {
        let b = self.pop_wide()?;
        let a = self.pop_wide()?;
        let result = if subtract {
            self.builder.build_int_sub(a, b, "")?
        } else {
            self.builder.build_int_add(a, b, "")?
        };
        self.push_wide(result)
    }

    fn wide_product(&mut self, signed: bool) -> Result<(), CompileError> {
        let (a, b) = self.pop_ints()?;
        let wide = self.shapes.i128;
        let (a, b) = if signed {
            (self.builder.build_int_s_extend(a, wide, "")?, self.builder.build_int_s_extend(b, wide, "")?)
        } else {
            (self.builder.build_int_z_extend(a, wide, "")?, self.builder.build_int_z_extend(b, wide, "")?)
        };
        let result = self.builder.build_int_mul(a, b, "")?;
        self.push_wide(result)
    }
}

#[derive(Clone, Copy)]
enum Extremum {
    Min,
    Max,
}

/// Whether some arithmetic operator with this constant returns its other operand (or its negation).
fn is_identity(value: f64) -> bool {
    value == 0.0 || value.abs() == 1.0
}

/// Whether LLVM might see through to a promotion: `demote(promote x)` must not become `x`, which may be a signalling NaN.
/// Results of arithmetic and constants are quiet or folded correctly.
fn may_be_promoted(value: FloatValue<'_>) -> bool {
    let quiet = [
        InstructionOpcode::FAdd,
        InstructionOpcode::FSub,
        InstructionOpcode::FMul,
        InstructionOpcode::FDiv,
        InstructionOpcode::SIToFP,
        InstructionOpcode::UIToFP,
    ];
    !value.is_const()
        && value
            .as_basic_value_enum()
            .as_instruction_value()
            .is_none_or(|made| !quiet.contains(&made.get_opcode()))
}
