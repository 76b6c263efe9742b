//! Functions: those of guests, called by the host, and the host's own, called by guests.
//!
//! Every function that can be referred to has a [`FuncRef`] record: in the context block of the instance that defines it, or in
//! the [`HostRecord`] of a host function. Arguments and results cross in slots: the artifact's `entry` thunk reads them for a guest
//! function, its `host` thunk writes them for a host function.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::arch;
use crate::canonical_types::{self, TypeId};
use crate::exception;
use crate::fiber;
use crate::instance::InstanceData;
use crate::store::{AsStore, AsStoreMut, Caller, StoreId, StoreInner, StoreOpaque};
use crate::trap::{HostError, HostReason, Trap};
use crate::value::{Class, FuncType, Slot, Val, WasmValue, WasmValues};

/// What a funcref points to, as generated code reads it (`abi::func_ref`).
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct FuncRef {
    pub(crate) code: *const u8,
    pub(crate) ctx: *mut u8,
    pub(crate) type_id: u64,
    /// The instance that defines a guest function; null for a host function, whose `ctx` is its [`HostRecord`].
    pub(crate) owner: *const InstanceData,
}

/// What the host's side of a call tells the stub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Outcome {
    /// Results are in the slots.
    Return = 0,
    /// [`StoreOpaque::outcome`] says why the guest ends.
    Raise = 1,
    /// The guest waits; [`StoreOpaque::outcome`] has the payload.
    Suspend = 2,
    /// Execution goes on at a landing pad; the fiber has the registers.
    Land = 3,
}

/// The host's side of a host function: reads arguments from slots and writes results over them.
pub(crate) type ArrayCall = unsafe extern "C" fn(record: *const HostRecord, slots: *mut Slot) -> Outcome;

/// A host function's closure and type, in no store yet.
pub struct HostFunc {
    ty: HostType,
    call: ArrayCall,
    /// The same function with arguments and result in registers, when its type allows that: C's convention, the record first.
    direct: Option<*const u8>,
    closure: Box<dyn Any + Send + Sync>,
}

// SAFETY: the code address is no data; the rest is Send and Sync by itself.
unsafe impl Send for HostFunc {}
// SAFETY: as above.
unsafe impl Sync for HostFunc {}

enum HostType {
    Static(fn() -> FuncType),
    Dynamic(FuncType),
}

impl HostFunc {
    /// Its type.
    pub fn ty(&self) -> FuncType {
        match &self.ty {
            HostType::Static(ty) => ty(),
            HostType::Dynamic(ty) => ty.clone(),
        }
    }

    /// A host function whose type is known only at run time.
    pub fn new<T: 'static>(
        ty: FuncType,
        func: impl Fn(Caller<'_, T>, &[Val], &mut [Val]) -> Result<(), HostError> + Send + Sync + 'static,
    ) -> Self {
        let dynamic = Dynamic { ty: ty.clone(), func: Box::new(func) };
        Self { ty: HostType::Dynamic(ty), call: call_dynamic::<T>, direct: None, closure: Box::new(dynamic) }
    }
}

/// A host function in a store as generated code and the stubs see it; the first word is `abi::host_func`. An instance has
/// one of its own per imported host function, so that the function knows who calls.
#[repr(C)]
pub(crate) struct HostRecord {
    pub(crate) array_stub: *const u8,
    /// Where the stub finds the running fiber.
    pub(crate) store: NonNull<StoreOpaque>,
    pub(crate) call: ArrayCall,
    /// What the direct stub calls; null when there is no direct call.
    pub(crate) direct: *const u8,
    pub(crate) instance: Option<NonNull<InstanceData>>,
    pub(crate) func: Arc<HostFunc>,
    pub(crate) func_ref: FuncRef,
    /// Its number is in the funcref.
    ty: TypeId,
}

