//! Moving lanes: constants, loads and stores, splats, lane access, shuffles.

use inkwell::types::{BasicTypeEnum, VectorType};
use inkwell::values::{BasicValueEnum, VectorValue};
use wasmparser::{MemArg, Operator};

use super::super::FunctionTranslator;
use super::Shape::{self, F32x4, F64x2, I8x16, I16x8, I32x4, I64x2};
use crate::CompileError;

/// How a narrow lane becomes a wider one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extend {
    Signed,
    Unsigned,
}
use self::Extend::{Signed, Unsigned};

pub(super) fn translate(f: &mut FunctionTranslator, op: &Operator) -> Result<bool, CompileError> {
    match op {
        Operator::V128Const { value } => {
            let bits = value.i128() as u128;
            let lane = f.context.i64_type();
            let lanes = [lane.const_int(bits as u64, false), lane.const_int((bits >> 64) as u64, false)];
            f.push(VectorType::const_vector(&lanes));
            Ok(true)
        }
        Operator::V128Load { memarg } => {
            let value = f.load(memarg, f.shape_type(I64x2).into())?;
            f.push(value);
            Ok(true)
        }
        Operator::V128Store { memarg } => {
            let value = f.pop_v128()?;
            f.store(memarg, value.into())?;
            Ok(true)
        }
        Operator::V128Load8x8S { memarg } => f.load_extend(memarg, I16x8, Signed),
        Operator::V128Load8x8U { memarg } => f.load_extend(memarg, I16x8, Unsigned),
        Operator::V128Load16x4S { memarg } => f.load_extend(memarg, I32x4, Signed),
        Operator::V128Load16x4U { memarg } => f.load_extend(memarg, I32x4, Unsigned),
        Operator::V128Load32x2S { memarg } => f.load_extend(memarg, I64x2, Signed),
        Operator::V128Load32x2U { memarg } => f.load_extend(memarg, I64x2, Unsigned),
        Operator::V128Load8Splat { memarg } => f.load_splat(memarg, I8x16),
        Operator::V128Load16Splat { memarg } => f.load_splat(memarg, I16x8),
        Operator::V128Load32Splat { memarg } => f.load_splat(memarg, I32x4),
        Operator::V128Load64Splat { memarg } => f.load_splat(memarg, I64x2),
        Operator::V128Load32Zero { memarg } => f.load_zero(memarg, I32x4),
        Operator::V128Load64Zero { memarg } => f.load_zero(memarg, I64x2),
        Operator::V128Load8Lane { memarg, lane } => f.load_lane(memarg, I8x16, *lane),
        Operator::V128Load16Lane { memarg, lane } => f.load_lane(memarg, I16x8, *lane),
        Operator::V128Load32Lane { memarg, lane } => f.load_lane(memarg, I32x4, *lane),
        Operator::V128Load64Lane { memarg, lane } => f.load_lane(memarg, I64x2, *lane),
        Operator::V128Store8Lane { memarg, lane } => f.store_lane(memarg, I8x16, *lane),
        Operator::V128Store16Lane { memarg, lane } => f.store_lane(memarg, I16x8, *lane),
        Operator::V128Store32Lane { memarg, lane } => f.store_lane(memarg, I32x4, *lane),
        Operator::V128Store64Lane { memarg, lane } => f.store_lane(memarg, I64x2, *lane),

        Operator::I8x16Splat => f.splat_operand(I8x16),
        Operator::I16x8Splat => f.splat_operand(I16x8),
        Operator::I32x4Splat => f.splat_operand(I32x4),
        Operator::I64x2Splat => f.splat_operand(I64x2),
        Operator::F32x4Splat => f.splat_operand(F32x4),
        Operator::F64x2Splat => f.splat_operand(F64x2),
        Operator::I8x16ExtractLaneS { lane } => f.extract_narrow(I8x16, *lane, Signed),
        Operator::I8x16ExtractLaneU { lane } => f.extract_narrow(I8x16, *lane, Unsigned),
        Operator::I16x8ExtractLaneS { lane } => f.extract_narrow(I16x8, *lane, Signed),
        Operator::I16x8ExtractLaneU { lane } => f.extract_narrow(I16x8, *lane, Unsigned),
        Operator::I32x4ExtractLane { lane } => f.extract_operand(I32x4, *lane),
        Operator::I64x2ExtractLane { lane } => f.extract_operand(I64x2, *lane),
        Operator::F32x4ExtractLane { lane } => f.extract_operand(F32x4, *lane),
        Operator::F64x2ExtractLane { lane } => f.extract_operand(F64x2, *lane),
        Operator::I8x16ReplaceLane { lane } => f.replace_operand(I8x16, *lane),
        Operator::I16x8ReplaceLane { lane } => f.replace_operand(I16x8, *lane),
        Operator::I32x4ReplaceLane { lane } => f.replace_operand(I32x4, *lane),
        Operator::I64x2ReplaceLane { lane } => f.replace_operand(I64x2, *lane),
        Operator::F32x4ReplaceLane { lane } => f.replace_operand(F32x4, *lane),
        Operator::F64x2ReplaceLane { lane } => f.replace_operand(F64x2, *lane),

        Operator::I8x16Shuffle { lanes } => {
            let right = f.pop_as(I8x16)?;
            let left = f.pop_as(I8x16)?;
            let result = f.shuffle(left, right, lanes.iter().map(|&lane| u32::from(lane)))?;
            f.push_vector(result)
        }
        Operator::I8x16Swizzle => {
            let indices = f.pop_as(I8x16)?;
            let table = f.pop_as(I8x16)?;
            let result = f.swizzle(table, indices)?;
            f.push_vector(result)
        }
        _ => Ok(false),
    }
}

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    /// The LLVM type of one lane.
    fn lane_type(&self, shape: Shape) -> BasicTypeEnum<'ctx> {
        self.shape_type(shape).get_element_type()
    }

    fn extract(&self, value: VectorValue<'ctx>, lane: u8) -> Result<BasicValueEnum<'ctx>, CompileError> {
        let lane = self.context.i32_type().const_int(u64::from(lane), false);
        Ok(self.builder.build_extract_element(value, lane, "")?)
    }

    fn insert(
        &self,
        into: VectorValue<'ctx>,
        lane: u8,
        value: BasicValueEnum<'ctx>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        let lane = self.context.i32_type().const_int(u64::from(lane), false);
        Ok(self.builder.build_insert_element(into, value, lane, "")?)
    }

    /// Loads 64 bits and widens each lane; `shape` is the result's.
    fn load_extend(&mut self, memarg: &MemArg, shape: Shape, extend: Extend) -> Result<bool, CompileError> {
        let narrow = self.int_type(shape.lane_bits() / 2)?.vec_type(shape.lanes());
        let loaded = self.load(memarg, narrow.into())?.into_vector_value();
        let wide = self.widen(loaded, shape, extend)?;
        self.push_vector(wide)
    }

    /// Widens every lane to those of `shape`, which has as many.
    pub(super) fn widen(
        &self,
        value: VectorValue<'ctx>,
        shape: Shape,
        extend: Extend,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        let ty = self.shape_type(shape);
        Ok(match extend {
            Signed => self.builder.build_int_s_extend(value, ty, "")?,
            Unsigned => self.builder.build_int_z_extend(value, ty, "")?,
        })
    }

    fn load_splat(&mut self, memarg: &MemArg, shape: Shape) -> Result<bool, CompileError> {
        let value = self.load(memarg, self.lane_type(shape))?;
        let all = self.splat(shape, value)?;
        self.push_vector(all)
    }

    fn load_zero(&mut self, memarg: &MemArg, shape: Shape) -> Result<bool, CompileError> {
        let value = self.load(memarg, self.lane_type(shape))?;
        let result = self.insert(self.shape_type(shape).const_zero(), 0, value)?;
        self.push_vector(result)
    }

    fn load_lane(&mut self, memarg: &MemArg, shape: Shape, lane: u8) -> Result<bool, CompileError> {
        let into = self.pop_as(shape)?;
        let value = self.load(memarg, self.lane_type(shape))?;
        let result = self.insert(into, lane, value)?;
        self.push_vector(result)
    }

    fn store_lane(&mut self, memarg: &MemArg, shape: Shape, lane: u8) -> Result<bool, CompileError> {
        let from = self.pop_as(shape)?;
        let value = self.extract(from, lane)?;
        self.store(memarg, value)?;
        Ok(true)
    }

    /// Pops a scalar and cuts an `i32` to the width of `shape`'s lanes.
    fn pop_lane(&mut self, shape: Shape) -> Result<BasicValueEnum<'ctx>, CompileError> {
        let value = self.pop()?;
        Ok(match self.lane_type(shape) {
            BasicTypeEnum::IntType(ty) if ty.get_bit_width() < 32 => {
                self.builder.build_int_truncate(value.into_int_value(), ty, "")?.into()
            }
            _ => value,
        })
    }

    fn splat_operand(&mut self, shape: Shape) -> Result<bool, CompileError> {
        let value = self.pop_lane(shape)?;
        let all = self.splat(shape, value)?;
        self.push_vector(all)
    }

    fn extract_operand(&mut self, shape: Shape, lane: u8) -> Result<bool, CompileError> {
        let from = self.pop_as(shape)?;
        let value = self.extract(from, lane)?;
        self.push(value);
        Ok(true)
    }

    fn extract_narrow(&mut self, shape: Shape, lane: u8, extend: Extend) -> Result<bool, CompileError> {
        let from = self.pop_as(shape)?;
        let value = self.extract(from, lane)?.into_int_value();
        let ty = self.context.i32_type();
        let wide = match extend {
            Signed => self.builder.build_int_s_extend(value, ty, "")?,
            Unsigned => self.builder.build_int_z_extend(value, ty, "")?,
        };
        self.push(wide);
        Ok(true)
    }

    fn replace_operand(&mut self, shape: Shape, lane: u8) -> Result<bool, CompileError> {
        let value = self.pop_lane(shape)?;
        let into = self.pop_as(shape)?;
        let result = self.insert(into, lane, value)?;
        self.push_vector(result)
    }

    /// Bytes of `table` chosen by `indices`; an index above 15 gives 0.
    fn swizzle(
        &mut self,
        table: VectorValue<'ctx>,
        indices: VectorValue<'ctx>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        if self.has_x86_feature("ssse3") {
            // pshufb gives 0 where bit 7 of the index is set and else looks at 4 bits: add 0x70, saturating, so
            // that 16 and above reach bit 7.
            let ty = indices.get_type();
            let bias = self.splat_int(I8x16, 0x70);
            let biased = self.vector_intrinsic("llvm.uadd.sat", &[ty], &[indices, bias])?;
            return self.vector_intrinsic("llvm.x86.ssse3.pshuf.b.128", &[], &[table, biased]);
        }
        self.swizzle_by_lane(table, indices)
    }

    /// Bytes of `table` chosen by `indices` for targets without a byte shuffle; an index above 15 gives 0.
    pub(super) fn swizzle_by_lane(
        &mut self,
        table: VectorValue<'ctx>,
        indices: VectorValue<'ctx>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        if self.is_aarch64() {
            return self.vector_intrinsic("llvm.aarch64.neon.tbl1", &[table.get_type()], &[table, indices]);
        }
        let byte = self.context.i8_type();
        let mut result = self.shape_type(I8x16).const_zero();
        for lane in 0..16 {
            let index = self.extract(indices, lane)?.into_int_value();
            let inside = self.builder.build_and(index, byte.const_int(15, false), "")?;
            let chosen = self.builder.build_extract_element(table, inside, "")?;
            let in_range = self.builder.build_int_compare(
                inkwell::IntPredicate::ULT,
                index,
                byte.const_int(16, false),
                "",
            )?;
            let zero = byte.const_zero().into();
            let value = self.builder.build_select(in_range, chosen, zero, "")?;
            result = self.insert(result, lane, value)?;
        }
        Ok(result)
    }
}
