//! Blocks, branches and the skipping of unreachable code.

use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::{BasicValueEnum, IntValue, PhiValue};
use mote_artifact::abi::TrapCode;
use mote_artifact::info::ValueType;
use wasmparser::{BlockType, BrTable, Operator};

use super::FunctionTranslator;
use crate::{CompileError, value_type};

/// A `br_table` with at most this many targets besides the default compares instead of jumping through a table, so
/// that nothing has to be clamped.
const DIRECT_BR_TABLE: u32 = 3;

/// A block that the translator is inside of.
pub(super) struct Frame<'ctx> {
    kind: FrameKind<'ctx>,
    /// Where a branch to this frame goes.
    label: BasicBlock<'ctx>,
    /// The values that a branch carries.
    phis: Vec<PhiValue<'ctx>>,
    /// Number of values that the block leaves.
    results: usize,
    /// Operands below the block's own.
    height: usize,
    /// Whether a branch to `label` exists.
    branched: bool,
}

enum FrameKind<'ctx> {
    Block,
    Loop,
    /// The first arm of an `if`; the second is entered with `params`.
    Then {
        second: BasicBlock<'ctx>,
        params: Vec<BasicValueEnum<'ctx>>,
    },
    Else,
    Try,
}

impl<'ctx> FunctionTranslator<'_, 'ctx> {
    /// Translates `op` when it is a control operator; `false` when it is not.
    pub(super) fn translate_control(&mut self, op: &Operator<'_>) -> Result<bool, CompileError> {
        match op {
            Operator::Unreachable => {
                self.trap(TrapCode::Unreachable)?;
                self.reachable = false;
            }
            Operator::Nop => {}
            Operator::Block { blockty } => {
                let (params, results) = self.block_type(blockty)?;
                self.push_block(FrameKind::Block, params.len(), &results)?;
            }
            Operator::Loop { blockty } => self.push_loop(blockty)?,
            Operator::If { blockty } => self.push_if(blockty)?,
            Operator::Else => self.switch_to_else()?,
            Operator::End => self.end_block()?,
            Operator::Br { relative_depth } => {
                let values = self.pop_many(self.frame(*relative_depth)?.phis.len())?;
                self.branch(*relative_depth, &values)?;
            }
            Operator::BrIf { relative_depth } => self.branch_if(*relative_depth)?,
            Operator::BrTable { targets } => self.branch_table(targets)?,
            Operator::Return => {
                let depth = self.outermost()?;
                let values = self.pop_many(self.frame(depth)?.phis.len())?;
                self.branch(depth, &values)?;
            }
            Operator::Drop => {
                self.pop()?;
            }
            Operator::Select | Operator::TypedSelect { .. } => {
                let condition = self.pop_condition()?;
                let second = self.pop()?;
                let first = self.pop()?;
                let chosen = self.builder.build_select(condition, first, second, "")?;
                self.push(chosen);
            }
            Operator::TryTable { try_table } => {
                let (params, results) = self.block_type(&try_table.ty)?;
                self.open_handler(&try_table.catches)?;
                self.push_block(FrameKind::Try, params.len(), &results)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Follows nesting through code that cannot run; `true` when `op` was skipped.
    pub(super) fn skip_unreachable(&mut self, op: &Operator<'_>) -> bool {
        if self.reachable {
            return false;
        }
        match op {
            Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::If { .. }
            | Operator::TryTable { .. } => self.skipped += 1,
            Operator::Else if self.skipped == 0 => return false,
            Operator::End => match self.skipped.checked_sub(1) {
                None => return false,
                Some(outer) => self.skipped = outer,
            },
            _ => {}
        }
        true
    }

    /// Opens the block of the function itself, whose label is its return.
    pub(super) fn push_function(&mut self, results: &[ValueType]) -> Result<(), CompileError> {
        self.push_block(FrameKind::Block, 0, results)
    }

    /// Whether the function's own block has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.frames.is_empty()
    }

    fn block_type(&self, ty: &BlockType) -> Result<(Vec<ValueType>, Vec<ValueType>), CompileError> {
        Ok(match ty {
            BlockType::Empty => (Vec::new(), Vec::new()),
            BlockType::Type(ty) => (Vec::new(), vec![value_type(*ty, self.offset)?]),
            BlockType::FuncType(index) => {
                let ty = self.unit.parsed.module_type(*index)?;
                (ty.params.clone(), ty.results.clone())
            }
        })
    }

    fn push_block(
        &mut self,
        kind: FrameKind<'ctx>,
        params: usize,
        results: &[ValueType],
    ) -> Result<(), CompileError> {
        let label = self.new_block();
        let phis = self.phis(label, results)?;
        let height = self.height_below(params)?;
        self.frames.push(Frame { kind, label, phis, results: results.len(), height, branched: false });
        Ok(())
    }

    fn push_loop(&mut self, ty: &BlockType) -> Result<(), CompileError> {
        let (params, results) = self.block_type(ty)?;
        let values = self.pop_many(params.len())?;
        let label = self.new_block();
        let phis = self.phis(label, &params)?;
        self.frames.push(Frame {
            kind: FrameKind::Loop,
            label,
            phis,
            results: results.len(),
            height: self.stack.len(),
            branched: false,
        });
        self.jump(0, &values)?;
        self.builder.position_at_end(label);
        self.push_phis(0)
    }

    fn push_if(&mut self, ty: &BlockType) -> Result<(), CompileError> {
        let (params, results) = self.block_type(ty)?;
        let condition = self.pop_condition()?;
        let first = self.new_block();
        let second = self.new_block();
        self.builder.build_conditional_branch(condition, first, second)?;
        let height = self.height_below(params.len())?;
        let entered_with = self.stack.get(height..).unwrap_or_default().to_vec();
        self.push_block(FrameKind::Then { second, params: entered_with }, params.len(), &results)?;
        self.builder.position_at_end(first);
        Ok(())
    }

    fn switch_to_else(&mut self) -> Result<(), CompileError> {
        if self.reachable {
            let values = self.pop_many(self.frame(0)?.results)?;
            self.jump(0, &values)?;
        }
        let frame = self.frames.last_mut().ok_or_else(no_frame)?;
        let height = frame.height;
        let FrameKind::Then { second, params } = std::mem::replace(&mut frame.kind, FrameKind::Else) else {
            return Err(CompileError::internal("else without if"));
        };
        self.builder.position_at_end(second);
        self.stack.truncate(height);
        self.stack.extend(params);
        self.reachable = true;
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), CompileError> {
        if let FrameKind::Then { .. } = self.frame(0)?.kind {
            // No second arm: it passes the parameters on.
            self.switch_to_else()?;
        }
        let depth_zero = self.frame(0)?;
        if let FrameKind::Try = depth_zero.kind {
            self.close_handler()?;
        }
        let depth_zero = self.frame(0)?;
        let results = depth_zero.results;
        let is_loop = matches!(depth_zero.kind, FrameKind::Loop);
        if self.reachable && !is_loop && depth_zero.branched {
            let values = self.pop_many(results)?;
            self.jump(0, &values)?;
        }
        let frame = self.frames.pop().ok_or_else(no_frame)?;
        if is_loop {
            if !self.reachable {
                self.stack.truncate(frame.height);
            }
        } else if frame.branched {
            self.builder.position_at_end(frame.label);
            self.stack.truncate(frame.height);
            self.stack.extend(frame.phis.iter().map(|phi| phi.as_basic_value()));
            self.reachable = true;
        } else {
            // Nothing branches here: go on in the same block, or stay unreachable.
            // SAFETY: the block has no predecessors and its phis have no users.
            let deleted = unsafe { frame.label.delete() };
            deleted.map_err(|()| CompileError::internal("a block has no function"))?;
            if !self.reachable {
                self.stack.truncate(frame.height);
            }
        }
        Ok(())
    }

    /// Branches to the frame `depth` levels out with `values`; the rest of the block is unreachable.
    pub(super) fn branch(&mut self, depth: u32, values: &[BasicValueEnum<'ctx>]) -> Result<(), CompileError> {
        self.jump(depth, values)?;
        self.reachable = false;
        Ok(())
    }

    fn jump(&mut self, depth: u32, values: &[BasicValueEnum<'ctx>]) -> Result<(), CompileError> {
        let label = self.join(depth, values)?;
        self.builder.build_unconditional_branch(label)?;
        Ok(())
    }

    /// Announces an edge from the current block to the frame's label, which it returns.
    fn join(
        &mut self,
        depth: u32,
        values: &[BasicValueEnum<'ctx>],
    ) -> Result<BasicBlock<'ctx>, CompileError> {
        let from = self.current_block()?;
        let frame = self.frame_mut(depth)?;
        frame.branched = true;
        for (phi, value) in frame.phis.iter().zip(values) {
            phi.add_incoming(&[(value, from)]);
        }
        Ok(frame.label)
    }

    fn branch_if(&mut self, depth: u32) -> Result<(), CompileError> {
        let condition = self.pop_condition()?;
        let carried = self.frame(depth)?.phis.len();
        let values = self.stack.get(self.height_below(carried)?..).unwrap_or_default().to_vec();
        let label = self.join(depth, &values)?;
        let next = self.new_block();
        self.builder.build_conditional_branch(condition, label, next)?;
        self.builder.position_at_end(next);
        Ok(())
    }

    /// With more than a few targets the index is clamped without a branch and every value has its case: the jump goes
    /// through a table and no mispredicted bounds check lets the index run past its end.
    fn branch_table(&mut self, table: &BrTable<'_>) -> Result<(), CompileError> {
        let index = self.pop_i32()?;
        let carried = self.frame(table.default())?.phis.len();
        let values = self.pop_many(carried)?;
        let depths: Vec<u32> = table.targets().collect::<Result<_, _>>()?;
        if depths.is_empty() {
            return self.branch(table.default(), &values);
        }
        let from = self.current_block()?;
        // One edge for each distinct target that carries values: phis count every edge.
        let mut labels = std::collections::HashMap::new();
        for depth in depths.iter().copied().chain([table.default()]) {
            if labels.contains_key(&depth) {
                continue;
            }
            let block = if carried == 0 {
                self.join(depth, &values)?
            } else {
                let edge = self.new_block();
                self.builder.position_at_end(edge);
                self.jump(depth, &values)?;
                edge
            };
            labels.insert(depth, block);
        }
        self.builder.position_at_end(from);
        let label = |depth: u32| labels.get(&depth).copied().ok_or_else(no_frame);
        let i32_type = self.shapes.i32;
        let mut cases = Vec::with_capacity(depths.len() + 1);
        for (case, &depth) in (0u64..).zip(&depths) {
            cases.push((i32_type.const_int(case, false), label(depth)?));
        }
        let default = label(table.default())?;
        if table.len() <= DIRECT_BR_TABLE {
            self.builder.build_switch(index, default, &cases)?;
        } else {
            let last = i32_type.const_int(u64::from(table.len()), false);
            cases.push((last, default));
            let clamped =
                self.call_intrinsic("llvm.umin", &[i32_type.into()], &[index.into(), last.into()])?;
            let never = self.new_block();
            self.builder.build_switch(clamped.into_int_value(), never, &cases)?;
            self.builder.position_at_end(never);
            self.builder.build_unreachable()?;
        }
        self.reachable = false;
        Ok(())
    }

    /// Pops an i32 and compares it with 0.
    pub(super) fn pop_condition(&mut self) -> Result<IntValue<'ctx>, CompileError> {
        let value = self.pop_i32()?;
        let zero = value.get_type().const_zero();
        Ok(self.builder.build_int_compare(IntPredicate::NE, value, zero, "")?)
    }

    /// Pops `count` values; the last popped comes first.
    pub(super) fn pop_many(&mut self, count: usize) -> Result<Vec<BasicValueEnum<'ctx>>, CompileError> {
        let height = self.height_below(count)?;
        Ok(self.stack.split_off(height))
    }

    fn height_below(&self, count: usize) -> Result<usize, CompileError> {
        self.stack
            .len()
            .checked_sub(count)
            .ok_or_else(|| CompileError::internal("operand stack is too short"))
    }

    pub(super) fn new_block(&self) -> BasicBlock<'ctx> {
        self.context.append_basic_block(self.function, "")
    }

    pub(super) fn current_block(&self) -> Result<BasicBlock<'ctx>, CompileError> {
        self.builder.get_insert_block().ok_or_else(|| CompileError::internal("the builder has no block"))
    }

    fn outermost(&self) -> Result<u32, CompileError> {
        self.frames.len().checked_sub(1).and_then(|depth| u32::try_from(depth).ok()).ok_or_else(no_frame)
    }

    fn frame(&self, depth: u32) -> Result<&Frame<'ctx>, CompileError> {
        let index = self.frames.len().checked_sub(depth as usize + 1);
        index.and_then(|index| self.frames.get(index)).ok_or_else(no_frame)
    }

    fn frame_mut(&mut self, depth: u32) -> Result<&mut Frame<'ctx>, CompileError> {
        let index = self.frames.len().checked_sub(depth as usize + 1);
        index.and_then(|index| self.frames.get_mut(index)).ok_or_else(no_frame)
    }

    fn phis(
        &mut self,
        block: BasicBlock<'ctx>,
        types: &[ValueType],
    ) -> Result<Vec<PhiValue<'ctx>>, CompileError> {
        if types.is_empty() {
            return Ok(Vec::new());
        }
        let from = self.current_block()?;
        self.builder.position_at_end(block);
        let phis = types
            .iter()
            .map(|&ty| self.builder.build_phi(self.shapes.of(ty), ""))
            .collect::<Result<_, _>>()?;
        self.builder.position_at_end(from);
        Ok(phis)
    }

    fn push_phis(&mut self, depth: u32) -> Result<(), CompileError> {
        let values: Vec<_> = self.frame(depth)?.phis.iter().map(|phi| phi.as_basic_value()).collect();
        self.stack.extend(values);
        Ok(())
    }
}

fn no_frame() -> CompileError {
    CompileError::internal("a branch to a block that is not there")
}
