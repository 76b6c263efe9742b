//! Line tables: a machine address's "line" is the offset of its operator in the wasm file.

use inkwell::context::Context;
use inkwell::debug_info::{
    AsDIScope, DICompileUnit, DIFlags, DIFlagsConstants, DILocation, DISubprogram, DWARFEmissionKind,
    DWARFSourceLanguage, DebugInfoBuilder,
};
use inkwell::module::{FlagBehavior, Module};

/// Debug information of one LLVM module.
pub(crate) struct LineTable<'ctx> {
    context: &'ctx Context,
    builder: DebugInfoBuilder<'ctx>,
    unit: DICompileUnit<'ctx>,
}

impl<'ctx> LineTable<'ctx> {
    /// For code of the wasm module called `name`.
    pub(crate) fn new(context: &'ctx Context, module: &Module<'ctx>, name: &str) -> Self {
        let i32_type = context.i32_type();
        module.add_basic_value_flag(
            "Debug Info Version",
            FlagBehavior::Warning,
            i32_type.const_int(3, false),
        );
        module.add_basic_value_flag("Dwarf Version", FlagBehavior::Warning, i32_type.const_int(4, false));
        let name = if name.is_empty() { "module" } else { name };
        let (builder, unit) = module.create_debug_info_builder(
            true,
            DWARFSourceLanguage::C99,
            &format!("{name}.wasm"),
            ".",
            "mote",
            true,
            "",
            0,
            "",
            DWARFEmissionKind::LineTablesOnly,
            0,
            false,
            false,
            "",
            "",
        );
        Self { context, builder, unit }
    }

    /// The subprogram of a function whose body begins at `offset`.
    pub(crate) fn function(&self, name: &str, symbol: &str, offset: u64) -> DISubprogram<'ctx> {
        let file = self.unit.get_file();
        let ty = self.builder.create_subroutine_type(file, None, &[], DIFlags::ZERO);
        let line = line(offset);
        self.builder.create_function(
            self.unit.as_debug_info_scope(),
            name,
            Some(symbol),
            file,
            line,
            ty,
            false,
            true,
            line,
            DIFlags::ZERO,
            true,
        )
    }

    /// The place of the operator at `offset`.
    pub(crate) fn location(&self, function: DISubprogram<'ctx>, offset: u64) -> DILocation<'ctx> {
        self.builder.create_debug_location(
            self.context,
            line(offset),
            0,
            function.as_debug_info_scope(),
            None,
        )
    }

    /// Call when the module is complete.
    pub(crate) fn finish(&self) {
        self.builder.finalize();
    }
}

/// Line 0 means "no line": offset 0 is the file's magic number and never an operator's.
fn line(offset: u64) -> u32 {
    u32::try_from(offset).unwrap_or(0)
}
