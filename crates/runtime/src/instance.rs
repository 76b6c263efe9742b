//! Instances: what a module becomes in a store.
//!
//! ```text
//!   reservation when the context pointer is memory 0's base                        otherwise
//!   [guard, stack | context block | gap, never mapped | memory 0 … | guard]        [context block]   memories elsewhere
//!                 ^ block                             ^ ctx = block + CONTEXT_BELOW
//! ```
//!
//! The stack is there for the first instance of a store and for its plain calls: one reservation, and of a guest that needs little, its frames
//! and its context are in one page.
//!
//! Pages of the artifact's image are mapped copy-on-write, everything else begins as zero pages: making an instance copies nothing.

use std::io;
use std::ptr::NonNull;

use mote_artifact::abi::{CONTEXT_BELOW, CONTEXT_IN_PAGE, CONTEXT_MAGIC, MEMORY_RESERVE, header};
use mote_artifact::context::GlobalPlace;
use mote_artifact::info::{ExportKind, GlobalType, MemoryType};
use mote_artifact::view::{SegmentModeView, TableView};

use crate::canonical_types::TypeId;
use crate::fiber::Fiber;
use crate::func::{Func, FuncRef, FuncTypeError, TypedFunc};
use crate::global::Global;
use crate::imports::{ImportedFunc, match_imports};
use crate::linker::Item;
use crate::mapping::{self, Mapping};
use crate::memory::{self, Memory, MemoryDef, MemoryEntity, MemoryError, Place, Shared, Space};
use crate::module::{ExternType, Module};
use crate::reset::Checkpoint;
use crate::store::{AsStore, StoreId, StoreOpaque};
use crate::table::{self, Elements, Table, TableDef, TableEntity, TableError};
use crate::tag::Tag;
use crate::trap::Trap;
use crate::value::{Slot, WasmValues};
use crate::{arch, const_expr, fiber, segments};

/// Something that an instance exports or imports.
#[derive(Clone, Copy, Debug)]
pub enum Extern {
    /// A function.
    Func(Func),
    /// A table.
    Table(Table),
    /// A memory.
    Memory(Memory),
    /// A global.
    Global(Global),
    /// An exception tag.
    Tag(Tag),
}

impl Extern {
    pub(crate) fn store(&self) -> StoreId {
        match self {
            Self::Func(it) => it.store,
            Self::Table(it) => it.store,
            Self::Memory(it) => it.store,
            Self::Global(it) => it.store,
            Self::Tag(it) => it.store,
        }
    }

    /// The function, when it is one.
    pub fn func(self) -> Option<Func> {
        if let Self::Func(it) = self { Some(it) } else { None }
    }

    /// The table, when it is one.
    pub fn table(self) -> Option<Table> {
        if let Self::Table(it) = self { Some(it) } else { None }
    }

    /// The memory, when it is one.
    pub fn memory(self) -> Option<Memory> {
        if let Self::Memory(it) = self { Some(it) } else { None }
    }

    /// The global, when it is one.
    pub fn global(self) -> Option<Global> {
        if let Self::Global(it) = self { Some(it) } else { None }
    }

    /// The tag, when it is one.
    pub fn tag(self) -> Option<Tag> {
        if let Self::Tag(it) = self { Some(it) } else { None }
    }
}

macro_rules! from {
    ($($name:ident)*) => {
        $(impl From<$name> for Extern {
            fn from(it: $name) -> Self {
                Self::$name(it)
            }
        })*
    };
}
from!(Func Table Memory Global Tag);