/// A function in a store.
///
/// ```
/// use mote_runtime::{Caller, Func, Store, Val};
/// let mut store = Store::new(10_i64);
/// let add = Func::wrap(&mut store, |caller: Caller<'_, i64>, by: i64| *caller.data() + by);
/// let results = add.call(&mut store, &[Val::I64(5)])?;
/// assert_eq!(results[0].i64(), Some(15));
/// let add = add.typed::<i64, i64>(&store)?;
/// assert_eq!(add.call(&mut store, 7)?, 17);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Func {
    pub(crate) store: StoreId,
    record: NonNull<FuncRef>,
}

// SAFETY: a handle is only used together with its store, which is used by one thread at a time.
unsafe impl Send for Func {}
// SAFETY: as above.
unsafe impl Sync for Func {}

impl fmt::Debug for Func {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Func({:p})", self.record)
    }
}

/// A function does not have the type that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("function has type {given}, expected {expected}", given = FuncTypeText(given), expected = FuncTypeText(expected))]
pub struct FuncTypeError {
    /// What was asked for.
    pub expected: FuncType,
    /// What it has.
    pub given: FuncType,
}

/// Prints a function type in the text format's order: `(i32, i64) -> (f32)`.
pub(crate) struct FuncTypeText<'a>(pub(crate) &'a FuncType);

impl fmt::Display for FuncTypeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |types: &[crate::ValueType]| {
            types.iter().map(|ty| format!("{ty:?}").to_lowercase()).collect::<Vec<_>>().join(", ")
        };
        write!(f, "({}) -> ({})", list(&self.0.params), list(&self.0.results))
    }
}

impl Func {
    /// Makes a function of the host's from a closure: `Fn(Caller<T>, params…) -> results`, where the results are a
    /// [`WasmValues`] or a `Result` of one and [`HostError`].
    pub fn wrap<T: 'static, P, R>(
        mut store: impl AsStoreMut<Data = T>,
        func: impl IntoHostFunc<T, P, R>,
    ) -> Self {
        store.opaque_mut().add_host_func(Arc::new(func.into_host_func()), None)
    }

    /// Makes a function of the host's whose type is known only at run time. The results slice comes filled with zeros and nulls
    /// of the result types.
    pub fn new<T: 'static>(
        mut store: impl AsStoreMut<Data = T>,
        ty: FuncType,
        func: impl Fn(Caller<'_, T>, &[Val], &mut [Val]) -> Result<(), HostError> + Send + Sync + 'static,
    ) -> Self {
        store.opaque_mut().add_host_func(Arc::new(HostFunc::new(ty, func)), None)
    }

    /// # Safety
    /// `word` is a funcref of this store's guests.
    pub(crate) unsafe fn from_word(word: u64, store: StoreId) -> Option<Self> {
        NonNull::new(word as *mut FuncRef).map(|record| Self { store, record })
    }

    /// The funcref.
    pub(crate) fn word(self) -> u64 {
        self.record.as_ptr() as u64
    }

    /// The record.
    ///
    /// # Panics
    /// When the function belongs to another store.
    pub(crate) fn func_ref<'a>(&self, store: &'a StoreOpaque) -> &'a FuncRef {
        assert!(self.store == store.id, "function of another store");
        // SAFETY: records live as long as their store.
        unsafe { self.record.as_ref() }
    }

    pub(crate) fn type_id(&self, store: &StoreOpaque) -> u32 {
        self.func_ref(store).type_id as u32
    }

    /// The host function's record, when it is one.
    pub(crate) fn host(&self, store: &StoreOpaque) -> Option<NonNull<HostRecord>> {
        let func_ref = self.func_ref(store);
        if func_ref.owner.is_null() { NonNull::new(func_ref.ctx.cast()) } else { None }
    }

    /// Its type.
    pub fn ty(&self, store: impl AsStore) -> FuncType {
        canonical_types::get(self.type_id(store.opaque()))
    }

    /// Calls it with arguments whose types are checked now.
    pub fn call(&self, mut store: impl AsStoreMut, params: &[Val]) -> Result<Vec<Val>, Trap> {
        let ty = self.ty(&store);
        let mut slots = arguments(store.opaque_mut(), &ty, params)?;
        // SAFETY: the slots hold values of the parameters' types and have room for the results.
        unsafe { self.call_slots(store.opaque_ptr(), slots.as_mut_ptr()) }?;
        Ok(results(&ty, &slots, self.store))
    }

    /// # Safety
    /// Exclusive access to the store. `slots` holds arguments of the function's type and has room for its results.
    pub(crate) unsafe fn call_slots(
        &self,
        store: NonNull<StoreOpaque>,
        slots: *mut Slot,
    ) -> Result<(), Trap> {
        // SAFETY: exclusive access; the borrow ends before the call.
        let (func_ref, host) = unsafe { (*self.func_ref(store.as_ref()), self.host(store.as_ref())) };
        match host {
            // SAFETY: the caller's promise; the record lives as long as the store.
            Some(record) => unsafe { call_host(store, record, slots) },
            // SAFETY: the caller's promise; the owner lives as long as the store.
            None => unsafe {
                let entry = (*func_ref.owner).module.entry_thunk(func_ref.type_id as u32)?;
                fiber::call(store, entry, func_ref.ctx, func_ref.code, slots)
            },
        }
    }

    /// The function with its type known to Rust: calls then check nothing and box nothing.
    pub fn typed<P: WasmValues, R: WasmValues>(
        &self,
        store: impl AsStore,
    ) -> Result<TypedFunc<P, R>, FuncTypeError> {
        let given = self.ty(&store);
        let expected = FuncType { params: P::types(), results: R::types() };
        if given != expected {
            return Err(FuncTypeError { expected, given });
        }
        let func_ref = self.func_ref(store.opaque());
        // SAFETY: owners live as long as their store.
        let owner = unsafe { func_ref.owner.as_ref() };
        let entry = owner.and_then(|owner| owner.module.entry_thunk(func_ref.type_id as u32).ok());
        Ok(TypedFunc { func: *self, entry: entry.unwrap_or(std::ptr::null()), types: PhantomData })
    }
}

