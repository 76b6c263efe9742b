//! WebAssembly to native code.
//!
//! ```text
//! wasm ──parse──▶ ModuleInfo, bodies ──partition──▶ lists of functions ──translate──▶ LLVM modules
//!      ──optimize──▶ object files ──link──▶ machine code at final places ──mote_artifact::write──▶ the artifact
//! ```
//!
//! Partitions are translated, optimised and turned into objects on as many threads as asked for; what a partition holds
//! depends on function sizes only, so that the artifact is the same whatever the number of threads. This crate is the
//! only one that links LLVM; programs that stay resident start `mote-compile` instead of calling [`compile`].

mod debug;
mod driver;
mod limits;
pub mod link;
mod optimize;
mod parse;
mod partition;
mod translate;

use mote_artifact::info::ValueType;

pub use driver::THREAD_STACK;
pub use limits::{Budget, FULL_TIER, LIGHT_TIER, Limits};

/// How much LLVM does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum OptLevel {
    /// No optimisation.
    O0,
    /// A light pipeline, for quick starts.
    O1,
    /// Everything.
    #[default]
    O3,
}

/// How a module is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How much LLVM does.
    pub opt_level: OptLevel,
    /// LLVM's name of the CPU to make code for; the host's when absent.
    pub cpu: Option<String>,
    /// Every load and store of a guest happens, and in order: what a trap leaves in memory is exact.
    pub strict_traps: bool,
    /// An out-of-bounds load traps even when its result is not used.
    pub keep_traps: bool,
    /// Every NaN that arithmetic makes is the canonical one, for comparison with other engines.
    pub canonical_nans: bool,
    /// Threads to compile on; does not change the result.
    pub jobs: usize,
    /// Limits on the module.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            opt_level: OptLevel::O3,
            cpu: None,
            strict_traps: false,
            keep_traps: true,
            canonical_nans: false,
            jobs: 1,
            limits: Limits::default(),
        }
    }
}

impl Options {
    /// One line that says what shapes the code; options that give the same line give the same artifact.
    fn canonical(&self, cpu: &str) -> String {
        let level = match self.opt_level {
            OptLevel::O0 => 0,
            OptLevel::O1 => 1,
            OptLevel::O3 => 3,
        };
        let flag = |name: &str, on: bool| if on { format!(" {name}") } else { String::new() };
        format!(
            "O{level} cpu={cpu}{}{}{}",
            flag("strict-traps", self.strict_traps),
            flag("loose-loads", !self.keep_traps),
            flag("canonical-nans", self.canonical_nans)
        )
    }
}

/// Receives how much is done of how much, from any thread.
pub type Progress<'a> = dyn Fn(u64, u64) + Sync + 'a;

/// Compiles a module: the bytes of its artifact.
pub fn compile(wasm: &[u8], options: &Options) -> Result<Vec<u8>, CompileError> {
    driver::compile(wasm, options, &|_, _| {})
}

/// As [`compile`], telling `progress` how far it is.
pub fn compile_with_progress(
    wasm: &[u8],
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Vec<u8>, CompileError> {
    driver::compile(wasm, options, progress)
}

/// Decodes and validates a module without compiling it.
pub fn validate(wasm: &[u8], options: &Options) -> Result<(), CompileError> {
    parse::parse(wasm, options).map(|_| ())
}

/// This compiler and its LLVM, as `mote-compile --version` prints it.
pub fn version() -> String {
    let (major, minor, patch) = inkwell::support::get_llvm_version();
    format!("mote-compile {} (LLVM {major}.{minor}.{patch})", env!("CARGO_PKG_VERSION"))
}

/// Why a module was not compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The module is malformed or does not validate.
    #[error("invalid module: {message} (at offset {offset:#x})")]
    Invalid {
        /// What is wrong.
        message: String,
        /// Offset in the wasm file.
        offset: u64,
    },
    /// The module uses something this compiler refuses.
    #[error("{what} is not supported (at offset {offset:#x})")]
    Unsupported {
        /// What it uses.
        what: String,
        /// Offset in the wasm file.
        offset: u64,
    },
    /// The module is larger than a limit.
    #[error("{what}: {found} is over the limit of {limit}{}", at_function(.function))]
    Limit {
        /// What is limited.
        what: &'static str,
        /// The module's number.
        found: u64,
        /// The limit.
        limit: u64,
        /// Function index, where a function is what is too large.
        function: Option<u32>,
    },
    /// No code can be made for the CPU asked for.
    #[error("target: {0}")]
    Target(String),
    /// LLVM reported an error.
    #[error("LLVM: {0}")]
    Llvm(String),
    /// The objects could not be linked.
    #[error("link: {0}")]
    Link(#[from] link::LinkError),
    /// The objects lack a function.
    #[error("link: {0}")]
    Missing(#[from] mote_artifact::code::MissingCode),
    /// The artifact could not be laid out.
    #[error("artifact: {0}")]
    Write(#[from] mote_artifact::WriteError),
    /// The compiler itself is wrong: a bug to report.
    #[error("internal error{}: {message}", at_function(.function))]
    Internal {
        /// What was found.
        message: String,
        /// Function index.
        function: Option<u32>,
    },
}

fn at_function(function: &Option<u32>) -> String {
    function.map_or_else(String::new, |index| format!(" (function {index})"))
}

impl CompileError {
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::Internal { message: message.into(), function: None }
    }

    /// The same error, saying in which function it was found.
    pub(crate) fn in_function(self, index: u32) -> Self {
        match self {
            Self::Limit { what, found, limit, function: None } => {
                Self::Limit { what, found, limit, function: Some(index) }
            }
            Self::Internal { message, function: None } => Self::Internal { message, function: Some(index) },
            other => other,
        }
    }
}

impl From<wasmparser::BinaryReaderError> for CompileError {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Invalid { message: error.message().to_owned(), offset: error.offset() }
    }
}

impl From<inkwell::builder::BuilderError> for CompileError {
    fn from(error: inkwell::builder::BuilderError) -> Self {
        Self::internal(error.to_string())
    }
}

/// The value type that `ty` is.
fn value_type(ty: wasmparser::ValType, offset: u64) -> Result<ValueType, CompileError> {
    use wasmparser::{RefType, ValType};
    Ok(match ty {
        ValType::I32 => ValueType::I32,
        ValType::I64 => ValueType::I64,
        ValType::F32 => ValueType::F32,
        ValType::F64 => ValueType::F64,
        ValType::V128 => ValueType::V128,
        ValType::Ref(RefType::FUNCREF) => ValueType::FuncRef,
        ValType::Ref(RefType::EXTERNREF) => ValueType::ExternRef,
        ValType::Ref(RefType::EXNREF) => ValueType::ExnRef,
        other => return Err(CompileError::Unsupported { what: format!("the type {other}"), offset }),
    })
}
