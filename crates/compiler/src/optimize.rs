//! Runs LLVM's passes over one module and turns it into an object file.
//!
//! The work is done by the C++ library in `cpp/`, which has what LLVM's C interface lacks: places within the pipeline for
//! Mote's own passes, and the list of library functions that code generation may call. This file is its safe face.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::NonNull;

use inkwell::data_layout::DataLayout;
use inkwell::llvm_sys::prelude::LLVMModuleRef;
use inkwell::module::Module;
use inkwell::targets::{TargetData, TargetTriple};

use crate::{CompileError, OptLevel};

/// The machine that code is made for.
pub(crate) struct Target {
    raw: NonNull<RawTarget>,
    triple: TargetTriple,
    data_layout: String,
    cpu: String,
    features: String,
    enabled_features: Vec<String>,
}

// SAFETY: the C++ object is never written to after it was made; every use builds a target machine of its own from it.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    /// The host, or the named CPU of the host's architecture.
    pub(crate) fn new(cpu: Option<&str>) -> Result<Self, CompileError> {
        let cpu = cpu.map(c_string).transpose()?;
        let mut error = std::ptr::null_mut();
        let cpu = cpu.as_ref().map_or(std::ptr::null(), |cpu| cpu.as_ptr());
        // SAFETY: `cpu` is null or a C string that lives through the call; `error` is a valid place for a string.
        let raw = unsafe { mote_target_create(cpu, &mut error) };
        let raw = NonNull::new(raw).ok_or_else(|| CompileError::Target(take_text(error)))?;
        // SAFETY: `raw` is a live target, whose strings live as long as it does and are copied here.
        let text = |get: unsafe extern "C" fn(*const RawTarget) -> *const c_char| unsafe {
            CStr::from_ptr(get(raw.as_ptr())).to_string_lossy().into_owned()
        };
        Ok(Self {
            raw,
            triple: TargetTriple::create(&text(mote_target_triple)),
            data_layout: text(mote_target_data_layout),
            cpu: text(mote_target_cpu),
            features: text(mote_target_features),
            enabled_features: text(mote_target_enabled_features)
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }

    /// LLVM's name of the CPU.
    pub(crate) fn cpu(&self) -> &str {
        &self.cpu
    }

    /// LLVM's feature string: `+a,-b,…`; empty for a named CPU.
    pub(crate) fn features(&self) -> &str {
        &self.features
    }

    /// The instruction set features that the CPU has, sorted.
    pub(crate) fn enabled_features(&self) -> &[String] {
        &self.enabled_features
    }

    /// Sizes and alignments of types: modules need it before the first instruction is built.
    pub(crate) fn data_layout(&self) -> DataLayout {
        TargetData::create(&self.data_layout).get_data_layout()
    }

    /// The triple.
    pub(crate) fn triple(&self) -> &TargetTriple {
        &self.triple
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // SAFETY: made by mote_target_create and not disposed of before.
        unsafe { mote_target_dispose(self.raw.as_ptr()) }
    }
}

/// What the passes found and did, summed over a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Statistics {
    /// Plain loads of guest memory in the module as it came in.
    pub(crate) guest_loads: u64,
    /// Those of them without a witness: their trap may be lost.
    pub(crate) without_witness: u64,
    /// Witnesses that the pipeline removed.
    pub(crate) witnesses: u64,
    /// Loads whose value is certainly needed.
    pub(crate) kept_plain: u64,
    /// Loads that only their witness kept alive.
    pub(crate) made_volatile: u64,
    /// Loops and functions replaced by an idiom.
    pub(crate) idioms: u64,
    /// Loops cloned with addresses in 64 bits.
    pub(crate) loops_widened: u64,
    /// Functions cloned with addresses in 64 bits.
    pub(crate) functions_widened: u64,
}

/// Optimises `module` and returns the object file.
pub(crate) fn run(module: &Module<'_>, target: &Target, level: OptLevel) -> Result<Vec<u8>, CompileError> {
    optimize(module, target, level, None)?;
    emit(module, target, level)
}

/// Runs the level's pipeline over `module`, or `passes` in LLVM's textual form.
fn optimize(
    module: &Module<'_>,
    target: &Target,
    level: OptLevel,
    passes: Option<&str>,
) -> Result<Statistics, CompileError> {
    let passes = passes.map(c_string).transpose()?;
    let passes = passes.as_ref().map_or(std::ptr::null(), |passes| passes.as_ptr());
    let mut statistics = Statistics::default();
    let mut error = std::ptr::null_mut();
    // SAFETY: the module and the target are live, `passes` is null or a C string, the other two are valid places.
    let failed = unsafe {
        mote_optimize(
            module.as_mut_ptr(),
            target.raw.as_ptr(),
            number(level),
            passes,
            &mut statistics,
            &mut error,
        )
    };
    if failed == 0 { Ok(statistics) } else { Err(CompileError::Llvm(take_text(error))) }
}

fn emit(module: &Module<'_>, target: &Target, level: OptLevel) -> Result<Vec<u8>, CompileError> {
    let mut object = std::ptr::null_mut();
    let mut length = 0;
    let mut error = std::ptr::null_mut();
    // SAFETY: the module and the target are live, the other three are valid places.
    let failed = unsafe {
        mote_emit(
            module.as_mut_ptr(),
            target.raw.as_ptr(),
            number(level),
            &mut object,
            &mut length,
            &mut error,
        )
    };
    if failed != 0 {
        return Err(CompileError::Llvm(take_text(error)));
    }
    // SAFETY: on success `object` is an allocation of `length` initialised bytes that is ours to free.
    unsafe {
        let bytes = std::slice::from_raw_parts(object, length).to_vec();
        mote_free(object.cast());
        Ok(bytes)
    }
}

fn number(level: OptLevel) -> c_int {
    match level {
        OptLevel::O0 => 0,
        OptLevel::O1 => 1,
        OptLevel::O3 => 3,
    }
}

fn c_string(text: &str) -> Result<CString, CompileError> {
    CString::new(text).map_err(|_| CompileError::Target(format!("a zero byte in {text:?}")))
}

fn take_text(text: *mut c_char) -> String {
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: `text` is a C string that the library allocated and gave to us.
    unsafe {
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        mote_free(text.cast());
        copy
    }
}

#[repr(C)]
struct RawTarget {
    _private: [u8; 0],
}

// cpp/mote.h
unsafe extern "C" {
    fn mote_target_create(cpu: *const c_char, error: *mut *mut c_char) -> *mut RawTarget;
    fn mote_target_dispose(target: *mut RawTarget);
    fn mote_target_cpu(target: *const RawTarget) -> *const c_char;
    fn mote_target_features(target: *const RawTarget) -> *const c_char;
    fn mote_target_data_layout(target: *const RawTarget) -> *const c_char;
    fn mote_target_enabled_features(target: *const RawTarget) -> *const c_char;
    fn mote_target_triple(target: *const RawTarget) -> *const c_char;
    fn mote_optimize(
        module: LLVMModuleRef,
        target: *const RawTarget,
        level: c_int,
        passes: *const c_char,
        statistics: *mut Statistics,
        error: *mut *mut c_char,
    ) -> c_int;
    fn mote_emit(
        module: LLVMModuleRef,
        target: *const RawTarget,
        level: c_int,
        object: *mut *mut u8,
        length: *mut usize,
        error: *mut *mut c_char,
    ) -> c_int;
    fn mote_free(pointer: *mut std::ffi::c_void);
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod address_tests;

#[cfg(test)]
mod vector_tests;
