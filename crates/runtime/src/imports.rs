//! Matches what a module imports with what it is given: the specification's "external subtyping".

use std::sync::Arc;

use mote_artifact::info::{ImportKind, Limits};

use crate::func::{Func, HostFunc};
use crate::global::Global;
use crate::instance::{Extern, Find, InstantiateError};
use crate::linker::Item;
use crate::memory::Memory;
use crate::module::{ExternType, Module};
use crate::store::StoreOpaque;
use crate::table::Table;
use crate::tag::Tag;
use crate::{MemoryType, TableType, canonical_types};

/// Imports of a module, by index of their kind.
#[derive(Default)]
pub(crate) struct Imports {
    pub(crate) funcs: Vec<ImportedFunc>,
    pub(crate) tables: Vec<Table>,
    pub(crate) memories: Vec<Memory>,
    pub(crate) globals: Vec<Global>,
    pub(crate) tags: Vec<Tag>,
}

/// A function to import.
pub(crate) enum ImportedFunc {
    /// Another instance's.
    Guest(Func),
    /// The host's: the instance gets a record of its own.
    Host(Arc<HostFunc>),
}

/// Finds and checks every import.
pub(crate) fn match_imports(
    store: &StoreOpaque,
    module: &Module,
    find: Find<'_>,
) -> Result<Imports, InstantiateError> {
    let mut imports = Imports::default();
    for import in module.artifact().imports() {
        let names = || (import.module.to_owned(), import.name.to_owned());
        let Some(item) = find(import.module, import.name) else {
            let ((module_name, name), expected) = (names(), Box::new(module.import_type(import.kind)));
            return Err(InstantiateError::MissingImport { module: module_name, name, expected });
        };
        if let Item::Extern(_, owner) = &item
            && *owner != store.id
        {
            let (module, name) = names();
            return Err(InstantiateError::OtherStore { module, name });
        }
        let wrong = |given| {
            let ((module_name, name), expected) = (names(), Box::new(module.import_type(import.kind)));
            InstantiateError::WrongImport { module: module_name, name, expected, given: Box::new(given) }
        };
        let given = match item {
            Item::Host(func) => match import.kind {
                ImportKind::Function(ty)
                    if module.type_id(ty).is_some_and(|id| canonical_types::find(&func.ty()) == Some(id)) =>
                {
                    imports.funcs.push(ImportedFunc::Host(func));
                    continue;
                }
                _ => return Err(wrong(ExternType::Func(func.ty()))),
            },
            Item::Extern(given, _) => given,
        };
        match (import.kind, given) {
            (ImportKind::Function(ty), Extern::Func(func))
                if module.type_id(ty) == Some(func.type_id(store)) =>
            {
                imports.funcs.push(match func.host(store) {
                    // SAFETY: host records live as long as the store.
                    Some(record) => ImportedFunc::Host(unsafe { record.as_ref() }.func.clone()),
                    None => ImportedFunc::Guest(func),
                });
            }
            (ImportKind::Table(ty), Extern::Table(table))
                if table_fits(&ty, &current_table(&table, store)) =>
            {
                imports.tables.push(table);
            }
            (ImportKind::Memory(ty), Extern::Memory(memory))
                if memory_fits(&ty, &current_memory(&memory, store)) =>
            {
                imports.memories.push(memory);
            }
            (ImportKind::Global(ty), Extern::Global(global)) if global.ty == ty => {
                imports.globals.push(global)
            }
            (ImportKind::Tag(ty), Extern::Tag(tag)) if module.type_id(ty) == Some(tag.type_id(store)) => {
                imports.tags.push(tag);
            }
            (_, given) => return Err(wrong(extern_type(&given, store))),
        }
    }
    Ok(imports)
}

fn current_table(table: &Table, store: &StoreOpaque) -> TableType {
    let entity = table.entity(store);
    TableType { limits: Limits { min: entity.len(), ..entity.ty.limits }, ..entity.ty }
}

fn current_memory(memory: &Memory, store: &StoreOpaque) -> MemoryType {
    let entity = memory.entity(store);
    let min = entity.byte_len() / mote_artifact::abi::WASM_PAGE;
    MemoryType { limits: Limits { min, ..entity.ty.limits }, ..entity.ty }
}

fn extern_type(item: &Extern, store: &StoreOpaque) -> ExternType {
    match item {
        Extern::Func(it) => ExternType::Func(canonical_types::get(it.type_id(store))),
        Extern::Table(it) => ExternType::Table(current_table(it, store)),
        Extern::Memory(it) => ExternType::Memory(current_memory(it, store)),
        Extern::Global(it) => ExternType::Global(it.ty),
        Extern::Tag(it) => ExternType::Tag(canonical_types::get(it.type_id(store))),
    }
}

fn limits_fit(wanted: &Limits, given: &Limits) -> bool {
    given.min >= wanted.min
        && match (wanted.max, given.max) {
            (None, _) => true,
            (Some(wanted), Some(given)) => given <= wanted,
            (Some(_), None) => false,
        }
}

fn table_fits(wanted: &TableType, given: &TableType) -> bool {
    wanted.element == given.element
        && wanted.table64 == given.table64
        && limits_fit(&wanted.limits, &given.limits)
}

fn memory_fits(wanted: &MemoryType, given: &MemoryType) -> bool {
    wanted.shared == given.shared
        && wanted.memory64 == given.memory64
        && limits_fit(&wanted.limits, &given.limits)
}