/// Calls a host function from the host.
///
/// # Safety
/// As for [`Func::call_slots`].
unsafe fn call_host(
    store: NonNull<StoreOpaque>,
    record: NonNull<HostRecord>,
    slots: *mut Slot,
) -> Result<(), Trap> {
    // SAFETY: the record is valid and the slots fit, by the caller's promise. While the host calls, no fiber waits for this function.
    let outcome = unsafe {
        let outer = std::ptr::replace(&raw mut (*store.as_ptr()).fiber, std::ptr::null_mut());
        let outcome = (record.as_ref().call)(record.as_ptr(), slots);
        (*store.as_ptr()).fiber = outer;
        outcome
    };
    // SAFETY: exclusive access.
    let store = unsafe { &mut *store.as_ptr() };
    match outcome {
        Outcome::Return => Ok(()),
        Outcome::Raise | Outcome::Suspend | Outcome::Land => Err(match store.outcome.take() {
            Some(reason) => fiber::resume_panic(Trap::from(HostError(reason))),
            None => Trap::host("host function ended without a reason"),
        }),
    }
}

/// Checks arguments against a type and lays them out, with room for the results.
pub(crate) fn arguments(store: &mut StoreOpaque, ty: &FuncType, params: &[Val]) -> Result<Vec<Slot>, Trap> {
    let types_match = params.iter().map(Val::ty).eq(ty.params.iter().copied());
    if !types_match || !params.iter().all(|param| param.belongs_to(store.id)) {
        let given = FuncType { params: params.iter().map(Val::ty).collect(), results: ty.results.clone() };
        return Err(Trap::host(format!(
            "arguments do not fit the function: it has type {}, arguments are those of {}",
            FuncTypeText(ty),
            FuncTypeText(&given)
        )));
    }
    let mut slots = vec![Slot::ZERO; ty.params.len().max(ty.results.len())];
    for (slot, param) in slots.iter_mut().zip(params) {
        store.expose(param);
        *slot = param.to_slot();
    }
    Ok(slots)
}

