//! Exceptions: `try_table`, `throw`, `throw_ref`.
//!
//! Calls inside a `try_table` become `invoke`s that unwind to its landing pad; the landing pad receives the exnref and
//! goes to the block's dispatch, which compares tags clause by clause. When no clause matches, control passes to the dispatch of the
//! next `try_table` outwards, or out of the function through the runtime.

use inkwell::IntPredicate;
use inkwell::attributes::AttributeLoc;
use inkwell::basic_block::BasicBlock;
use inkwell::values::{BasicValueEnum, FunctionValue, IntValue, PointerValue};
use mote_artifact::abi::{Builtin, exception};
use wasmparser::{Catch, Operator};

use super::{FunctionTranslator, Region, Unit};
use crate::CompileError;

/// Symbol of the personality function. The runtime's unwinder never calls it; it stands in the unwind tables, where
/// other tools expect one.
pub(super) const PERSONALITY: &str = "mote_personality";

/// The handlers of a `try_table` that the translator is inside of.
#[derive(Clone, Copy)]
pub(super) struct Handler<'ctx> {
    /// Where calls unwind to.
    pub(super) landing: BasicBlock<'ctx>,
    /// Where the clauses are compared with the exception in `exnref`.
    dispatch: BasicBlock<'ctx>,
    exnref: PointerValue<'ctx>,
}

