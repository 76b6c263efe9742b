//! Function types, calls and returns.
//!
//! `tailcc R @f(ptr ctx, params…)`; with more than [`MAX_DIRECT_RESULTS`] results, one more parameter: the address of a
//! slot per result, which the callee fills before it returns.

use inkwell::attributes::AttributeLoc;
use inkwell::module::Linkage;
use inkwell::types::{BasicMetadataTypeEnum, BasicType, BasicTypeEnum, FunctionType};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValueEnum, CallSiteValue, FunctionValue, LLVMTailCallKind, PointerValue,
};
use inkwell::{GlobalVisibility, IntPredicate};
use mote_artifact::abi::{Builtin, MAX_DIRECT_RESULTS, SLOT_BYTES, TrapCode, func_import, func_ref, header};
use mote_artifact::info::{FuncType, ValueType};
use wasmparser::Operator;

use super::{FunctionTranslator, Region, Shapes, TAIL_CALL_CONVENTION, Unit};
use crate::CompileError;

/// What a call calls.
#[derive(Clone, Copy)]
pub(super) enum Callee<'ctx> {
    Function(FunctionValue<'ctx>),
    Address(PointerValue<'ctx>),
}

/// Whether functions of this type fill a buffer of the caller's.
pub(super) fn returns_through_buffer(ty: &FuncType) -> bool {
    ty.results.len() > MAX_DIRECT_RESULTS
}

impl<'ctx> Shapes<'ctx> {
    /// What functions of this type return directly; `None` for nothing.
    pub(super) fn returned(
        &self,
        context: &'ctx inkwell::context::Context,
        ty: &FuncType,
    ) -> Option<BasicTypeEnum<'ctx>> {
        match ty.results.as_slice() {
            [one] => Some(self.of(*one)),
            [first, second] => Some(context.struct_type(&[self.of(*first), self.of(*second)], false).into()),
            _ => None,
        }
    }
}

