//! A [`Store`] owns everything that guests are made of: instances, memories, tables, host functions, exceptions, and the
//! embedder's own data that host functions see.
//!
//! Handles ([`crate::Func`], [`crate::Memory`], …) are small copies that name something in a store; they are used together with the
//! store they came from. A store is used by one thread at a time and may move between threads.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::deadline::Control;
use crate::exception::Exceptions;
use crate::fiber::Fiber;
use crate::func::HostRecord;
use crate::instance::{Extern, Instance, InstanceData};
use crate::limits::Limits;
use crate::memory::{Memory, MemoryEntity};
use crate::table::TableEntity;
use crate::tag::TagEntity;
use crate::trap::HostReason;
use crate::value::Slot;

/// Names a store in its handles; never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(u64);

impl StoreId {
    /// No store's.
    pub(crate) const NONE: Self = Self(0);

    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Owns instances and the embedder's data of type `T`.
///
/// ```
/// use mote_runtime::Store;
/// let mut store = Store::new(41);
/// *store.data_mut() += 1;
/// assert_eq!(store.into_data(), 42);
/// ```
pub struct Store<T> {
    inner: NonNull<StoreInner<T>>,
    owns: PhantomData<StoreInner<T>>,
}

/// What a [`Store`] points to; the part that does not depend on `T` comes first, so that generated code's view of it is one type.
#[doc(hidden)]
#[repr(C)]
pub struct StoreInner<T> {
    opaque: StoreOpaque,
    data: T,
}

/// The part of a store that does not depend on the embedder's data. Its address never changes.
#[doc(hidden)]
#[repr(C)]
pub struct StoreOpaque {
    /// The fiber whose guest is running or has called the host; null when there is none. The stubs read it at offset 0.
    pub(crate) fiber: *mut Fiber,
    pub(crate) id: StoreId,
    pub(crate) limits: Limits,
    pub(crate) instances: Vec<NonNull<InstanceData>>,
    pub(crate) memories: Vec<MemoryEntity>,
    pub(crate) tables: Vec<TableEntity>,
    pub(crate) globals: Vec<NonNull<Slot>>,
    pub(crate) tags: Vec<NonNull<TagEntity>>,
    pub(crate) host_funcs: Vec<NonNull<HostRecord>>,
    /// What the host function that has just ended says instead of results.
    pub(crate) outcome: Option<HostReason>,
    /// Slots and type of the host call that has just suspended its guest.
    pub(crate) suspended: (*mut Slot, u32),
    /// What is asked of the guest.
    pub(crate) control: Arc<Control>,
    /// The fiber of the last call, for the next one.
    pub(crate) spare: Option<Box<Fiber>>,
    /// How many guest calls are nested at this moment.
    pub(crate) depth: u32,
    pub(crate) exceptions: Exceptions,
}

// SAFETY: everything that the raw pointers name is owned by this store (or by Arcs it keeps), embedders' closures are Send + Sync.
unsafe impl<T: Send> Send for Store<T> {}
// SAFETY: `&Store` gives only reads of the data and of guest state that no guest changes while it is borrowed.
unsafe impl<T: Sync> Sync for Store<T> {}

impl<T> Store<T> {
    /// A store with default limits.
    pub fn new(data: T) -> Self {
        Self::with_limits(data, Limits::default())
    }

    /// A store with limits of its own.
    pub fn with_limits(data: T, limits: Limits) -> Self {
        let opaque = StoreOpaque {
            fiber: std::ptr::null_mut(),
            id: StoreId::next(),
            limits,
            instances: Vec::new(),
            memories: Vec::new(),
            tables: Vec::new(),
            globals: Vec::new(),
            tags: Vec::new(),
            host_funcs: Vec::new(),
            outcome: None,
            suspended: (std::ptr::null_mut(), 0),
            control: Arc::default(),
            spare: None,
            depth: 0,
            exceptions: Exceptions::default(),
        };
        Self { inner: NonNull::from(Box::leak(Box::new(StoreInner { opaque, data }))), owns: PhantomData }
    }

    /// The embedder's data.
    pub fn data(&self) -> &T {
        // SAFETY: `inner` is valid as long as self.
        unsafe { &self.inner.as_ref().data }
    }

    /// The embedder's data.
    pub fn data_mut(&mut self) -> &mut T {
        // SAFETY: `inner` is valid as long as self, and self is borrowed alone.
        unsafe { &mut self.inner.as_mut().data }
    }

    /// Drops everything but the data.
    pub fn into_data(self) -> T {
        let inner = self.inner;
        std::mem::forget(self);
        // SAFETY: `inner` came from a leaked box and self, its owner, was forgotten.
        let inner = unsafe { Box::from_raw(inner.as_ptr()) };
        inner.data
    }

