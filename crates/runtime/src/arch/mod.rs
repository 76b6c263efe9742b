//! What depends on the processor: switching stacks, and reading and changing the registers of interrupted code.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("mote-runtime supports x86-64; another processor needs a file in src/arch");
