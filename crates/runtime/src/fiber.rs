//! Fibers: a guest runs on a stack of its own, so that it can be left and entered again.
//!
//! ```text
//!   save area   registers of a preempted guest
//!   guard       never mapped: a guest that runs out of stack faults here
//!   stack       grows down from the top; pages are touched as they are needed
//! ```
//!
//! A store keeps one fiber for its next call; the first one's stack lies in the reservation of the store's first instance. Others come
//! from a pool of the process and go back there.

use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use mote_artifact::abi::TrapCode;

use crate::arch::{self, Registers, Status};
use crate::backtrace::Backtrace;
use crate::deadline;
use crate::func::Outcome;
use crate::mapping::{Mapping, round_to_pages};
use crate::signals;
use crate::store::StoreOpaque;
use crate::trap::{HostError, HostReason, Trap};
use crate::value::Slot;

/// Bytes that fault between the save area and the stack. Guests touch every page as their frames grow, one would do.
const GUARD_BYTES: usize = 64 << 10;
/// Bytes for the registers of a preempted guest; the state of every register that XSAVE knows takes 11 kB where there is AMX.
const SAVE_BYTES: usize = 16 << 10;
/// Stacks that wait in the process's pool.
const POOLED: usize = 64;
/// Bytes at the top of a pooled stack that stay in memory.
const KEPT_BYTES: usize = 16 << 10;

/// A stack and the state of the guest on it. The stubs know the first fields by their offsets.
#[repr(C)]
pub(crate) struct Fiber {
    /// The host's stack pointer while the guest runs or has called the host.
    pub(crate) host_sp: *mut u8,
    /// The guest's stack pointer while it waits for the host.
    pub(crate) guest_sp: *mut u8,
    pub(crate) stack_top: *mut u8,
    /// Bits of [`pending`]: look before going back to the guest.
    pub(crate) pending: AtomicU32,
    /// What a direct host call returns to the guest that was left meanwhile, in a general register.
    pub(crate) result: Slot,
    /// The same in a vector register.
    pub(crate) result_float: u64,
    /// Where the guest stood when a signal stopped it, or where it goes on after a throw.
    pub(crate) registers: Registers,
    /// What a direct host call leads to when it has no result.
    direct_outcome: Outcome,
    /// Why a signal stopped the guest.
    pub(crate) fault: Cell<Fault>,
    /// The word of the atomic wait that the guest is in, null when none.
    pub(crate) parked: AtomicPtr<AtomicU32>,
    /// The store whose guest runs here.
    pub(crate) store: *mut StoreOpaque,
    /// May a host function leave the guest, to be continued later.
    pub(crate) resumable: bool,
    /// May a signal leave the guest in the midst of its code, to be continued later.
    pub(crate) preemptible: bool,
    /// Save area, guard and stack; `None` when an instance of the store lends guard and stack.
    stack: Option<Mapping>,
    stack_low: usize,
}

/// Bits of [`Fiber::pending`].
pub(crate) mod pending {
    /// A signal came while the host was at work.
    pub(crate) const SIGNAL: u32 = 1;
    /// A direct host call has an outcome instead of a result.
    pub(crate) const OUTCOME: u32 = 2;
    /// The host has met a page whose file was truncated: the guest ends.
    pub(crate) const FILE_LOST: u32 = 4;
}

/// What is told of a guest whose artifact was truncated.
pub(crate) const FILE_LOST: &str = "a page of the artifact is gone: its file was truncated while it ran";

/// What a signal handler found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) code: TrapCode,
    /// The page behind the access is gone: its file was truncated.
    pub(crate) file_lost: bool,
}

// SAFETY: the stack is owned; raw pointers are used only while the owning store runs the fiber.
unsafe impl Send for Fiber {}

#[expect(clippy::vec_box, reason = "the signal handler and stubs know a fiber by its address")]
static POOL: Mutex<Vec<Box<Fiber>>> = Mutex::new(Vec::new());

thread_local! {
    /// The fiber that this thread runs; the signal handler reads it. No destructor, no lazy initialisation: reading it is a plain
    /// load.
    static CURRENT: Cell<*mut Fiber> = const { Cell::new(std::ptr::null_mut()) };
}

/// The fiber that this thread runs, null when none. Safe in a signal handler.
pub(crate) fn current() -> *mut Fiber {
    CURRENT.with(Cell::get)
}

impl Fiber {
    fn new(stack_bytes: usize) -> io::Result<Box<Self>> {
        let stack_bytes = round_to_pages(stack_bytes.max(KEPT_BYTES)).ok_or(io::ErrorKind::OutOfMemory)?;
        let stack_at = SAVE_BYTES + GUARD_BYTES;
        let stack = Mapping::reserve(stack_at.checked_add(stack_bytes).ok_or(io::ErrorKind::OutOfMemory)?)?;
        stack.commit(stack_at, stack_bytes)?;
        let stack_low = stack.base() as usize + stack_at;
        // SAFETY: one past the end of the mapping.
        let stack_top = unsafe { stack.base().add(stack.len()) };
        Ok(Self::on(Some(stack), stack_low, stack_top))
    }

