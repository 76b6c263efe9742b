//! Instances, their functions and memories.

use std::ffi::c_char;

use crate::error::{Error, report};
use crate::linker::CLinker;
use crate::store::CStore;
use crate::value::CValue;
use crate::{CModule, list, list_mut, text};

/// Finds what a number of C's stands for.
fn find<T: Copy>(list: &[T], number: usize, what: &str) -> Result<T, Error> {
    list.get(number).copied().ok_or_else(|| Error::message(format!("{number} is no {what} of this store")))
}

/// Remembers a thing and gives C its number.
///
/// # Safety
/// `number` can be written.
unsafe fn number_of<T>(list: &mut Vec<T>, thing: T, number: *mut usize) {
    // SAFETY: the caller's promise.
    unsafe { number.write(list.len()) };
    list.push(thing);
}

/// `mote_instantiate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_instantiate(
    linker: *const CLinker,
    store: *mut CStore,
    module: *const CModule,
    instance: *mut usize,
) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        unsafe {
            let store = &mut *store;
            let made = (*linker).0.instantiate(&mut store.store, &(*module).0);
            let made = made.map_err(|error| Error::from_instantiate(&error))?;
            number_of(&mut store.instances, made, instance);
        }
        Ok(())
    })
}

/// `mote_get_func`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_get_func(
    store: *mut CStore,
    instance: usize,
    name: *const c_char,
    func: *mut usize,
) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        let (store, name) = unsafe { (&mut *store, text(name)) };
        let found = find(&store.instances, instance, "instance")?.get_func(&store.store, &name);
        let found =
            found.ok_or_else(|| Error::message(format!("the instance exports no function {name:?}")))?;
        // SAFETY: the header's contract.
        unsafe { number_of(&mut store.funcs, found, func) };
        Ok(())
    })
}

/// `mote_get_memory`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_get_memory(
    store: *mut CStore,
    instance: usize,
    name: *const c_char,
    memory: *mut usize,
) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        let (store, name) = unsafe { (&mut *store, text(name)) };
        let found = find(&store.instances, instance, "instance")?.get_memory(&store.store, &name);
        let found =
            found.ok_or_else(|| Error::message(format!("the instance exports no memory {name:?}")))?;
        // SAFETY: the header's contract.
        unsafe { number_of(&mut store.memories, found, memory) };
        Ok(())
    })
}

/// `mote_call`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_call(
    store: *mut CStore,
    func: usize,
    args: *const CValue,
    arg_count: usize,
    results: *mut CValue,
    result_count: usize,
) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        let (store, args, results) =
            unsafe { (&mut *store, list(args, arg_count), list_mut(results, result_count)) };
        let func = find(&store.funcs, func, "function")?;
        // SAFETY: C's values are initialised.
        let params = args.iter().map(|arg| unsafe { arg.to_val() }).collect::<Result<Vec<_>, _>>()?;
        let expected = func.ty(&store.store).results.len();
        if expected != results.len() {
            return Err(Error::message(format!("the function has {expected} results, not {result_count}")));
        }
        let values = func.call(&mut store.store, &params).map_err(|trap| Error::from_trap(&trap))?;
        for (result, value) in results.iter_mut().zip(&values) {
            *result = CValue::from_val(value)?;
        }
        Ok(())
    })
}

/// `mote_checkpoint`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_checkpoint(store: *mut CStore, instance: usize) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        let store = unsafe { &mut *store };
        find(&store.instances, instance, "instance")?.checkpoint(&mut store.store).map_err(Error::from_error)
    })
}

/// `mote_reset`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_reset(store: *mut CStore, instance: usize) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        let store = unsafe { &mut *store };
        find(&store.instances, instance, "instance")?.reset(&mut store.store).map_err(Error::from_error)
    })
}

/// `mote_memory_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_memory_size(store: *const CStore, memory: usize) -> u64 {
    // SAFETY: the header's contract.
    let store = unsafe { &*store };
    store.memories.get(memory).map_or(0, |memory| memory.byte_len(&store.store))
}

/// `mote_memory_grow`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_memory_grow(
    store: *mut CStore,
    memory: usize,
    delta_pages: u64,
    old_pages: *mut u64,
) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        let store = unsafe { &mut *store };
        let old = find(&store.memories, memory, "memory")?.grow(&mut store.store, delta_pages);
        let old = old.map_err(Error::from_error)?;
        if !old_pages.is_null() {
            // SAFETY: the header's contract.
            unsafe { old_pages.write(old) };
        }
        Ok(())
    })
}

/// `mote_memory_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_memory_read(
    store: *const CStore,
    memory: usize,
    address: u64,
    to: *mut u8,
    len: usize,
) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        let (store, to) = unsafe { (&*store, list_mut(to, len)) };
        find(&store.memories, memory, "memory")?.read(&store.store, address, to).map_err(Error::from_error)
    })
}

/// `mote_memory_write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_memory_write(
    store: *mut CStore,
    memory: usize,
    address: u64,
    from: *const u8,
    len: usize,
) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        let (store, from) = unsafe { (&mut *store, list(from, len)) };
        find(&store.memories, memory, "memory")?
            .write(&mut store.store, address, from)
            .map_err(Error::from_error)
    })
}
