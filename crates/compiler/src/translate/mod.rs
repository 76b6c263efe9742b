//! wasm functions to LLVM functions, one operator after the other.
//!
//! A [`Unit`] is one LLVM module being filled. A [`FunctionTranslator`] walks one body: locals are stack slots of the
//! LLVM function (LLVM builds SSA form from them), operands are LLVM values on `stack`, blocks are LLVM blocks
//! whose parameters and results are phis (`control`). Code that validation knows to be unreachable is skipped.

mod atomics;
mod call;
mod control;
mod exceptions;
mod memory;
mod numeric;
mod simd;
mod table;
mod thunk;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashMap;

use inkwell::AddressSpace;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::basic_block::BasicBlock;
use inkwell::builder::Builder;
use inkwell::context::Context;
use inkwell::debug_info::DISubprogram;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::{BasicType, BasicTypeEnum, FloatType, IntType, PointerType, VectorType};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValue, BasicValueEnum, FloatValue, FunctionValue, InstructionValue,
    IntValue, MetadataValue, PointerValue, VectorValue,
};
use mote_artifact::abi::{CONTEXT_BELOW, TrapCode};
use mote_artifact::info::{FuncType, ValueType};
use wasmparser::{FunctionBody, Operator};

use crate::debug::LineTable;
use crate::optimize::Target;
use crate::parse::Parsed;
use crate::{CompileError, Options, value_type};

/// LLVM's `tailcc`.
pub(crate) const TAIL_CALL_CONVENTION: u32 = 18;

/// The LLVM types that values have.
#[derive(Clone, Copy)]
pub(crate) struct Shapes<'ctx> {
    pub(crate) i1: IntType<'ctx>,
    pub(crate) i8: IntType<'ctx>,
    pub(crate) i16: IntType<'ctx>,
    pub(crate) i32: IntType<'ctx>,
    pub(crate) i64: IntType<'ctx>,
    pub(crate) i128: IntType<'ctx>,
    pub(crate) f32: FloatType<'ctx>,
    pub(crate) f64: FloatType<'ctx>,
    pub(crate) v128: VectorType<'ctx>,
    pub(crate) ptr: PointerType<'ctx>,
}

impl<'ctx> Shapes<'ctx> {
    fn new(context: &'ctx Context) -> Self {
        Self {
            i1: context.bool_type(),
            i8: context.i8_type(),
            i16: context.i16_type(),
            i32: context.i32_type(),
            i64: context.i64_type(),
            i128: context.i128_type(),
            f32: context.f32_type(),
            f64: context.f64_type(),
            v128: context.i64_type().vec_type(2),
            ptr: context.ptr_type(AddressSpace::default()),
        }
    }

    /// How a value of type `ty` is represented.
    pub(crate) fn of(&self, ty: ValueType) -> BasicTypeEnum<'ctx> {
        match ty {
            ValueType::I32 => self.i32.into(),
            ValueType::I64 | ValueType::FuncRef | ValueType::ExternRef | ValueType::ExnRef => self.i64.into(),
            ValueType::F32 => self.f32.into(),
            ValueType::F64 => self.f64.into(),
            ValueType::V128 => self.v128.into(),
        }
    }
}

/// Which memory an access touches, for alias analysis: guest memory and the context never overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    Memory,
    Context,
}

struct Overload<'ctx> {
    types: Vec<BasicTypeEnum<'ctx>>,
    function: FunctionValue<'ctx>,
}

/// One LLVM module being filled.
pub(crate) struct Unit<'a, 'ctx> {
    pub(crate) parsed: &'a Parsed,
    pub(crate) options: &'a Options,
    pub(crate) target: &'a Target,
    pub(crate) context: &'ctx Context,
    pub(crate) module: Module<'ctx>,
    pub(crate) shapes: Shapes<'ctx>,
    pub(crate) lines: LineTable<'ctx>,
    intrinsics: RefCell<HashMap<String, Vec<Overload<'ctx>>>>,
    memory_tag: MetadataValue<'ctx>,
    context_tag: MetadataValue<'ctx>,
    empty_node: MetadataValue<'ctx>,
    tbaa_kind: u32,
    invariant_kind: u32,
}

