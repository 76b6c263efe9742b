//! Deadlines, cancellation and preemption.
//!
//! What is asked of a guest stands in its store's [`Control`]; a signal makes the thread that runs it look. In guest code the handler
//! acts at once: it ends the guest, or makes it yield. In host code it sets the fiber's `pending` word, which the stub reads on
//! its way back to the guest, and writes to the event descriptor that a blocked host function polls. A signal that comes too early (the
//! guest has not begun) or too late (it has ended) finds a [`Control`] that says something else, so that it hits no other guest; a
//! timer repeats until what was asked has happened, so that none is lost in between.

use std::cell::Cell;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::{Duration, Instant};

use libc::{c_int, c_void, siginfo_t};
use mote_artifact::abi::TrapCode;

use crate::arch::{Interrupted, Status};
use crate::atomics;
use crate::code;
use crate::fiber::{self, Fault, Fiber};
use crate::store::{AsStoreMut, StoreOpaque};
use crate::trap::{HostReason, Trap};

/// How often the signal repeats while a guest that was asked to stop is in host code.
const REPEAT: Duration = Duration::from_millis(5);

/// No deadline.
const NEVER: u64 = u64::MAX;

/// What is asked of the guest of a store. Shared with [`InterruptHandle`]s.
#[derive(Debug)]
pub(crate) struct Control {
    /// Nanoseconds on the monotonic clock.
    deadline_ns: AtomicU64,
    /// The next time to yield, on the same clock.
    yield_ns: AtomicU64,
    stop: AtomicBool,
    /// The thread that runs the store's guest, 0 when none.
    thread: AtomicI32,
    /// Becomes readable when the guest is asked to stop.
    event: OnceLock<OwnedFd>,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            deadline_ns: AtomicU64::new(NEVER),
            yield_ns: AtomicU64::new(NEVER),
            stop: AtomicBool::new(false),
            thread: AtomicI32::new(0),
            event: OnceLock::new(),
        }
    }
}

/// What a control asks for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    Nothing,
    Stop,
    Yield,
}

impl Control {
    fn request(&self) -> Request {
        if self.stop.load(Ordering::Acquire) {
            return Request::Stop;
        }
        let (deadline, time_slice) =
            (self.deadline_ns.load(Ordering::Acquire), self.yield_ns.load(Ordering::Acquire));
        if deadline == NEVER && time_slice == NEVER {
            return Request::Nothing;
        }
        let now = now_ns();
        if now >= deadline {
            Request::Stop
        } else if now >= time_slice {
            Request::Yield
        } else {
            Request::Nothing
        }
    }

    /// The next time something may be asked for.
    fn next_ns(&self) -> u64 {
        self.deadline_ns.load(Ordering::Relaxed).min(self.yield_ns.load(Ordering::Relaxed))
    }

    fn notify_event(&self) {
        if let Some(event) = self.event.get() {
            // SAFETY: writes 8 bytes to an eventfd; safe in a signal handler.
            unsafe { libc::write(event.as_raw_fd(), (&raw const ONE).cast(), 8) };
        }
    }
}

static ONE: u64 = 1;

/// Monotonic time. Safe in a signal handler.
fn now_ns() -> u64 {
    // SAFETY: clock_gettime fills the record.
    let now = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now);
        now
    };
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// Ends the guest of a store from any thread, for good: a guest that runs stops with [`TrapCode::Interrupted`], and so does every
/// later call until [`InterruptHandle::clear`].
#[derive(Clone, Debug)]
pub struct InterruptHandle(Arc<Control>);

impl InterruptHandle {
    /// Asks the guest to stop.
    pub fn interrupt(&self) {
        self.0.stop.store(true, Ordering::SeqCst);
        let thread = self.0.thread.load(Ordering::SeqCst);
        if thread != 0 {
            // SAFETY: a signal to a thread of this process; if that thread is gone the call fails, and if its number names
            // another one by now, its handler finds nothing that is asked of it.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal()) };
        }
        // After the signal: a host function that sees the event has the signal's effect before it is back in the guest.
        self.0.notify_event();
    }

    /// Takes the request back.
    pub fn clear(&self) {
        self.0.stop.store(false, Ordering::SeqCst);
        drain(&self.0);
    }
}

