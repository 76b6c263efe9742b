//! `memory.atomic.wait` and `notify`.
//!
//! Waiters queue in buckets by address. The comparison with the expected value and the enqueueing happen under the bucket's lock, which a
//! notifier takes too: no wake-up is lost, 64-bit waits are exact, and a notifier knows how many it woke. Each waiter sleeps on a
//! futex of its own, on its stack.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use mote_artifact::abi::TrapCode;

use crate::deadline;
use crate::instance::InstanceData;
use crate::memory::MemoryEntity;
use crate::store::StoreOpaque;
use crate::trap::Trap;

/// The value a waiter expects.
#[derive(Clone, Copy)]
pub(crate) enum Expected {
    I32(u32),
    I64(u64),
}

/// What `wait` returns to the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Woken {
    Notified = 0,
    NotEqual = 1,
    TimedOut = 2,
}

struct Waiter {
    address: usize,
    /// [`WAITING`], [`NOTIFIED`] or [`LOOK`]; on the waiter's stack, where it stays until the waiter has left the queue.
    state: *const AtomicU32,
}

// SAFETY: the word outlives its place in the queue.
unsafe impl Send for Waiter {}

/// A waiter sleeps while its state is this.
const WAITING: u32 = 0;
/// Taken out of the queue by a notifier.
const NOTIFIED: u32 = 1;
/// Something was asked of the guest.
const LOOK: u32 = 2;

/// Makes the waiter with this state look whether its guest was interrupted. Safe in a signal handler: the sleep that it interrupts finds
/// the state changed when the kernel restarts it, and so does one that has not begun.
///
/// # Safety
/// The state is alive.
pub(crate) unsafe fn make_look(state: *const AtomicU32) {
    // SAFETY: the caller's promise.
    let _ = unsafe { (*state).compare_exchange(WAITING, LOOK, Ordering::SeqCst, Ordering::SeqCst) };
}

const BUCKETS: usize = 64;
/// Made by the first one that waits or notifies: hardly any guest does.
static QUEUES: OnceLock<Vec<Mutex<Vec<Waiter>>>> = OnceLock::new();

fn with_queue<R>(address: usize, act: impl FnOnce(&mut Vec<Waiter>) -> R) -> R {
    // Fibonacci hashing: neighbouring words go to different buckets.
    let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
    let queues = QUEUES.get_or_init(|| (0..BUCKETS).map(|_| Mutex::default()).collect());
    match queues.get(hash as usize % BUCKETS) {
        Some(queue) => act(&mut queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())),
        None => act(&mut Vec::new()),
    }
}

/// The host address of an aligned word inside the memory.
fn word(memory: &MemoryEntity, address: u64, bytes: u64) -> Result<*mut u8, TrapCode> {
    let at = memory.checked(address, bytes).map_err(|_| TrapCode::MemoryOutOfBounds)?;
    if address.is_multiple_of(bytes) { Ok(at) } else { Err(TrapCode::UnalignedAtomic) }
}

/// `memory.atomic.wait32` and `wait64`.
pub(crate) fn wait(
    instance: &InstanceData,
    store: &mut StoreOpaque,
    memory: u32,
    address: u64,
    expected: Expected,
    timeout_ns: i64,
) -> Result<u32, Trap> {
    let memory = instance.memories.get(memory as usize).ok_or(TrapCode::MemoryOutOfBounds)?.entity(store);
    let bytes = if matches!(expected, Expected::I32(_)) { 4 } else { 8 };
    let at = word(memory, address, bytes)?;
    if !memory.ty.shared {
        return Err(TrapCode::ExpectedSharedMemory.into());
    }
    let until =
        u64::try_from(timeout_ns).ok().and_then(|ns| Instant::now().checked_add(Duration::from_nanos(ns)));
    let state = AtomicU32::new(WAITING);
    let queued = with_queue(at as usize, |queue| {
        // SAFETY: an aligned word inside a memory that stays mapped; guests change it with atomic operations.
        let equal = unsafe {
            match expected {
                Expected::I32(value) => AtomicU32::from_ptr(at.cast()).load(Ordering::SeqCst) == value,
                Expected::I64(value) => AtomicU64::from_ptr(at.cast()).load(Ordering::SeqCst) == value,
            }
        };
        if equal {
            queue.push(Waiter { address: at as usize, state: &raw const state });
        }
        equal
    });
    if !queued {
        return Ok(Woken::NotEqual as u32);
    }
    // SAFETY: the running fiber is alive; its guest made this call.
    let parked = unsafe { &(*store.fiber).parked };
    parked.store((&raw const state).cast_mut(), Ordering::SeqCst);
    let result = sleep_until_woken(store, at as usize, &state, until);
    parked.store(std::ptr::null_mut(), Ordering::SeqCst);
    result
}

/// Sleeps in the queue of the address until notified, interrupted, or the time is over.
fn sleep_until_woken(
    store: &StoreOpaque,
    at: usize,
    state: &AtomicU32,
    until: Option<Instant>,
) -> Result<u32, Trap> {
    loop {
        match state.load(Ordering::SeqCst) {
            NOTIFIED => return Ok(Woken::Notified as u32),
            LOOK => {
                // A notifier may be faster: then its word stays.
                let _ = state.compare_exchange(LOOK, WAITING, Ordering::SeqCst, Ordering::SeqCst);
            }
            _ => {}
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let interrupted = deadline::interrupted(store);
        if interrupted || left.is_some_and(|left| left.is_zero()) {
            let mine = std::ptr::from_ref(state);
            let left_queue = with_queue(at, |queue| {
                let place = queue.iter().position(|waiter| waiter.state == mine);
                place.map(|place| queue.remove(place)).is_some()
            });
            return match (left_queue, interrupted) {
                // A notifier was faster.
                (false, false) => Ok(Woken::Notified as u32),
                (true, false) => Ok(Woken::TimedOut as u32),
                (_, true) => Err(TrapCode::Interrupted.into()),
            };
        }
        sleep(state, left);
    }
}

/// `memory.atomic.notify`.
pub(crate) fn notify(
    instance: &InstanceData,
    store: &StoreOpaque,
    memory: u32,
    address: u64,
    count: u32,
) -> Result<u32, TrapCode> {
    let memory = instance.memories.get(memory as usize).ok_or(TrapCode::MemoryOutOfBounds)?.entity(store);
    let at = word(memory, address, 4)? as usize;
    if !memory.ty.shared {
        return Ok(0);
    }
    Ok(with_queue(at, |queue| {
        let mut woken = 0;
        queue.retain(|waiter| {
            if waiter.address != at || woken == count {
                return true;
            }
            woken += 1;
            // SAFETY: the waiter stays until it sees the state change or takes this lock.
            unsafe {
                (*waiter.state).store(NOTIFIED, Ordering::SeqCst);
                // The waiter may have left by now: then this wakes nobody, or someone who looks again.
                wake(waiter.state);
            }
            false
        });
        woken
    }))
}

fn sleep(state: &AtomicU32, left: Option<Duration>) {
    let timeout = left.map(|left| libc::timespec {
        tv_sec: left.as_secs().min(1 << 40) as i64,
        tv_nsec: left.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a futex on a word that lives through the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            state.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            0,
            timeout,
        );
    }
}

/// # Safety
/// None: the kernel looks at the address only.
unsafe fn wake(state: *const AtomicU32) {
    // SAFETY: waking an address where nobody sleeps does nothing.
    unsafe { libc::syscall(libc::SYS_futex, state, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}
