//! SIMD: every operator of the fixed-width SIMD and relaxed SIMD proposals.
//!
//! A `v128` is `<2 x i64>` on the operand stack. An operator pops it in its own shape (a bit cast, which costs
//! nothing), computes on whole vectors, and pushes the result as `<2 x i64>` again. Wherever LLVM's generic IR is known
//! to select the one right instruction it is used, because the optimiser understands it; x86 intrinsics
//! stand where generic IR selects worse code or has no defined result (`cvttps2dq` of a number out of range).

mod conversions;
mod float;
mod integer;
mod lanes;
mod relaxed;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;

use inkwell::IntPredicate;
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::types::{BasicTypeEnum, IntType, VectorType};
use inkwell::values::{BasicValueEnum, IntValue, VectorValue};
use wasmparser::Operator;

use super::FunctionTranslator;
use crate::CompileError;

/// Translates `op` when it is a SIMD operator; says whether it was.
pub(super) fn translate(f: &mut FunctionTranslator, op: &Operator) -> Result<bool, CompileError> {
    Ok(lanes::translate(f, op)?
        || integer::translate(f, op)?
        || float::translate(f, op)?
        || conversions::translate(f, op)?
        || relaxed::translate(f, op)?)
}

/// How an operator sees the 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    I8x16,
    I16x8,
    I32x4,
    I64x2,
    F32x4,
    F64x2,
}

impl Shape {
    /// Number of lanes.
    fn lanes(self) -> u32 {
        128 / self.lane_bits()
    }

    /// Bits in a lane.
    fn lane_bits(self) -> u32 {
        match self {
            Self::I8x16 => 8,
            Self::I16x8 => 16,
            Self::I32x4 | Self::F32x4 => 32,
            Self::I64x2 | Self::F64x2 => 64,
        }
    }

    /// The integer shape with lanes of the same width.
    fn as_integers(self) -> Self {
        match self {
            Self::F32x4 => Self::I32x4,
            Self::F64x2 => Self::I64x2,
            integers => integers,
        }
    }

    /// The LLVM type.
    fn ty(self, context: &Context) -> VectorType<'_> {
        match self {
            Self::I8x16 => context.i8_type().vec_type(16),
            Self::I16x8 => context.i16_type().vec_type(8),
            Self::I32x4 => context.i32_type().vec_type(4),
            Self::I64x2 => context.i64_type().vec_type(2),
            Self::F32x4 => context.f32_type().vec_type(4),
            Self::F64x2 => context.f64_type().vec_type(2),
        }
    }
}

