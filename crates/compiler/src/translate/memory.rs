//! Loads, stores and the other operators on linear memories.

use inkwell::types::BasicTypeEnum;
use inkwell::values::{AsValueRef, BasicValue, BasicValueEnum, IntValue, PointerValue};
use inkwell::{IntPredicate, llvm_sys};
use mote_artifact::abi::{OFFSET_GUARD, TrapCode, memory_def, memory_slot};
use mote_artifact::info::MemoryType;
use wasmparser::{MemArg, MemArgTarget};

use super::{FunctionTranslator, Region};
use crate::CompileError;

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    /// Pops an address and loads a value of type `ty`; the access is not aligned.
    pub(crate) fn load(
        &mut self,
        memarg: &MemArg,
        ty: BasicTypeEnum<'ctx>,
    ) -> Result<BasicValueEnum<'ctx>, CompileError> {
        let (memory, shape) = self.memory_of(memarg)?;
        let address = self.pop_address(memarg, memory, shape, byte_size(ty))?;
        let value = self.builder.build_load(ty, address, "")?;
        if let Some(load) = value.as_instruction_value() {
            set_align_1(load)?;
            self.unit.tag(load, Region::Memory)?;
            if self.options().strict_traps {
                load.set_volatile(true).map_err(|error| CompileError::internal(error.to_string()))?;
            }
        }
        if self.options().keep_traps && !self.options().strict_traps {
            let witness = self.unit.witness(ty);
            self.builder.build_call(witness, &[value.into()], "")?;
        }
        if shape.shared { self.freeze(value) } else { Ok(value) }
    }

    /// Pops an address and stores `value`; the access is not aligned.
    pub(crate) fn store(&mut self, memarg: &MemArg, value: BasicValueEnum<'ctx>) -> Result<(), CompileError> {
        let (memory, shape) = self.memory_of(memarg)?;
        let address = self.pop_address(memarg, memory, shape, byte_size(value.get_type()))?;
        let store = self.builder.build_store(address, value)?;
        set_align_1(store)?;
        self.unit.tag(store, Region::Memory)?;
        if self.options().strict_traps {
            store.set_volatile(true).map_err(|error| CompileError::internal(error.to_string()))?;
        }
        Ok(())
    }

    /// A racing store makes a plain load's value undefined for LLVM: frozen, it is some value.
    fn freeze(&mut self, value: BasicValueEnum<'ctx>) -> Result<BasicValueEnum<'ctx>, CompileError> {
        // SAFETY: the builder is positioned in a block of this function and `value` dominates that place; the result
        // is a value of the same type.
        unsafe {
            let frozen = llvm_sys::core::LLVMBuildFreeze(
                self.builder.as_mut_ptr(),
                value.as_value_ref(),
                c"".as_ptr(),
            );
            Ok(BasicValueEnum::new(frozen))
        }
    }

    /// Index and type of the memory that `memarg` names.
    pub(super) fn memory_of(&self, memarg: &MemArg) -> Result<(u32, MemoryType), CompileError> {
        match memarg.target {
            MemArgTarget::Memory(index) => Ok((index, self.memory_type(index)?)),
            MemArgTarget::Array(_) => Err(CompileError::internal("an access to an array")),
        }
    }

    pub(super) fn memory_type(&self, index: u32) -> Result<MemoryType, CompileError> {
        let found = self.unit.parsed.memories.get(index as usize).copied();
        found.ok_or_else(|| CompileError::internal(format!("no memory {index}")))
    }

    /// Base address of a memory.
    pub(super) fn memory_base(&mut self, index: u32) -> Result<PointerValue<'ctx>, CompileError> {
        if index == 0 && self.unit.parsed.info.context_is_memory {
            return Ok(self.ctx);
        }
        let field = self.context_field(self.unit.parsed.layout.memory_slot(index) + memory_slot::BASE)?;
        Ok(self.load_context(field, self.shapes.ptr, true)?.into_pointer_value())
    }

    /// Current length of a memory in bytes.
    pub(super) fn memory_byte_len(&mut self, index: u32) -> Result<IntValue<'ctx>, CompileError> {
        let shape = self.memory_type(index)?;
        let layout = &self.unit.parsed.layout;
        let own = if shape.shared { None } else { layout.memory_def(index) };
        let field = match own {
            Some(def) => self.context_field(def + memory_def::BYTE_LEN)?,
            None => {
                let slot = self.context_field(layout.memory_slot(index) + memory_slot::DEF)?;
                let def = self.load_context(slot, self.shapes.ptr, true)?.into_pointer_value();
                self.address(def, self.shapes.i64.const_int(memory_def::BYTE_LEN, false))?
            }
        };
        let len = self.load_context(field, self.shapes.i64, false)?;
        if shape.shared {
            // Another thread may grow the memory.
            if let Some(load) = len.as_instruction_value() {
                load.set_atomic_ordering(inkwell::AtomicOrdering::Acquire)
                    .map_err(|error| CompileError::internal(error.to_string()))?;
            }
        }
        Ok(len.into_int_value())
    }

    /// Pops an address operand and returns the machine address of an access of `size` bytes.
    pub(super) fn pop_address(
        &mut self,
        memarg: &MemArg,
        memory: u32,
        shape: MemoryType,
        size: u64,
    ) -> Result<PointerValue<'ctx>, CompileError> {
        let operand = self.pop_int()?;
        self.access_address(operand, memarg.offset, memory, shape, size)
    }

    /// The machine address of an access of `size` bytes at `operand + offset`.
    pub(super) fn access_address(
        &mut self,
        operand: IntValue<'ctx>,
        offset: u64,
        memory: u32,
        shape: MemoryType,
        size: u64,
    ) -> Result<PointerValue<'ctx>, CompileError> {
        let i64_type = self.shapes.i64;
        let guarded = !shape.memory64 && offset.checked_add(size).is_some_and(|end| end <= OFFSET_GUARD);
        let wide =
            if shape.memory64 { operand } else { self.builder.build_int_z_extend(operand, i64_type, "")? };
        if !guarded {
            // operand + offset + size <= len, without overflow: operand <= len - (offset + size).
            let len = self.memory_byte_len(memory)?;
            match offset.checked_add(size) {
                Some(end) => {
                    let end = i64_type.const_int(end, false);
                    let short = self.builder.build_int_compare(IntPredicate::ULT, len, end, "")?;
                    let last = self.builder.build_int_sub(len, end, "")?;
                    let beyond = self.builder.build_int_compare(IntPredicate::UGT, wide, last, "")?;
                    let outside = self.builder.build_or(short, beyond, "")?;
                    self.trap_if(outside, TrapCode::MemoryOutOfBounds)?;
                }
                None => self.trap_if(self.shapes.i1.const_all_ones(), TrapCode::MemoryOutOfBounds)?,
            }
        }
        let base = self.memory_base(memory)?;
        let distance = if offset == 0 {
            wide
        } else {
            let offset = i64_type.const_int(offset, false);
            if guarded {
                // SAFETY of the flags: both are below 2^32, so the sum wraps neither as signed nor as unsigned.
                let sum = self.builder.build_int_add(wide, offset, "")?;
                set_no_wrap(sum);
                sum
            } else {
                self.builder.build_int_add(wide, offset, "")?
            }
        };
        self.address(base, distance)
    }
}

fn set_no_wrap(sum: IntValue<'_>) {
    if sum
        .as_instruction_value()
        .is_some_and(|add| add.get_opcode() == inkwell::values::InstructionOpcode::Add)
    {
        // SAFETY: `sum` is an add instruction, which takes these flags.
        unsafe {
            llvm_sys::core::LLVMSetNSW(sum.as_value_ref(), 1);
            llvm_sys::core::LLVMSetNUW(sum.as_value_ref(), 1);
        }
    }
}

pub(super) fn set_align_1(access: inkwell::values::InstructionValue<'_>) -> Result<(), CompileError> {
    access.set_alignment(1).map_err(|error| CompileError::internal(error.to_string()))
}

/// Bytes that a value of this type takes in guest memory.
pub(super) fn byte_size(ty: BasicTypeEnum<'_>) -> u64 {
    match ty {
        BasicTypeEnum::IntType(ty) => u64::from(ty.get_bit_width()) / 8,
        BasicTypeEnum::FloatType(ty) => u64::from(ty.get_bit_width()) / 8,
        BasicTypeEnum::VectorType(ty) => byte_size(ty.get_element_type()) * u64::from(ty.get_size()),
        _ => 8,
    }
}