/// An instance could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstantiateError {
    /// Nothing is known under an import's name.
    #[error("unknown import: {module:?} {name:?} is not defined, expected a {expected}")]
    MissingImport {
        /// Module name.
        module: String,
        /// Field name.
        name: String,
        /// What the module expects.
        expected: Box<ExternType>,
    },
    /// What is known under an import's name does not fit.
    #[error("incompatible import type: {module:?} {name:?} is a {given}, expected a {expected}")]
    WrongImport {
        /// Module name.
        module: String,
        /// Field name.
        name: String,
        /// What the module expects.
        expected: Box<ExternType>,
        /// What it would get.
        given: Box<ExternType>,
    },
    /// What is known under an import's name lives in another store.
    #[error("import {module:?} {name:?} belongs to another store")]
    OtherStore {
        /// Module name.
        module: String,
        /// Field name.
        name: String,
    },
    /// The store has as many instances as it may.
    #[error("the store already has {limit} instances")]
    InstanceLimit {
        /// Allowed.
        limit: usize,
    },
    /// A memory of the module cannot be made.
    #[error("memory {index}: {error}")]
    Memory {
        /// Memory index.
        index: u32,
        /// Why.
        #[source]
        error: MemoryError,
    },
    /// A table of the module cannot be made.
    #[error("table {index}: {error}")]
    Table {
        /// Table index.
        index: u32,
        /// Why.
        #[source]
        error: TableError,
    },
    /// The system refused memory for the instance.
    #[error("cannot map memory for an instance: {0}")]
    Map(#[from] io::Error),
    /// The artifact contradicts itself.
    #[error("the artifact is damaged: its {what} is not valid; compile the module again")]
    Damaged {
        /// Where.
        what: &'static str,
    },
    /// A segment or the start function trapped.
    #[error("{0}")]
    Trap(#[from] Trap),
}

impl InstantiateError {
    /// The trap, when that is the cause.
    pub fn trap(&self) -> Option<&Trap> {
        if let Self::Trap(trap) = self { Some(trap) } else { None }
    }
}

const fn damaged(what: &'static str) -> InstantiateError {
    InstantiateError::Damaged { what }
}

/// What the store knows of an instance. Its address is in the context block and in funcrefs; it never changes.
pub(crate) struct InstanceData {
    pub(crate) module: Module,
    store: NonNull<StoreOpaque>,
    index: u32,
    /// The context pointer.
    ctx: *mut u8,
    /// A stack for guests (not always), the context block, and memory 0 when the context pointer is its base.
    reservation: Mapping,
    /// Where the context block is in it.
    block_at: usize,
    /// Imports first, here and below.
    pub(crate) memories: Vec<Memory>,
    pub(crate) tables: Vec<Table>,
    pub(crate) imported_globals: Vec<Global>,
    /// Types of defined globals follow those of imported ones.
    pub(crate) global_types: Vec<GlobalType>,
    /// Imported functions.
    pub(crate) imported_funcs: Vec<Func>,
    pub(crate) tags: Vec<Tag>,
    /// Data segments that `memory.init` sees as empty.
    pub(crate) dropped_data: Vec<bool>,
    /// Element segments that `table.init` sees as empty.
    pub(crate) dropped_elements: Vec<bool>,
    exported_memory: Option<Memory>,
    pub(crate) checkpoint: Option<Checkpoint>,
}

/// An instance of a module in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    store: StoreId,
    index: u32,
}

/// An export is missing or has another type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Nothing, or something else, is exported under this name.
    #[error("the instance exports no function {name:?}")]
    NoFunction {
        /// The name.
        name: String,
    },
    /// The function has another type.
    #[error("export {name:?}: {error}")]
    Type {
        /// The name.
        name: String,
        /// How they differ.
        #[source]
        error: FuncTypeError,
    },
}

/// Finds imports by module and field name.
pub(crate) type Find<'a> = &'a dyn Fn(&str, &str) -> Option<Item>;