/// Reads results of a type out of slots that a function of that type has written.
pub(crate) fn results(ty: &FuncType, slots: &[Slot], store: StoreId) -> Vec<Val> {
    // SAFETY: the slots were written by a function of this type.
    ty.results.iter().zip(slots).map(|(&ty, &slot)| unsafe { Val::from_slot(slot, ty, store) }).collect()
}

/// A function whose type Rust knows.
pub struct TypedFunc<P, R> {
    func: Func,
    /// The entry thunk of a guest's function; null for a host's.
    entry: *const u8,
    types: PhantomData<fn(P) -> R>,
}

// SAFETY: as for Func; the code stays mapped as long as the function's store.
unsafe impl<P, R> Send for TypedFunc<P, R> {}
// SAFETY: as above.
unsafe impl<P, R> Sync for TypedFunc<P, R> {}

impl<P, R> Clone for TypedFunc<P, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P, R> Copy for TypedFunc<P, R> {}

impl<P, R> fmt::Debug for TypedFunc<P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.func.fmt(f)
    }
}

/// Slots on the host's stack that arguments and results of a typed call share.
const INLINE_SLOTS: usize = 12;

impl<P: WasmValues, R: WasmValues> TypedFunc<P, R> {
    /// Calls it.
    pub fn call(&self, mut store: impl AsStoreMut, params: P) -> Result<R, Trap> {
        const { assert!(P::COUNT <= INLINE_SLOTS && R::COUNT <= INLINE_SLOTS) };
        let mut fits = true;
        if P::REFERENCES {
            let store = store.opaque_mut();
            params.for_each_val(&mut |val| {
                fits &= val.belongs_to(store.id);
                if fits {
                    store.expose(&val);
                }
            });
        }
        if !fits {
            return Err(Trap::host("an argument is a reference of another store"));
        }
        let mut slots = [const { MaybeUninit::<Slot>::uninit() }; INLINE_SLOTS];
        let slots = slots.as_mut_ptr().cast::<Slot>();
        // SAFETY: the slots fit arguments and results; the function has this type, checked when it was typed.
        unsafe {
            params.write(slots);
            let store = store.opaque_ptr();
            if self.entry.is_null() {
                self.func.call_slots(store, slots)?;
            } else {
                let func_ref = self.func.func_ref(store.as_ref());
                fiber::call(store, self.entry, func_ref.ctx, func_ref.code, slots)?;
            }
            Ok(R::read(slots, self.func.store))
        }
    }

    /// The function without its Rust type.
    pub fn func(&self) -> Func {
        self.func
    }
}

/// What a host function may return: values, or a `Result` of values and [`HostError`].
pub trait HostResult {
    #[doc(hidden)]
    type Values: WasmValues;
    #[doc(hidden)]
    fn into_result(self) -> Result<Self::Values, HostError>;
}

impl<V: WasmValues> HostResult for V {
    type Values = V;
    fn into_result(self) -> Result<V, HostError> {
        Ok(self)
    }
}

impl<V: WasmValues> HostResult for Result<V, HostError> {
    type Values = V;
    fn into_result(self) -> Self {
        self
    }
}

/// A closure that can be a host function: up to twelve parameters after the [`Caller`].
pub trait IntoHostFunc<T, P, R>: Send + Sync + 'static {
    #[doc(hidden)]
    fn into_host_func(self) -> HostFunc;
}

