//! Functions that generated code calls through the context's table (`abi::Builtin`). The stubs bring them onto the host's stack;
//! nothing here panics or unwinds.

use std::ptr::NonNull;

use mote_artifact::abi::{CONTEXT_BELOW, TrapCode, header};

use crate::arch::BuiltinResult;
use crate::func::Outcome;
use crate::instance::InstanceData;
use crate::store::StoreOpaque;
use crate::trap::{HostReason, Trap};
use crate::value::Slot;
use crate::{atomics, exception, segments};

/// Store and instance of a context.
struct Context {
    store: NonNull<StoreOpaque>,
    instance: NonNull<InstanceData>,
}

impl Context {
    /// # Safety
    /// `ctx` is the context pointer of a live instance.
    unsafe fn new(ctx: *mut u8) -> Self {
        let block = ctx.wrapping_sub(CONTEXT_BELOW as usize);
        // SAFETY: the block's header has these words, and they are not null.
        unsafe {
            Self {
                store: NonNull::new_unchecked(
                    block.add(header::STORE as usize).cast::<*mut StoreOpaque>().read(),
                ),
                instance: NonNull::new_unchecked(
                    block.add(header::INSTANCE as usize).cast::<*mut InstanceData>().read(),
                ),
            }
        }
    }

    fn store(&mut self) -> &mut StoreOpaque {
        // SAFETY: the guest waits: nobody else uses the store during this call.
        unsafe { self.store.as_mut() }
    }

    /// Both, to be used together.
    fn parts(&mut self) -> (&mut InstanceData, &mut StoreOpaque) {
        // SAFETY: as above; the store owns instances through pointers, so the two do not overlap.
        unsafe { (self.instance.as_mut(), self.store.as_mut()) }
    }

    fn finish(mut self, result: Result<u64, Trap>) -> BuiltinResult {
        match result {
            Ok(value) => BuiltinResult { outcome: Outcome::Return, value },
            Err(trap) => {
                self.store().outcome = Some(HostReason::Trap(trap));
                BuiltinResult { outcome: Outcome::Raise, value: 0 }
            }
        }
    }
}

const MINUS_ONE: u64 = u64::MAX;

macro_rules! builtins {
    ($($(#[$doc:meta])* fn $name:ident($context:ident $(, $argument:ident: $ty:ty)*) $body:block)*) => {
        $(
            $(#[$doc])*
            /// # Safety
            /// Called by its stub: `ctx` is the context pointer of the calling guest.
            pub(crate) unsafe extern "C" fn $name(ctx: *mut u8 $(, $argument: $ty)*) -> BuiltinResult {
                // SAFETY: the caller's promise.
                let mut context = unsafe { Context::new(ctx) };
                let result = {
                    let $context = &mut context;
                    $body
                };
                context.finish(result)
            }
        )*
    };
}

builtins! {
    fn memory_grow(context, memory: u32, delta: u64) {
        let (instance, store) = context.parts();
        let memory = instance.memories.get(memory as usize);
        Ok(memory.and_then(|memory| memory.entity(store).grow(delta)).unwrap_or(MINUS_ONE))
    }

    fn memory_init(context, memory: u32, segment: u32, dst: u64, src: u32, len: u32) {
        let (instance, store) = context.parts();
        segments::memory_init(instance, store, memory, segment, dst, src, len.into()).map(|()| 0).map_err(Trap::from)
    }

    fn data_drop(context, segment: u32) {
        if let Some(dropped) = context.parts().0.dropped_data.get_mut(segment as usize) {
            *dropped = true;
        }
        Ok(0)
    }

    fn table_grow(context, table: u32, init: u64, delta: u64) {
        let (instance, store) = context.parts();
        let table = instance.tables.get(table as usize);
        Ok(table.and_then(|table| table.entity_mut(store).grow(delta, init)).unwrap_or(MINUS_ONE))
    }

    fn table_init(context, table: u32, segment: u32, dst: u64, src: u32, len: u32) {
        let (instance, store) = context.parts();
        segments::table_init(instance, store, table, segment, dst, src, len.into()).map(|()| 0).map_err(Trap::from)
    }

    fn elem_drop(context, segment: u32) {
        if let Some(dropped) = context.parts().0.dropped_elements.get_mut(segment as usize) {
            *dropped = true;
        }
        Ok(0)
    }

    fn table_fill(context, table: u32, start: u64, value: u64, len: u64) {
        let (instance, store) = context.parts();
        segments::table_fill(instance, store, table, start, value, len).map(|()| 0).map_err(Trap::from)
    }

    fn table_copy(context, dst_table: u32, src_table: u32, dst: u64, src: u64, len: u64) {
        let (instance, store) = context.parts();
        segments::table_copy(instance, store, (dst_table, src_table), dst, src, len).map(|()| 0).map_err(Trap::from)
    }

    fn atomic_wait32(context, memory: u32, address: u64, expected: u32, timeout_ns: i64) {
        let (instance, store) = context.parts();
        let expected = atomics::Expected::I32(expected);
        atomics::wait(instance, store, memory, address, expected, timeout_ns).map(u64::from)
    }

    fn atomic_wait64(context, memory: u32, address: u64, expected: u64, timeout_ns: i64) {
        let (instance, store) = context.parts();
        let expected = atomics::Expected::I64(expected);
        atomics::wait(instance, store, memory, address, expected, timeout_ns).map(u64::from)
    }

    fn atomic_notify(context, memory: u32, address: u64, count: u32) {
        let (instance, store) = context.parts();
        atomics::notify(instance, store, memory, address, count).map(u64::from).map_err(Trap::from)
    }

    fn exception_new(context, tag: u32, slots: *const Slot) {
        let (instance, store) = context.parts();
        let tag = instance.tags.get(tag as usize).copied();
        let new = |tag| {
            // SAFETY: generated code passes one slot per value of the tag's type.
            unsafe { exception::new(store, tag, slots) }
        };
        tag.ok_or(TrapCode::NullReference).and_then(new).map_err(Trap::from)
    }

    fn exception_free(context, exception: u64) {
        // SAFETY: generated code passes an exception of this store that it has caught.
        unsafe { exception::free(context.store(), exception) };
        Ok(0)
    }
}

/// Unwinds to the next handler.
///
/// # Safety
/// Called by its stub: `ctx` is the context pointer of the calling guest.
pub(crate) unsafe extern "C" fn throw(ctx: *mut u8, exception: u64) -> BuiltinResult {
    // SAFETY: the caller's promise.
    let mut context = unsafe { Context::new(ctx) };
    // SAFETY: the calling guest waits on the store's running fiber.
    let outcome = unsafe { exception::throw(context.store(), exception) };
    BuiltinResult { outcome, value: 0 }
}