    fn on(stack: Option<Mapping>, stack_low: usize, stack_top: *mut u8) -> Box<Self> {
        Box::new(Self {
            host_sp: std::ptr::null_mut(),
            guest_sp: std::ptr::null_mut(),
            stack_top,
            pending: AtomicU32::new(0),
            result: Slot::ZERO,
            result_float: 0,
            direct_outcome: Outcome::Return,
            registers: Registers::default(),
            fault: Cell::new(Fault { code: TrapCode::Unreachable, file_lost: false }),
            parked: AtomicPtr::new(std::ptr::null_mut()),
            store: std::ptr::null_mut(),
            resumable: false,
            preemptible: false,
            stack,
            stack_low,
        })
    }

    /// Bytes of a guard and of a stack of at least this size, for [`Self::lent`].
    pub(crate) fn area(stack_bytes: usize) -> Option<(usize, usize)> {
        const MAX: usize = 1 << 40;
        let stack = round_to_pages(stack_bytes.max(KEPT_BYTES)).filter(|&bytes| bytes <= MAX)?;
        Some((GUARD_BYTES, stack))
    }

    /// A fiber for calls that run to their end, on a stack that ends at `top`.
    ///
    /// # Safety
    /// The stack is usable, below it is a guard, both as long as [`Self::area`] said; nobody else uses them while the fiber is there.
    pub(crate) unsafe fn lent(top: *mut u8, stack_bytes: usize) -> Box<Self> {
        Self::on(None, top as usize - stack_bytes, top)
    }

    /// A stack of at least this many bytes: a pooled one, or a new one.
    pub(crate) fn take(stack_bytes: usize) -> io::Result<Box<Self>> {
        let mut pool = POOL.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let wanted = round_to_pages(stack_bytes.max(KEPT_BYTES));
        match pool.iter().rposition(|fiber| Some(fiber.stack_bytes()) == wanted) {
            Some(at) => Ok(pool.swap_remove(at)),
            None => {
                drop(pool);
                Self::new(stack_bytes)
            }
        }
    }

    /// Gives the stack back to the pool. Its deeper pages return to the system.
    pub(crate) fn give_back(mut self: Box<Self>) {
        self.reset();
        let deep = self.stack_bytes() - KEPT_BYTES;
        // A lent stack goes with the instance.
        let Some(stack) = &self.stack else { return };
        let at = self.stack_low - stack.base() as usize;
        if stack.discard(at, deep).is_err() {
            return;
        }
        let mut pool = POOL.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if pool.len() < POOLED {
            pool.push(self);
        }
    }

    fn reset(&mut self) {
        self.pending.store(0, Ordering::Relaxed);
        self.resumable = false;
        self.preemptible = false;
        self.store = std::ptr::null_mut();
    }

    fn stack_bytes(&self) -> usize {
        self.stack_top as usize - self.stack_low
    }

    /// A direct host call ends without a result.
    pub(crate) fn end_direct_call(&mut self, outcome: Outcome) {
        self.direct_outcome = outcome;
        self.pending.fetch_or(pending::OUTCOME, Ordering::Relaxed);
    }

    /// The outcome of the direct host call that has just ended, if it has no result.
    pub(crate) fn take_direct_outcome(&mut self) -> Option<Outcome> {
        let before = self.pending.fetch_and(!pending::OUTCOME, Ordering::Relaxed);
        (before & pending::OUTCOME != 0).then_some(self.direct_outcome)
    }

    /// Lets the guest on this fiber be suspended, and preempted where the processor's state can be saved.
    pub(crate) fn make_resumable(&mut self) {
        self.resumable = true;
        let saves =
            |stack: &Mapping| arch::prepare_preemption(SAVE_BYTES) && stack.commit(0, SAVE_BYTES).is_ok();
        self.preemptible = self.stack.as_ref().is_some_and(saves);
    }

    /// The addresses of the stack.
    pub(crate) fn stack_range(&self) -> std::ops::Range<usize> {
        self.stack_low..self.stack_top as usize
    }

    /// Whether an address is in the guard below the stack.
    pub(crate) fn guards(&self, address: usize) -> bool {
        (self.stack_low - GUARD_BYTES..self.stack_low).contains(&address)
    }

    /// Whether a stack pointer is this stack's, run into the guard included.
    pub(crate) fn holds(&self, sp: usize) -> bool {
        (self.stack_low - GUARD_BYTES..=self.stack_top as usize).contains(&sp)
    }

    /// End of the save area: registers of a preempted guest are stored downwards from here.
    pub(crate) fn save_top(&self) -> usize {
        self.stack_low - GUARD_BYTES
    }
}