fn drain(control: &Control) {
    if let Some(event) = control.event.get() {
        let mut count = 0_u64;
        // SAFETY: reads 8 bytes from a non-blocking eventfd.
        unsafe { libc::read(event.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

/// The real-time signal that makes a thread look at its control.
fn signal() -> c_int {
    // The C library keeps the first ones for itself; the last ones are the least used by others.
    libc::SIGRTMAX() - 2
}

thread_local! {
    /// This thread's timer, -1 before it has one. No destructor: the signal handler reads it.
    static TIMER: Cell<c_int> = const { Cell::new(-1) };
    /// When the timer is set to fire, [`NEVER`] when it is not.
    static ARMED: Cell<u64> = const { Cell::new(NEVER) };
    static OWNER: TimerOwner = const { TimerOwner };
}

/// Deletes the thread's timer when the thread ends.
struct TimerOwner;

impl Drop for TimerOwner {
    fn drop(&mut self) {
        let timer = TIMER.replace(-1);
        if timer >= 0 {
            // SAFETY: the timer is this thread's and no longer used.
            unsafe { libc::syscall(libc::SYS_timer_delete, timer) };
        }
    }
}

/// `struct sigevent` as the kernel reads it: the C libraries' versions differ in the name of the thread's field.
#[repr(C)]
struct SignalEvent {
    value: usize,
    signal: c_int,
    notify: c_int,
    thread: c_int,
    rest: [c_int; 11],
}

/// Installs the handler, and makes a timer for this thread when it has none.
fn prepare_timer() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is safe in any context.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(signal(), &action, std::ptr::null_mut());
        }
    });
    if TIMER.get() < 0 {
        let mut timer: c_int = -1;
        // SAFETY: the kernel fills in the timer's number; SIGEV_THREAD_ID sends the signal to this thread alone.
        let result = unsafe {
            let thread = libc::syscall(libc::SYS_gettid) as c_int;
            let event = SignalEvent {
                value: 0,
                signal: signal(),
                notify: libc::SIGEV_THREAD_ID,
                thread,
                rest: [0; 11],
            };
            libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, &raw const event, &raw mut timer)
        };
        if result == 0 {
            TIMER.set(timer);
            // Makes the destructor known.
            let _ = OWNER.try_with(|_| ());
        }
    }
}

/// Sets this thread's timer, to repeat from that time on. Safe in a signal handler.
fn arm(at_ns: u64) {
    let timer = TIMER.get();
    if timer < 0 {
        return;
    }
    let repeat = libc::timespec { tv_sec: 0, tv_nsec: REPEAT.subsec_nanos().into() };
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let at_ns = at_ns.max(1);
    let setting = if at_ns == NEVER {
        libc::itimerspec { it_interval: zero, it_value: zero }
    } else {
        let at = libc::timespec {
            tv_sec: (at_ns / 1_000_000_000) as i64,
            tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
        };
        libc::itimerspec { it_interval: repeat, it_value: at }
    };
    // SAFETY: the timer is this thread's.
    unsafe {
        libc::syscall(
            libc::SYS_timer_settime,
            timer,
            libc::TIMER_ABSTIME,
            &raw const setting,
            std::ptr::null_mut::<libc::itimerspec>(),
        );
    }
    ARMED.set(at_ns);
}

/// What [`begin`] changed.
pub(crate) struct Watch {
    outer_armed: u64,
    outer_thread: i32,
}

/// A guest of this store is about to run on this thread: its deadline becomes the thread's.
pub(crate) fn begin(control: &Arc<Control>) -> Option<Watch> {
    let next = control.next_ns();
    // Without a deadline and without a handle nothing can be asked.
    if next == NEVER && Arc::strong_count(control) == 1 {
        return None;
    }
    prepare_timer();
    // SAFETY: gettid has no effects.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    let outer_thread = control.thread.swap(thread, Ordering::SeqCst);
    let outer_armed = ARMED.get();
    if next < outer_armed {
        arm(next);
    }
    Some(Watch { outer_armed, outer_thread })
}

/// The guest no longer runs.
pub(crate) fn end(control: &Control, watch: Option<Watch>) {
    if let Some(watch) = watch {
        control.thread.store(watch.outer_thread, Ordering::SeqCst);
        if ARMED.get() != watch.outer_armed {
            arm(watch.outer_armed);
        }
    }
}

/// # Safety
/// Called by the kernel.
unsafe extern "C" fn on_signal(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the C library's errno of this thread.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes a valid context; the current fiber and its store are alive.
    unsafe {
        if let Some(fiber) = fiber::current().as_mut() {
            look(fiber, &mut Interrupted::new(context));
        }
        *libc::__errno_location() = errno;
    }
}