    /// The limits it was made with.
    pub fn limits(&self) -> &Limits {
        &self.opaque().limits
    }
}

impl<T> Drop for Store<T> {
    fn drop(&mut self) {
        // SAFETY: `inner` came from a leaked box that only this value owns.
        drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
    }
}

impl StoreOpaque {
    /// Whether an address lies in what guests of this store can reach: instances and memories with their guards. Safe in a signal handler while
    /// guest code runs.
    pub(crate) fn holds(&self, address: usize) -> bool {
        // SAFETY: instances live as long as the store.
        self.instances.iter().any(|instance| unsafe { instance.as_ref() }.holds(address))
            || self.memories.iter().any(|memory| memory.place.holds(address))
    }
}

impl Drop for StoreOpaque {
    fn drop(&mut self) {
        if let Some(fiber) = self.spare.take() {
            fiber.give_back();
        }
        for record in self.host_funcs.drain(..) {
            // SAFETY: each record came from a leaked box that only this store owns.
            drop(unsafe { Box::from_raw(record.as_ptr()) });
        }
        for cell in self.globals.drain(..) {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(cell.as_ptr()) });
        }
        for tag in self.tags.drain(..) {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(tag.as_ptr()) });
        }
        for instance in self.instances.drain(..) {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(instance.as_ptr()) });
        }
    }
}

impl<T: Default> Default for Store<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Something that gives access to a store for reading: [`Store`], [`Caller`], references to them.
///
/// # Safety
/// `inner` is the store's own address, valid for as long as `self` is borrowed.
pub unsafe trait AsStore {
    /// The embedder's data type.
    type Data;
    #[doc(hidden)]
    fn inner(&self) -> NonNull<StoreInner<Self::Data>>;

    #[doc(hidden)]
    fn opaque_ptr(&self) -> NonNull<StoreOpaque> {
        self.inner().cast()
    }

    #[doc(hidden)]
    fn opaque(&self) -> &StoreOpaque {
        // SAFETY: the store is valid and no guest changes it while `self` is borrowed.
        unsafe { self.inner().cast::<StoreOpaque>().as_ref() }
    }
}

/// Something that gives exclusive access to a store.
///
/// # Safety
/// Whoever holds `&mut self` may change the store.
pub unsafe trait AsStoreMut: AsStore {
    #[doc(hidden)]
    fn opaque_mut(&mut self) -> &mut StoreOpaque {
        // SAFETY: `&mut self` is exclusive access.
        unsafe { self.inner().cast::<StoreOpaque>().as_mut() }
    }

    #[doc(hidden)]
    fn data_mut_of(&mut self) -> &mut Self::Data {
        // SAFETY: `&mut self` is exclusive access.
        unsafe { &mut self.inner().as_mut().data }
    }
}

// SAFETY: a store's own address.
unsafe impl<T> AsStore for Store<T> {
    type Data = T;
    fn inner(&self) -> NonNull<StoreInner<T>> {
        self.inner
    }
}
// SAFETY: `&mut Store` is exclusive.
unsafe impl<T> AsStoreMut for Store<T> {}

// SAFETY: passes on what the referent gives.
unsafe impl<S: AsStore + ?Sized> AsStore for &S {
    type Data = S::Data;
    fn inner(&self) -> NonNull<StoreInner<S::Data>> {
        S::inner(self)
    }
}
// SAFETY: passes on what the referent gives.
unsafe impl<S: AsStore + ?Sized> AsStore for &mut S {
    type Data = S::Data;
    fn inner(&self) -> NonNull<StoreInner<S::Data>> {
        S::inner(self)
    }
}
// SAFETY: `&mut &mut S` is as exclusive as `&mut S`.
unsafe impl<S: AsStoreMut + ?Sized> AsStoreMut for &mut S {}

/// A host function's view of the store while a guest waits for it.
pub struct Caller<'a, T> {
    store: NonNull<StoreInner<T>>,
    instance: Option<NonNull<InstanceData>>,
    lives: PhantomData<&'a mut StoreInner<T>>,
}

// SAFETY: the store's own address, valid during the host call that `'a` stands for.
unsafe impl<T> AsStore for Caller<'_, T> {
    type Data = T;
    fn inner(&self) -> NonNull<StoreInner<T>> {
        self.store
    }
}
// SAFETY: the guest waits and the embedder's borrow of the store went to the call: the caller is the only one that can reach it.
unsafe impl<T> AsStoreMut for Caller<'_, T> {}

impl<'a, T> Caller<'a, T> {
    /// # Safety
    /// The store is alive and nobody else uses it during `'a`; `instance` lives in it.
    pub(crate) unsafe fn new(store: NonNull<StoreInner<T>>, instance: Option<NonNull<InstanceData>>) -> Self {
        Self { store, instance, lives: PhantomData }
    }

    /// The embedder's data.
    pub fn data(&self) -> &T {
        // SAFETY: the store is valid and borrowed.
        unsafe { &self.store.as_ref().data }
    }

    /// The embedder's data.
    pub fn data_mut(&mut self) -> &mut T {
        self.data_mut_of()
    }

    /// The instance whose import this call came through; `None` when the host called the function itself.
    pub fn instance(&self) -> Option<Instance> {
        // SAFETY: instances live as long as their store.
        self.instance.map(|instance| unsafe { instance.as_ref() }.handle(self.opaque().id))
    }

    /// The calling instance's memory that is exported as `memory`: looked up once, when it was instantiated.
    pub fn memory(&self) -> Option<Memory> {
        // SAFETY: instances live as long as their store.
        self.instance.and_then(|instance| unsafe { instance.as_ref() }.exported_memory())
    }

    /// An export of the calling instance.
    pub fn get_export(&mut self, name: &str) -> Option<Extern> {
        self.instance()?.get_export(self, name)
    }
}
