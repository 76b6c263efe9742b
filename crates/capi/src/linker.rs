//! `mote_linker` and host functions in C.

use std::ffi::{c_char, c_void};

use mote_runtime::{Caller, FuncType, HostError, Linker, Memory, Val};

use crate::error::{Error, report};
use crate::store::Data;
use crate::value::{CValue, value_type};
use crate::{give, list, take, text};

/// `mote_linker`.
pub struct CLinker(pub(crate) Linker<Data>);

/// `mote_host_func`.
type HostFunc = unsafe extern "C" fn(
    env: *mut c_void,
    caller: *mut CCaller<'_, '_>,
    args: *const CValue,
    arg_count: usize,
    results: *mut CValue,
    result_count: usize,
) -> *mut Error;

/// `mote_caller`: what a host function in C is handed.
pub struct CCaller<'a, 'b>(&'a mut Caller<'b, Data>);

/// A host function's environment, which C promises to be usable from any thread that runs a store.
struct Env(*mut c_void);

// SAFETY: the header says that functions may be called by several threads.
unsafe impl Send for Env {}
// SAFETY: as above.
unsafe impl Sync for Env {}

/// `mote_linker_new`.
#[unsafe(no_mangle)]
pub extern "C" fn mote_linker_new() -> *mut CLinker {
    give(CLinker(Linker::new()))
}

/// `mote_linker_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_linker_free(linker: *mut CLinker) {
    // SAFETY: the header's contract.
    drop(unsafe { take(linker) });
}

/// `mote_linker_add_wasi`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_linker_add_wasi(linker: *mut CLinker) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        mote_wasi::add_to_linker(unsafe { &mut (*linker).0 }, |data| &mut data.wasi);
        Ok(())
    })
}

/// `mote_linker_add_func`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_linker_add_func(
    linker: *mut CLinker,
    module: *const c_char,
    name: *const c_char,
    params: *const u32,
    param_count: usize,
    results: *const u32,
    result_count: usize,
    func: Option<HostFunc>,
    env: *mut c_void,
) -> *mut Error {
    report(|| {
        let func = func.ok_or_else(|| Error::message("the function is null"))?;
        // SAFETY: the header's contract.
        let (linker, module, name, params, results) = unsafe {
            (
                &mut (*linker).0,
                text(module),
                text(name),
                list(params, param_count),
                list(results, result_count),
            )
        };
        let types =
            |numbers: &[u32]| numbers.iter().map(|&number| value_type(number)).collect::<Result<Vec<_>, _>>();
        let ty = FuncType { params: types(params)?, results: types(results)? };
        let env = Env(env);
        linker.func_new(module, name, ty, move |mut caller, params, results| {
            // The closure owns all of the environment, not its pointer alone.
            let env = &env;
            // SAFETY: C's function, with what the header says it gets.
            unsafe { call(func, env.0, &mut caller, params, results) }
        });
        Ok(())
    })
}

/// # Safety
/// `func` keeps the header's contract.
unsafe fn call(
    func: HostFunc,
    env: *mut c_void,
    caller: &mut Caller<'_, Data>,
    params: &[Val],
    results: &mut [Val],
) -> Result<(), HostError> {
    let to_c = |vals: &[Val]| vals.iter().map(CValue::from_val).collect::<Result<Vec<_>, _>>();
    let args = to_c(params).map_err(Error::into_host_error)?;
    let mut answers = to_c(results).map_err(Error::into_host_error)?;
    let mut caller = CCaller(caller);
    // SAFETY: the lists have these lengths.
    let error = unsafe {
        let caller: *mut CCaller<'_, '_> = &mut caller;
        func(env, caller, args.as_ptr(), args.len(), answers.as_mut_ptr(), answers.len())
    };
    // SAFETY: null, or made by this library.
    if let Some(error) = unsafe { take(error) } {
        return Err(error.into_host_error());
    }
    for (result, answer) in results.iter_mut().zip(answers) {
        // SAFETY: values were initialised before the call.
        *result = unsafe { answer.to_val() }.map_err(Error::into_host_error)?;
    }
    Ok(())
}

fn memory(caller: &Caller<'_, Data>) -> Result<Memory, Error> {
    caller.memory().ok_or_else(|| Error::message("the guest exports no memory named \"memory\""))
}

/// `mote_caller_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_caller_read(
    caller: *const CCaller<'_, '_>,
    address: u64,
    to: *mut u8,
    len: usize,
) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        let (caller, to) = unsafe { (&*(*caller).0, crate::list_mut(to, len)) };
        memory(caller)?.read(caller, address, to).map_err(Error::from_error)
    })
}

/// `mote_caller_write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mote_caller_write(
    caller: *mut CCaller<'_, '_>,
    address: u64,
    from: *const u8,
    len: usize,
) -> *mut Error {
    report(|| {
        // SAFETY: the header's contract.
        let (caller, from) = unsafe { (&mut *(*caller).0, list(from, len)) };
        memory(caller)?.write(caller, address, from).map_err(Error::from_error)
    })
}