impl<'ctx> Unit<'_, 'ctx> {
    pub(super) fn personality(&self) -> FunctionValue<'ctx> {
        self.module.get_function(PERSONALITY).unwrap_or_else(|| {
            let ty = self.context.i32_type().fn_type(&[], true);
            self.module.add_function(PERSONALITY, ty, None)
        })
    }
}

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    /// Translates `op` when it throws; `false` when it does not.
    pub(super) fn translate_throw(&mut self, op: &Operator<'_>) -> Result<bool, CompileError> {
        match op {
            Operator::Throw { tag_index } => {
                let params = self.tag_params(*tag_index)?;
                let values = self.pop_many(params)?;
                let slots = self.slots(params.max(1))?;
                self.store_slots(slots, &values)?;
                let tag = self.index_argument(*tag_index);
                let exnref =
                    self.builtin_value(Builtin::ExceptionNew, &[tag, slots.into()], self.shapes.i64.into())?;
                self.throw(exnref)?;
            }
            Operator::ThrowRef => {
                let exnref = self.pop()?;
                self.throw(exnref)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn tag_params(&self, tag: u32) -> Result<usize, CompileError> {
        Ok(self.unit.parsed.tag_type(tag)?.params.len())
    }

    fn throw(&mut self, exnref: BasicValueEnum<'ctx>) -> Result<(), CompileError> {
        self.builtin(Builtin::Throw, &[exnref], None)?;
        self.builder.build_unreachable()?;
        self.reachable = false;
        Ok(())
    }

    /// Makes the landing pad and the dispatch of a `try_table` whose block is not open yet: the clauses' labels count from outside.
    pub(super) fn open_handler(&mut self, catches: &[Catch]) -> Result<(), CompileError> {
        let s = self.shapes;
        let personality = self.unit.personality();
        self.function.set_personality_function(personality);
        let from = self.current_block()?;
        let handler = Handler {
            landing: self.new_block(),
            dispatch: self.new_block(),
            exnref: self.entry.build_alloca(s.i64, "")?,
        };
        self.builder.position_at_end(handler.landing);
        let landed = self.context.struct_type(&[s.ptr.into(), s.i32.into()], false);
        let everything = s.ptr.const_null();
        let pad = self.builder.build_landing_pad(landed, personality, &[everything.into()], false, "")?;
        let BasicValueEnum::StructValue(pad) = pad else {
            return Err(CompileError::internal("a landing pad is no pair"));
        };
        let exnref = self.builder.build_extract_value(pad, 0, "")?.into_pointer_value();
        let exnref = self.builder.build_ptr_to_int(exnref, s.i64, "")?;
        self.builder.build_store(handler.exnref, exnref)?;
        self.builder.build_unconditional_branch(handler.dispatch)?;

        self.builder.position_at_end(handler.dispatch);
        let exnref = self.builder.build_load(s.i64, handler.exnref, "")?.into_int_value();
        self.dispatch(exnref, catches)?;

        self.builder.position_at_end(from);
        self.reachable = true;
        self.handlers.push(handler);
        Ok(())
    }

    pub(super) fn close_handler(&mut self) -> Result<(), CompileError> {
        self.handlers.pop().map(|_| ()).ok_or_else(|| CompileError::internal("no handler to close"))
    }

    fn dispatch(&mut self, exnref: IntValue<'ctx>, catches: &[Catch]) -> Result<(), CompileError> {
        let record = self.builder.build_int_to_ptr(exnref, self.shapes.ptr, "")?;
        for catch in catches {
            match *catch {
                Catch::One { tag, label } => {
                    let next = self.match_tag(record, tag)?;
                    let values = self.payload(record, tag)?;
                    self.builtin(Builtin::ExceptionFree, &[exnref.into()], None)?;
                    self.branch(label, &values)?;
                    self.builder.position_at_end(next);
                }
                Catch::OneRef { tag, label } => {
                    let next = self.match_tag(record, tag)?;
                    let mut values = self.payload(record, tag)?;
                    self.mark_escaped(record)?;
                    values.push(exnref.into());
                    self.branch(label, &values)?;
                    self.builder.position_at_end(next);
                }
                Catch::All { label } => {
                    self.builtin(Builtin::ExceptionFree, &[exnref.into()], None)?;
                    return self.branch(label, &[]);
                }
                Catch::AllRef { label } => {
                    self.mark_escaped(record)?;
                    return self.branch(label, &[exnref.into()]);
                }
            }
        }
        match self.handlers.last().copied() {
            Some(outer) => {
                self.builder.build_store(outer.exnref, exnref)?;
                self.builder.build_unconditional_branch(outer.dispatch)?;
            }
            None => {
                self.builtin(Builtin::Throw, &[exnref.into()], None)?;
                self.builder.build_unreachable()?;
            }
        }
        Ok(())
    }

    /// Goes on in a new block when the exception's tag is `tag`; returns the block for when it is not.
    fn match_tag(&mut self, record: PointerValue<'ctx>, tag: u32) -> Result<BasicBlock<'ctx>, CompileError> {
        let s = self.shapes;
        let found = self.address(record, s.i64.const_int(exception::TAG, false))?;
        let found = self.load_context(found, s.i64, false)?.into_int_value();
        let wanted = self.context_field(self.unit.parsed.layout.tag(tag))?;
        let wanted = self.load_context(wanted, s.i64, true)?.into_int_value();
        let matches = self.builder.build_int_compare(IntPredicate::EQ, found, wanted, "")?;
        let (hit, next) = (self.new_block(), self.new_block());
        self.builder.build_conditional_branch(matches, hit, next)?;
        self.builder.position_at_end(hit);
        Ok(next)
    }

    fn payload(
        &mut self,
        record: PointerValue<'ctx>,
        tag: u32,
    ) -> Result<Vec<BasicValueEnum<'ctx>>, CompileError> {
        let first = self.address(record, self.shapes.i64.const_int(exception::PAYLOAD, false))?;
        let ty = self.unit.parsed.tag_type(tag)?;
        self.load_slots(first, &ty.params)
    }

    fn mark_escaped(&mut self, record: PointerValue<'ctx>) -> Result<(), CompileError> {
        let word = self.address(record, self.shapes.i64.const_int(exception::ESCAPED, false))?;
        let store = self.builder.build_store(word, self.shapes.i64.const_int(1, false))?;
        self.unit.tag(store, Region::Context)
    }
}

impl<'ctx> Unit<'_, 'ctx> {
    /// Defines the personality function: one artifact has one.
    pub(super) fn define_personality(&self) -> Result<(), CompileError> {
        let personality = self.personality();
        personality.as_global_value().set_visibility(inkwell::GlobalVisibility::Hidden);
        personality.add_attribute(AttributeLoc::Function, self.enum_attribute("nounwind", 0));
        let builder = self.context.create_builder();
        builder.position_at_end(self.context.append_basic_block(personality, ""));
        builder.build_return(Some(&self.context.i32_type().const_zero()))?;
        Ok(())
    }
}