impl Instance {
    /// Makes an instance; see [`crate::Linker::instantiate`].
    ///
    /// The steps and their order are those of the specification's `module_instantiate`: match imports, allocate, evaluate globals
    /// and tables, then element segments, data segments, and the start function; what a failing step leaves written stays.
    pub(crate) fn instantiate(
        store: NonNull<StoreOpaque>,
        module: &Module,
        find: Find<'_>,
    ) -> Result<Self, InstantiateError> {
        let instance = {
            // SAFETY: the caller has exclusive access, and no guest runs in this block.
            let store = unsafe { &mut *store.as_ptr() };
            allocate(store, module, find)?
        };
        // SAFETY: instances live as long as the store, and nobody else refers to this one.
        let data = unsafe { &mut *instance.as_ptr() };
        {
            // SAFETY: as above.
            let store = unsafe { &mut *store.as_ptr() };
            data.apply_elements(store)?;
            data.apply_data(store)?;
        }
        let handle = Self { store: data.store_id(), index: data.index };
        if let Some(start) = module.artifact().start() {
            let (code, ctx, type_id) = data.callable(start).ok_or(damaged("start function"))?;
            let entry = module.entry_thunk(type_id)?;
            let mut slot = Slot::ZERO;
            // SAFETY: a start function has no parameters and no results, the compiler has validated that.
            unsafe { fiber::call(store, entry, ctx, code, &raw mut slot) }?;
        }
        Ok(handle)
    }

    /// # Panics
    /// When the instance belongs to another store.
    pub(crate) fn pointer(&self, store: &StoreOpaque) -> NonNull<InstanceData> {
        assert!(self.store == store.id, "instance of another store");
        match store.instances.get(self.index as usize) {
            Some(instance) => *instance,
            None => unreachable!("an instance handle names an instance of its store"),
        }
    }

    pub(crate) fn get<'a>(&self, store: &'a StoreOpaque) -> &'a InstanceData {
        // SAFETY: instances live as long as their store.
        unsafe { self.pointer(store).as_ref() }
    }

    /// Its module.
    pub fn module(&self, store: impl AsStore) -> Module {
        self.get(store.opaque()).module.clone()
    }

    /// An export.
    pub fn get_export(&self, store: impl AsStore, name: &str) -> Option<Extern> {
        let data = self.get(store.opaque());
        let export = data.module.artifact().export(name)?;
        data.export(export.kind, export.index)
    }

    /// An exported function.
    pub fn get_func(&self, store: impl AsStore, name: &str) -> Option<Func> {
        self.get_export(store, name)?.func()
    }

    /// The function that a guest's function pointer means: what stands at this index of the instance's first table, exported or not.
    pub fn indirect_func(&self, store: impl AsStore, index: u32) -> Option<Func> {
        let table = *self.get(store.opaque()).tables.first()?;
        match table.get(store, index.into())? {
            crate::Val::FuncRef(func) => func,
            _ => None,
        }
    }

    /// An exported memory.
    pub fn get_memory(&self, store: impl AsStore, name: &str) -> Option<Memory> {
        self.get_export(store, name)?.memory()
    }

    /// An exported function of a type that Rust knows.
    pub fn typed_func<P: WasmValues, R: WasmValues>(
        &self,
        store: impl AsStore,
        name: &str,
    ) -> Result<TypedFunc<P, R>, ExportError> {
        let func =
            self.get_func(&store, name).ok_or_else(|| ExportError::NoFunction { name: name.to_owned() })?;
        func.typed(&store).map_err(|error| ExportError::Type { name: name.to_owned(), error })
    }

    /// All exports, in the module's order.
    pub fn exports(&self, store: impl AsStore) -> Vec<(String, Extern)> {
        let data = self.get(store.opaque());
        let exports = data.module.artifact().exports();
        exports.filter_map(|it| Some((it.name.to_owned(), data.export(it.kind, it.index)?))).collect()
    }
}

