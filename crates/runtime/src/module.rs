//! A [`Module`]: an artifact that is ready to be instantiated. Its text is known to the fault handler and its types have their
//! process-wide numbers.

use std::fmt;
use std::fs::File;
use std::sync::Arc;

use mote_artifact::info::{ExportKind, GlobalType, ImportKind, MemoryType, TableType};
use mote_artifact::view::FuncTypeView;
use mote_artifact::{Artifact, ContextLayout, LoadError};

use crate::canonical_types::TypeId;
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
    type_ids: Box<[TypeId]>,
    /// Thunks by process-wide number of their type, in order.
    thunks: Box<[Thunks]>,
}

/// Code addresses of the thunks of a type.
#[derive(Clone, Copy)]
struct Thunks {
    type_id: u32,
    entry: *const u8,
    host: *const u8,
}

// SAFETY: code addresses of a text that the module keeps mapped; it is only executed.
unsafe impl Send for ModuleData {}
// SAFETY: as above.
unsafe impl Sync for ModuleData {}

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

    /// The same with a file that the module may keep.
    pub fn from_owned_file(file: File) -> Result<Self, LoadError> {
        Self::from_artifact(Arc::new(Artifact::open_owned(file)?))
    }

    /// Makes a module of an artifact that is in memory.
    pub fn from_bytes(artifact: &[u8]) -> Result<Self, LoadError> {
        Self::from_artifact(Arc::new(Artifact::from_bytes(artifact)?))
    }

    /// Makes a module of a mapped artifact.
    pub fn from_artifact(artifact: Arc<Artifact>) -> Result<Self, LoadError> {
        let damaged = LoadError::Damaged { what: "table of counts" };
        let layout = ContextLayout::new(artifact.counts()).ok_or(damaged)?;
        let type_ids: Box<[TypeId]> = artifact.types().map(|ty| TypeId::new(&func_type(ty))).collect();
        let code = |offset| code_at(&artifact, offset).ok_or(LoadError::Damaged { what: "table of thunks" });
        let thunks = type_ids.iter().zip(0..).map(|(type_id, number)| {
            let thunks = artifact.thunks(number).ok_or(LoadError::Damaged { what: "table of thunks" })?;
            Ok(Thunks { type_id: type_id.number(), entry: code(thunks.entry)?, host: code(thunks.host)? })
        });
        let mut thunks = thunks.collect::<Result<Box<[Thunks]>, LoadError>>()?;
        thunks.sort_unstable_by_key(|thunks| thunks.type_id);
        let registration = Registration::new(&artifact);
        Ok(Self(Arc::new(ModuleData { registration, artifact, layout, type_ids, thunks })))
    }

    /// The artifact.
    pub fn artifact(&self) -> &Arc<Artifact> {
        &self.0.artifact
    }

    pub(crate) fn layout(&self) -> &ContextLayout {
        &self.0.layout
    }

    pub(crate) fn type_ids(&self) -> impl Iterator<Item = u32> {
        self.0.type_ids.iter().map(TypeId::number)
    }

    /// The process-wide number of type `number` of the module.
    pub(crate) fn type_id(&self, number: u32) -> Option<u32> {
        self.0.type_ids.get(number as usize).map(TypeId::number)
    }

    /// The address of code at an offset of the text.
    pub(crate) fn code(&self, offset: u64) -> Option<*const u8> {
        code_at(&self.0.artifact, offset)
    }

    fn thunks(&self, type_id: u32) -> Option<&Thunks> {
        let at = self.0.thunks.binary_search_by_key(&type_id, |thunks| thunks.type_id).ok()?;
        self.0.thunks.get(at)
    }

    /// The thunk through which the host calls functions of this type.
    pub(crate) fn entry_thunk(&self, type_id: u32) -> Result<*const u8, Trap> {
        let thunks = self.thunks(type_id);
        thunks
            .map(|thunks| thunks.entry)
            .ok_or_else(|| Trap::host("the artifact has no entry thunk for the function's type"))
    }

    /// The thunk through which guests call host functions of this type.
    pub(crate) fn host_thunk(&self, type_id: u32) -> Option<*const u8> {
        self.thunks(type_id).map(|thunks| thunks.host)
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

fn code_at(artifact: &Artifact, offset: u64) -> Option<*const u8> {
    let (text, len) = artifact.text();
    let offset = usize::try_from(offset).ok().filter(|&offset| offset < len)?;
    // SAFETY: the offset is inside the text.
    Some(unsafe { text.add(offset) })
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