impl<'ctx> Unit<'_, 'ctx> {
    /// The LLVM type of functions of this type.
    pub(super) fn function_type(&self, ty: &FuncType) -> FunctionType<'ctx> {
        let mut params: Vec<BasicMetadataTypeEnum<'ctx>> = vec![self.shapes.ptr.into()];
        params.extend(ty.params.iter().map(|&param| BasicMetadataTypeEnum::from(self.shapes.of(param))));
        if returns_through_buffer(ty) {
            params.push(self.shapes.ptr.into());
        }
        match self.shapes.returned(self.context, ty) {
            Some(returned) => returned.fn_type(&params, false),
            None => self.context.void_type().fn_type(&params, false),
        }
    }

    /// The function with this index (of a function that the module defines), declared when it is not there yet.
    pub(crate) fn function(&self, index: u32) -> Result<FunctionValue<'ctx>, CompileError> {
        let name = format!("f{index}");
        if let Some(known) = self.module.get_function(&name) {
            return Ok(known);
        }
        let ty = self.function_type(self.parsed.function_type(index)?);
        let function = self.module.add_function(&name, ty, Some(Linkage::External));
        function.as_global_value().set_visibility(GlobalVisibility::Hidden);
        function.set_call_conventions(TAIL_CALL_CONVENTION);
        self.attribute_guest(function);
        Ok(function)
    }

    /// Attributes that all generated functions share.
    pub(super) fn attribute_guest(&self, function: FunctionValue<'ctx>) {
        let text = |key: &str, value: &str| {
            function.add_attribute(AttributeLoc::Function, self.context.create_string_attribute(key, value));
        };
        text("target-cpu", self.target.cpu());
        text("target-features", self.target.features());
        text("probe-stack", "inline-asm");
        text("stack-probe-size", "4096");
        text("no-trapping-math", "true");
        // Passes may make calls of these out of compares and stores; the artifact brings only memcpy, memmove and memset.
        for absent in ["memcmp", "bcmp", "memset_pattern4", "memset_pattern8", "memset_pattern16"] {
            text(&format!("no-builtin-{absent}"), "");
        }
        let flag = |name: &str, value: u64| {
            function.add_attribute(AttributeLoc::Function, self.enum_attribute(name, value));
        };
        flag("noredzone", 0);
        // 1: synchronous unwind tables, for calls.
        flag("uwtable", 1);
        if !self.parsed.exceptions {
            flag("nounwind", 0);
        }
    }
}

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    /// Translates `op` when it is a call; `false` when it is not.
    pub(super) fn translate_call(&mut self, op: &Operator<'_>) -> Result<bool, CompileError> {
        match op {
            Operator::Call { function_index } => self.call_index(*function_index, false)?,
            Operator::ReturnCall { function_index } => self.call_index(*function_index, true)?,
            Operator::CallIndirect { type_index, table_index } => {
                self.call_indirect(*type_index, *table_index, false)?;
            }
            Operator::ReturnCallIndirect { type_index, table_index } => {
                self.call_indirect(*type_index, *table_index, true)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn call_index(&mut self, index: u32, tail: bool) -> Result<(), CompileError> {
        let parsed = self.unit.parsed;
        let ty = parsed.function_type(index)?;
        if index >= parsed.info.counts.imported_functions {
            let callee = Callee::Function(self.unit.function(index)?);
            return self.call(callee, self.ctx, ty, tail);
        }
        let import = parsed.layout.func_import(index);
        let code = self.context_field(import + func_import::CODE)?;
        let code = self.load_context(code, self.shapes.ptr, true)?.into_pointer_value();
        let ctx = self.context_field(import + func_import::CTX)?;
        let ctx = self.load_context(ctx, self.shapes.ptr, true)?.into_pointer_value();
        self.call(Callee::Address(code), ctx, ty, tail)
    }

    /// The index is clamped to the table's length, where a null element always is: there is no branch on the index that
    /// the processor could predict past.
    fn call_indirect(&mut self, type_index: u32, table: u32, tail: bool) -> Result<(), CompileError> {
        let s = self.shapes;
        let parsed = self.unit.parsed;
        let number = parsed.type_number(type_index)?;
        let ty = parsed.module_type(type_index)?;
        let (elements, len) = self.table(table)?;
        let index = self.pop_table_index(table)?;
        let clamped =
            self.call_intrinsic("llvm.umin", &[s.i64.into()], &[index.into(), len.into()])?.into_int_value();
        let slot = self.element_address(elements, clamped)?;
        let reference = self.load_context(slot, s.i64, false)?.into_int_value();

        let null = self.new_block();
        let present = self.new_block();
        let is_null = self.builder.build_int_compare(IntPredicate::EQ, reference, s.i64.const_zero(), "")?;
        self.builder.build_conditional_branch(is_null, null, present)?;
        self.builder.position_at_end(null);
        let outside = self.builder.build_int_compare(IntPredicate::UGE, index, len, "")?;
        self.trap_if(outside, TrapCode::UndefinedElement)?;
        self.trap(TrapCode::UninitializedElement)?;

        self.builder.position_at_end(present);
        let record = self.builder.build_int_to_ptr(reference, s.ptr, "")?;
        let type_id = self.address(record, s.i64.const_int(func_ref::TYPE_ID, false))?;
        let type_id = self.load_context(type_id, s.i32, true)?.into_int_value();
        let expected = self.context_field(parsed.layout.type_id(number))?;
        let expected = self.load_context(expected, s.i32, true)?.into_int_value();
        let differs = self.builder.build_int_compare(IntPredicate::NE, type_id, expected, "")?;
        self.trap_if(differs, TrapCode::IndirectCallTypeMismatch)?;
        let code = self.address(record, s.i64.const_int(func_ref::CODE, false))?;
        let code = self.load_context(code, s.ptr, true)?.into_pointer_value();
        let ctx = self.address(record, s.i64.const_int(func_ref::CTX, false))?;
        let ctx = self.load_context(ctx, s.ptr, true)?.into_pointer_value();
        self.call(Callee::Address(code), ctx, ty, tail)
    }

    /// Pops the arguments, calls, and pushes the results; a tail call returns them instead.
    fn call(
        &mut self,
        callee: Callee<'ctx>,
        ctx: PointerValue<'ctx>,
        ty: &FuncType,
        tail: bool,
    ) -> Result<(), CompileError> {
        let mut args: Vec<BasicValueEnum<'ctx>> = vec![ctx.into()];
        args.extend(self.pop_many(ty.params.len())?);
        let buffer = match (returns_through_buffer(ty), tail) {
            (false, _) => None,
            (true, false) => Some(self.slots(ty.results.len())?),
            (true, true) => Some(
                self.results.ok_or_else(|| CompileError::internal("a tail call without a result buffer"))?,
            ),
        };
        args.extend(buffer.map(BasicValueEnum::from));
        if tail {
            let call = self.plain_call(callee, ty, &args)?;
            call.set_tail_call_kind(LLVMTailCallKind::LLVMTailCallKindMustTail);
            match call.try_as_basic_value().basic() {
                Some(value) => self.builder.build_return(Some(&value))?,
                None => self.builder.build_return(None)?,
            };
            self.reachable = false;
            return Ok(());
        }
        let call = match self.handlers.last() {
            None => self.plain_call(callee, ty, &args)?,
            Some(handler) => {
                let landing = handler.landing;
                let next = self.new_block();
                let call = match callee {
                    Callee::Function(function) => {
                        self.builder.build_direct_invoke(function, &args, next, landing, "")?
                    }
                    Callee::Address(address) => {
                        let ty = self.unit.function_type(ty);
                        self.builder.build_indirect_invoke(ty, address, &args, next, landing, "")?
                    }
                };
                call.set_call_convention(TAIL_CALL_CONVENTION);
                self.builder.position_at_end(next);
                call
            }
        };
        let returned = call.try_as_basic_value().basic();
        match (buffer, ty.results.as_slice()) {
            (Some(buffer), results) => {
                let values = self.load_slots(buffer, results)?;
                self.stack.extend(values);
            }
            (None, [_, _]) => {
                let Some(BasicValueEnum::StructValue(pair)) = returned else {
                    return Err(CompileError::internal("a call of two results returns no pair"));
                };
                let first = self.builder.build_extract_value(pair, 0, "")?;
                let second = self.builder.build_extract_value(pair, 1, "")?;
                self.stack.extend([first, second]);
            }
            (None, _) => self.stack.extend(returned),
        }
        Ok(())
    }

    pub(super) fn plain_call(
        &mut self,
        callee: Callee<'ctx>,
        ty: &FuncType,
        args: &[BasicValueEnum<'ctx>],
    ) -> Result<CallSiteValue<'ctx>, CompileError> {
        let args: Vec<BasicMetadataValueEnum<'ctx>> = args.iter().map(|&arg| arg.into()).collect();
        let call = match callee {
            Callee::Function(function) => self.builder.build_direct_call(function, &args, "")?,
            Callee::Address(address) => {
                self.builder.build_indirect_call(self.unit.function_type(ty), address, &args, "")?
            }
        };
        call.set_call_convention(TAIL_CALL_CONVENTION);
        Ok(call)
    }

    /// Returns `values` from the function.
    pub(super) fn build_return(
        &mut self,
        ty: &FuncType,
        values: &[BasicValueEnum<'ctx>],
    ) -> Result<(), CompileError> {
        match (self.results, values) {
            (Some(buffer), values) => {
                self.store_slots(buffer, values)?;
                self.builder.build_return(None)?;
            }
            (None, []) => {
                self.builder.build_return(None)?;
            }
            (None, [one]) => {
                self.builder.build_return(Some(one))?;
            }
            (None, [first, second]) => {
                let Some(BasicTypeEnum::StructType(pair)) = self.shapes.returned(self.context, ty) else {
                    return Err(CompileError::internal("two results are no pair"));
                };
                let pair = self.builder.build_insert_value(pair.get_undef(), *first, 0, "")?;
                let pair = self.builder.build_insert_value(pair, *second, 1, "")?;
                self.builder.build_return(Some(&pair))?;
            }
            _ => return Err(CompileError::internal("too many results")),
        }
        Ok(())
    }

    // Slots: 16 bytes each, on the stack of the function or of its caller.

    /// Slots of this function for `count` values.
    pub(super) fn slots(&mut self, count: usize) -> Result<PointerValue<'ctx>, CompileError> {
        if let Some((_, slots)) = self.slots.iter().find(|(room, _)| *room >= count) {
            return Ok(*slots);
        }
        let room = u32::try_from(count).map_err(|_| CompileError::internal("too many slots"))?;
        let slots = self.entry.build_alloca(self.shapes.i128.array_type(room), "")?;
        // Not the type's own: that is 8 while the module has no data layout yet.
        if let Some(alloca) = slots.as_instruction() {
            alloca
                .set_alignment(SLOT_BYTES as u32)
                .map_err(|error| CompileError::internal(error.to_string()))?;
        }
        self.slots.push((count, slots));
        Ok(slots)
    }

    pub(super) fn slot(
        &mut self,
        slots: PointerValue<'ctx>,
        index: usize,
    ) -> Result<PointerValue<'ctx>, CompileError> {
        let distance = self.shapes.i64.const_int(index as u64 * SLOT_BYTES, false);
        self.address(slots, distance)
    }

    pub(super) fn load_slots(
        &mut self,
        slots: PointerValue<'ctx>,
        types: &[ValueType],
    ) -> Result<Vec<BasicValueEnum<'ctx>>, CompileError> {
        let mut values = Vec::with_capacity(types.len());
        for (index, &ty) in types.iter().enumerate() {
            let slot = self.slot(slots, index)?;
            values.push(self.load_context(slot, self.shapes.of(ty), false)?);
        }
        Ok(values)
    }

    pub(super) fn store_slots(
        &mut self,
        slots: PointerValue<'ctx>,
        values: &[BasicValueEnum<'ctx>],
    ) -> Result<(), CompileError> {
        for (index, value) in values.iter().enumerate() {
            let slot = self.slot(slots, index)?;
            let store = self.builder.build_store(slot, *value)?;
            self.unit.tag(store, Region::Context)?;
        }
        Ok(())
    }

    /// Calls a function of the runtime.
    pub(super) fn builtin(
        &mut self,
        builtin: Builtin,
        args: &[BasicValueEnum<'ctx>],
        returns: Option<BasicTypeEnum<'ctx>>,
    ) -> Result<Option<BasicValueEnum<'ctx>>, CompileError> {
        let s = self.shapes;
        let table = self.context_field(header::BUILTINS)?;
        let table = self.load_context(table, s.ptr, true)?.into_pointer_value();
        let entry = self.address(table, s.i64.const_int(builtin as u64 * 8, false))?;
        let code = self.load_context(entry, s.ptr, true)?.into_pointer_value();
        let mut values: Vec<BasicValueEnum<'ctx>> = vec![self.ctx.into()];
        values.extend_from_slice(args);
        let params: Vec<BasicMetadataTypeEnum<'ctx>> =
            values.iter().map(|value| BasicMetadataTypeEnum::from(value.get_type())).collect();
        let ty = match returns {
            Some(returned) => returned.fn_type(&params, false),
            None => self.context.void_type().fn_type(&params, false),
        };
        // Only `Throw` unwinds.
        if builtin == Builtin::Throw
            && let Some(handler) = self.handlers.last()
        {
            let landing = handler.landing;
            let next = self.new_block();
            self.builder.build_indirect_invoke(ty, code, &values, next, landing, "")?;
            self.builder.position_at_end(next);
            return Ok(None);
        }
        let args: Vec<BasicMetadataValueEnum<'ctx>> = values.iter().map(|&value| value.into()).collect();
        let call = self.builder.build_indirect_call(ty, code, &args, "")?;
        if builtin != Builtin::Throw {
            call.add_attribute(AttributeLoc::Function, self.unit.enum_attribute("nounwind", 0));
        }
        Ok(call.try_as_basic_value().basic())
    }

    /// Calls a function of the runtime that returns a value.
    pub(super) fn builtin_value(
        &mut self,
        builtin: Builtin,
        args: &[BasicValueEnum<'ctx>],
        returns: BasicTypeEnum<'ctx>,
    ) -> Result<BasicValueEnum<'ctx>, CompileError> {
        let value = self.builtin(builtin, args, Some(returns))?;
        value.ok_or_else(|| CompileError::internal(format!("{builtin:?} returns nothing")))
    }
}
