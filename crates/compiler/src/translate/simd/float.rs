//! Float arithmetic and comparisons, lane by lane as IEEE 754 and the specification's NaN rules say.
//!
//! An arithmetic operator never returns a signalling NaN. The instructions see to that; what needs care is where LLVM
//! would drop the instruction (`x * 1.0`) or where the instruction returns an operand untouched (`minps`).

use inkwell::FloatPredicate::{self, OEQ, OGE, OGT, OLE, OLT, UNE, UNO};
use inkwell::builder::BuilderError;
use inkwell::values::VectorValue;
use wasmparser::Operator;

use super::super::FunctionTranslator;
use super::Shape::{self, F32x4, F64x2};
use crate::CompileError;

/// An arithmetic operator with two operands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
}
use Arithmetic::{Add, Div, Mul, Sub};

/// Which of two numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extremum {
    Min,
    Max,
}
use Extremum::{Max, Min};

pub(super) fn translate(f: &mut FunctionTranslator, op: &Operator) -> Result<bool, CompileError> {
    match op {
        Operator::F32x4Eq => f.compare_floats(F32x4, OEQ),
        Operator::F32x4Ne => f.compare_floats(F32x4, UNE),
        Operator::F32x4Lt => f.compare_floats(F32x4, OLT),
        Operator::F32x4Gt => f.compare_floats(F32x4, OGT),
        Operator::F32x4Le => f.compare_floats(F32x4, OLE),
        Operator::F32x4Ge => f.compare_floats(F32x4, OGE),
        Operator::F64x2Eq => f.compare_floats(F64x2, OEQ),
        Operator::F64x2Ne => f.compare_floats(F64x2, UNE),
        Operator::F64x2Lt => f.compare_floats(F64x2, OLT),
        Operator::F64x2Gt => f.compare_floats(F64x2, OGT),
        Operator::F64x2Le => f.compare_floats(F64x2, OLE),
        Operator::F64x2Ge => f.compare_floats(F64x2, OGE),
        Operator::F32x4Add => f.float_arithmetic(F32x4, Add),
        Operator::F32x4Sub => f.float_arithmetic(F32x4, Sub),
        Operator::F32x4Mul => f.float_arithmetic(F32x4, Mul),
        Operator::F32x4Div => f.float_arithmetic(F32x4, Div),
        Operator::F64x2Add => f.float_arithmetic(F64x2, Add),
        Operator::F64x2Sub => f.float_arithmetic(F64x2, Sub),
        Operator::F64x2Mul => f.float_arithmetic(F64x2, Mul),
        Operator::F64x2Div => f.float_arithmetic(F64x2, Div),
        // Sign bits only: never quietens a NaN.
        Operator::F32x4Neg => f.unary(F32x4, |b, x| b.build_float_neg(x, "")),
        Operator::F64x2Neg => f.unary(F64x2, |b, x| b.build_float_neg(x, "")),
        Operator::F32x4Abs => f.float_absolute(F32x4),
        Operator::F64x2Abs => f.float_absolute(F64x2),
        Operator::F32x4Sqrt => f.float_intrinsic(F32x4, "llvm.sqrt"),
        Operator::F64x2Sqrt => f.float_intrinsic(F64x2, "llvm.sqrt"),
        Operator::F32x4Ceil => f.float_intrinsic(F32x4, "llvm.ceil"),
        Operator::F64x2Ceil => f.float_intrinsic(F64x2, "llvm.ceil"),
        Operator::F32x4Floor => f.float_intrinsic(F32x4, "llvm.floor"),
        Operator::F64x2Floor => f.float_intrinsic(F64x2, "llvm.floor"),
        Operator::F32x4Trunc => f.float_intrinsic(F32x4, "llvm.trunc"),
        Operator::F64x2Trunc => f.float_intrinsic(F64x2, "llvm.trunc"),
        Operator::F32x4Nearest => f.float_intrinsic(F32x4, "llvm.roundeven"),
        Operator::F64x2Nearest => f.float_intrinsic(F64x2, "llvm.roundeven"),
        Operator::F32x4Min => f.float_extremum(F32x4, Min),
        Operator::F32x4Max => f.float_extremum(F32x4, Max),
        Operator::F64x2Min => f.float_extremum(F64x2, Min),
        Operator::F64x2Max => f.float_extremum(F64x2, Max),
        Operator::F32x4PMin => f.float_pseudo(F32x4, Min),
        Operator::F32x4PMax => f.float_pseudo(F32x4, Max),
        Operator::F64x2PMin => f.float_pseudo(F64x2, Min),
        Operator::F64x2PMax => f.float_pseudo(F64x2, Max),
        _ => Ok(false),
    }
}

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    /// Which lanes are NaN, as `<N x i1>`.
    pub(super) fn is_nan(&self, value: VectorValue<'ctx>) -> Result<VectorValue<'ctx>, BuilderError> {
        self.builder.build_float_compare(UNO, value, value, "")
    }

    /// Pushes the result of a float operator: NaNs become the canonical one where the options ask for it.
    pub(super) fn push_float(
        &mut self,
        value: VectorValue<'ctx>,
        shape: Shape,
    ) -> Result<bool, CompileError> {
        let result = if self.options().canonical_nans {
            let nan = self.is_nan(value)?;
            self.choose(nan, self.splat_float(shape, f64::NAN), value)?
        } else {
            value
        };
        self.push_vector(result)
    }

    fn compare_floats(&mut self, shape: Shape, predicate: FloatPredicate) -> Result<bool, CompileError> {
        let right = self.pop_as(shape)?;
        let left = self.pop_as(shape)?;
        let condition = self.builder.build_float_compare(predicate, left, right, "")?;
        let mask = self.mask(condition, shape)?;
        self.push_vector(mask)
    }

    fn float_intrinsic(&mut self, shape: Shape, name: &str) -> Result<bool, CompileError> {
        let value = self.pop_as(shape)?;
        let result = self.vector_intrinsic(name, &[value.get_type()], &[value])?;
        self.push_float(result, shape)
    }

    fn float_absolute(&mut self, shape: Shape) -> Result<bool, CompileError> {
        let value = self.pop_as(shape)?;
        let result = self.vector_intrinsic("llvm.fabs", &[value.get_type()], &[value])?;
        self.push_vector(result)
    }

    fn float_arithmetic(&mut self, shape: Shape, operator: Arithmetic) -> Result<bool, CompileError> {
        let right = self.pop_as(shape)?;
        let left = self.pop_as(shape)?;
        let (left, right) = (self.hide_constant(left)?, self.hide_constant(right)?);
        let result = match operator {
            Add => self.builder.build_float_add(left, right, "")?,
            Sub => self.builder.build_float_sub(left, right, "")?,
            Mul => self.builder.build_float_mul(left, right, "")?,
            Div => self.builder.build_float_div(left, right, "")?,
        };
        self.push_float(result, shape)
    }

    /// LLVM replaces `x * 1.0`, `x - 0.0` and the like by `x`, which may be a signalling NaN: arithmetic makes it quiet. A constant
    /// operand is hidden from it, at no cost in instructions.
    fn hide_constant(&mut self, value: VectorValue<'ctx>) -> Result<VectorValue<'ctx>, CompileError> {
        if value.is_const() { self.hide(value) } else { Ok(value) }
    }

    /// The same value, about which LLVM knows nothing.
    pub(super) fn hide(&mut self, value: VectorValue<'ctx>) -> Result<VectorValue<'ctx>, CompileError> {
        self.vector_intrinsic("llvm.arithmetic.fence", &[value.get_type()], &[value])
    }

    /// The specification's minimum and maximum: NaN when either is, -0 below +0.
    fn float_extremum(&mut self, shape: Shape, extremum: Extremum) -> Result<bool, CompileError> {
        let right = self.pop_as(shape)?;
        let left = self.pop_as(shape)?;
        let result = self.extremum(left, right, shape, extremum)?;
        self.push_float(result, shape)
    }

    fn extremum(
        &mut self,
        left: VectorValue<'ctx>,
        right: VectorValue<'ctx>,
        shape: Shape,
        extremum: Extremum,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        if !self.is_x86() {
            let name = if extremum == Min { "llvm.minimum" } else { "llvm.maximum" };
            return self.vector_intrinsic(name, &[left.get_type()], &[left, right]);
        }
        // llvm.minimum would return a signalling NaN as it is here. minps gives its second operand for equal zeros:
        // both orders joined (or for min, and for max) have the right sign, and for other numbers are the same.
        let integers = self.shape_type(shape.as_integers());
        let one = self.first_if(extremum, left, right, shape)?;
        let other = self.first_if(extremum, right, left, shape)?;
        let (one, other) = (self.vector_cast(one, integers)?, self.vector_cast(other, integers)?);
        let joined = match extremum {
            Min => self.builder.build_or(one, other, "")?,
            Max => self.builder.build_and(one, other, "")?,
        };
        let number = self.vector_cast(joined, left.get_type())?;
        // The sum is a quiet NaN whenever either operand is a NaN.
        let unordered = self.builder.build_float_compare(UNO, left, right, "")?;
        let sum = self.builder.build_float_add(left, right, "")?;
        self.choose(unordered, sum, number)
    }

    /// `first` where it compares less (or greater), else `second`: exactly minps and maxps, for NaNs and zeros as well.
    pub(super) fn first_if(
        &mut self,
        extremum: Extremum,
        first: VectorValue<'ctx>,
        second: VectorValue<'ctx>,
        shape: Shape,
    ) -> Result<VectorValue<'ctx>, CompileError> {
        if self.is_x86() {
            // As compare and select the optimiser moves the choice to the integers that a v128 is on the stack, and
            // instruction selection no longer sees a minpd.
            let name = match (extremum, shape) {
                (Min, F32x4) => "llvm.x86.sse.min.ps",
                (Max, F32x4) => "llvm.x86.sse.max.ps",
                (Min, _) => "llvm.x86.sse2.min.pd",
                (Max, _) => "llvm.x86.sse2.max.pd",
            };
            return self.vector_intrinsic(name, &[], &[first, second]);
        }
        let predicate = if extremum == Min { OLT } else { OGT };
        let condition = self.builder.build_float_compare(predicate, first, second, "")?;
        self.choose(condition, first, second)
    }

    /// Pseudo-minimum `right < left ? right : left` and its mirror: one minps or maxps, bits untouched.
    fn float_pseudo(&mut self, shape: Shape, extremum: Extremum) -> Result<bool, CompileError> {
        let right = self.pop_as(shape)?;
        let left = self.pop_as(shape)?;
        let result = self.first_if(extremum, right, left, shape)?;
        self.push_vector(result)
    }
}
