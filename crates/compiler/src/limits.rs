//! Every limit of the compiler, with its default.
//!
//! Two kinds: a module beyond a [`Limits`] value is refused with [`crate::CompileError::Limit`]; a function beyond a
//! [`Budget`] is compiled by a cheaper tier. Both look at sizes and counts only, never at time, so that the
//! same module gives the same artifact on every machine.

/// What a module may have at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the wasm file.
    pub module_bytes: u64,
    /// Functions, imported and defined.
    pub functions: u32,
    /// Distinct function types.
    pub types: u32,
    /// Imports.
    pub imports: u32,
    /// Exports.
    pub exports: u32,
    /// Globals, imported and defined.
    pub globals: u32,
    /// Tables, imported and defined.
    pub tables: u32,
    /// Memories, imported and defined.
    pub memories: u32,
    /// Tags, imported and defined.
    pub tags: u32,
    /// Elements over all element segments.
    pub elements: u32,
    /// Data segments.
    pub data_segments: u32,
    /// Bytes of one function's body.
    pub function_bytes: u64,
    /// Operators of one function: LLVM takes most of a kilobyte for each, whatever the tier.
    pub function_operators: u64,
    /// Over all functions and calls: the square of the number of parameters and results. What a call passes is stored and loaded again,
    /// and each of these is compared with each: a function with 1000 parameters and results that calls another such takes 0.2 s
    /// without optimisation (8 million here). A Rust program of ten megabytes is at 1.6 million.
    pub passed_values_squared: u64,
    /// Locals of one function, parameters included.
    pub function_locals: u32,
    /// Targets over all `br_table`s of one function.
    pub function_br_targets: u64,
    /// Depth of nested blocks in one function.
    pub block_depth: u32,
    /// Parameters of a function type.
    pub params: u32,
    /// Results of a function type.
    pub results: u32,
    /// Bytes of initial memory contents that the artifact carries as pages.
    pub image_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            module_bytes: 1 << 30,
            functions: 400_000,
            types: 100_000,
            imports: 100_000,
            exports: 1_000_000,
            globals: 1_000_000,
            tables: 1000,
            memories: 100,
            tags: 100_000,
            elements: 10_000_000,
            data_segments: 100_000,
            function_bytes: 16 << 20,
            function_operators: 600_000,
            passed_values_squared: 400_000_000,
            function_locals: 50_000,
            function_br_targets: 4_000_000,
            block_depth: 100_000,
            params: 1000,
            results: 1000,
            image_bytes: 1 << 30,
        }
    }
}

/// What a function may have at most to be compiled by a tier; beyond the last it is compiled without optimisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Operators.
    pub operators: u64,
    /// Control-flow edges.
    pub edges: u64,
    /// Control-flow edges that join, times locals: what building SSA form may create phi entries for.
    pub phi_entries: u64,
    /// Control-flow edges times the depth of nesting: long chains of dominating blocks make LLVM's questions about
    /// conditions quadratic (3000 edges in 1000 nested blocks took 22 s at O3; SQLite's interpreter loop is at 0.7 million).
    pub nested_edges: u64,
    /// Loops: 500 that each fill a few bytes took 10 s at O3.
    pub loops: u64,
    /// As [`Limits::passed_values_squared`], for the function and its calls.
    pub passed_values_squared: u64,
}

/// Beyond this a function is compiled at the light tier instead of the full one.
pub const FULL_TIER: Budget = Budget {
    operators: 80_000,
    edges: 30_000,
    phi_entries: 4_000_000,
    nested_edges: 1_500_000,
    loops: 300,
    passed_values_squared: 1_000_000,
};

/// Beyond this a function is compiled without optimisation.
pub const LIGHT_TIER: Budget = Budget {
    operators: 200_000,
    edges: 100_000,
    phi_entries: 10_000_000,
    nested_edges: 15_000_000,
    loops: 600,
    passed_values_squared: 2_000_000,
};

/// A module with more functions than this is compiled without optimisation: an empty function takes 0.3 ms at O3 and a sixth of it
/// at O0.
pub const OPTIMIZED_FUNCTIONS: usize = 80_000;

/// In a module with more bytes of function bodies than this nothing is compiled at the full tier.
pub const LIGHT_MODULE_BYTES: u64 = 32 << 20;

/// In a module with more bytes of function bodies than this nothing is optimised.
pub const OPTIMIZED_MODULE_BYTES: u64 = 64 << 20;

/// Beyond this a function that is compiled without optimisation keeps its locals in stack slots: with thousands of locals alive
/// through thousands of branches there are more phis than memory.
pub const PROMOTED: Budget = Budget {
    operators: 500_000,
    edges: 20_000,
    phi_entries: 4_000_000,
    nested_edges: 1_500_000,
    loops: 3000,
    passed_values_squared: u64::MAX,
};
