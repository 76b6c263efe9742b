//! Loads, stores and the other operators on linear memories.

use inkwell::types::{BasicTypeEnum, IntType};
use inkwell::values::{AsValueRef, BasicValue, BasicValueEnum, IntValue, PointerValue};
use inkwell::{IntPredicate, llvm_sys};
use mote_artifact::abi::{Builtin, OFFSET_GUARD, TrapCode, WASM_PAGE, memory_def, memory_slot};
use mote_artifact::info::MemoryType;
use wasmparser::{MemArg, MemArgTarget, Operator};

use super::{FunctionTranslator, Region};
use crate::CompileError;

/// How a loaded value becomes an operand, or an operand a stored one.
#[derive(Clone, Copy)]
enum Widening {
    Signed,
    Unsigned,
}

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    /// Translates `op` when it is on linear memory; `false` when it is not.
    pub(super) fn translate_memory(&mut self, op: &Operator<'_>) -> Result<bool, CompileError> {
        use Widening::{Signed, Unsigned};
        let s = self.shapes;
        match op {
            Operator::I32Load { memarg } => self.load_whole(memarg, s.i32.into())?,
            Operator::I64Load { memarg } => self.load_whole(memarg, s.i64.into())?,
            Operator::F32Load { memarg } => self.load_whole(memarg, s.f32.into())?,
            Operator::F64Load { memarg } => self.load_whole(memarg, s.f64.into())?,
            Operator::I32Load8S { memarg } => self.load_part(memarg, s.i8, s.i32, Signed)?,
            Operator::I32Load8U { memarg } => self.load_part(memarg, s.i8, s.i32, Unsigned)?,
            Operator::I32Load16S { memarg } => self.load_part(memarg, s.i16, s.i32, Signed)?,
            Operator::I32Load16U { memarg } => self.load_part(memarg, s.i16, s.i32, Unsigned)?,
            Operator::I64Load8S { memarg } => self.load_part(memarg, s.i8, s.i64, Signed)?,
            Operator::I64Load8U { memarg } => self.load_part(memarg, s.i8, s.i64, Unsigned)?,
            Operator::I64Load16S { memarg } => self.load_part(memarg, s.i16, s.i64, Signed)?,
            Operator::I64Load16U { memarg } => self.load_part(memarg, s.i16, s.i64, Unsigned)?,
            Operator::I64Load32S { memarg } => self.load_part(memarg, s.i32, s.i64, Signed)?,
            Operator::I64Load32U { memarg } => self.load_part(memarg, s.i32, s.i64, Unsigned)?,
            Operator::I32Store { memarg }
            | Operator::I64Store { memarg }
            | Operator::F32Store { memarg }
            | Operator::F64Store { memarg } => {
                let value = self.pop()?;
                self.store(memarg, value)?;
            }
            Operator::I32Store8 { memarg } | Operator::I64Store8 { memarg } => {
                self.store_part(memarg, s.i8)?
            }
            Operator::I32Store16 { memarg } | Operator::I64Store16 { memarg } => {
                self.store_part(memarg, s.i16)?
            }
            Operator::I64Store32 { memarg } => self.store_part(memarg, s.i32)?,
            Operator::MemorySize { mem } => {
                let len = self.memory_byte_len(*mem)?;
                let page_bits = s.i64.const_int(u64::from(WASM_PAGE.trailing_zeros()), false);
                let pages = self.builder.build_right_shift(len, page_bits, false, "")?;
                self.push_pages(*mem, pages)?;
            }
            Operator::MemoryGrow { mem } => {
                let delta = self.pop_length(*mem)?;
                let memory = self.index_argument(*mem);
                let previous =
                    self.builtin_value(Builtin::MemoryGrow, &[memory, delta.into()], s.i64.into())?;
                self.push_pages(*mem, previous.into_int_value())?;
            }
            Operator::MemoryFill { mem } => {
                let len = self.pop_length(*mem)?;
                let value = self.pop_int()?;
                let start = self.pop_length(*mem)?;
                let target = self.range(*mem, start, len)?;
                let byte = self.builder.build_int_truncate(value, s.i8, "")?;
                let volatile = self.volatile_flag();
                self.call_intrinsic_void(
                    "llvm.memset",
                    &[s.ptr.into(), s.i64.into()],
                    &[target.into(), byte.into(), len.into(), volatile],
                )?;
            }
            Operator::MemoryCopy { dst_mem, src_mem } => self.memory_copy(*dst_mem, *src_mem)?,
            Operator::MemoryInit { data_index, mem } => {
                let len = self.pop()?;
                let src = self.pop()?;
                let dst = self.pop_length(*mem)?;
                let (memory, segment) = (self.index_argument(*mem), self.index_argument(*data_index));
                self.builtin(Builtin::MemoryInit, &[memory, segment, dst.into(), src, len], None)?;
            }
            Operator::DataDrop { data_index } => {
                let segment = self.index_argument(*data_index);
                self.builtin(Builtin::DataDrop, &[segment], None)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn load_whole(&mut self, memarg: &MemArg, ty: BasicTypeEnum<'ctx>) -> Result<(), CompileError> {
        let value = self.load(memarg, ty)?;
        self.push(value);
        Ok(())
    }

    fn load_part(
        &mut self,
        memarg: &MemArg,
        part: IntType<'ctx>,
        whole: IntType<'ctx>,
        extend: Widening,
    ) -> Result<(), CompileError> {
        let value = self.load(memarg, part.into())?.into_int_value();
        let value = match extend {
            Widening::Signed => self.builder.build_int_s_extend(value, whole, "")?,
            Widening::Unsigned => self.builder.build_int_z_extend(value, whole, "")?,
        };
        self.push(value);
        Ok(())
    }

    fn store_part(&mut self, memarg: &MemArg, part: IntType<'ctx>) -> Result<(), CompileError> {
        let value = self.pop_int()?;
        let value = self.builder.build_int_truncate(value, part, "")?;
        self.store(memarg, value.into())
    }

    /// Pops an address or a length of a memory as 64 bits.
    fn pop_length(&mut self, memory: u32) -> Result<IntValue<'ctx>, CompileError> {
        let value = self.pop_int()?;
        if self.memory_type(memory)?.memory64 {
            return Ok(value);
        }
        Ok(self.builder.build_int_z_extend(value, self.shapes.i64, "")?)
    }

    /// Pushes a number of pages (or -1).
    fn push_pages(&mut self, memory: u32, pages: IntValue<'ctx>) -> Result<(), CompileError> {
        let pages = if self.memory_type(memory)?.memory64 {
            pages
        } else {
            self.builder.build_int_truncate(pages, self.shapes.i32, "")?
        };
        self.push(pages);
        Ok(())
    }

    fn volatile_flag(&self) -> BasicValueEnum<'ctx> {
        self.shapes.i1.const_int(u64::from(self.options().strict_traps), false).into()
    }

    fn memory_copy(&mut self, dst_memory: u32, src_memory: u32) -> Result<(), CompileError> {
        let s = self.shapes;
        let both_wide = self.memory_type(dst_memory)?.memory64 && self.memory_type(src_memory)?.memory64;
        let len = self.pop_int()?;
        let len = if both_wide { len } else { self.builder.build_int_z_extend(len, s.i64, "")? };
        let src = self.pop_length(src_memory)?;
        let dst = self.pop_length(dst_memory)?;
        let target = self.range(dst_memory, dst, len)?;
        let source = self.range(src_memory, src, len)?;
        let volatile = self.volatile_flag();
        self.call_intrinsic_void(
            "llvm.memmove",
            &[s.ptr.into(), s.ptr.into(), s.i64.into()],
            &[target.into(), source.into(), len.into(), volatile],
        )
    }

    /// Address of `len` bytes at `start`; traps when they are not all inside the memory.
    fn range(
        &mut self,
        memory: u32,
        start: IntValue<'ctx>,
        len: IntValue<'ctx>,
    ) -> Result<PointerValue<'ctx>, CompileError> {
        let size = self.memory_byte_len(memory)?;
        let too_long = self.builder.build_int_compare(IntPredicate::UGT, len, size, "")?;
        let last = self.builder.build_int_sub(size, len, "")?;
        let beyond = self.builder.build_int_compare(IntPredicate::UGT, start, last, "")?;
        let outside = self.builder.build_or(too_long, beyond, "")?;
        self.trap_if(outside, TrapCode::MemoryOutOfBounds)?;
        let base = self.memory_base(memory)?;
        self.address(base, start)
    }

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
                    .and_then(|()| load.set_alignment(8))
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
