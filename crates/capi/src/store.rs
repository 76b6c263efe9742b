//! `mote_store`, `mote_wasi` and `mote_interrupt`.

use std::ffi::c_char;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mote_runtime::{Func, Instance, Interrupt, InterruptHandle, Limits, Memory, Store};
use mote_wasi::{WasiCtx, WasiCtxBuilder};

use crate::error::{Error, check, report};
use crate::{bytes, give, take, text};

/// What host functions find in a store.
pub(crate) struct Data {
    pub(crate) wasi: WasiCtx,
}

/// `mote_store`.
pub struct CStore {
    pub(crate) store: Store<Data>,
    pub(crate) instances: Vec<Instance>,
    pub(crate) funcs: Vec<Func>,
    pub(crate) memories: Vec<Memory>,
}

/// `mote_limits`.
#[repr(C)]
pub struct CLimits {
    memory_bytes: u64,
    table_elements: u64,
    stack_bytes: usize,
    nested_calls: u32,
}

/// `mote_store_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_store_new(limits: *const CLimits) -> *mut CStore {
    let mut chosen = Limits::default();
    // SAFETY: the header's contract.
    if let Some(limits) = unsafe { limits.as_ref() } {
        let or = |value: u64, default: u64| if value == 0 { default } else { value };
        chosen.memory_bytes = or(limits.memory_bytes, chosen.memory_bytes);
        chosen.table_elements = or(limits.table_elements, chosen.table_elements);
        chosen.stack_bytes = or(limits.stack_bytes as u64, chosen.stack_bytes as u64) as usize;
        chosen.nested_calls =
            if limits.nested_calls == 0 { chosen.nested_calls } else { limits.nested_calls };
    }
    // Without mote_store_set_wasi guests have no arguments, no files and closed streams.
    let Ok(wasi) = WasiCtxBuilder::new().build() else { return std::ptr::null_mut() };
    give(CStore {
        store: Store::with_limits(Data { wasi }, chosen),
        instances: Vec::new(),
        funcs: Vec::new(),
        memories: Vec::new(),
    })
}

/// `mote_store_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_store_free(store: *mut CStore) {
    // SAFETY: the header's contract.
    drop(unsafe { take(store) });
}

/// `mote_store_set_timeout`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_store_set_timeout(store: *mut CStore, nanoseconds: u64) {
    // SAFETY: the header's contract.
    let store = unsafe { &mut (*store).store };
    let deadline = Instant::now().checked_add(Duration::from_nanos(nanoseconds));
    store.set_deadline(deadline.filter(|_| nanoseconds != 0));
}

/// `mote_store_interrupt`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_store_interrupt(store: *mut CStore) -> *mut InterruptHandle {
    // SAFETY: the header's contract.
    give(unsafe { &mut (*store).store }.interrupt_handle())
}

/// `mote_interrupt_raise`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_interrupt_raise(interrupt: *const InterruptHandle) {
    // SAFETY: the header's contract.
    unsafe { &*interrupt }.interrupt();
}

/// `mote_interrupt_clear`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_interrupt_clear(interrupt: *const InterruptHandle) {
    // SAFETY: the header's contract.
    unsafe { &*interrupt }.clear();
}

/// `mote_interrupt_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_interrupt_free(interrupt: *mut InterruptHandle) {
    // SAFETY: the header's contract.
    drop(unsafe { take(interrupt) });
}

/// `mote_wasi`.
pub struct CWasi(WasiCtxBuilder);

/// `mote_wasi_new`.
#[unsafe(no_mangle)]
pub extern "C" fn mote_wasi_new() -> *mut CWasi {
    give(CWasi(WasiCtxBuilder::new()))
}

/// `mote_wasi_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_wasi_free(wasi: *mut CWasi) {
    // SAFETY: the header's contract.
    drop(unsafe { take(wasi) });
}

/// `mote_wasi_arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_wasi_arg(wasi: *mut CWasi, arg: *const c_char) {
    // SAFETY: the header's contract.
    unsafe { (*wasi).0.arg(bytes(arg)) };
}

/// `mote_wasi_env`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_wasi_env(wasi: *mut CWasi, name: *const c_char, value: *const c_char) {
    // SAFETY: the header's contract.
    unsafe { (*wasi).0.env(bytes(name), bytes(value)) };
}

/// `mote_wasi_dir`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_wasi_dir(
    wasi: *mut CWasi,
    host: *const c_char,
    guest: *const c_char,
    readonly: bool,
) {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: the header's contract.
    unsafe {
        let host = PathBuf::from(std::ffi::OsStr::from_bytes(bytes(host)));
        (*wasi).0.preopen(host, text(guest), readonly);
    }
}

/// `mote_wasi_inherit_stdio`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_wasi_inherit_stdio(wasi: *mut CWasi) {
    // SAFETY: the header's contract.
    unsafe { (*wasi).0.inherit_stdio() };
}

/// `mote_store_set_wasi`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_store_set_wasi(store: *mut CStore, wasi: *mut CWasi) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        let (store, wasi) = unsafe { (&mut (*store).store, take(wasi)) };
        check(wasi.is_some(), "wasi is null")?;
        let Some(wasi) = wasi else { return Ok(()) };
        let mut context = wasi.0.build().map_err(Error::from_error)?;
        // A deadline or an interrupt also ends a guest that waits in a system call.
        let event = store.interrupt_event().and_then(|event| event.try_clone_to_owned());
        context.set_interrupt(mote_wasi::Interrupt::from_fd(event.map_err(Error::from_error)?));
        store.data_mut().wasi = context;
        Ok(())
    })
}
