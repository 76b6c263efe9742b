//! References, tables and globals.

use inkwell::IntPredicate;
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};
use mote_artifact::abi::{Builtin, TrapCode, table_def};
use mote_artifact::context::GlobalPlace;
use mote_artifact::info::TableType;
use wasmparser::{BinaryReader, ConstExpr, Operator};

use super::{FunctionTranslator, Region};
use crate::CompileError;

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    /// Translates `op` when it is on references, tables or globals; `false` when it is not.
    pub(super) fn translate_table(&mut self, op: &Operator<'_>) -> Result<bool, CompileError> {
        let s = self.shapes;
        match op {
            Operator::RefNull { .. } => self.push(s.i64.const_zero()),
            Operator::RefIsNull => {
                let reference = self.pop_int()?;
                let is_null =
                    self.builder.build_int_compare(IntPredicate::EQ, reference, s.i64.const_zero(), "")?;
                self.push_flag(is_null)?;
            }
            Operator::RefFunc { function_index } => {
                let number = self.unit.parsed.func_ref_number(*function_index)?;
                let record = self.context_field(self.unit.parsed.layout.func_ref(number))?;
                let reference = self.builder.build_ptr_to_int(record, s.i64, "")?;
                self.push(reference);
            }
            Operator::TableGet { table } => {
                let slot = self.pop_element(*table)?;
                let value = self.load_context(slot, s.i64, false)?;
                self.push(value);
            }
            Operator::TableSet { table } => {
                let value = self.pop()?;
                let slot = self.pop_element(*table)?;
                let store = self.builder.build_store(slot, value)?;
                self.unit.tag(store, Region::Context)?;
            }
            Operator::TableSize { table } => {
                let (_, len) = self.table(*table)?;
                self.push_table_size(*table, len)?;
            }
            Operator::TableGrow { table } => {
                let delta = self.pop_table_index(*table)?;
                let init = self.pop()?;
                let index = self.index_argument(*table);
                let previous =
                    self.builtin_value(Builtin::TableGrow, &[index, init, delta.into()], s.i64.into())?;
                self.push_table_size(*table, previous.into_int_value())?;
            }
            Operator::TableFill { table } => {
                let len = self.pop_table_index(*table)?;
                let value = self.pop()?;
                let start = self.pop_table_index(*table)?;
                let index = self.index_argument(*table);
                self.builtin(Builtin::TableFill, &[index, start.into(), value, len.into()], None)?;
            }
            Operator::TableCopy { dst_table, src_table } => {
                let narrow = !self.table_type(*dst_table)?.table64 || !self.table_type(*src_table)?.table64;
                let len = self.pop_int()?;
                let len = if narrow { self.builder.build_int_z_extend(len, s.i64, "")? } else { len };
                let src = self.pop_table_index(*src_table)?;
                let dst = self.pop_table_index(*dst_table)?;
                let tables = [self.index_argument(*dst_table), self.index_argument(*src_table)];
                let [dst_table, src_table] = tables;
                self.builtin(
                    Builtin::TableCopy,
                    &[dst_table, src_table, dst.into(), src.into(), len.into()],
                    None,
                )?;
            }
            Operator::TableInit { elem_index, table } => {
                let len = self.pop()?;
                let src = self.pop()?;
                let dst = self.pop_table_index(*table)?;
                let (table, segment) = (self.index_argument(*table), self.index_argument(*elem_index));
                self.builtin(Builtin::TableInit, &[table, segment, dst.into(), src, len], None)?;
            }
            Operator::ElemDrop { elem_index } => {
                let segment = self.index_argument(*elem_index);
                self.builtin(Builtin::ElemDrop, &[segment], None)?;
            }
            Operator::GlobalGet { global_index } => self.global_get(*global_index)?,
            Operator::GlobalSet { global_index } => {
                let value = self.pop()?;
                let cell = self.global_cell(*global_index)?;
                let store = self.builder.build_store(cell, value)?;
                self.unit.tag(store, Region::Context)?;
                if self.options().strict_traps {
                    store.set_volatile(true).map_err(|error| CompileError::internal(error.to_string()))?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// An index as an argument of a function of the runtime.
    pub(super) fn index_argument(&self, index: u32) -> BasicValueEnum<'ctx> {
        self.shapes.i32.const_int(u64::from(index), false).into()
    }

    fn table_type(&self, index: u32) -> Result<TableType, CompileError> {
        let found = self.unit.parsed.tables.get(index as usize).copied();
        found.ok_or_else(|| CompileError::internal(format!("no table {index}")))
    }

    /// Address of element 0 and number of elements.
    pub(super) fn table(&mut self, index: u32) -> Result<(PointerValue<'ctx>, IntValue<'ctx>), CompileError> {
        let s = self.shapes;
        let layout = &self.unit.parsed.layout;
        let def = match layout.table_def(index) {
            Some(def) => self.context_field(def)?,
            None => {
                let slot = self.context_field(layout.table_slot(index))?;
                self.load_context(slot, s.ptr, true)?.into_pointer_value()
            }
        };
        let elements = self.address(def, s.i64.const_int(table_def::ELEMENTS, false))?;
        let elements = self.load_context(elements, s.ptr, false)?.into_pointer_value();
        let len = self.address(def, s.i64.const_int(table_def::LEN, false))?;
        let len = self.load_context(len, s.i64, false)?.into_int_value();
        Ok((elements, len))
    }

    /// Pops an index (or a length) of a table as 64 bits.
    pub(super) fn pop_table_index(&mut self, table: u32) -> Result<IntValue<'ctx>, CompileError> {
        let index = self.pop_int()?;
        if self.table_type(table)?.table64 {
            return Ok(index);
        }
        Ok(self.builder.build_int_z_extend(index, self.shapes.i64, "")?)
    }

    /// Pushes a length of a table (or -1).
    fn push_table_size(&mut self, table: u32, size: IntValue<'ctx>) -> Result<(), CompileError> {
        let size = if self.table_type(table)?.table64 {
            size
        } else {
            self.builder.build_int_truncate(size, self.shapes.i32, "")?
        };
        self.push(size);
        Ok(())
    }

    pub(super) fn element_address(
        &mut self,
        elements: PointerValue<'ctx>,
        index: IntValue<'ctx>,
    ) -> Result<PointerValue<'ctx>, CompileError> {
        // SAFETY: as in `address`; the index is at most the table's length, where an element is too.
        Ok(unsafe { self.builder.build_in_bounds_gep(self.shapes.i64, elements, &[index], "")? })
    }

    /// Pops an index and returns the element's address; traps when it is outside. The index is clamped as well, so that
    /// a mispredicted check reads nothing beyond the table.
    fn pop_element(&mut self, table: u32) -> Result<PointerValue<'ctx>, CompileError> {
        let (elements, len) = self.table(table)?;
        let index = self.pop_table_index(table)?;
        let outside = self.builder.build_int_compare(IntPredicate::UGE, index, len, "")?;
        self.trap_if(outside, TrapCode::TableOutOfBounds)?;
        let clamped =
            self.call_intrinsic("llvm.umin", &[self.shapes.i64.into()], &[index.into(), len.into()])?;
        self.element_address(elements, clamped.into_int_value())
    }

    fn global_cell(&mut self, index: u32) -> Result<PointerValue<'ctx>, CompileError> {
        match self.unit.parsed.layout.global(index) {
            GlobalPlace::Defined(cell) => self.context_field(cell),
            GlobalPlace::Imported(slot) => {
                let slot = self.context_field(slot)?;
                Ok(self.load_context(slot, self.shapes.ptr, true)?.into_pointer_value())
            }
        }
    }

    /// The value of an integer global that this module defines, never changes and sets to a constant. Position-independent C takes
    /// every address of static data from such a global; as a constant it is an offset that addresses are folded with.
    fn constant_global(&self, index: u32) -> Option<IntValue<'ctx>> {
        let info = &self.unit.parsed.info;
        let global = info.globals.get(index.checked_sub(info.counts.imported_globals)? as usize)?;
        if global.ty.mutable {
            return None;
        }
        let mut operators = ConstExpr::new(BinaryReader::new(&global.init, 0)).get_operators_reader();
        let value = match operators.read().ok()? {
            Operator::I32Const { value } => {
                self.shapes.i32.const_int(u64::from(value.cast_unsigned()), false)
            }
            Operator::I64Const { value } => self.shapes.i64.const_int(value.cast_unsigned(), false),
            _ => return None,
        };
        // Anything but the end makes it a sum.
        matches!(operators.read().ok()?, Operator::End).then_some(value)
    }

    fn global_get(&mut self, index: u32) -> Result<(), CompileError> {
        let found = self.unit.parsed.globals.get(index as usize).copied();
        let ty = found.ok_or_else(|| CompileError::internal(format!("no global {index}")))?;
        if let Some(value) = self.constant_global(index) {
            self.push(value);
            return Ok(());
        }
        let cell = self.global_cell(index)?;
        let value = self.load_context(cell, self.shapes.of(ty.value), !ty.mutable)?;
        self.push(value);
        Ok(())
    }
}