/// Matches imports and makes everything that an instance is; nothing outside of it is written.
fn allocate(
    store: &mut StoreOpaque,
    module: &Module,
    find: Find<'_>,
) -> Result<NonNull<InstanceData>, InstantiateError> {
    let artifact = module.artifact();
    let (layout, counts) = (module.layout(), artifact.counts());
    let limit = store.limits.instances;
    if store.instances.len() >= limit {
        return Err(InstantiateError::InstanceLimit { limit });
    }
    let imports = match_imports(store, module, find)?;
    let defined = |all: u32, imported: u32| all.saturating_sub(imported) as usize;
    let in_memory = |index, error| InstantiateError::Memory { index, error };
    let in_table = |index, error| InstantiateError::Table { index, error };
    store
        .check_memory_count(defined(counts.memories, counts.imported_memories))
        .map_err(|error| in_memory(counts.imported_memories, error))?;
    store
        .check_table_count(defined(counts.tables, counts.imported_tables))
        .map_err(|error| in_table(counts.imported_tables, error))?;

    // The context block, with memory 0 above it when the context pointer is its base.
    let first = if artifact.context_is_memory() { artifact.memories().next() } else { None };
    const IN_PAGE: usize = CONTEXT_IN_PAGE as usize;
    let block_bytes =
        mapping::round_to_pages(IN_PAGE + layout.size() as usize).ok_or(damaged("table of counts"))?;
    let stack = if first.is_some() && store.instances.is_empty() && store.spare.is_none() {
        Fiber::area(store.limits.stack_bytes)
    } else {
        None
    };
    let (guard_bytes, stack_bytes) = stack.unwrap_or((0, 0));
    let block_at = guard_bytes + stack_bytes + IN_PAGE;
    let end = if first.is_some() {
        block_at + (CONTEXT_BELOW + MEMORY_RESERVE) as usize
    } else {
        guard_bytes + stack_bytes + block_bytes
    };
    let reservation = Mapping::reserve(end)?;
    reservation.commit(guard_bytes, stack_bytes + block_bytes)?;
    let block = reservation.base().wrapping_add(block_at);
    let ctx = block.wrapping_add(CONTEXT_BELOW as usize);

    let data = InstanceData {
        module: module.clone(),
        store: NonNull::from(&mut *store),
        index: store.instances.len() as u32,
        ctx,
        reservation,
        block_at,
        memories: imports.memories,
        tables: imports.tables,
        global_types: imports.globals.iter().map(|global| global.ty).collect(),
        imported_globals: imports.globals,
        imported_funcs: Vec::with_capacity(imports.funcs.len()),
        tags: imports.tags,
        dropped_data: vec![false; artifact.data().len()],
        dropped_elements: vec![false; artifact.elements().len()],
        exported_memory: None,
        checkpoint: None,
    };
    // From here on the store owns it: funcrefs in imported tables may come to name it whatever happens next.
    let pointer = NonNull::from(Box::leak(Box::new(data)));
    store.instances.push(pointer);
    if stack.is_some() {
        // SAFETY: the range below the block is usable, nobody else uses it, and the reservation lives as long as the store.
        store.spare = Some(unsafe { Fiber::lent(block, stack_bytes + IN_PAGE) });
    }
    // SAFETY: just made; nobody else refers to it.
    let data = unsafe { &mut *pointer.as_ptr() };
    data.add_functions(store, imports.funcs)?;
    store.adopt_thunks(module);

    for (number, ty) in artifact.memories().enumerate() {
        let index = counts.imported_memories + number as u32;
        let memory = data.add_memory(store, index, ty, number == 0 && first.is_some())?;
        data.memories.push(memory);
    }
    data.map_image(store)?;
    for tag in artifact.tags() {
        let type_id = module.type_id(tag).ok_or(damaged("table of tags"))?;
        data.tags.push(store.add_tag(TypeId::hold(type_id)));
    }
    data.write_context(store);
    for (number, global) in artifact.globals().enumerate() {
        let value = data.evaluate(global.init).ok_or(damaged("initial value of a global"))?;
        let at = layout.global(counts.imported_globals + number as u32);
        let GlobalPlace::Defined(at) = at else { return Err(damaged("table of globals")) };
        data.write(at, value);
        data.global_types.push(global.ty);
    }
    for (number, table) in artifact.tables().enumerate() {
        let index = counts.imported_tables + number as u32;
        let table = data.add_table(store, index, table).map_err(|error| match error {
            AddTable::Damaged => damaged("initial value of a table"),
            AddTable::Table(error) => in_table(index, error),
        })?;
        data.tables.push(table);
    }
    let exported = artifact.export("memory").filter(|export| export.kind == ExportKind::Memory);
    data.exported_memory = exported.and_then(|export| data.memories.get(export.index as usize).copied());
    Ok(pointer)
}

