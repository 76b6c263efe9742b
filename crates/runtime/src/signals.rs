//! Faults of guests become traps.
//!
//! The handlers run on alternate stacks. A fault is a guest's only when this thread runs a fiber, and its program counter is in the text
//! of a module and the address in something of the guest's store, or its stack pointer has reached the guard of that fiber's stack.
//! Everything else goes to the handler that was there before, exactly as if ours were not: a fault of guest code elsewhere would be a
//! mistake of the compiler, which must not pass for a trap.
//!
//! An artifact that is truncated while it is mapped takes pages away from guest code, which is a trap, and from the host, which reads tables
//! and guests' memories there: it finds zeros instead, since its readers take whatever bytes there are, and the guest that it works for ends
//! with that trap when it would go on.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::Once;

use libc::{c_int, c_void, siginfo_t};
use mote_artifact::abi::TrapCode;

use crate::arch::{self, Interrupted};
use crate::code;
use crate::fiber::{self, Fault};
use crate::mapping::Mapping;

/// Signals that the processor raises for guest code.
const FAULTS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// Bytes of an alternate stack beside the kernel's frame: our handler needs little, one that was there before may need more.
const HANDLER_BYTES: usize = 16 << 10;

/// The handlers that were there before ours.
struct Previous(UnsafeCell<[MaybeUninit<libc::sigaction>; FAULTS.len()]>);

// SAFETY: written once by the kernel, as it installs the handler that reads it; zero, which is no handler, before.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous = Previous(UnsafeCell::new([const { MaybeUninit::zeroed() }; FAULTS.len()]));

thread_local! {
    static PREPARED: Cell<bool> = const { Cell::new(false) };
    static STACK: Cell<Option<Box<AlternateStack>>> = const { Cell::new(None) };
}

/// Installs the handlers (once) and gives this thread an alternate stack.
pub(crate) fn prepare_thread() {
    if !PREPARED.get() {
        install();
        // A value with a destructor is touched only when there is something to destroy: noting the destructor takes memory of its own.
        if let Some(made) = AlternateStack::new() {
            // A thread that is ending has no place for a stack any more: its guests' faults then end the process.
            let _ = STACK.try_with(|stack| stack.set(Some(Box::new(made))));
        }
        PREPARED.set(true);
    }
}

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (index, signal) in FAULTS.into_iter().enumerate() {
            // SAFETY: the new handler is safe in any context; the old one goes where the new one looks for it.
            unsafe {
                let previous = PREVIOUS.0.get().cast::<libc::sigaction>().add(index);
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_fault as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigaction(signal, &action, previous);
            }
        }
    });
}

/// A stack for signal handlers of one thread.
struct AlternateStack {
    mapping: Mapping,
}

impl AlternateStack {
    /// Installs one, unless the thread has one that is large enough.
    fn new() -> Option<Self> {
        // SAFETY: getauxval only reads.
        let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
        let wanted = frame.max(libc::MINSIGSTKSZ) + HANDLER_BYTES;
        // SAFETY: asks only.
        let present = unsafe {
            let mut present: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &mut present);
            present
        };
        if present.ss_flags & libc::SS_DISABLE == 0
            && present.ss_size >= frame.max(libc::MINSIGSTKSZ) + HANDLER_BYTES / 4
        {
            return None;
        }
        let guard = crate::mapping::page_size();
        let mapping = Mapping::reserve(guard + wanted).ok()?;
        mapping.commit(guard, mapping.len() - guard).ok()?;
        let stack = libc::stack_t {
            ss_sp: mapping.base().wrapping_add(guard).cast(),
            ss_flags: 0,
            ss_size: mapping.len() - guard,
        };
        // SAFETY: the memory is ours and stays until the stack is disabled again.
        let result = unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) };
        (result == 0).then_some(Self { mapping })
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        PREPARED.set(false);
        // SAFETY: the stack is taken out of use before its memory goes, if it is still the one in use.
        unsafe {
            let mut present: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &mut present);
            let range = self.mapping.base() as usize..self.mapping.base() as usize + self.mapping.len();
            if range.contains(&(present.ss_sp as usize)) {
                let off =
                    libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
                libc::sigaltstack(&off, std::ptr::null_mut());
            }
        }
    }
}

