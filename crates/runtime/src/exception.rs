//! Exceptions of guests: objects that the store owns, and the search for a handler.
//!
//! A throw walks the guest's frames with their unwind tables to the first call site that has a landing pad, and goes on there with that
//! frame's callee-saved registers. Where the frames of this call end, the exception becomes a [`Trap`] that the host function in
//! between returns; the stub on the other side throws it again.

use std::alloc::{Layout, alloc, dealloc};
use std::num::NonZeroU64;

use mote_artifact::abi::{SLOT_BYTES, TrapCode, exception as record};

use crate::arch::Registers;
use crate::canonical_types;
use crate::func::Outcome;
use crate::store::{AsStore, AsStoreMut, StoreOpaque};
use crate::tag::Tag;
use crate::trap::{HostReason, Trap};
use crate::unwind::Unwinder;
use crate::value::{ExnRef, Slot, Val};

/// Exceptions alive in a store, by address, so that every one goes with the store at the latest.
#[derive(Default)]
pub(crate) struct Exceptions {
    alive: std::collections::BTreeMap<u64, Layout>,
}

impl Drop for Exceptions {
    fn drop(&mut self) {
        for (address, layout) in std::mem::take(&mut self.alive) {
            // SAFETY: allocated with this layout and not freed yet.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }
}

/// Makes an exception.
///
/// # Safety
/// `slots` holds one slot per parameter of the tag's type.
pub(crate) unsafe fn new(store: &mut StoreOpaque, tag: Tag, slots: *const Slot) -> Result<u64, TrapCode> {
    if store.exceptions.alive.len() >= store.limits.exceptions {
        return Err(TrapCode::ResourceLimit);
    }
    let count = canonical_types::get(tag.type_id(store)).params.len();
    let bytes = record::PAYLOAD as usize + count * SLOT_BYTES as usize;
    let layout = Layout::from_size_align(bytes, 16).map_err(|_| TrapCode::ResourceLimit)?;
    // SAFETY: the layout is not empty; fields and payload lie inside it; the slots are the caller's promise.
    let address = unsafe {
        let object = alloc(layout);
        if object.is_null() {
            return Err(TrapCode::ResourceLimit);
        }
        object.add(record::TAG as usize).cast::<u64>().write(tag.word());
        object.add(record::ESCAPED as usize).cast::<u64>().write(0);
        // Without a payload there need not be slots.
        if count > 0 {
            // Generated code's slots need not be aligned.
            let payload = object.add(record::PAYLOAD as usize);
            payload.copy_from_nonoverlapping(slots.cast(), count * SLOT_BYTES as usize);
        }
        object as u64
    };
    store.exceptions.alive.insert(address, layout);
    Ok(address)
}

/// Frees an exception unless guests still refer to it.
///
/// # Safety
/// The exception, if alive, is not referred to when its record says so.
pub(crate) unsafe fn free(store: &mut StoreOpaque, address: u64) {
    let Some(layout) = store.exceptions.alive.get(&address).copied() else { return };
    // SAFETY: alive, and allocated with this layout.
    unsafe {
        let object = address as *mut u8;
        if object.add(record::ESCAPED as usize).cast::<u64>().read() == 0 {
            store.exceptions.alive.remove(&address);
            dealloc(object, layout);
        }
    }
}

/// Finds the handler of an exception that the running guest throws (through a builtin or a host function).
///
/// # Safety
/// The store's running fiber has been left by a stub.
pub(crate) unsafe fn throw(store: &mut StoreOpaque, exception: u64) -> Outcome {
    let Some(address) = NonZeroU64::new(exception) else {
        store.outcome = Some(HostReason::Trap(TrapCode::NullReference.into()));
        return Outcome::Raise;
    };
    // SAFETY: the running fiber is alive and its guest waits on its stack.
    let (fiber, registers) = unsafe { (&mut *store.fiber, Registers::of_host_call((*store.fiber).guest_sp)) };
    let mut unwinder = Unwinder::new(registers, fiber.stack_range(), true);
    while let Some(frame) = unwinder.frame() {
        if let Some(landing) = unwinder.landing(&frame) {
            fiber.registers = landing.with_exception(exception);
            return Outcome::Land;
        }
        if unwinder.step(&frame).is_none() {
            break;
        }
    }
    let trap = Trap::exception(ExnRef { store: store.id, address });
    store.outcome = Some(HostReason::Trap(trap));
    Outcome::Raise
}

/// Throws what a host function returned as its error: an exception, on its way from an inner guest or of the host's own.
/// [`StoreOpaque::outcome`] holds the trap that goes on when there is no handler.
///
/// # Safety
/// As for [`throw`].
pub(crate) unsafe fn rethrow(store: &mut StoreOpaque, exception: ExnRef) -> Outcome {
    if exception.store != store.id || !store.exceptions.alive.contains_key(&exception.address.get()) {
        return Outcome::Raise;
    }
    let trap = store.outcome.take();
    // SAFETY: the caller's promise.
    let outcome = unsafe { throw(store, exception.address.get()) };
    if outcome == Outcome::Raise {
        store.outcome = trap;
    }
    outcome
}

impl ExnRef {
    /// Makes an exception with a payload of the tag's parameters.
    pub fn new(mut store: impl AsStoreMut, tag: &Tag, payload: &[Val]) -> Result<Self, Trap> {
        let store = store.opaque_mut();
        let mut ty = canonical_types::get(tag.type_id(store));
        ty.results.clear();
        let slots = crate::func::arguments(store, &ty, payload)?;
        // SAFETY: the slots hold the payload's values.
        let address = unsafe { new(store, *tag, slots.as_ptr()) }?;
        // The host refers to it: no guest may free it.
        let address = NonZeroU64::new(address).ok_or(TrapCode::ResourceLimit)?;
        // SAFETY: just made.
        unsafe { (address.get() as *mut u8).add(record::ESCAPED as usize).cast::<u64>().write(1) };
        Ok(Self { store: store.id, address })
    }

    /// Its tag and payload; `None` when it is no longer alive.
    pub fn get(&self, store: impl AsStore) -> Option<(Tag, Vec<Val>)> {
        let store = store.opaque();
        if self.store != store.id || !store.exceptions.alive.contains_key(&self.address.get()) {
            return None;
        }
        let object = self.address.get() as *const u8;
        // SAFETY: alive: the record holds a tag of this store and one slot per parameter of its type.
        unsafe {
            let tag = Tag::from_word(object.add(record::TAG as usize).cast::<u64>().read(), store.id)?;
            let payload = object.add(record::PAYLOAD as usize).cast::<Slot>();
            let ty = canonical_types::get(tag.type_id(store));
            let value = |(at, &ty)| Val::from_slot(payload.add(at).read(), ty, store.id);
            Some((tag, ty.params.iter().enumerate().map(value).collect()))
        }
    }
}
