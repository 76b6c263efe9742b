//! Vector operators.

use wasmparser::Operator;

use super::FunctionTranslator;
use crate::CompileError;

/// Translates `op` when it is a vector operator; `false` when it is not.
pub(super) fn translate(
    _f: &mut FunctionTranslator<'_, '_>,
    _op: &Operator<'_>,
) -> Result<bool, CompileError> {
    Ok(false)
}