/// What an operator's own arithmetic returns before it is pushed.
type Built<'ctx> = Result<VectorValue<'ctx>, BuilderError>;

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    /// Whether the code is for x86-64.
    fn is_x86(&self) -> bool {
        self.architecture_is(b"x86_64")
    }

    /// Whether the code is for aarch64.
    fn is_aarch64(&self) -> bool {
        self.architecture_is(b"aarch64")
    }

    fn architecture_is(&self, name: &[u8]) -> bool {
        self.unit.target.triple().as_str().to_bytes().starts_with(name)
    }

    /// Whether the code is for an x86-64 CPU with `feature` (LLVM's name).
    fn has_x86_feature(&self, feature: &str) -> bool {
        self.is_x86() && self.has_feature(feature)
    }

    /// The LLVM type of a vector of this shape.
    fn shape_type(&self, shape: Shape) -> VectorType<'ctx> {
        shape.ty(self.context)
    }

    /// An integer type of this many bits.
    fn int_type(&self, bits: u32) -> Result<IntType<'ctx>, CompileError> {
        let width = NonZeroU32::new(bits).ok_or_else(|| CompileError::internal("an integer of no bits"))?;
        self.context.custom_width_int_type(width).map_err(CompileError::internal)
    }

    /// Pops a `v128` as this shape.
    fn pop_as(&mut self, shape: Shape) -> Result<VectorValue<'ctx>, CompileError> {
        let bits = self.pop_v128()?;
        self.vector_cast(bits, self.shape_type(shape))
    }

    /// Pushes a vector of any shape.
    fn push_vector(&mut self, value: VectorValue<'ctx>) -> Result<bool, CompileError> {
        let bits = self.vector_cast(value, self.shape_type(Shape::I64x2))?;
        self.push(bits);
        Ok(true)
    }

    /// The same bits as another vector type.
    fn vector_cast(
        &self,
        value: VectorValue<'ctx>,
        ty: VectorType<'ctx>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        if value.get_type() == ty {
            return Ok(value);
        }
        Ok(self.builder.build_bit_cast(value, ty, "")?.into_vector_value())
    }

    /// An operator with one vector operand.
    fn unary(
        &mut self,
        shape: Shape,
        build: impl FnOnce(&Builder<'ctx>, VectorValue<'ctx>) -> Built<'ctx>,
    ) -> Result<bool, CompileError> {
        let value = self.pop_as(shape)?;
        let result = build(&self.builder, value)?;
        self.push_vector(result)
    }

    /// An operator with two vector operands.
    fn binary(
        &mut self,
        shape: Shape,
        build: impl FnOnce(&Builder<'ctx>, VectorValue<'ctx>, VectorValue<'ctx>) -> Built<'ctx>,
    ) -> Result<bool, CompileError> {
        let right = self.pop_as(shape)?;
        let left = self.pop_as(shape)?;
        let result = build(&self.builder, left, right)?;
        self.push_vector(result)
    }

    /// An operator that is one intrinsic, overloaded on its operands' type.
    fn binary_intrinsic(&mut self, shape: Shape, name: &str) -> Result<bool, CompileError> {
        let right = self.pop_as(shape)?;
        let left = self.pop_as(shape)?;
        let result = self.vector_intrinsic(name, &[left.get_type()], &[left, right])?;
        self.push_vector(result)
    }

    /// Calls an intrinsic on vectors that returns a vector.
    fn vector_intrinsic(
        &mut self,
        name: &str,
        overloads: &[VectorType<'ctx>],
        arguments: &[VectorValue<'ctx>],
    ) -> Result<VectorValue<'ctx>, CompileError> {
        let overloads: Vec<BasicTypeEnum> = overloads.iter().map(|&ty| ty.into()).collect();
        let arguments: Vec<BasicValueEnum> = arguments.iter().map(|&value| value.into()).collect();
        Ok(self.call_intrinsic(name, &overloads, &arguments)?.into_vector_value())
    }

    /// All lanes hold `value`.
    fn splat(&self, shape: Shape, value: BasicValueEnum<'ctx>) -> Result<VectorValue<'ctx>, CompileError> {
        let ty = self.shape_type(shape);
        let zero = self.context.i32_type().const_zero();
        let one_lane = self.builder.build_insert_element(ty.get_poison(), value, zero, "")?;
        let mask = self.context.i32_type().vec_type(shape.lanes()).const_zero();
        Ok(self.builder.build_shuffle_vector(one_lane, ty.get_poison(), mask, "")?)
    }

    /// All lanes hold the integer `value`, cut to the lane's width.
    fn splat_int(&self, shape: Shape, value: u64) -> VectorValue<'ctx> {
        let context = self.context;
        let lane = match shape.as_integers() {
            Shape::I8x16 => context.i8_type(),
            Shape::I16x8 => context.i16_type(),
            Shape::I32x4 => context.i32_type(),
            _ => context.i64_type(),
        };
        // Cut here: LLVM asserts that a constant fits its type.
        let bits = shape.lane_bits();
        let cut = if bits == 64 { value } else { value & ((1 << bits) - 1) };
        let lanes = vec![lane.const_int(cut, false); shape.lanes() as usize];
        VectorType::const_vector(&lanes)
    }

    /// All lanes hold the float `value`.
    fn splat_float(&self, shape: Shape, value: f64) -> VectorValue<'ctx> {
        let context = self.context;
        let lane = if shape == Shape::F32x4 { context.f32_type() } else { context.f64_type() };
        VectorType::const_vector(&vec![lane.const_float(value); shape.lanes() as usize])
    }

    /// Lanes of `left` and `right` (counted on from `left`'s) in the order of `lanes`.
    fn shuffle(
        &self,
        left: VectorValue<'ctx>,
        right: VectorValue<'ctx>,
        lanes: impl Iterator<Item = u32>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        let index = self.context.i32_type();
        let mask: Vec<IntValue> = lanes.map(|lane| index.const_int(u64::from(lane), false)).collect();
        Ok(self.builder.build_shuffle_vector(left, right, VectorType::const_vector(&mask), "")?)
    }

    /// Lanes of one vector in the order of `lanes`.
    fn pick(
        &self,
        value: VectorValue<'ctx>,
        lanes: impl Iterator<Item = u32>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        self.shuffle(value, value.get_type().get_poison(), lanes)
    }

    /// An all-ones lane where the `<N x i1>` is set, else zero, in the given integer shape.
    fn mask(&self, condition: VectorValue<'ctx>, shape: Shape) -> Result<VectorValue<'ctx>, CompileError> {
        Ok(self.builder.build_int_s_extend(condition, self.shape_type(shape.as_integers()), "")?)
    }

    /// Chooses lane by lane.
    fn choose(
        &self,
        condition: VectorValue<'ctx>,
        then: VectorValue<'ctx>,
        otherwise: VectorValue<'ctx>,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        Ok(self.builder.build_select(condition, then, otherwise, "")?.into_vector_value())
    }

    /// Which lanes are negative, as `<N x i1>`.
    fn sign_bits(&self, value: VectorValue<'ctx>) -> Result<VectorValue<'ctx>, CompileError> {
        Ok(self.builder.build_int_compare(IntPredicate::SLT, value, value.get_type().const_zero(), "")?)
    }
}
