//! The process of a program that runs one guest: started with little, and kept small while the guest sleeps.
//!
//! The standard library's own start installs handlers and a stack that [`crate::Store`]'s calls replace a moment later, about a dozen
//! system calls. A program that says [`crate::program!`] begins in C's `main` and does only what the standard library's input and output
//! rely on.

use std::cell::UnsafeCell;
use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;

/// Makes a function of the type `fn(Words) -> u8` the program's start; what it gives is the exit code. The program says `#![no_main]`.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        /// Called by the C library.
        #[unsafe(no_mangle)]
        extern "C" fn main(count: std::ffi::c_int, words: *const *const std::ffi::c_char) -> std::ffi::c_int {
            // SAFETY: these are the arguments of C's `main`, and this is the process's start.
            unsafe { $crate::program::start(count, words, $main) }
        }
    };
}

/// The words of the command line, the program's own name first.
pub struct Words {
    next: *const *const c_char,
    left: usize,
}

impl Iterator for Words {
    type Item = OsString;

    fn next(&mut self) -> Option<OsString> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: `left` more words were there, and they stay for as long as the process.
        let word = unsafe {
            let word = CStr::from_ptr(*self.next);
            self.next = self.next.add(1);
            word
        };
        Some(OsStr::from_bytes(word.to_bytes()).to_owned())
    }
}

/// The path that the kernel was asked to execute: no system call, unlike the link in `/proc`. It may be relative to the directory in which
/// the process was started, and a symbolic link.
pub fn file() -> Option<&'static OsStr> {
    // SAFETY: getauxval only reads.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    // SAFETY: the kernel put a string there that stays for as long as the process.
    (!path.is_null()).then(|| OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()))
}

/// Ends this process with `128 + signal` when it is process 1 and gets that signal: a container's first process has no default effects of
/// signals. Anywhere else they keep them: a guest ends at once wherever it stands, and the parent sees by what.
pub fn end_on_signals_as_init(signals: &[c_int]) {
    extern "C" fn end(signal: c_int) {
        // SAFETY: _exit is safe in a signal handler.
        unsafe { libc::_exit(128 + signal) };
    }
    // SAFETY: the handler is safe in any context.
    unsafe {
        if libc::getpid() != 1 {
            return;
        }
        for &signal in signals {
            // Without a handler the signal has no effect, as before.
            libc::signal(signal, end as extern "C" fn(c_int) as libc::sighandler_t);
        }
    }
}

/// Seconds since 1970, to a few milliseconds: by a system call, which is quicker than the first use of the kernel's shared page.
pub fn now_seconds() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the record.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    now.tv_sec
}

/// Gives the pages of the stack back that calls until now have used and that are not in use any more.
#[cfg(target_arch = "x86_64")]
pub fn trim_stack() {
    /// How far below calls may have been.
    const DEEPEST: usize = 64 << 10;
    /// The call of the kernel happens in here.
    const KEPT: usize = 1 << 10;
    let sp: usize;
    // SAFETY: reads a register.
    unsafe { std::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    let end = (sp - KEPT) & !(crate::mapping::page_size() - 1);
    // SAFETY: nothing lies below the stack pointer but the frames of the calls in this line, for which there is room above `end`. A range that the
    // stack has not reached yet is an error that changes nothing.
    unsafe { libc::madvise((end - DEEPEST) as *mut _, DEEPEST, libc::MADV_DONTNEED) };
}

/// Does nothing here.
#[cfg(not(target_arch = "x86_64"))]
pub fn trim_stack() {}

/// Bytes of the first thread's stack for signal handlers; memory only when a handler runs.
const HANDLER_STACK: usize = 64 << 10;

#[repr(align(64))]
struct HandlerStack(UnsafeCell<[MaybeUninit<u8>; HANDLER_STACK]>);

// SAFETY: only its address is used here; what is in it is the kernel's and handlers' of one thread.
unsafe impl Sync for HandlerStack {}

static HANDLERS: HandlerStack = HandlerStack(UnsafeCell::new([MaybeUninit::uninit(); HANDLER_STACK]));

/// What [`crate::program!`] calls.
///
/// # Safety
/// The arguments are those of C's `main`, and nothing else of the process runs yet.
#[doc(hidden)]
pub unsafe fn start(count: c_int, words: *const *const c_char, main: fn(Words) -> u8) -> c_int {
    // SAFETY: plain system calls with records of this function; the handlers' stack is used for nothing else.
    unsafe {
        keep_standard_streams();
        // A guest that writes to a closed pipe gets an error.
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        let stack = libc::stack_t { ss_sp: HANDLERS.0.get().cast(), ss_flags: 0, ss_size: HANDLER_STACK };
        // The kernel refuses one that is too small for this processor; a thread's first call then brings its own.
        libc::sigaltstack(&stack, std::ptr::null_mut());
    }
    main(Words { next: words, left: usize::try_from(count).unwrap_or(0) }).into()
}

/// Opens what the process was started without, so that no file of the program's becomes a standard stream.
///
/// # Safety
/// Nothing else of the process runs yet.
unsafe fn keep_standard_streams() {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: the records are ours. Opening takes the lowest free number.
    unsafe {
        libc::poll(streams.as_mut_ptr(), 3, 0);
        for stream in streams {
            if stream.revents & libc::POLLNVAL != 0 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        }
    }
}