/// Does what the control of the running fiber's store asks for, in the signal handler.
///
/// # Safety
/// The fiber is the thread's running one.
unsafe fn look(fiber: &mut Fiber, interrupted: &mut Interrupted) {
    // SAFETY: the store of the running fiber is alive.
    let control = unsafe { &*(*fiber.store).control };
    let request = control.request();
    if request == Request::Nothing || (request == Request::Yield && !fiber.preemptible) {
        return;
    }
    if code::is_guest(interrupted.pc()) {
        match request {
            Request::Yield => interrupted.preempt(fiber),
            _ => interrupted.leave(fiber, Fault { code: TrapCode::Interrupted, file_lost: false }),
        }
        return;
    }
    // Host code, or a stub between host and guest: the stub looks when it goes back to the guest. A stub that is past looking is
    // caught by the next signal.
    fiber.pending.fetch_or(fiber::pending::SIGNAL, Ordering::Relaxed);
    if request == Request::Stop {
        control.notify_event();
        let parked = fiber.parked.load(Ordering::SeqCst);
        if !parked.is_null() {
            // SAFETY: the word is alive as long as it is there, and this thread is the one that takes it away.
            unsafe { atomics::make_look(parked) };
        }
    }
    if ARMED.get() == NEVER {
        arm(now_ns().saturating_add(REPEAT.as_nanos() as u64));
    }
}

/// A host call is over, and something was asked of the guest meanwhile or a direct call has an outcome instead of a result; called
/// by the stubs, on the host's stack. 0: go on, with what the call returned.
///
/// # Safety
/// The fiber is the running one.
pub(crate) unsafe extern "C" fn on_pending(fiber: *mut Fiber) -> u64 {
    // SAFETY: the running fiber and its store are alive.
    let (fiber, store) = unsafe { (&mut *fiber, &mut *(*fiber).store) };
    if let Some(outcome) = fiber.take_direct_outcome() {
        return outcome as u64;
    }
    let before =
        fiber.pending.fetch_and(!(fiber::pending::SIGNAL | fiber::pending::FILE_LOST), Ordering::Relaxed);
    if before & fiber::pending::FILE_LOST != 0 {
        let trap = Trap::from(TrapCode::MemoryOutOfBounds).with_detail(fiber::FILE_LOST);
        store.outcome = Some(HostReason::Trap(trap));
        return Status::Raised as u64;
    }
    match store.control.request() {
        Request::Stop => {
            store.outcome = Some(HostReason::Trap(TrapCode::Interrupted.into()));
            Status::Raised as u64
        }
        Request::Yield if fiber.preemptible => Status::Yielded as u64,
        _ => 0,
    }
}

/// Whether the guest of this store has been asked to stop.
pub(crate) fn interrupted(store: &StoreOpaque) -> bool {
    store.control.request() == Request::Stop
}

/// When guests of a store stop, and how host functions that wait learn of it. Implemented by [`crate::Store`] and [`crate::Caller`].
pub trait Interrupt: AsStoreMut {
    /// Sets when guests of this store are stopped, with [`TrapCode::Interrupted`]; `None`: never. The deadline stays for later calls.
    fn set_deadline(&mut self, deadline: Option<Instant>) {
        let store = self.opaque_mut();
        let at = deadline.map_or(NEVER, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now()).as_nanos();
            now_ns().saturating_add(u64::try_from(left).unwrap_or(NEVER)).min(NEVER - 1)
        });
        store.control.deadline_ns.store(at, Ordering::SeqCst);
        drain(&store.control);
        if !store.fiber.is_null() && at < ARMED.get() {
            prepare_timer();
            arm(at);
        }
    }

    /// A handle with which other threads can stop the guest.
    fn interrupt_handle(&mut self) -> InterruptHandle {
        InterruptHandle(self.opaque_mut().control.clone())
    }

    /// Whether the guest has been asked to stop: a host function that takes long looks here.
    fn is_interrupted(&self) -> bool {
        interrupted(self.opaque())
    }

    /// A descriptor that becomes readable when the guest is asked to stop: a host function that blocks polls it beside what it waits
    /// for. It stays readable until the request is taken back; do not read from it.
    fn interrupt_event(&self) -> std::io::Result<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        let control = &self.opaque().control;
        if control.event.get().is_none() {
            // SAFETY: makes a descriptor that nobody else owns.
            let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if event < 0 {
                return Err(std::io::Error::last_os_error());
            }
            // SAFETY: just made.
            let _ = control.event.set(unsafe { OwnedFd::from_raw_fd(event) });
            if control.request() == Request::Stop {
                control.notify_event();
            }
        }
        control.event.get().map(AsFd::as_fd).ok_or_else(|| std::io::ErrorKind::Other.into())
    }
}

impl<S: AsStoreMut> Interrupt for S {}

/// Asks the guest of this store to yield at that time, once.
pub(crate) fn set_time_slice(store: &StoreOpaque, slice: Option<Duration>) {
    let at = slice.map_or(NEVER, |slice| {
        now_ns().saturating_add(u64::try_from(slice.as_nanos()).unwrap_or(NEVER)).min(NEVER - 1)
    });
    store.control.yield_ns.store(at, Ordering::SeqCst);
}