enum AddTable {
    Damaged,
    Table(TableError),
}

impl InstanceData {
    fn store_id(&self) -> StoreId {
        // SAFETY: the store owns this instance.
        unsafe { self.store.as_ref() }.id
    }

    pub(crate) fn handle(&self, store: StoreId) -> Instance {
        Instance { store, index: self.index }
    }

    pub(crate) fn exported_memory(&self) -> Option<Memory> {
        self.exported_memory
    }

    /// Where memory 0 is in the reservation when the context pointer is its base.
    fn memory_at(&self) -> usize {
        self.block_at + CONTEXT_BELOW as usize
    }

    /// The addresses that belong to this instance. Safe in a signal handler.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.reservation.holds(address)
    }

    /// The address of an offset of the context block.
    pub(crate) fn at<T>(&self, offset: u64) -> *mut T {
        self.reservation.base().wrapping_add(self.block_at + offset as usize).cast()
    }

    /// Writes a word, or a record of words, of the context block.
    fn write<T>(&self, offset: u64, value: T) {
        debug_assert!(offset + size_of::<T>() as u64 <= self.module.layout().size());
        // SAFETY: offsets of the layout are inside the block, which is mapped and aligned to a page; the layout aligns each field.
        unsafe { self.at::<T>(offset).write(value) };
    }

    fn read<T: Copy>(&self, offset: u64) -> T {
        debug_assert!(offset + size_of::<T>() as u64 <= self.module.layout().size());
        // SAFETY: as in `write`.
        unsafe { self.at::<T>(offset).read() }
    }

    /// Fills in everything that generated code reads and that never changes. Globals and tables follow.
    fn write_context(&self, store: &StoreOpaque) {
        let layout = self.module.layout();
        self.write(header::MAGIC, CONTEXT_MAGIC);
        self.write(header::STORE, self.store.as_ptr());
        self.write(header::BUILTINS, arch::builtin_table());
        self.write(header::INSTANCE, std::ptr::from_ref(self));
        for (index, memory) in self.memories.iter().enumerate() {
            let def = memory.entity(store).def;
            // SAFETY: records live as long as the store.
            let base = unsafe { def.as_ref() }.base;
            self.write(layout.memory_slot(index as u32), (base, def.as_ptr()));
        }
        for (index, table) in self.tables.iter().enumerate() {
            self.write(layout.table_slot(index as u32), table.entity(store).def.as_ptr());
        }
        for (index, global) in self.imported_globals.iter().enumerate() {
            if let GlobalPlace::Imported(at) = layout.global(index as u32) {
                self.write(at, global.cell.as_ptr());
            }
        }
        for (index, type_id) in self.module.type_ids().enumerate() {
            self.write(layout.type_id(index as u32), type_id);
        }
        for (index, tag) in self.tags.iter().enumerate() {
            self.write(layout.tag(index as u32), tag.word());
        }
    }

    /// Fills in imported functions and funcrefs.
    fn add_functions(
        &mut self,
        store: &mut StoreOpaque,
        imports: Vec<ImportedFunc>,
    ) -> Result<(), InstantiateError> {
        let module = self.module.clone();
        let (artifact, layout) = (module.artifact(), module.layout());
        let this = NonNull::from(&mut *self);
        for (index, import) in imports.into_iter().enumerate() {
            let func = match import {
                ImportedFunc::Host(func) => store.add_host_func(func, Some(this)),
                ImportedFunc::Guest(func) => func,
            };
            let mut func_ref = *func.func_ref(store);
            if func_ref.code.is_null() {
                func_ref.code =
                    module.host_thunk(func_ref.type_id as u32).ok_or(damaged("table of thunks"))?;
                store.set_code(&func, func_ref.code);
            }
            self.write(layout.func_import(index as u32), (func_ref.code, func_ref.ctx));
            self.imported_funcs.push(func);
        }
        for (number, view) in artifact.func_refs().enumerate() {
            let func_ref = match view.code_offset {
                Some(offset) => FuncRef {
                    code: module.code(offset).ok_or(damaged("table of function references"))?,
                    ctx: self.ctx,
                    type_id: module.type_id(view.ty).ok_or(damaged("table of function references"))?.into(),
                    owner: this.as_ptr(),
                },
                None => {
                    let func = self.imported_funcs.get(view.function as usize);
                    *func.ok_or(damaged("table of function references"))?.func_ref(store)
                }
            };
            self.write(layout.func_ref(number as u32), func_ref);
        }
        Ok(())
    }

    /// Makes a defined memory. `is_context`: it begins at the context pointer.
    fn add_memory(
        &self,
        store: &mut StoreOpaque,
        index: u32,
        ty: MemoryType,
        is_context: bool,
    ) -> Result<Memory, InstantiateError> {
        let in_memory = |error| InstantiateError::Memory { index, error };
        let limit = store.limits.memory_bytes;
        if ty.shared {
            let shared = Shared::new(ty, limit).map_err(in_memory)?;
            return Ok(store.add_shared(std::sync::Arc::new(shared)));
        }
        let (initial, maximum) = memory::sizes(&ty, limit).map_err(in_memory)?;
        let at = self.module.layout().memory_def(index).ok_or(damaged("table of memories"))?;
        let (base, place) = if is_context {
            self.reservation.commit(self.memory_at(), initial as usize)?;
            (self.ctx, Place::Instance)
        } else {
            let space = Space::reserve(&ty, initial, maximum)?;
            (space.base(), Place::Own(space))
        };
        self.write(at, MemoryDef { base, byte_len: initial.into() });
        let def = NonNull::new(self.at(at)).ok_or(damaged("table of memories"))?;
        Ok(store.add_memory(MemoryEntity { def, ty, maximum, place }))
    }

    /// Maps the pages of the artifact that memories begin with.
    fn map_image(&self, store: &StoreOpaque) -> Result<(), InstantiateError> {
        let artifact = self.module.artifact();
        for chunk in artifact.image() {
            let memory = self.memories.get(chunk.memory as usize).ok_or(damaged("image"))?.entity(store);
            let inside = chunk.address.checked_add(chunk.len).is_some_and(|end| end <= memory.byte_len());
            if !inside {
                return Err(damaged("image"));
            }
            let (mapping, at) = match &memory.place {
                Place::Instance => (&self.reservation, self.memory_at()),
                Place::Own(space) => space.mapping(),
                Place::Host(shared) => shared.space.mapping(),
            };
            mapping.map_file(
                at + chunk.address as usize,
                chunk.len as usize,
                artifact.file(),
                chunk.file_offset,
            )?;
        }
        Ok(())
    }

    fn add_table(&self, store: &mut StoreOpaque, index: u32, view: TableView<'_>) -> Result<Table, AddTable> {
        let (len, maximum) = table::sizes(&view.ty, store.limits.table_elements).map_err(AddTable::Table)?;
        let at = self.module.layout().table_def(index).ok_or(AddTable::Damaged)?;
        let elements = Elements::new(len, maximum).map_err(|error| AddTable::Table(error.into()))?;
        self.write(at, TableDef { elements: elements.base(), len });
        let def = NonNull::new(self.at(at)).ok_or(AddTable::Damaged)?;
        self.write(self.module.layout().table_slot(index), def.as_ptr());
        let mut entity = TableEntity { def, ty: view.ty, maximum, elements, owns_def: false };
        if let Some(init) = view.init {
            let word = self.evaluate(init).ok_or(AddTable::Damaged)?.u64();
            if word != 0 {
                entity.words_mut().fill(word);
            }
        }
        Ok(store.add_table(entity))
    }

    /// The value of a constant expression.
    pub(crate) fn evaluate(&self, expression: &[u8]) -> Option<Slot> {
        const_expr::evaluate(expression, &|index| self.global_cell(index).map(|(cell, _)| cell), &|index| {
            self.func_word(index)
        })
    }

    /// Address and type of a global's cell.
    fn global_cell(&self, index: u32) -> Option<(NonNull<Slot>, GlobalType)> {
        let ty = *self.global_types.get(index as usize)?;
        let cell = match self.module.layout().global(index) {
            GlobalPlace::Imported(at) => NonNull::new(self.read::<*mut Slot>(at))?,
            GlobalPlace::Defined(at) => NonNull::new(self.at(at))?,
        };
        Some((cell, ty))
    }

    /// The funcref of a function that has one.
    pub(crate) fn func_word(&self, index: u32) -> Option<u64> {
        let number = self.module.artifact().func_ref_number(index)?;
        Some(self.at::<FuncRef>(self.module.layout().func_ref(number)) as u64)
    }

    /// Code, context and type of a function, whether or not it has a funcref.
    fn callable(&self, index: u32) -> Option<(*const u8, *mut u8, u32)> {
        let artifact = self.module.artifact();
        let type_id = self.module.type_id(artifact.function_type(index)?)?;
        if index < artifact.counts().imported_functions {
            let (code, ctx) = self.read::<(*const u8, *mut u8)>(self.module.layout().func_import(index));
            return Some((code, ctx, type_id));
        }
        let code = self.module.code(artifact.function(index)?.code_offset)?;
        Some((code, self.ctx, type_id))
    }

    /// What an export names.
    pub(crate) fn export(&self, kind: ExportKind, index: u32) -> Option<Extern> {
        let at = index as usize;
        Some(match kind {
            ExportKind::Function => match self.imported_funcs.get(at) {
                Some(func) => Extern::Func(*func),
                // SAFETY: the word is the address of a func_ref record of this instance.
                None => Extern::Func(unsafe { Func::from_word(self.func_word(index)?, self.store_id()) }?),
            },
            ExportKind::Table => Extern::Table(*self.tables.get(at)?),
            ExportKind::Memory => Extern::Memory(*self.memories.get(at)?),
            ExportKind::Global => {
                let (cell, ty) = self.global_cell(index)?;
                Extern::Global(Global { store: self.store_id(), cell, ty })
            }
            ExportKind::Tag => Extern::Tag(*self.tags.get(at)?),
        })
    }

    fn apply_elements(&mut self, store: &mut StoreOpaque) -> Result<(), InstantiateError> {
        let module = self.module.clone();
        for (number, segment) in module.artifact().elements().enumerate() {
            match segment.mode {
                SegmentModeView::Active { target, offset } => {
                    let wide = self.tables.get(target as usize).is_some_and(|it| it.entity(store).ty.table64);
                    let at = self.evaluate(offset).ok_or(damaged("offset of an element segment"))?;
                    let at = if wide { at.u64() } else { at.u32().into() };
                    let len = segment.items.len() as u64;
                    segments::table_init(self, store, target, number as u32, at, 0, len)
                        .map_err(Trap::from)?;
                }
                SegmentModeView::Declared => {}
                SegmentModeView::Passive => continue,
            }
            if let Some(dropped) = self.dropped_elements.get_mut(number) {
                *dropped = true;
            }
        }
        Ok(())
    }

    fn apply_data(&mut self, store: &mut StoreOpaque) -> Result<(), InstantiateError> {
        let module = self.module.clone();
        for (number, segment) in module.artifact().data().enumerate() {
            let SegmentModeView::Active { target, offset } = segment.mode else { continue };
            if !segment.in_image {
                let wide = self.memories.get(target as usize).is_some_and(|it| it.entity(store).ty.memory64);
                let at = self.evaluate(offset).ok_or(damaged("offset of a data segment"))?;
                let at = if wide { at.u64() } else { at.u32().into() };
                let len = segment.bytes.len() as u64;
                segments::memory_init(self, store, target, number as u32, at, 0, len).map_err(Trap::from)?;
            }
            if let Some(dropped) = self.dropped_data.get_mut(number) {
                *dropped = true;
            }
        }
        Ok(())
    }
}
