//! Atomic accesses, wait and notify.
//!
//! All are sequentially consistent. The alignment of the effective address is checked first; bounds are as for plain accesses.

use inkwell::types::IntType;
use inkwell::values::{BasicValue, InstructionValue, IntValue, PointerValue};
use inkwell::{AtomicOrdering, AtomicRMWBinOp, IntPredicate};
use mote_artifact::abi::{Builtin, TrapCode};
use wasmparser::{MemArg, Operator};

use super::{FunctionTranslator, Region};
use crate::CompileError;

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    /// Translates `op` when it is atomic; `false` when it is not.
    pub(super) fn translate_atomic(&mut self, op: &Operator<'_>) -> Result<bool, CompileError> {
        use AtomicRMWBinOp::{Add, And, Or, Sub, Xchg, Xor};
        let s = self.shapes;
        match op {
            Operator::AtomicFence { .. } => {
                self.builder.build_fence(AtomicOrdering::SequentiallyConsistent, false, "")?;
            }
            Operator::MemoryAtomicNotify { memarg } => self.notify(memarg)?,
            Operator::MemoryAtomicWait32 { memarg } => self.wait(memarg, Builtin::AtomicWait32)?,
            Operator::MemoryAtomicWait64 { memarg } => self.wait(memarg, Builtin::AtomicWait64)?,

            Operator::I32AtomicLoad { memarg } => self.atomic_load(memarg, s.i32, s.i32)?,
            Operator::I64AtomicLoad { memarg } => self.atomic_load(memarg, s.i64, s.i64)?,
            Operator::I32AtomicLoad8U { memarg } => self.atomic_load(memarg, s.i8, s.i32)?,
            Operator::I32AtomicLoad16U { memarg } => self.atomic_load(memarg, s.i16, s.i32)?,
            Operator::I64AtomicLoad8U { memarg } => self.atomic_load(memarg, s.i8, s.i64)?,
            Operator::I64AtomicLoad16U { memarg } => self.atomic_load(memarg, s.i16, s.i64)?,
            Operator::I64AtomicLoad32U { memarg } => self.atomic_load(memarg, s.i32, s.i64)?,
            Operator::I32AtomicStore { memarg } => self.atomic_store(memarg, s.i32)?,
            Operator::I64AtomicStore { memarg } => self.atomic_store(memarg, s.i64)?,
            Operator::I32AtomicStore8 { memarg } | Operator::I64AtomicStore8 { memarg } => {
                self.atomic_store(memarg, s.i8)?;
            }
            Operator::I32AtomicStore16 { memarg } | Operator::I64AtomicStore16 { memarg } => {
                self.atomic_store(memarg, s.i16)?;
            }
            Operator::I64AtomicStore32 { memarg } => self.atomic_store(memarg, s.i32)?,

            Operator::I32AtomicRmwAdd { memarg } => self.atomic_rmw(memarg, Add, s.i32)?,
            Operator::I64AtomicRmwAdd { memarg } => self.atomic_rmw(memarg, Add, s.i64)?,
            Operator::I32AtomicRmw8AddU { memarg } | Operator::I64AtomicRmw8AddU { memarg } => {
                self.atomic_rmw(memarg, Add, s.i8)?;
            }
            Operator::I32AtomicRmw16AddU { memarg } | Operator::I64AtomicRmw16AddU { memarg } => {
                self.atomic_rmw(memarg, Add, s.i16)?;
            }
            Operator::I64AtomicRmw32AddU { memarg } => self.atomic_rmw(memarg, Add, s.i32)?,
            Operator::I32AtomicRmwSub { memarg } => self.atomic_rmw(memarg, Sub, s.i32)?,
            Operator::I64AtomicRmwSub { memarg } => self.atomic_rmw(memarg, Sub, s.i64)?,
            Operator::I32AtomicRmw8SubU { memarg } | Operator::I64AtomicRmw8SubU { memarg } => {
                self.atomic_rmw(memarg, Sub, s.i8)?;
            }
            Operator::I32AtomicRmw16SubU { memarg } | Operator::I64AtomicRmw16SubU { memarg } => {
                self.atomic_rmw(memarg, Sub, s.i16)?;
            }
            Operator::I64AtomicRmw32SubU { memarg } => self.atomic_rmw(memarg, Sub, s.i32)?,
            Operator::I32AtomicRmwAnd { memarg } => self.atomic_rmw(memarg, And, s.i32)?,
            Operator::I64AtomicRmwAnd { memarg } => self.atomic_rmw(memarg, And, s.i64)?,
            Operator::I32AtomicRmw8AndU { memarg } | Operator::I64AtomicRmw8AndU { memarg } => {
                self.atomic_rmw(memarg, And, s.i8)?;
            }
            Operator::I32AtomicRmw16AndU { memarg } | Operator::I64AtomicRmw16AndU { memarg } => {
                self.atomic_rmw(memarg, And, s.i16)?;
            }
            Operator::I64AtomicRmw32AndU { memarg } => self.atomic_rmw(memarg, And, s.i32)?,
            Operator::I32AtomicRmwOr { memarg } => self.atomic_rmw(memarg, Or, s.i32)?,
            Operator::I64AtomicRmwOr { memarg } => self.atomic_rmw(memarg, Or, s.i64)?,
            Operator::I32AtomicRmw8OrU { memarg } | Operator::I64AtomicRmw8OrU { memarg } => {
                self.atomic_rmw(memarg, Or, s.i8)?;
            }
            Operator::I32AtomicRmw16OrU { memarg } | Operator::I64AtomicRmw16OrU { memarg } => {
                self.atomic_rmw(memarg, Or, s.i16)?;
            }
            Operator::I64AtomicRmw32OrU { memarg } => self.atomic_rmw(memarg, Or, s.i32)?,
            Operator::I32AtomicRmwXor { memarg } => self.atomic_rmw(memarg, Xor, s.i32)?,
            Operator::I64AtomicRmwXor { memarg } => self.atomic_rmw(memarg, Xor, s.i64)?,
            Operator::I32AtomicRmw8XorU { memarg } | Operator::I64AtomicRmw8XorU { memarg } => {
                self.atomic_rmw(memarg, Xor, s.i8)?;
            }
            Operator::I32AtomicRmw16XorU { memarg } | Operator::I64AtomicRmw16XorU { memarg } => {
                self.atomic_rmw(memarg, Xor, s.i16)?;
            }
            Operator::I64AtomicRmw32XorU { memarg } => self.atomic_rmw(memarg, Xor, s.i32)?,
            Operator::I32AtomicRmwXchg { memarg } => self.atomic_rmw(memarg, Xchg, s.i32)?,
            Operator::I64AtomicRmwXchg { memarg } => self.atomic_rmw(memarg, Xchg, s.i64)?,
            Operator::I32AtomicRmw8XchgU { memarg } | Operator::I64AtomicRmw8XchgU { memarg } => {
                self.atomic_rmw(memarg, Xchg, s.i8)?;
            }
            Operator::I32AtomicRmw16XchgU { memarg } | Operator::I64AtomicRmw16XchgU { memarg } => {
                self.atomic_rmw(memarg, Xchg, s.i16)?;
            }
            Operator::I64AtomicRmw32XchgU { memarg } => self.atomic_rmw(memarg, Xchg, s.i32)?,

            Operator::I32AtomicRmwCmpxchg { memarg } => self.compare_exchange(memarg, s.i32)?,
            Operator::I64AtomicRmwCmpxchg { memarg } => self.compare_exchange(memarg, s.i64)?,
            Operator::I32AtomicRmw8CmpxchgU { memarg } | Operator::I64AtomicRmw8CmpxchgU { memarg } => {
                self.compare_exchange(memarg, s.i8)?;
            }
            Operator::I32AtomicRmw16CmpxchgU { memarg } | Operator::I64AtomicRmw16CmpxchgU { memarg } => {
                self.compare_exchange(memarg, s.i16)?;
            }
            Operator::I64AtomicRmw32CmpxchgU { memarg } => self.compare_exchange(memarg, s.i32)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Pops an address; traps when the effective address is not aligned to the access.
    fn pop_aligned(
        &mut self,
        memarg: &MemArg,
        ty: IntType<'ctx>,
    ) -> Result<PointerValue<'ctx>, CompileError> {
        let (memory, shape) = self.memory_of(memarg)?;
        let operand = self.pop_int()?;
        let size = u64::from(ty.get_bit_width()) / 8;
        if size > 1 {
            let int = operand.get_type();
            // Only the low bits matter: a carry out of the sum does not change them.
            let sum = self.builder.build_int_add(operand, int.const_int(memarg.offset, false), "")?;
            let low = self.builder.build_and(sum, int.const_int(size - 1, false), "")?;
            let unaligned = self.builder.build_int_compare(IntPredicate::NE, low, int.const_zero(), "")?;
            self.trap_if(unaligned, TrapCode::UnalignedAtomic)?;
        }
        self.access_address(operand, memarg.offset, memory, shape, size)
    }

    fn atomic_load(
        &mut self,
        memarg: &MemArg,
        ty: IntType<'ctx>,
        result: IntType<'ctx>,
    ) -> Result<(), CompileError> {
        let address = self.pop_aligned(memarg, ty)?;
        let value = self.builder.build_load(ty, address, "")?.into_int_value();
        if let Some(load) = value.as_instruction_value() {
            self.make_atomic(load, ty)?;
        }
        self.push_widened(value, result)
    }

    fn push_widened(&mut self, value: IntValue<'ctx>, result: IntType<'ctx>) -> Result<(), CompileError> {
        let value = if value.get_type() == result {
            value
        } else {
            self.builder.build_int_z_extend(value, result, "")?
        };
        self.push(value);
        Ok(())
    }

    fn narrowed(&mut self, value: IntValue<'ctx>, ty: IntType<'ctx>) -> Result<IntValue<'ctx>, CompileError> {
        if value.get_type() == ty {
            return Ok(value);
        }
        Ok(self.builder.build_int_truncate(value, ty, "")?)
    }

    fn atomic_store(&mut self, memarg: &MemArg, ty: IntType<'ctx>) -> Result<(), CompileError> {
        let value = self.pop_int()?;
        let value = self.narrowed(value, ty)?;
        let address = self.pop_aligned(memarg, ty)?;
        let store = self.builder.build_store(address, value)?;
        self.make_atomic(store, ty)
    }

    /// An access that is not known to be aligned would become a call into a library.
    fn make_atomic(&mut self, access: InstructionValue<'ctx>, ty: IntType<'ctx>) -> Result<(), CompileError> {
        access
            .set_atomic_ordering(AtomicOrdering::SequentiallyConsistent)
            .and_then(|()| access.set_alignment(ty.get_bit_width() / 8))
            .map_err(|error| CompileError::internal(error.to_string()))?;
        self.unit.tag(access, Region::Memory)
    }

    fn atomic_rmw(
        &mut self,
        memarg: &MemArg,
        op: AtomicRMWBinOp,
        ty: IntType<'ctx>,
    ) -> Result<(), CompileError> {
        let value = self.pop_int()?;
        let result = value.get_type();
        let value = self.narrowed(value, ty)?;
        let address = self.pop_aligned(memarg, ty)?;
        let old = self.builder.build_atomicrmw(op, address, value, AtomicOrdering::SequentiallyConsistent)?;
        if let Some(access) = old.as_instruction_value() {
            self.unit.tag(access, Region::Memory)?;
        }
        self.push_widened(old, result)
    }

    /// Narrow accesses wrap the expected value before they compare.
    fn compare_exchange(&mut self, memarg: &MemArg, ty: IntType<'ctx>) -> Result<(), CompileError> {
        let replacement = self.pop_int()?;
        let expected = self.pop_int()?;
        let result = expected.get_type();
        let replacement = self.narrowed(replacement, ty)?;
        let expected = self.narrowed(expected, ty)?;
        let address = self.pop_aligned(memarg, ty)?;
        let order = AtomicOrdering::SequentiallyConsistent;
        let pair = self.builder.build_cmpxchg(address, expected, replacement, order, order)?;
        let old = self.builder.build_extract_value(pair, 0, "")?.into_int_value();
        self.push_widened(old, result)
    }

    /// Pops an address and adds the static offset, saturating: the runtime checks bounds and alignment.
    fn pop_effective(&mut self, memarg: &MemArg) -> Result<(u32, IntValue<'ctx>), CompileError> {
        let i64_type = self.shapes.i64;
        let (memory, shape) = self.memory_of(memarg)?;
        let operand = self.pop_int()?;
        let wide =
            if shape.memory64 { operand } else { self.builder.build_int_z_extend(operand, i64_type, "")? };
        let offset = i64_type.const_int(memarg.offset, false);
        let address =
            self.call_intrinsic("llvm.uadd.sat", &[i64_type.into()], &[wide.into(), offset.into()])?;
        Ok((memory, address.into_int_value()))
    }

    fn wait(&mut self, memarg: &MemArg, builtin: Builtin) -> Result<(), CompileError> {
        let timeout = self.pop()?;
        let expected = self.pop()?;
        let (memory, address) = self.pop_effective(memarg)?;
        let memory = self.index_argument(memory);
        let args = [memory, address.into(), expected, timeout];
        let result = self.builtin_value(builtin, &args, self.shapes.i32.into())?;
        self.push(result);
        Ok(())
    }

    fn notify(&mut self, memarg: &MemArg) -> Result<(), CompileError> {
        let count = self.pop()?;
        let (memory, address) = self.pop_effective(memarg)?;
        let memory = self.index_argument(memory);
        let args = [memory, address.into(), count];
        let result = self.builtin_value(Builtin::AtomicNotify, &args, self.shapes.i32.into())?;
        self.push(result);
        Ok(())
    }
}