macro_rules! host_func {
    ($($param:ident)*) => {
        impl<T, F, R, $($param),*> IntoHostFunc<T, ($($param,)*), R> for F
        where
            T: 'static,
            F: Fn(Caller<'_, T>, $($param),*) -> R + Send + Sync + 'static,
            R: HostResult + 'static,
            $($param: WasmValue,)*
        {
            fn into_host_func(self) -> HostFunc {
                /// # Safety
                /// Called by the stub: the record holds a closure of type F, the slots hold the parameters.
                #[allow(non_snake_case)]
                unsafe extern "C" fn call<T, F, R, $($param),*>(
                    record: *const HostRecord,
                    slots: *mut Slot,
                ) -> Outcome
                where
                    T: 'static,
                    F: Fn(Caller<'_, T>, $($param),*) -> R + Send + Sync + 'static,
                    R: HostResult + 'static,
                    $($param: WasmValue,)*
                {
                    // SAFETY: the stub passes a valid record.
                    let record = unsafe { &*record };
                    let closure = std::ptr::from_ref(&*record.func.closure).cast::<F>();
                    // SAFETY: the record was made with a closure of type F in a store of data T, and the slots
                    // hold the parameters.
                    unsafe {
                        shim::<T, R>(record, slots, |caller| {
                            let ($($param,)*) = <($($param,)*)>::read(slots, record.store.as_ref().id);
                            (*closure)(caller, $($param),*)
                        })
                    }
                }
                /// # Safety
                /// Called by the direct stub: the record holds a closure of type F.
                #[allow(non_snake_case, clippy::too_many_arguments)]
                unsafe extern "C" fn direct<T, F, R, $($param),*>(
                    record: *const HostRecord,
                    $($param: $param,)*
                ) -> MaybeUninit<R::Values>
                where
                    T: 'static,
                    F: Fn(Caller<'_, T>, $($param),*) -> R + Send + Sync + 'static,
                    R: HostResult + 'static,
                    $($param: WasmValue,)*
                {
                    // SAFETY: the stub passes a valid record.
                    let record = unsafe { &*record };
                    let closure = std::ptr::from_ref(&*record.func.closure).cast::<F>();
                    // SAFETY: the record was made with a closure of type F in a store of data T.
                    unsafe { direct_shim::<T, R>(record, |caller| (*closure)(caller, $($param),*)) }
                }
                let can_be_direct = const { is_direct::<R::Values>(&[$($param::CLASS),*]) };
                HostFunc {
                    direct: can_be_direct.then_some(direct::<T, F, R, $($param),*> as *const u8),
                    ty: HostType::Static(|| FuncType {
                        params: <($($param,)*)>::types(),
                        results: R::Values::types(),
                    }),
                    call: call::<T, F, R, $($param),*>,
                    closure: Box::new(self),
                }
            }
        }
    };
}

host_func!();
host_func!(A);
host_func!(A B);
host_func!(A B C);
host_func!(A B C D);
host_func!(A B C D E);
host_func!(A B C D E G);
host_func!(A B C D E G H);
host_func!(A B C D E G H I);
host_func!(A B C D E G H I J);
host_func!(A B C D E G H I J K);
host_func!(A B C D E G H I J K L);
host_func!(A B C D E G H I J K L M);

/// Whether a host function with these parameters and results can be called with all of them in registers.
const fn is_direct<R: WasmValues>(params: &[Class]) -> bool {
    let (mut integers, mut floats, mut rest) = (0, 0, params);
    while let [class, others @ ..] = rest {
        match class {
            Class::Integer => integers += 1,
            Class::Float => floats += 1,
            Class::Slot => return false,
        }
        rest = others;
    }
    // The record takes the first general register.
    R::DIRECT && integers < arch::INTEGER_ARGUMENTS && floats <= arch::FLOAT_ARGUMENTS
}

/// Runs a typed host function that was called directly. When there is no result to return, the fiber's `pending` word makes the
/// stub look for the outcome.
///
/// # Safety
/// The record's store has data of type T, and its running fiber's guest is the caller.
unsafe fn direct_shim<T, R: HostResult>(
    record: &HostRecord,
    call: impl FnOnce(Caller<'_, T>) -> R,
) -> MaybeUninit<R::Values> {
    // SAFETY: the guest waits: nobody else uses the store during this call.
    let caller = unsafe { Caller::new(record.store.cast(), record.instance) };
    let error = match catch_unwind(AssertUnwindSafe(|| call(caller).into_result())) {
        Ok(Ok(value)) => return MaybeUninit::new(value),
        Ok(Err(error)) => error,
        Err(payload) => HostError(HostReason::Trap(Trap::panic(payload))),
    };
    // SAFETY: the caller's borrow has ended; the store's running fiber is alive.
    unsafe {
        let store = &mut *record.store.as_ptr();
        let fiber = store.fiber;
        let outcome = store.end_host_call(record, &raw mut (*fiber).result, error);
        (*fiber).end_direct_call(outcome);
    }
    MaybeUninit::uninit()
}

/// Runs a typed host function: results or the reason why there are none, and never an unwinding panic.
///
/// # Safety
/// The record's store has data of type T; the slots have room for the results.
unsafe fn shim<T, R: HostResult>(
    record: &HostRecord,
    slots: *mut Slot,
    call: impl FnOnce(Caller<'_, T>) -> R,
) -> Outcome {
    let store: NonNull<StoreInner<T>> = record.store.cast();
    // SAFETY: the guest (or the host that called) waits: nobody else uses the store during this call.
    let caller = unsafe { Caller::new(store, record.instance) };
    let result = match catch_unwind(AssertUnwindSafe(|| call(caller).into_result())) {
        Ok(result) => result,
        Err(payload) => Err(HostError(HostReason::Trap(Trap::panic(payload)))),
    };
    // SAFETY: the caller's borrow has ended.
    let store = unsafe { &mut *record.store.as_ptr() };
    match result {
        Ok(values) => {
            if R::Values::REFERENCES {
                let mut fits = true;
                values.for_each_val(&mut |val| {
                    fits &= val.belongs_to(store.id);
                    if fits {
                        store.expose(&val);
                    }
                });
                if !fits {
                    store.outcome = Some(HostReason::Trap(Trap::host(
                        "a host function returned a reference of another store",
                    )));
                    return Outcome::Raise;
                }
            }
            // SAFETY: room for the results, by the caller's promise.
            unsafe { values.write(slots) };
            Outcome::Return
        }
        Err(error) => store.end_host_call(record, slots, error),
    }
}

struct Dynamic<T> {
    ty: FuncType,
    func: Box<DynamicFn<T>>,
}

type DynamicFn<T> = dyn Fn(Caller<'_, T>, &[Val], &mut [Val]) -> Result<(), HostError> + Send + Sync;

/// # Safety
/// Called by the stub: the record holds a `Dynamic<T>`, the slots hold its parameters.
unsafe extern "C" fn call_dynamic<T: 'static>(record: *const HostRecord, slots: *mut Slot) -> Outcome {
    // SAFETY: the stub passes a valid record.
    let record = unsafe { &*record };
    // SAFETY: the record was made by `HostFunc::new` with this T.
    let dynamic = unsafe { &*std::ptr::from_ref(&*record.func.closure).cast::<Dynamic<T>>() };
    // SAFETY: the guest waits: nobody else uses the store during this call.
    let (id, caller) =
        unsafe { (record.store.as_ref().id, Caller::new(record.store.cast(), record.instance)) };
    let result = catch_unwind(AssertUnwindSafe(|| {
        let read = |(index, &ty): (usize, &crate::ValueType)| {
            // SAFETY: the slots hold values of the parameters' types.
            unsafe { Val::from_slot(slots.add(index).read(), ty, id) }
        };
        let params: Vec<Val> = dynamic.ty.params.iter().enumerate().map(read).collect();
        let mut results: Vec<Val> = dynamic.ty.results.iter().map(|&ty| Val::default_of(ty)).collect();
        (dynamic.func)(caller, &params, &mut results)?;
        let fit =
            results.iter().zip(&dynamic.ty.results).all(|(val, &ty)| val.ty() == ty && val.belongs_to(id));
        if fit {
            Ok(results)
        } else {
            Err(HostError::message("a host function returned values of other types"))
        }
    }));
    // SAFETY: the caller's borrow has ended.
    let store = unsafe { &mut *record.store.as_ptr() };
    match result {
        Ok(Ok(results)) => {
            for (index, val) in results.iter().enumerate() {
                store.expose(val);
                // SAFETY: room for the results.
                unsafe { slots.add(index).write(val.to_slot()) };
            }
            Outcome::Return
        }
        Ok(Err(error)) => store.end_host_call(record, slots, error),
        Err(payload) => store.end_host_call(record, slots, HostError(HostReason::Trap(Trap::panic(payload)))),
    }
}

impl StoreOpaque {
    /// Keeps what a host function returned instead of results, and says what the stub does about it.
    fn end_host_call(&mut self, record: &HostRecord, slots: *mut Slot, error: HostError) -> Outcome {
        match error.0 {
            HostReason::Suspend(payload) => {
                // SAFETY: the running fiber is alive; there is none when the host itself called.
                if unsafe { self.fiber.as_ref() }.is_some_and(|fiber| fiber.resumable) {
                    self.suspended = (slots, record.func_ref.type_id as u32);
                    self.outcome = Some(HostReason::Suspend(payload));
                    return Outcome::Suspend;
                }
                let message = "a host function suspended a guest that was called, not started with Execution";
                self.outcome = Some(HostReason::Trap(Trap::host(message)));
                Outcome::Raise
            }
            HostReason::Trap(trap) => {
                let thrown = trap.thrown();
                self.outcome = Some(HostReason::Trap(trap));
                match thrown {
                    // A handler of the guest that called may take it.
                    // SAFETY: called by a stub when there is a running fiber: its guest waits for this host call.
                    Some(exception) if !self.fiber.is_null() => unsafe {
                        exception::rethrow(self, exception)
                    },
                    _ => Outcome::Raise,
                }
            }
        }
    }

    /// Brings the code of a host function that had none.
    pub(crate) fn set_code(&mut self, func: &Func, code: *const u8) {
        // SAFETY: the record is alive and only this store's thread uses it.
        unsafe { (*func.record.as_ptr()).code = code };
    }

    /// Puts a host function into the store, for the calls of one instance or for everyone's.
    pub(crate) fn add_host_func(
        &mut self,
        func: Arc<HostFunc>,
        instance: Option<NonNull<InstanceData>>,
    ) -> Func {
        let ty = TypeId::new(&func.ty());
        let direct = func.direct.unwrap_or(std::ptr::null());
        let func_ref = FuncRef {
            // Without a direct call the code is a thunk of an artifact, which comes with a module that has the type.
            code: if direct.is_null() { direct } else { arch::direct_stub() },
            ctx: std::ptr::null_mut(),
            type_id: u64::from(ty.number()),
            owner: std::ptr::null(),
        };
        let call = func.call;
        let record = HostRecord {
            array_stub: arch::array_stub(),
            store: NonNull::from(&mut *self),
            call,
            direct,
            instance,
            func,
            func_ref,
            ty,
        };
        let record = NonNull::from(Box::leak(Box::new(record)));
        // SAFETY: the record was just made; the address of a field is in bounds.
        let func_ref = unsafe {
            (*record.as_ptr()).func_ref.ctx = record.as_ptr().cast();
            NonNull::new_unchecked(&raw mut (*record.as_ptr()).func_ref)
        };
        self.host_funcs.push(record);
        Func { store: self.id, record: func_ref }
    }

    /// Makes sure that guests can call a function that is about to reach them as a value.
    ///
    /// A host function's code is a thunk of an artifact that has its type. Only a module that has the type can call the
    /// function, so when no module does yet, the next one that does brings the code ([`Self::adopt_thunks`]).
    pub(crate) fn expose(&mut self, val: &Val) {
        let Val::FuncRef(Some(func)) = val else { return };
        let func_ref = *func.func_ref(self);
        if func_ref.code.is_null() {
            let found = self.instances.iter().find_map(|instance| {
                // SAFETY: instances live as long as the store.
                unsafe { instance.as_ref() }.module.host_thunk(func_ref.type_id as u32)
            });
            if let Some(code) = found {
                self.set_code(func, code);
            }
        }
    }

    /// Gives host functions without code the thunks of a module that has their types.
    pub(crate) fn adopt_thunks(&mut self, module: &crate::Module) {
        for record in &self.host_funcs {
            // SAFETY: host records live as long as the store.
            let record = unsafe { &mut *record.as_ptr() };
            if record.func_ref.code.is_null()
                && let Some(code) = module.host_thunk(record.func_ref.type_id as u32)
            {
                record.func_ref.code = code;
            }
        }
    }
}