impl<'a, 'ctx> Unit<'a, 'ctx> {
    pub(crate) fn new(
        context: &'ctx Context,
        name: &str,
        parsed: &'a Parsed,
        options: &'a Options,
        target: &'a Target,
    ) -> Self {
        let module = context.create_module(name);
        module.set_triple(target.triple());
        module.set_data_layout(&target.data_layout());
        let lines = LineTable::new(context, &module, &parsed.info.name);
        if parsed.memories.iter().any(|memory| memory.memory64) {
            // Addresses near 4 GiB may be inside a memory: see cpp/offsets.cpp. Adding a node to a named list cannot fail.
            let _ = module.add_global_metadata("mote.memory64", &context.metadata_node(&[]));
        }
        let root = context.metadata_node(&[context.metadata_string("mote").into()]);
        let zero = context.i64_type().const_zero();
        let tag = |name: &str| {
            let ty = context.metadata_node(&[context.metadata_string(name).into(), root.into(), zero.into()]);
            context.metadata_node(&[ty.into(), ty.into(), zero.into()])
        };
        Self {
            parsed,
            options,
            target,
            context,
            shapes: Shapes::new(context),
            lines,
            intrinsics: RefCell::default(),
            memory_tag: tag("memory"),
            context_tag: tag("context"),
            empty_node: context.metadata_node(&[]),
            tbaa_kind: context.get_kind_id("tbaa"),
            invariant_kind: context.get_kind_id("invariant.load"),
            module,
        }
    }

    /// The declaration of an intrinsic.
    pub(crate) fn intrinsic(
        &self,
        name: &str,
        overload: &[BasicTypeEnum<'ctx>],
    ) -> Result<FunctionValue<'ctx>, CompileError> {
        if let Some(known) = self.intrinsics.borrow().get(name)
            && let Some(found) = known.iter().find(|known| known.types == overload)
        {
            return Ok(found.function);
        }
        let declared = Intrinsic::find(name)
            .and_then(|intrinsic| intrinsic.get_declaration(&self.module, overload))
            .ok_or_else(|| CompileError::internal(format!("no intrinsic {name}")))?;
        let known = Overload { types: overload.to_vec(), function: declared };
        self.intrinsics.borrow_mut().entry(name.to_owned()).or_default().push(known);
        Ok(declared)
    }

    pub(crate) fn enum_attribute(&self, name: &str, value: u64) -> Attribute {
        self.context.create_enum_attribute(Attribute::get_named_enum_kind_id(name), value)
    }

