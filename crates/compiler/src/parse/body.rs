//! Validates function bodies and measures them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use wasmparser::{
    CompositeInnerType, FuncValidatorAllocations, Operator, OperatorsReader, WasmModuleResources as _,
};

use super::{Body, FunctionToValidate, check};
use crate::limits::Budget;
use crate::{CompileError, Options};

/// How large a function body is, as far as it matters to the time that LLVM takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BodySize {
    /// Bytes.
    pub(crate) bytes: u64,
    /// Operators.
    pub(crate) operators: u64,
    /// Edges between blocks.
    pub(crate) edges: u64,
    /// Loops.
    pub(crate) loops: u64,
    /// Targets over all `br_table`s.
    pub(crate) br_targets: u64,
    /// Deepest nesting of blocks.
    pub(crate) depth: u64,
    /// Locals, parameters and places for caught exceptions included.
    pub(crate) locals: u32,
    /// Over the function and its calls: the square of the number of parameters and results.
    pub(crate) passed_values_squared: u64,
    /// It throws or catches.
    pub(crate) exceptions: bool,
}

impl BodySize {
    /// Whether the function is small enough for a tier.
    pub(crate) fn fits(&self, budget: &Budget) -> bool {
        self.operators <= budget.operators
            && self.edges <= budget.edges
            && self.loops <= budget.loops
            && self.passed_values_squared <= budget.passed_values_squared
            && self.edges.saturating_mul(self.locals.into()) <= budget.phi_entries
            && self.edges.saturating_mul(self.depth) <= budget.nested_edges
    }
}

/// As many operators an indirect call counts for: its checks and blocks take 30 kB without optimisation.
const INDIRECT_CALL_OPERATORS: u64 = 20;

/// Validates `functions`, the first of which has index `first`, on the threads asked for. When several are wrong, the error is
/// that of the first.
pub(super) fn validate_all<'w>(
    functions: Vec<FunctionToValidate<'w>>,
    first: u32,
    options: &Options,
) -> Result<Vec<Body<'w>>, CompileError> {
    const CHUNK: usize = 64;
    let mut chunks = Vec::new();
    let mut functions = functions.into_iter().peekable();
    let mut index = first;
    while functions.peek().is_some() {
        let chunk: Vec<_> = functions.by_ref().take(CHUNK).collect();
        let start = index;
        index = index.saturating_add(u32::try_from(chunk.len()).unwrap_or(u32::MAX));
        chunks.push(Mutex::new((start, Some(chunk), Ok(Vec::new()))));
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut allocations = FuncValidatorAllocations::default();
        while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Ok(mut chunk) = chunk.lock() else { return };
            let (start, functions) = (chunk.0, chunk.1.take().unwrap_or_default());
            chunk.2 = (start..)
                .zip(functions)
                .map(|(index, function)| {
                    validate(function, &mut allocations, options).map_err(|error| error.in_function(index))
                })
                .collect::<Result<Vec<_>, _>>();
        }
    };
    let threads = options.jobs.clamp(1, chunks.len().max(1));
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut bodies = Vec::new();
    for chunk in chunks {
        let (_, _, found) =
            chunk.into_inner().map_err(|_| CompileError::internal("a validating thread died"))?;
        bodies.extend(found?);
    }
    let passed = bodies.iter().map(|body: &Body<'_>| body.size.passed_values_squared).sum();
    check("squares of the numbers of values that calls pass", passed, options.limits.passed_values_squared)?;
    Ok(bodies)
}

fn validate<'w>(
    (function, body): FunctionToValidate<'w>,
    allocations: &mut FuncValidatorAllocations,
    options: &Options,
) -> Result<Body<'w>, CompileError> {
    let limits = &options.limits;
    let mut validator = function.into_validator(std::mem::take(allocations));
    let mut reader = body.get_binary_reader();
    validator.read_locals(&mut reader)?;
    let mut size = BodySize {
        bytes: body.range().end.saturating_sub(body.range().start),
        locals: validator.len_locals(),
        ..BodySize::default()
    };
    check("locals of a function", size.locals.into(), limits.function_locals.into())?;
    let resources = validator.resources().clone();
    let passed_by = |ty: Option<u32>| match ty
        .and_then(|ty| resources.sub_type_at(ty))
        .map(|ty| &ty.composite_type.inner)
    {
        Some(CompositeInnerType::Func(ty)) => (ty.params().len() as u64 + ty.results().len() as u64).pow(2),
        _ => 0,
    };
    size.passed_values_squared = passed_by(resources.type_index_of_function(validator.index()));
    let mut operators = OperatorsReader::new(reader);
    let mut depth = 0u64;
    // The depths of the try_tables that are open: every call within one has an edge to its handlers.
    let mut tries = Vec::new();
    while !operators.eof() {
        let (op, offset) = operators.read_with_offset()?;
        validator.op(offset, &op)?;
        size.operators += match op {
            Operator::CallIndirect { .. } | Operator::ReturnCallIndirect { .. } => INDIRECT_CALL_OPERATORS,
            _ => 1,
        };
        size.passed_values_squared += match &op {
            Operator::Call { function_index } | Operator::ReturnCall { function_index } => {
                passed_by(resources.type_index_of_function(*function_index))
            }
            Operator::CallIndirect { type_index, .. } | Operator::ReturnCallIndirect { type_index, .. } => {
                passed_by(Some(*type_index))
            }
            _ => 0,
        };
        check("operators of a function", size.operators, limits.function_operators)?;
        match &op {
            Operator::Block { .. } | Operator::Loop { .. } => {
                depth += 1;
                size.edges += 1;
                size.loops += u64::from(matches!(op, Operator::Loop { .. }));
            }
            Operator::If { .. } => {
                depth += 1;
                size.edges += 2;
            }
            Operator::TryTable { try_table } => {
                depth += 1;
                tries.push(depth);
                size.edges += 1 + try_table.catches.len() as u64;
                // Where the exception is kept is a local too.
                size.locals = size.locals.saturating_add(1);
                size.exceptions = true;
            }
            Operator::Throw { .. } | Operator::ThrowRef => size.exceptions = true,
            Operator::End => {
                tries.pop_if(|open| *open == depth);
                depth = depth.saturating_sub(1);
            }
            Operator::Br { .. } | Operator::BrIf { .. } | Operator::Else => size.edges += 1,
            Operator::BrTable { targets } => {
                size.edges += u64::from(targets.len()) + 1;
                size.br_targets += u64::from(targets.len()) + 1;
            }
            Operator::Call { .. } if !tries.is_empty() => size.edges += 2,
            // Two checks each.
            Operator::CallIndirect { .. }
            | Operator::ReturnCallIndirect { .. }
            | Operator::I32DivS
            | Operator::I64DivS => size.edges += if tries.is_empty() { 4 } else { 6 },
            // Each has a block of its own to trap in.
            Operator::I32DivU
            | Operator::I32RemS
            | Operator::I32RemU
            | Operator::I64DivU
            | Operator::I64RemS
            | Operator::I64RemU
            | Operator::TableGet { .. }
            | Operator::TableSet { .. }
            | Operator::MemoryCopy { .. }
            | Operator::MemoryFill { .. } => size.edges += 2,
            _ => {}
        }
        size.depth = size.depth.max(depth);
        check("nested blocks of a function", depth, limits.block_depth.into())?;
    }
    operators.finish()?;
    check("br_table targets of a function", size.br_targets, limits.function_br_targets)?;
    *allocations = validator.into_allocations();
    Ok(Body { body, size })
}
