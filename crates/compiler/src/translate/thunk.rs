//! Where host and guest meet: two thunks for each function type.
//!
//! `entry{T}` (`ccc void (ptr ctx, ptr code, ptr slots)`) calls a guest function with the arguments in `slots` and leaves the results there.
//! `host{T}` has the signature of a guest function and calls a host function's stub with the arguments in slots.

use inkwell::GlobalVisibility;
use inkwell::module::Linkage;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FunctionValue, PointerValue};
use mote_artifact::abi::host_func;
use mote_artifact::info::FuncType;

use super::call::{Callee, returns_through_buffer};
use super::{FunctionTranslator, TAIL_CALL_CONVENTION, Unit};
use crate::CompileError;

impl<'ctx> Unit<'_, 'ctx> {
    /// Defines the thunks of every function type.
    pub(crate) fn define_thunks(&self) -> Result<(), CompileError> {
        for (number, ty) in self.parsed.info.types.iter().enumerate() {
            self.define_entry(number, ty)?;
            self.define_host(number, ty)?;
        }
        if self.parsed.exceptions {
            self.define_personality()?;
        }
        Ok(())
    }

    fn define_entry(&self, number: usize, ty: &FuncType) -> Result<(), CompileError> {
        let ptr = self.shapes.ptr;
        let signature = self.context.void_type().fn_type(&[ptr.into(), ptr.into(), ptr.into()], false);
        let name = format!("entry{number}");
        let function = self.module.add_function(&name, signature, Some(Linkage::External));
        let mut f = self.begin_thunk(function, &name)?;
        let [ctx, code, slots] = [0, 1, 2].map(|index| pointer_param(function, index));
        let (ctx, code, slots) = (ctx?, code?, slots?);
        let args = f.load_slots(slots, &ty.params)?;
        let mut all: Vec<BasicValueEnum<'ctx>> = vec![ctx.into()];
        all.extend(args);
        if returns_through_buffer(ty) {
            all.push(slots.into());
        }
        let call = f.plain_call(Callee::Address(code), ty, &all)?;
        match call.try_as_basic_value().basic() {
            Some(BasicValueEnum::StructValue(pair)) => {
                let first = f.builder.build_extract_value(pair, 0, "")?;
                let second = f.builder.build_extract_value(pair, 1, "")?;
                f.store_slots(slots, &[first, second])?;
            }
            Some(value) => f.store_slots(slots, &[value])?,
            None => {}
        }
        f.builder.build_return(None)?;
        f.finish_entry()
    }

    fn define_host(&self, number: usize, ty: &FuncType) -> Result<(), CompileError> {
        let s = self.shapes;
        let name = format!("host{number}");
        let function = self.module.add_function(&name, self.function_type(ty), Some(Linkage::External));
        function.set_call_conventions(TAIL_CALL_CONVENTION);
        let mut f = self.begin_thunk(function, &name)?;
        let host = pointer_param(function, 0)?;
        let params: Vec<_> = function.get_params().into_iter().skip(1).take(ty.params.len()).collect();
        let slots = f.slots(ty.params.len().max(ty.results.len()).max(1))?;
        f.store_slots(slots, &params)?;
        let stub = f.address(host, s.i64.const_int(host_func::ARRAY_STUB, false))?;
        let stub = f.load_context(stub, s.ptr, true)?.into_pointer_value();
        let signature = self.context.void_type().fn_type(&[s.ptr.into(), s.ptr.into()], false);
        let args: [BasicMetadataValueEnum<'ctx>; 2] = [host.into(), slots.into()];
        f.builder.build_indirect_call(signature, stub, &args, "")?;
        let results = f.load_slots(slots, &ty.results)?;
        if returns_through_buffer(ty) {
            f.results = Some(pointer_param(function, function.count_params() - 1)?);
        }
        f.build_return(ty, &results)?;
        f.finish_entry()
    }

    /// A translator for a function that is not in the module; its line is 0.
    fn begin_thunk<'u>(
        &'u self,
        function: FunctionValue<'ctx>,
        name: &str,
    ) -> Result<FunctionTranslator<'u, 'ctx>, CompileError> {
        function.as_global_value().set_visibility(GlobalVisibility::Hidden);
        self.attribute_guest(function);
        let subprogram = self.lines.function(name, name, 0);
        FunctionTranslator::begin(self, function, subprogram, 0)
    }
}

fn pointer_param(function: FunctionValue<'_>, index: u32) -> Result<PointerValue<'_>, CompileError> {
    match function.get_nth_param(index) {
        Some(BasicValueEnum::PointerValue(value)) => Ok(value),
        _ => Err(CompileError::internal("a function has no such pointer parameter")),
    }
}
