//! A [`Module`]: an artifact that is ready to be instantiated. Its text is known to the fault handler and its types have their
//! process-wide numbers.

use std::fmt;
use std::fs::File;
use std::sync::Arc;

use mote_artifact::info::{ExportKind, GlobalType, ImportKind, MemoryType, TableType};
use mote_artifact::view::FuncTypeView;
use mote_artifact::{Artifact, ContextLayout, LoadError};

use crate::canonical_types;
use crate::code::Registration;
use crate::func::FuncTypeText;
use crate::trap::Trap;
use crate::value::FuncType;

/// A compiled module. Copies share one.
///
/// ```no_run
/// use mote_runtime::{Linker, Module, Store};
/// let module = Module::from_file(&std::fs::File::open("hello.mote")?)?;
/// let mut store = Store::new(());
/// let instance = Linker::new().instantiate(&mut store, &module)?;
/// let add = instance.typed_func::<(i32, i32), i32>(&mut store, "add")?;
/// assert_eq!(add.call(&mut store, (2, 3))?, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Module(Arc<ModuleData>);

struct ModuleData {
    // Dropped first: the fault handler forgets the text before it is unmapped.
    registration: Registration,
    artifact: Arc<Artifact>,
    layout: ContextLayout,
    /// Process-wide number of each type.
    type_ids: Box<[u32]>,
}

/// The type of an import or export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternType {
    /// A function.
    Func(FuncType),
    /// A table.
    Table(TableType),
    /// A memory.
    Memory(MemoryType),
    /// A global.
    Global(GlobalType),
    /// A tag whose exceptions carry the parameters.
    Tag(FuncType),
}

/// One import of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportType {
    /// Module name.
    pub module: String,
    /// Field name.
    pub name: String,
    /// What it must be.
    pub ty: ExternType,
}

/// One export of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportType {
    /// Name.
    pub name: String,
    /// What it is.
    pub ty: ExternType,
}

impl Module {
    /// Maps an artifact file and makes a module of it.
    ///
    /// The file's code is trusted: load only what a compiler of this project wrote and nobody else could change.
    pub fn from_file(file: &File) -> Result<Self, LoadError> {
        Self::from_artifact(Arc::new(Artifact::open(file)?))
    }

    /// Makes a module of an artifact that is in memory.
    pub fn from_bytes(artifact: &[u8]) -> Result<Self, LoadError> {
        Self::from_artifact(Arc::new(Artifact::from_bytes(artifact)?))
    }

    /// Makes a module of a mapped artifact.
    pub fn from_artifact(artifact: Arc<Artifact>) -> Result<Self, LoadError> {
        let damaged = LoadError::Damaged { what: "table of counts" };
        let layout = ContextLayout::new(artifact.counts()).ok_or(damaged)?;
        let type_ids = artifact.types().map(|ty| canonical_types::intern(&func_type(ty))).collect();
        let registration = Registration::new(&artifact);
        Ok(Self(Arc::new(ModuleData { registration, artifact, layout, type_ids })))
    }

    /// The artifact.
    pub fn artifact(&self) -> &Arc<Artifact> {
        &self.0.artifact
    }

    pub(crate) fn layout(&self) -> &ContextLayout {
        &self.0.layout
    }

    pub(crate) fn type_ids(&self) -> &[u32] {
        &self.0.type_ids
    }

    /// The process-wide number of type `number` of the module.
    pub(crate) fn type_id(&self, number: u32) -> Option<u32> {
        self.0.type_ids.get(number as usize).copied()
    }

    /// The module's number of a type.
    fn type_number(&self, type_id: u32) -> Option<u32> {
        self.0.type_ids.iter().position(|&it| it == type_id).map(|at| at as u32)
    }

    /// The address of code at an offset of the text.
    pub(crate) fn code(&self, offset: u64) -> Option<*const u8> {
        let (text, len) = self.0.artifact.text();
        let offset = usize::try_from(offset).ok().filter(|&offset| offset < len)?;
        // SAFETY: the offset is inside the text.
        Some(unsafe { text.add(offset) })
    }

    /// The thunk through which the host calls functions of this type.
    pub(crate) fn entry_thunk(&self, type_id: u32) -> Result<*const u8, Trap> {
        let offset = self.type_number(type_id).and_then(|number| self.0.artifact.thunks(number));
        let code = offset.and_then(|thunks| self.code(thunks.entry));
        code.ok_or_else(|| Trap::host("the artifact has no entry thunk for the function's type"))
    }