/// Calls `entry(ctx, code, slots)` to its end.
///
/// # Safety
/// Exclusive access to the store; entry, context, code and slots belong together.
pub(crate) unsafe fn call(
    store: NonNull<StoreOpaque>,
    entry: *const u8,
    ctx: *mut u8,
    code: *const u8,
    slots: *mut Slot,
) -> Result<(), Trap> {
    // SAFETY: exclusive access.
    let mut fiber = unsafe { &mut *store.as_ptr() }.take_fiber()?;
    let pointer: *mut Fiber = &raw mut *fiber;
    // SAFETY: the stack is free; the rest is the caller's promise. The fiber is not resumable: it neither yields nor is suspended.
    let status = unsafe { run(store, pointer, || arch::enter(pointer, entry, ctx, code, slots)) };
    let result = if status == Status::Returned {
        Ok(())
    } else {
        // SAFETY: the guest on this fiber has ended with that status; exclusive access.
        Err(unsafe { ended(store, &fiber, status) })
    };
    // SAFETY: exclusive access.
    unsafe { &mut *store.as_ptr() }.keep_fiber(fiber);
    result.map_err(resume_panic)
}

/// Runs guest code with everything in place that the stubs and the signal handler look for.
///
/// # Safety
/// Exclusive access to the store; `switch` runs this fiber.
pub(crate) unsafe fn run(
    store: NonNull<StoreOpaque>,
    fiber: *mut Fiber,
    switch: impl FnOnce() -> Status,
) -> Status {
    signals::prepare_thread();
    // SAFETY: exclusive access to store and fiber; fields are read and written through raw pointers because generated code, the
    // stubs and the handler use them meanwhile.
    unsafe {
        (*fiber).store = store.as_ptr();
        let control = &(*store.as_ptr()).control;
        let outer = std::ptr::replace(&raw mut (*store.as_ptr()).fiber, fiber);
        let thread_outer = CURRENT.replace(fiber);
        let watch = deadline::begin(control);
        let status = switch();
        deadline::end(control, watch);
        CURRENT.set(thread_outer);
        (*store.as_ptr()).fiber = outer;
        status
    }
}

/// The trap of a guest that has ended without returning, with its backtrace.
///
/// # Safety
/// The guest on the fiber has ended with that status and its stack has not been used since; exclusive access to the store.
pub(crate) unsafe fn ended(store: NonNull<StoreOpaque>, fiber: &Fiber, status: Status) -> Trap {
    // SAFETY: exclusive access.
    let store = unsafe { &mut *store.as_ptr() };
    let (mut trap, registers) = match status {
        Status::Faulted => {
            let fault = fiber.fault.get();
            let trap = Trap::from(fault.code);
            let trap = if fault.file_lost { trap.with_detail(FILE_LOST) } else { trap };
            (trap, fiber.registers)
        }
        _ => {
            let trap = match store.outcome.take() {
                Some(HostReason::Suspend(_)) => Trap::host(
                    "a host function suspended a guest that was called, not started with Execution",
                ),
                Some(reason) => Trap::from(HostError(reason)),
                None => Trap::host("a guest ended without a reason"),
            };
            // SAFETY: a stub left the guest: its registers are on the stack.
            (trap, unsafe { Registers::of_host_call(fiber.guest_sp) })
        }
    };
    // Where a file's pages are gone, its unwind tables may be gone too.
    if status != Status::Faulted || !fiber.fault.get().file_lost {
        // SAFETY: the stack is mapped and nothing runs on it.
        trap.add_frames(unsafe {
            Backtrace::capture(&registers, fiber.stack_range(), status != Status::Faulted)
        });
    }
    trap
}

/// A host panic goes on where no guest frame is in between.
pub(crate) fn resume_panic(trap: Trap) -> Trap {
    match trap.take_panic() {
        Ok(payload) => std::panic::resume_unwind(payload),
        Err(trap) => trap,
    }
}

impl StoreOpaque {
    /// A fiber for the next call.
    fn take_fiber(&mut self) -> Result<Box<Fiber>, Trap> {
        if deadline::interrupted(self) {
            return Err(TrapCode::Interrupted.into());
        }
        self.enter_depth()?;
        let fiber = match self.spare.take() {
            Some(fiber) => fiber,
            None => Fiber::take(self.limits.stack_bytes)
                .map_err(|error| Trap::host(format!("cannot map a stack for a guest: {error}")))
                .inspect_err(|_| self.leave_depth())?,
        };
        Ok(fiber)
    }

    /// One more nested call; they are limited, each takes stack of the host.
    pub(crate) fn enter_depth(&mut self) -> Result<(), Trap> {
        if self.depth >= self.limits.nested_calls {
            return Err(
                Trap::from(TrapCode::StackOverflow).with_detail("calls between host and guest nest too deep")
            );
        }
        self.depth += 1;
        Ok(())
    }

    /// One nested call less.
    pub(crate) fn leave_depth(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Keeps the fiber of a finished call for the next one.
    fn keep_fiber(&mut self, mut fiber: Box<Fiber>) {
        self.leave_depth();
        fiber.reset();
        match &self.spare {
            None => self.spare = Some(fiber),
            Some(_) => fiber.give_back(),
        }
    }
}