    /// The function that marks a loaded value as observed: an access that traps must stay even when its result is not
    /// used. `optimize` removes the calls again.
    fn witness(&self, ty: BasicTypeEnum<'ctx>) -> FunctionValue<'ctx> {
        let name = format!("mote.witness.{}", shape_name(ty));
        self.module.get_function(&name).unwrap_or_else(|| {
            let function =
                self.module.add_function(&name, self.context.void_type().fn_type(&[ty.into()], false), None);
            function.add_attribute(AttributeLoc::Function, self.enum_attribute("nounwind", 0));
            function.add_attribute(AttributeLoc::Function, self.enum_attribute("willreturn", 0));
            // memory(inaccessiblemem: write): two bits a location, argument memory first.
            function.add_attribute(AttributeLoc::Function, self.enum_attribute("memory", 2 << 2));
            function
        })
    }

    /// Says what an access touches.
    pub(crate) fn tag(&self, access: InstructionValue<'ctx>, region: Region) -> Result<(), CompileError> {
        let tag = match region {
            Region::Memory => self.memory_tag,
            Region::Context => self.context_tag,
        };
        access.set_metadata(tag, self.tbaa_kind).map_err(|error| CompileError::internal(error.to_string()))
    }

    fn mark_invariant(&self, load: InstructionValue<'ctx>) -> Result<(), CompileError> {
        load.set_metadata(self.empty_node, self.invariant_kind)
            .map_err(|error| CompileError::internal(error.to_string()))
    }
}

/// A type's name as LLVM mangles it in overloaded names.
fn shape_name(ty: BasicTypeEnum<'_>) -> String {
    match ty {
        BasicTypeEnum::IntType(ty) => format!("i{}", ty.get_bit_width()),
        BasicTypeEnum::FloatType(ty) => format!("f{}", ty.get_bit_width()),
        BasicTypeEnum::VectorType(ty) => format!("v{}{}", ty.get_size(), shape_name(ty.get_element_type())),
        _ => "ptr".to_owned(),
    }
}

/// Translates one function body.
pub(crate) struct FunctionTranslator<'a, 'ctx> {
    pub(crate) unit: &'a Unit<'a, 'ctx>,
    pub(crate) context: &'ctx Context,
    pub(crate) builder: Builder<'ctx>,
    pub(crate) shapes: Shapes<'ctx>,
    function: FunctionValue<'ctx>,
    subprogram: DISubprogram<'ctx>,
    /// The context pointer.
    ctx: PointerValue<'ctx>,
    /// Fills the entry block, which holds nothing but stack slots and ends with a branch to the body.
    entry: Builder<'ctx>,
    body: BasicBlock<'ctx>,
    /// Offset of the current operator in the wasm file.
    offset: u64,
    stack: Vec<BasicValueEnum<'ctx>>,
    locals: Vec<Local<'ctx>>,
    frames: Vec<control::Frame<'ctx>>,
    reachable: bool,
    /// Blocks opened since the code became unreachable.
    skipped: u32,
    handlers: Vec<exceptions::Handler<'ctx>>,
    /// The caller's buffer for the results, when the function has one.
    results: Option<PointerValue<'ctx>>,
    /// Slots of this function: how many there is room for, and where.
    slots: Vec<(usize, PointerValue<'ctx>)>,
}

#[derive(Clone, Copy)]
struct Local<'ctx> {
    place: PointerValue<'ctx>,
    ty: BasicTypeEnum<'ctx>,
}

impl<'ctx> Unit<'_, 'ctx> {
    /// Translates the body of the function with this index.
    pub(crate) fn translate(
        &self,
        index: u32,
        body: &FunctionBody<'_>,
    ) -> Result<FunctionValue<'ctx>, CompileError> {
        let parsed = self.parsed;
        let ty = parsed.function_type(index)?;
        let function = self.function(index)?;
        let start = body.range().start;
        let subprogram = self.lines.function(&parsed.function_name(index), &format!("f{index}"), start);
        let mut f = FunctionTranslator::begin(self, function, subprogram, start)?;
        f.receive_params(ty)?;
        for local in body.get_locals_reader()? {
            let (count, local) = local?;
            for _ in 0..count {
                f.add_local(value_type(local, start)?, None)?;
            }
        }
        f.push_function(&ty.results)?;
        let mut reader = body.get_operators_reader()?;
        while !reader.eof() {
            let (op, offset) = reader.read_with_offset()?;
            f.translate(&op, offset)?;
        }
        if !f.has_ended() {
            return Err(CompileError::internal("a body ends inside a block"));
        }
        if f.reachable {
            let values = f.pop_many(ty.results.len())?;
            f.build_return(ty, &values)?;
        }
        f.finish_entry()?;
        Ok(function)
    }
}

impl<'a, 'ctx> FunctionTranslator<'a, 'ctx> {
    fn begin(
        unit: &'a Unit<'a, 'ctx>,
        function: FunctionValue<'ctx>,
        subprogram: DISubprogram<'ctx>,
        offset: u64,
    ) -> Result<Self, CompileError> {
        let context = unit.context;
        function.set_subprogram(subprogram);
        let ctx = match function.get_first_param() {
            Some(BasicValueEnum::PointerValue(ctx)) => ctx,
            _ => return Err(CompileError::internal("a function without a context")),
        };
        let (entry, builder) = (context.create_builder(), context.create_builder());
        entry.position_at_end(context.append_basic_block(function, "entry"));
        let body = context.append_basic_block(function, "");
        builder.position_at_end(body);
        builder.set_current_debug_location(unit.lines.location(subprogram, offset));
        Ok(Self {
            unit,
            context,
            builder,
            shapes: unit.shapes,
            function,
            subprogram,
            ctx,
            entry,
            body,
            offset,
            stack: Vec::new(),
            locals: Vec::new(),
            frames: Vec::new(),
            reachable: true,
            skipped: 0,
            handlers: Vec::new(),
            results: None,
            slots: Vec::new(),
        })
    }

    /// Completes the entry block.
    fn finish_entry(&mut self) -> Result<(), CompileError> {
        self.entry.build_unconditional_branch(self.body)?;
        Ok(())
    }