    /// The thunk through which guests call host functions of this type.
    pub(crate) fn host_thunk(&self, type_id: u32) -> Option<*const u8> {
        let thunks = self.0.artifact.thunks(self.type_number(type_id)?)?;
        self.code(thunks.host)
    }

    /// What it imports, in order.
    pub fn imports(&self) -> Vec<ImportType> {
        let imports = self.0.artifact.imports();
        let ty = |kind| self.import_type(kind);
        let import = |it: mote_artifact::view::ImportView<'_>| ImportType {
            module: it.module.to_owned(),
            name: it.name.to_owned(),
            ty: ty(it.kind),
        };
        imports.map(import).collect()
    }

    pub(crate) fn import_type(&self, kind: ImportKind) -> ExternType {
        match kind {
            ImportKind::Function(ty) => ExternType::Func(self.func_type(ty)),
            ImportKind::Table(ty) => ExternType::Table(ty),
            ImportKind::Memory(ty) => ExternType::Memory(ty),
            ImportKind::Global(ty) => ExternType::Global(ty),
            ImportKind::Tag(ty) => ExternType::Tag(self.func_type(ty)),
        }
    }

    /// What it exports, in order.
    pub fn exports(&self) -> Vec<ExportType> {
        let types = self.index_spaces();
        let exports = self.0.artifact.exports();
        let export = |it: mote_artifact::view::ExportView<'_>| {
            let index = it.index as usize;
            let ty = match it.kind {
                ExportKind::Function => {
                    ExternType::Func(self.func_type(self.0.artifact.function_type(it.index)?))
                }
                ExportKind::Table => ExternType::Table(*types.tables.get(index)?),
                ExportKind::Memory => ExternType::Memory(*types.memories.get(index)?),
                ExportKind::Global => ExternType::Global(*types.globals.get(index)?),
                ExportKind::Tag => ExternType::Tag(self.func_type(*types.tags.get(index)?)),
            };
            Some(ExportType { name: it.name.to_owned(), ty })
        };
        exports.filter_map(export).collect()
    }

    fn func_type(&self, number: u32) -> FuncType {
        self.0.artifact.func_type(number).map(func_type).unwrap_or_default()
    }

    /// Types by index, imports first.
    fn index_spaces(&self) -> IndexSpaces {
        let artifact = &self.0.artifact;
        let mut spaces = IndexSpaces::default();
        for import in artifact.imports() {
            match import.kind {
                ImportKind::Function(_) => {}
                ImportKind::Table(ty) => spaces.tables.push(ty),
                ImportKind::Memory(ty) => spaces.memories.push(ty),
                ImportKind::Global(ty) => spaces.globals.push(ty),
                ImportKind::Tag(ty) => spaces.tags.push(ty),
            }
        }
        spaces.tables.extend(artifact.tables().map(|table| table.ty));
        spaces.memories.extend(artifact.memories());
        spaces.globals.extend(artifact.globals().map(|global| global.ty));
        spaces.tags.extend(artifact.tags());
        spaces
    }
}

#[derive(Default)]
struct IndexSpaces {
    tables: Vec<TableType>,
    memories: Vec<MemoryType>,
    globals: Vec<GlobalType>,
    tags: Vec<u32>,
}

fn func_type(view: FuncTypeView<'_>) -> FuncType {
    FuncType { params: view.params.iter().collect(), results: view.results.iter().collect() }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({:?}, text {:?})", self.0.artifact.name(), self.0.registration)
    }
}

impl fmt::Display for ExternType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = |it: &mote_artifact::info::Limits| match it.max {
            Some(max) => format!("{}..={max}", it.min),
            None => format!("{}..", it.min),
        };
        let lower = |ty: &crate::ValueType| format!("{ty:?}").to_lowercase();
        match self {
            Self::Func(ty) => write!(f, "function {}", FuncTypeText(ty)),
            Self::Table(ty) => {
                let wide = if ty.table64 { " with 64-bit indices" } else { "" };
                write!(f, "table of {} {}{wide}", limits(&ty.limits), lower(&ty.element))
            }
            Self::Memory(ty) => {
                let shared = if ty.shared { "shared " } else { "" };
                let wide = if ty.memory64 { " with 64-bit addresses" } else { "" };
                write!(f, "{shared}memory of {} pages{wide}", limits(&ty.limits))
            }
            Self::Global(ty) => {
                let mutable = if ty.mutable { "mutable" } else { "immutable" };
                write!(f, "{mutable} global {}", lower(&ty.value))
            }
            Self::Tag(ty) => write!(f, "tag {}", FuncTypeText(ty)),
        }
    }
}
