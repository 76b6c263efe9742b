//! Arguments, environment, clocks, randomness, and the end of the guest.

use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

use crate::context::Strings;
use crate::memory::{GuestMemory, field};
use crate::witx::{clockid, nanoseconds};
use crate::{Errno, Error, WasiCtx};

/// Randomness is drawn in pieces of this size, so that asking for a whole memory can be interrupted in between.
const RANDOM_STEP: u32 = 1 << 20;
/// The same for a shared memory, which is filled through a buffer.
const RANDOM_COPY: usize = 256;

/// The host's clock of that number.
pub(crate) fn clock(id: u32) -> Result<ClockId, Errno> {
    match id {
        clockid::REALTIME => Ok(ClockId::Realtime),
        clockid::MONOTONIC => Ok(ClockId::Monotonic),
        clockid::PROCESS_CPUTIME_ID => Ok(ClockId::ProcessCPUTime),
        clockid::THREAD_CPUTIME_ID => Ok(ClockId::ThreadCPUTime),
        _ => Err(Errno::Inval),
    }
}

/// The time of a clock in nanoseconds.
pub(crate) fn now(clock: ClockId) -> u64 {
    timestamp(clock_gettime(clock))
}

fn timestamp(time: Timespec) -> u64 {
    nanoseconds(time.tv_sec, time.tv_nsec)
}

fn sizes_get<M: GuestMemory + ?Sized>(
    strings: &Strings,
    memory: &mut M,
    count: u32,
    bytes: u32,
) -> Result<(), Error> {
    memory.write_u32(count, strings.count)?;
    let len = u32::try_from(strings.bytes.len()).map_err(|_| Errno::Overflow)?;
    Ok(memory.write_u32(bytes, len)?)
}

fn get<M: GuestMemory + ?Sized>(
    strings: &Strings,
    memory: &mut M,
    pointers: u32,
    buffer: u32,
) -> Result<(), Error> {
    memory.write(buffer, &strings.bytes)?;
    let mut slot = pointers;
    let mut start = buffer;
    for string in strings.bytes.split_inclusive(|byte| *byte == 0) {
        memory.write_u32(slot, start)?;
        // The strings fit behind `buffer` (just written), so their starts do.
        start = start.wrapping_add(string.len() as u32);
        slot = field(slot, 4)?;
    }
    Ok(())
}

impl WasiCtx {
    /// Writes the arguments to `argv_buf` and their addresses to `argv`.
    pub fn args_get<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        argv: u32,
        argv_buf: u32,
    ) -> Result<(), Error> {
        get(&self.args, memory, argv, argv_buf)
    }

    /// The number of arguments and what they take.
    pub fn args_sizes_get<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        argc: u32,
        argv_buf_size: u32,
    ) -> Result<(), Error> {
        sizes_get(&self.args, memory, argc, argv_buf_size)
    }

    /// Writes the environment to `environ_buf` and the addresses of its strings to `environ`.
    pub fn environ_get<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        environ: u32,
        environ_buf: u32,
    ) -> Result<(), Error> {
        get(&self.env, memory, environ, environ_buf)
    }

    /// The number of environment variables and what they take.
    pub fn environ_sizes_get<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        count: u32,
        buf_size: u32,
    ) -> Result<(), Error> {
        sizes_get(&self.env, memory, count, buf_size)
    }

    /// A clock's resolution.
    pub fn clock_res_get<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        id: u32,
        resolution: u32,
    ) -> Result<(), Error> {
        let resolution_ns = timestamp(clock_getres(clock(id)?));
        Ok(memory.write_u64(resolution, resolution_ns)?)
    }

    /// A clock's time. Read from the host each time: right after a restore, too.
    pub fn clock_time_get<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        id: u32,
        _precision: u64,
        time: u32,
    ) -> Result<(), Error> {
        Ok(memory.write_u64(time, now(clock(id)?))?)
    }

    /// Fills a buffer from the kernel's generator. Nothing is kept between calls, so what is restored from a snapshot draws
    /// numbers of its own.
    pub fn random_get<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        buf: u32,
        buf_len: u32,
    ) -> Result<(), Error> {
        memory.check(buf, buf_len)?;
        let (mut at, mut left) = (buf, buf_len);
        while left > 0 {
            let count = match memory.bytes_mut() {
                Some(bytes) => {
                    let step = left.min(RANDOM_STEP) as usize;
                    let start = at as usize;
                    let part = bytes.get_mut(start..start.saturating_add(step)).ok_or(Errno::Fault)?;
                    getrandom(part, GetRandomFlags::empty())
                }
                None => {
                    let mut buffer = [0; RANDOM_COPY];
                    let part = buffer.get_mut(..left as usize).map_or(RANDOM_COPY, |part| part.len());
                    let part = buffer.get_mut(..part).unwrap_or(&mut []);
                    match getrandom(&mut *part, GetRandomFlags::empty()) {
                        Ok(count) => {
                            memory.write(at, part.get(..count).unwrap_or(part))?;
                            Ok(count)
                        }
                        failed => failed,
                    }
                }
            };
            let count = match count {
                Ok(count) => count as u32,
                Err(rustix::io::Errno::INTR) => 0,
                Err(errno) => return Err(errno.into()),
            };
            at = at.wrapping_add(count);
            left = left.saturating_sub(count);
            if left > 0 && self.interrupt.as_ref().is_some_and(crate::Interrupt::is_raised) {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }

    /// Ends the guest.
    pub fn proc_exit(&self, code: u32) -> Error {
        Error::Exit(code)
    }

    /// Does what the signal does by default: nothing, or end the guest. A guest cannot be stopped: ENOTSUP.
    pub fn proc_raise(&self, signal: u32) -> Result<(), Error> {
        match signal {
            // none, chld, cont, urg, winch
            0 | 16 | 17 | 22 | 27 => Ok(()),
            // stop, tstp, ttin, ttou
            18..=21 => Err(Errno::NotSup.into()),
            1..=30 => Err(Error::Signal(signal as u8)),
            _ => Err(Errno::Inval.into()),
        }
    }

    /// Lets other threads of the host run.
    pub fn sched_yield(&self) -> Result<(), Error> {
        rustix::thread::sched_yield();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