    fn receive_params(&mut self, ty: &FuncType) -> Result<(), CompileError> {
        let params = self.function.get_params();
        let mut params = params.into_iter().skip(1);
        for &param in &ty.params {
            let value =
                params.next().ok_or_else(|| CompileError::internal("a function lacks a parameter"))?;
            self.add_local(param, Some(value))?;
        }
        if let Some(BasicValueEnum::PointerValue(results)) = params.next() {
            self.results = Some(results);
        }
        Ok(())
    }

    fn add_local(&mut self, ty: ValueType, value: Option<BasicValueEnum<'ctx>>) -> Result<(), CompileError> {
        let ty = self.shapes.of(ty);
        let place = self.entry.build_alloca(ty, "")?;
        self.builder.build_store(place, value.unwrap_or_else(|| ty.const_zero()))?;
        self.locals.push(Local { place, ty });
        Ok(())
    }

    fn local(&self, index: u32) -> Result<Local<'ctx>, CompileError> {
        let found = self.locals.get(index as usize).copied();
        found.ok_or_else(|| CompileError::internal(format!("no local {index}")))
    }

    fn translate(&mut self, op: &Operator<'_>, offset: u64) -> Result<(), CompileError> {
        if self.skip_unreachable(op) {
            return Ok(());
        }
        self.offset = offset;
        self.builder.set_current_debug_location(self.unit.lines.location(self.subprogram, offset));
        let known = self.translate_local(op)?
            || self.translate_numeric(op)?
            || self.translate_memory(op)?
            || self.translate_control(op)?
            || self.translate_call(op)?
            || self.translate_table(op)?
            || simd::translate(self, op)?
            || self.translate_atomic(op)?
            || self.translate_throw(op)?;
        if known {
            return Ok(());
        }
        let what = format!("{op:?}");
        let name = what.split([' ', '{']).next().unwrap_or_default();
        Err(CompileError::Unsupported { what: format!("the operator {name}"), offset })
    }

    fn translate_local(&mut self, op: &Operator<'_>) -> Result<bool, CompileError> {
        match op {
            Operator::LocalGet { local_index } => {
                let local = self.local(*local_index)?;
                let value = self.builder.build_load(local.ty, local.place, "")?;
                self.push(value);
            }
            Operator::LocalSet { local_index } => {
                let local = self.local(*local_index)?;
                let value = self.pop()?;
                self.builder.build_store(local.place, value)?;
            }
            Operator::LocalTee { local_index } => {
                let local = self.local(*local_index)?;
                let value = self.pop()?;
                self.builder.build_store(local.place, value)?;
                self.push(value);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How the module is compiled.
    pub(crate) fn options(&self) -> &'a Options {
        self.unit.options
    }

    /// Whether the CPU has `feature` (LLVM's name).
    pub(crate) fn has_feature(&self, feature: &str) -> bool {
        self.unit.target.enabled_features().iter().any(|known| known == feature)
    }

    // The operand stack. Validation has run before: a wrong type here is the compiler's mistake.

    pub(crate) fn pop(&mut self) -> Result<BasicValueEnum<'ctx>, CompileError> {
        self.stack.pop().ok_or_else(|| CompileError::internal("operand stack is empty"))
    }

    pub(crate) fn pop_int(&mut self) -> Result<IntValue<'ctx>, CompileError> {
        match self.pop()? {
            BasicValueEnum::IntValue(value) => Ok(value),
            other => {
                Err(CompileError::internal(format!("an integer was expected, found {}", other.get_type())))
            }
        }
    }

    pub(crate) fn pop_i32(&mut self) -> Result<IntValue<'ctx>, CompileError> {
        self.pop_int()
    }

    pub(crate) fn pop_i64(&mut self) -> Result<IntValue<'ctx>, CompileError> {
        self.pop_int()
    }

    pub(crate) fn pop_float(&mut self) -> Result<FloatValue<'ctx>, CompileError> {
        match self.pop()? {
            BasicValueEnum::FloatValue(value) => Ok(value),
            other => Err(CompileError::internal(format!("a float was expected, found {}", other.get_type()))),
        }
    }

    pub(crate) fn pop_f32(&mut self) -> Result<FloatValue<'ctx>, CompileError> {
        self.pop_float()
    }

    pub(crate) fn pop_f64(&mut self) -> Result<FloatValue<'ctx>, CompileError> {
        self.pop_float()
    }

    /// Always `<2 x i64>`.
    pub(crate) fn pop_v128(&mut self) -> Result<VectorValue<'ctx>, CompileError> {
        match self.pop()? {
            BasicValueEnum::VectorValue(value) => Ok(value),
            other => {
                Err(CompileError::internal(format!("a vector was expected, found {}", other.get_type())))
            }
        }
    }

    /// Vectors must be `<2 x i64>`.
    pub(crate) fn push(&mut self, value: impl Into<BasicValueEnum<'ctx>>) {
        self.stack.push(value.into());
    }

    // Calls of intrinsics.

    /// Calls an intrinsic that returns a value.
    pub(crate) fn call_intrinsic(
        &mut self,
        name: &str,
        overload: &[BasicTypeEnum<'ctx>],
        args: &[BasicValueEnum<'ctx>],
    ) -> Result<BasicValueEnum<'ctx>, CompileError> {
        let function = self.unit.intrinsic(name, overload)?;
        let args: Vec<BasicMetadataValueEnum<'ctx>> = args.iter().map(|&arg| arg.into()).collect();
        self.builder
            .build_call(function, &args, "")?
            .try_as_basic_value()
            .basic()
            .ok_or_else(|| CompileError::internal(format!("{name} returns nothing")))
    }

    /// Calls an intrinsic that returns nothing.
    pub(crate) fn call_intrinsic_void(
        &mut self,
        name: &str,
        overload: &[BasicTypeEnum<'ctx>],
        args: &[BasicValueEnum<'ctx>],
    ) -> Result<(), CompileError> {
        let function = self.unit.intrinsic(name, overload)?;
        let args: Vec<BasicMetadataValueEnum<'ctx>> = args.iter().map(|&arg| arg.into()).collect();
        self.builder.build_call(function, &args, "")?;
        Ok(())
    }

    // Traps.

    /// Ends the current block with a trap. The caller positions the builder elsewhere afterwards.
    pub(crate) fn trap(&mut self, code: TrapCode) -> Result<(), CompileError> {
        let trap = self.unit.intrinsic("llvm.ubsantrap", &[])?;
        let code = self.shapes.i8.const_int(u64::from(code as u8), false);
        let call = self.builder.build_call(trap, &[code.into()], "")?;
        // Each trap keeps its own place in the line table.
        for name in ["nomerge", "cold", "noreturn", "nounwind"] {
            call.add_attribute(AttributeLoc::Function, self.unit.enum_attribute(name, 0));
        }
        self.builder.build_unreachable()?;
        Ok(())
    }

    /// Traps when `condition` (an `i1`) holds; goes on in a new block.
    pub(crate) fn trap_if(&mut self, condition: IntValue<'ctx>, code: TrapCode) -> Result<(), CompileError> {
        let trap = self.new_block();
        let next = self.new_block();
        self.builder.build_conditional_branch(condition, trap, next)?;
        self.builder.position_at_end(trap);
        self.trap(code)?;
        self.builder.position_at_end(next);
        Ok(())
    }

    // The context block.

    /// Address of the field at `offset` of the context block.
    pub(crate) fn context_field(&mut self, offset: u64) -> Result<PointerValue<'ctx>, CompileError> {
        let distance = self.shapes.i64.const_int(offset.wrapping_sub(CONTEXT_BELOW), true);
        self.address(self.ctx, distance)
    }

    /// Loads a word of the context block (or of a record that it points to).
    pub(crate) fn load_context(
        &mut self,
        address: PointerValue<'ctx>,
        ty: impl BasicType<'ctx>,
        invariant: bool,
    ) -> Result<BasicValueEnum<'ctx>, CompileError> {
        let value = self.builder.build_load(ty, address, "")?;
        if let Some(load) = value.as_instruction_value() {
            self.unit.tag(load, Region::Context)?;
            if invariant {
                self.unit.mark_invariant(load)?;
            }
        }
        Ok(value)
    }

    /// `base + distance` bytes, within the instance's reservation.
    pub(crate) fn address(
        &mut self,
        base: PointerValue<'ctx>,
        distance: IntValue<'ctx>,
    ) -> Result<PointerValue<'ctx>, CompileError> {
        // SAFETY: `inbounds` promises that the result stays within one allocated object. An instance's reservation is that object: the
        // context block, the guards, and the memory with its 2 GiB of guard above 4 GiB; offsets beyond are checked first.
        Ok(unsafe { self.builder.build_in_bounds_gep(self.shapes.i8, base, &[distance], "")? })
    }
}