/// # Safety
/// Called by the kernel.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid context; the fiber of this thread is alive while it is current.
    let handled = unsafe {
        let mut interrupted = Interrupted::new(context);
        let fiber = fiber::current();
        let fault = fiber.as_ref().and_then(|fiber| classify(signal, info, &interrupted, fiber));
        match (fault, fiber.as_mut()) {
            (Some(fault), Some(fiber)) => {
                interrupted.leave(fiber, fault);
                true
            }
            _ => match signal {
                libc::SIGSEGV => interrupted.end_copy(),
                libc::SIGBUS => {
                    interrupted.end_copy() || replace_lost_page(info, &interrupted, fiber.as_ref())
                }
                _ => false,
            },
        }
    };
    if !handled {
        // SAFETY: arguments are passed on unchanged.
        unsafe { chain(signal, info, context) };
    }
}

/// Maps zeros where the host uses a page of an artifact that is gone.
///
/// # Safety
/// `info` is the kernel's.
unsafe fn replace_lost_page(
    info: *const siginfo_t,
    interrupted: &Interrupted,
    fiber: Option<&fiber::Fiber>,
) -> bool {
    // SAFETY: the kernel's record.
    let (by_processor, address) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
    if !by_processor || code::is_guest(interrupted.pc()) {
        return false;
    }
    // SAFETY: the running fiber's store is alive, and code that is at an address of a guest's changes no list of them at this moment.
    let in_guest = fiber.is_some_and(|fiber| unsafe { (*fiber.store).holds(address) });
    let access = match code::is_artifact(address) {
        true => libc::PROT_READ,
        false if in_guest => libc::PROT_READ | libc::PROT_WRITE,
        false => return false,
    };
    let page = crate::mapping::page_size();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let at = (address & !(page - 1)) as *mut c_void;
    // SAFETY: the page is a mapping of an artifact, a module's own or in a guest's memory; what it held is lost already.
    let mapped = unsafe { libc::mmap(at, page, access, flags, -1, 0) };
    if let Some(fiber) = fiber {
        fiber.pending.fetch_or(fiber::pending::FILE_LOST, std::sync::atomic::Ordering::Relaxed);
    }
    mapped != libc::MAP_FAILED
}

/// What a fault of guest code is; `None` when it is not guest code's, or something that guest code does not do.
///
/// # Safety
/// `info` is the kernel's.
unsafe fn classify(
    signal: c_int,
    info: *const siginfo_t,
    interrupted: &Interrupted,
    fiber: &fiber::Fiber,
) -> Option<Fault> {
    // SAFETY: the kernel's record.
    let (by_processor, address) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
    if !by_processor {
        return None;
    }
    let fault = |code| Fault { code, file_lost: false };
    // A stub that saves registers on the guest's stack may be the one that finds it full. No Rust frame lies on that stack.
    if signal == libc::SIGSEGV && fiber.guards(address) && fiber.holds(interrupted.sp()) {
        return Some(fault(TrapCode::StackOverflow));
    }
    if !code::is_guest(interrupted.pc()) {
        return None;
    }
    // SAFETY: the running fiber's store is alive, and its guest is at this place and not in the host, so that nobody changes it.
    let reaches = || unsafe { (*fiber.store).holds(address) };
    match signal {
        libc::SIGSEGV if reaches() => Some(fault(TrapCode::MemoryOutOfBounds)),
        libc::SIGBUS if code::is_artifact(address) || reaches() => {
            Some(Fault { file_lost: true, ..fault(TrapCode::MemoryOutOfBounds) })
        }
        libc::SIGFPE => Some(fault(TrapCode::IntegerDivideByZero)),
        // SAFETY: the program counter is in a module's text.
        libc::SIGILL => unsafe { arch::trap_code(interrupted.pc()) }.map(fault),
        _ => None,
    }
}

/// Does what would have happened without our handler.
///
/// # Safety
/// Called in a signal handler with its arguments.
unsafe fn chain(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(index) = FAULTS.iter().position(|&it| it == signal) else { return };
    // SAFETY: written before the handlers were installed; the handler is called as the kernel would.
    unsafe {
        let previous = &*PREVIOUS.0.get().cast::<libc::sigaction>().add(index);
        if previous.sa_sigaction == libc::SIG_DFL || previous.sa_sigaction == libc::SIG_IGN {
            // A fault cannot be ignored: the instruction would fault again for ever.
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = if (*info).si_code > 0 { libc::SIG_DFL } else { previous.sa_sigaction };
            if default.sa_sigaction == libc::SIG_IGN {
                return;
            }
            libc::sigaction(signal, &default, std::ptr::null_mut());
            if (*info).si_code <= 0 {
                libc::raise(signal);
            }
            return;
        }
        let mut old_mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, &previous.sa_mask, &mut old_mask);
        if previous.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                std::mem::transmute(previous.sa_sigaction);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = std::mem::transmute(previous.sa_sigaction);
            handler(signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &old_mask, std::ptr::null_mut());
    }
}
