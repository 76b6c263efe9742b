//! wasm bytes to what the translator and the artifact need.

use mote_artifact::ContextLayout;
use mote_artifact::info::{FuncType, GlobalType, MemoryType, ModuleInfo, TableType};

/// A validated module, its bodies still to be translated.
pub(crate) struct Parsed {
    /// What the artifact says about the module; code places are filled in after linking.
    pub(crate) info: ModuleInfo,
    /// Where everything lies in the context block.
    pub(crate) layout: ContextLayout,
    /// The module's type indices to numbers of `info.types`.
    pub(crate) type_numbers: Vec<u32>,
    /// Type number of every function, imports first.
    pub(crate) function_types: Vec<u32>,
    /// Type of every table, imports first.
    pub(crate) tables: Vec<TableType>,
    /// Type of every memory, imports first.
    pub(crate) memories: Vec<MemoryType>,
    /// Type of every global, imports first.
    pub(crate) globals: Vec<GlobalType>,
    /// Type number of every tag, imports first.
    pub(crate) tags: Vec<u32>,
    /// The module throws or catches exceptions.
    pub(crate) exceptions: bool,
}

impl Parsed {
    /// Function type number `number`.
    pub(crate) fn ty(&self, number: u32) -> Option<&FuncType> {
        self.info.types.get(number as usize)
    }
}
