//! `mote_error`.

use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use mote_runtime::{HostError, InstantiateError, Trap};

use crate::{give, take, text};

/// `mote_error`.
pub struct Error {
    message: CString,
    backtrace: CString,
    trap: c_int,
    exit_code: Option<c_int>,
}

/// A message for C: it ends at the first zero byte.
fn c_string(text: String) -> CString {
    let bytes: Vec<u8> = text.into_bytes().into_iter().take_while(|&byte| byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

impl Error {
    pub(crate) fn message(message: impl Into<String>) -> Self {
        let message = c_string(message.into());
        Self { backtrace: message.clone(), message, trap: 0, exit_code: None }
    }

    pub(crate) fn from_error(error: impl std::error::Error) -> Self {
        Self::message(error.to_string())
    }

    pub(crate) fn from_trap(trap: &Trap) -> Self {
        Self {
            message: c_string(trap.to_string()),
            backtrace: c_string(format!("{trap:#}")),
            trap: trap.code().map_or(0, |code| code as c_int),
            exit_code: trap
                .downcast_ref::<mote_wasi::Error>()
                .and_then(|error| error.exit_status())
                .map(c_int::from),
        }
    }

    pub(crate) fn from_instantiate(error: &InstantiateError) -> Self {
        error.trap().map_or_else(|| Self::from_error(error), Self::from_trap)
    }

    /// As what a host function returns.
    pub(crate) fn into_host_error(self) -> HostError {
        HostError::message(self.message.to_string_lossy().into_owned())
    }
}

/// Runs a function for C: an error, or null.
pub(crate) fn report(act: impl FnOnce() -> Result<(), Error>) -> *mut Error {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => std::ptr::null_mut(),
        Ok(Err(error)) => give(error),
        Err(_) => give(Error::message("internal error of libmote")),
    }
}

pub(crate) fn check(holds: bool, otherwise: &str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::message(otherwise)) }
}

/// `mote_error_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_error_new(message: *const c_char) -> *mut Error {
    // SAFETY: the header's contract.
    give(Error::message(unsafe { text(message) }))
}

/// `mote_error_message`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_error_message(error: *const Error) -> *const c_char {
    // SAFETY: the header's contract.
    unsafe { (*error).message.as_ptr() }
}

/// `mote_error_backtrace`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_error_backtrace(error: *const Error) -> *const c_char {
    // SAFETY: the header's contract.
    unsafe { (*error).backtrace.as_ptr() }
}

/// `mote_error_trap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_error_trap(error: *const Error) -> c_int {
    // SAFETY: the header's contract.
    unsafe { (*error).trap }
}

/// `mote_error_exit_code`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_error_exit_code(error: *const Error, code: *mut c_int) -> bool {
    // SAFETY: the header's contract.
    match unsafe { (*error).exit_code } {
        Some(exit) => {
            // SAFETY: the header's contract.
            unsafe { code.write(exit) };
            true
        }
        None => false,
    }
}

/// `mote_error_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_error_free(error: *mut Error) {
    // SAFETY: the header's contract.
    drop(unsafe { take(error) });
}
