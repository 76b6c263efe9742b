//! Finds what a module imports by name and makes instances.

use std::borrow::Cow;
use std::sync::Arc;

use crate::func::{HostFunc, IntoHostFunc};
use crate::instance::{Extern, Instance, InstantiateError};
use crate::module::Module;
use crate::store::{AsStore, AsStoreMut, Caller, StoreId};
use crate::trap::HostError;
use crate::value::{FuncType, Val};

/// What importing modules can name. Host functions defined here belong to no store: each instance gets its own view of them, so
/// that they know who calls.
///
/// ```
/// use mote_runtime::{Caller, HostError, Linker};
/// let mut linker = Linker::<Vec<i32>>::new();
/// linker.func_wrap("env", "log", |mut caller: Caller<'_, Vec<i32>>, value: i32| caller.data_mut().push(value));
/// linker.func_wrap("env", "div", |_: Caller<'_, Vec<i32>>, a: i32, b: i32| {
///     a.checked_div(b).ok_or(HostError::message("no quotient"))
/// });
/// ```
pub struct Linker<T> {
    entries: Vec<Entry>,
    data: std::marker::PhantomData<fn(T)>,
}

struct Entry {
    module: Cow<'static, str>,
    name: Cow<'static, str>,
    item: Item,
}

/// Something an import can be.
#[derive(Clone)]
pub(crate) enum Item {
    /// A host function of no store yet.
    Host(Arc<HostFunc>),
    /// Something in a store.
    Extern(Extern, StoreId),
}

impl<T> Default for Linker<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), data: std::marker::PhantomData }
    }
}

impl<T> Clone for Linker<T> {
    fn clone(&self) -> Self {
        let copy =
            |it: &Entry| Entry { module: it.module.clone(), name: it.name.clone(), item: it.item.clone() };
        Self { entries: self.entries.iter().map(copy).collect(), data: std::marker::PhantomData }
    }
}

impl<T: 'static> Linker<T> {
    /// A linker that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names a host function given as a closure: `Fn(Caller<T>, params…) -> results`, where the results are values or a `Result`
    /// of values and [`HostError`]. A later definition of the same name hides an earlier one.
    pub fn func_wrap<P, R>(
        &mut self,
        module: impl Into<Cow<'static, str>>,
        name: impl Into<Cow<'static, str>>,
        func: impl IntoHostFunc<T, P, R>,
    ) -> &mut Self {
        self.add(module.into(), name.into(), Item::Host(Arc::new(func.into_host_func())))
    }

    /// Names a host function whose type is known only at run time.
    pub fn func_new(
        &mut self,
        module: impl Into<Cow<'static, str>>,
        name: impl Into<Cow<'static, str>>,
        ty: FuncType,
        func: impl Fn(Caller<'_, T>, &[Val], &mut [Val]) -> Result<(), HostError> + Send + Sync + 'static,
    ) -> &mut Self {
        self.add(module.into(), name.into(), Item::Host(Arc::new(HostFunc::new(ty, func))))
    }

    /// Names something that lives in a store: an instance's export, or a memory, table, global, tag or function of the host's.
    /// Only instances of that store can import it.
    pub fn define(
        &mut self,
        module: impl Into<Cow<'static, str>>,
        name: impl Into<Cow<'static, str>>,
        item: impl Into<Extern>,
    ) -> &mut Self {
        let item = item.into();
        let store = item.store();
        self.add(module.into(), name.into(), Item::Extern(item, store))
    }

    /// Names all exports of an instance under a module name.
    pub fn instance(
        &mut self,
        store: impl AsStore<Data = T>,
        module: impl Into<Cow<'static, str>>,
        instance: Instance,
    ) -> &mut Self {
        let module = module.into();
        for (name, item) in instance.exports(&store) {
            self.define(module.clone(), name, item);
        }
        self
    }

    /// Makes everything named under `module` also reachable under `alias`.
    pub fn alias(&mut self, module: &str, alias: impl Into<Cow<'static, str>>) -> &mut Self {
        let alias = alias.into();
        let copies: Vec<Entry> = self
            .entries
            .iter()
            .filter(|entry| entry.module == module)
            .map(|entry| Entry { module: alias.clone(), name: entry.name.clone(), item: entry.item.clone() })
            .collect();
        self.entries.extend(copies);
        self
    }

    /// Whether a name is known.
    pub fn contains(&self, module: &str, name: &str) -> bool {
        self.find(module, name).is_some()
    }

    /// Makes an instance: finds its imports, lays out its memory, applies its segments, and runs its start function.
    ///
    /// # Errors
    /// A name that is missing, or is something else than the module expects; a limit of the store; a trap of a segment or of the
    /// start function (what earlier segments wrote to imported memories and tables stays, as the specification says).
    pub fn instantiate(
        &self,
        store: impl AsStoreMut<Data = T>,
        module: &Module,
    ) -> Result<Instance, InstantiateError> {
        let find = |module: &str, name: &str| self.find(module, name).cloned();
        Instance::instantiate(store.opaque_ptr(), module, &find)
    }

    fn add(&mut self, module: Cow<'static, str>, name: Cow<'static, str>, item: Item) -> &mut Self {
        self.entries.push(Entry { module, name, item });
        self
    }

    fn find(&self, module: &str, name: &str) -> Option<&Item> {
        let found = self.entries.iter().rev().find(|entry| entry.name == name && entry.module == module);
        found.map(|entry| &entry.item)
    }
}
