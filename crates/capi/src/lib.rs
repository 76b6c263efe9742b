//! Mote for C: `libmote`, whose interface is `include/mote.h`.
//!
//! Objects that C holds are boxes; functions, memories and instances are numbers into lists of their store. A Rust panic never
//! reaches C: it becomes an error. What the header says about a function is its contract; C's side of it (valid pointers, one
//! thread per store) is the safety condition of every function here.
#![allow(
    clippy::missing_safety_doc,
    reason = "include/mote.h says it for all: pointers are valid, strings end with 0"
)]

mod error;
mod instance;
mod linker;
mod store;
mod value;

use std::ffi::{CStr, c_char};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;

use mote_runtime::Module;

pub use error::Error;
use error::{check, report};

/// `mote_module`.
pub struct CModule(Module);

/// Text that C passes; what is no UTF-8 is replaced.
///
/// # Safety
/// A string that ends with 0, or null.
unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

/// Bytes that C passes.
///
/// # Safety
/// A string that ends with 0, or null.
unsafe fn bytes<'a>(string: *const c_char) -> &'a [u8] {
    if string.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_bytes()
}

/// A list that C passes.
///
/// # Safety
/// `len` items at `items`, or `len` is 0.
unsafe fn list<'a, T>(items: *const T, len: usize) -> &'a [T] {
    if items.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(items, len) }
}

/// A list that C lets us write.
///
/// # Safety
/// `len` items at `items`, or `len` is 0.
unsafe fn list_mut<'a, T>(items: *mut T, len: usize) -> &'a mut [T] {
    if items.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(items, len) }
}

/// Gives C a box.
fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes a box back from C and drops it.
///
/// # Safety
/// Null, or from [`give`] and not taken back yet.
unsafe fn take<T>(value: *mut T) -> Option<Box<T>> {
    if value.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { Box::from_raw(value) })
}

/// `mote_module_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_module_open(path: *const c_char, module: *mut *mut CModule) -> *mut Error {
    report(|| {
        use std::os::unix::ffi::OsStrExt;
        // SAFETY: the header's contract.
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(unsafe { bytes(path) }));
        let file =
            File::open(path).map_err(|error| Error::message(format!("{}: {error}", path.display())))?;
        let made = Module::from_file(&file)
            .map_err(|error| Error::message(format!("{}: {error}", path.display())))?;
        // SAFETY: the header's contract.
        unsafe { module.write(give(CModule(made))) };
        Ok(())
    })
}

/// `mote_module_open_fd`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_module_open_fd(fd: i32, module: *mut *mut CModule) -> *mut Error {
    report(|| {
        check(fd >= 0, "the file descriptor is negative")?;
        // SAFETY: the caller's open descriptor; it is not closed here.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        let made = Module::from_file(&file).map_err(Error::from_error)?;
        // SAFETY: the header's contract.
        unsafe { module.write(give(CModule(made))) };
        Ok(())
    })
}

/// `mote_module_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_module_free(module: *mut CModule) {
    // SAFETY: the header's contract.
    drop(unsafe { take(module) });
}
