//! What this process may use: memory, time, system calls.

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Resource, Rlimit, Signal};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Limits of one run.
pub(crate) struct Bounds {
    /// Bytes of memory.
    pub(crate) memory: u64,
    /// Time from now on.
    pub(crate) time: Duration,
    /// Compiling threads.
    pub(crate) jobs: usize,
}

/// Address space that is not memory in use: the program and its libraries, and the unused part of stacks.
const LIBRARIES: u64 = 1 << 30;

/// A killed parent leaves no compiler behind.
pub(crate) fn die_with_parent() -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot ask for a signal")?;
    // A parent that died before is told by its end of the pipe that standard error is.
    let stderr = rustix::stdio::stderr();
    let mut watched = [PollFd::new(&stderr, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut watched, Some(&now)) == Ok(1) {
        anyhow::bail!("nobody waits for the artifact");
    }
    Ok(())
}

/// Sets limits, starts the watchdog and gives up system calls.
pub(crate) fn enter(bounds: &Bounds) -> anyhow::Result<()> {
    say_a_word_when_aborting();
    // Each thread's stack is reserved whole, and malloc keeps an arena of 128 MiB of addresses for it.
    let threads = bounds.jobs as u64 * (mote_compiler::THREAD_STACK as u64 + (128 << 20));
    let address_space = bounds.memory.saturating_add(threads).saturating_add(LIBRARIES);
    limit(Resource::As, address_space)?;
    limit(Resource::Cpu, (bounds.time.as_secs() + 1).saturating_mul(bounds.jobs as u64 + 1))?;
    limit(Resource::Core, 0)?;
    // The address space above has room for stacks and libraries, which a module could fill: what counts is memory in use.
    let usage = std::fs::File::open("/proc/self/statm").context("cannot open /proc/self/statm")?;
    let (time, memory) = (bounds.time, bounds.memory);
    std::thread::Builder::new()
        .name("watchdog".to_owned())
        .spawn(move || watch(&usage, time, memory))
        .context("cannot start the watchdog")?;
    let filter = filter().context("cannot make the system-call filter")?;
    seccompiler::apply_filter_all_threads(&filter).context("cannot install the system-call filter")
}

/// Ends the process when it has taken too long or too much.
fn watch(usage: &std::fs::File, time: Duration, memory: u64) {
    const PAUSE: Duration = Duration::from_millis(20);
    let start = Instant::now();
    let line = loop {
        let left = time.saturating_sub(start.elapsed());
        if left.is_zero() {
            let seconds = time.as_secs();
            break format!("error: the module takes more than {seconds} seconds to compile (--max-time)\n");
        }
        if resident_bytes(usage) > memory {
            let mebibytes = memory >> 20;
            break format!("error: the module takes more than {mebibytes} MiB to compile (--max-memory)\n");
        }
        std::thread::sleep(PAUSE.min(left));
    };
    let _ = std::io::stderr().write_all(line.as_bytes());
    std::process::exit(3);
}

/// Memory in use: the second number of `statm`, in pages. 0 when it cannot be read: the limit of the address space still holds.
fn resident_bytes(usage: &std::fs::File) -> u64 {
    let mut text = [0; 128];
    let length = usage.read_at(&mut text, 0).unwrap_or_default();
    let text = text.get(..length).map(String::from_utf8_lossy).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    // SAFETY: sysconf only reads a number of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.unwrap_or_default().saturating_mul(u64::try_from(page).unwrap_or_default())
}

/// Lowers a limit; one that is lower already stays.
fn limit(resource: Resource, value: u64) -> anyhow::Result<()> {
    let old = rustix::process::getrlimit(resource);
    let at_most = |old: Option<u64>| Some(old.map_or(value, |old| old.min(value)));
    let new = Rlimit { current: at_most(old.current), maximum: at_most(old.maximum) };
    rustix::process::setrlimit(resource, new).context("cannot set a resource limit")
}

/// What compiling, threads, and writing to open files need. Anything else fails with ENOSYS, which makes the C library fall
/// back from `clone3`, whose flags a filter cannot see, to `clone`, which is allowed for threads only.
fn filter() -> anyhow::Result<BpfProgram> {
    let always = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_pread64,
        libc::SYS_lseek,
        libc::SYS_close,
        libc::SYS_fstat,
        libc::SYS_statx,
        libc::SYS_fcntl,
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_futex,
        libc::SYS_set_robust_list,
        libc::SYS_rseq,
        libc::SYS_sigaltstack,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_tgkill,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_prctl,
        libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_restart_syscall,
        libc::SYS_getrandom,
        libc::SYS_getrusage,
        libc::SYS_exit,
        libc::SYS_exit_group,
        // The artifact's name.
        libc::SYS_linkat,
        libc::SYS_renameat,
        libc::SYS_renameat2,
        libc::SYS_unlinkat,
    ];
    let mut rules: std::collections::BTreeMap<i64, Vec<SeccompRule>> =
        always.into_iter().map(|number| (number, Vec::new())).collect();
    let thread = libc::CLONE_THREAD as u64;
    let for_threads =
        SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(thread), thread)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![for_threads])?]);
    let architecture = std::env::consts::ARCH.try_into()?;
    let refuse = SeccompAction::Errno(libc::ENOSYS as u32);
    Ok(SeccompFilter::new(rules, refuse, SeccompAction::Allow, architecture)?.try_into()?)
}

/// LLVM and allocators end a process that is out of memory by `abort`, as does a stack overflow after Rust's own message.
fn say_a_word_when_aborting() {
    extern "C" fn aborting(_signal: libc::c_int) {
        let line = b"error: the compiler ended itself: out of memory (--max-memory), or a fault of its own\n";
        // SAFETY: write and _exit may be called in a signal handler; the buffer is a constant.
        unsafe {
            libc::write(2, line.as_ptr().cast(), line.len());
            libc::_exit(3);
        }
    }
    let handler: extern "C" fn(libc::c_int) = aborting;
    // SAFETY: the handler only makes calls that are allowed in one, and never returns.
    unsafe {
        libc::signal(libc::SIGABRT, handler as libc::sighandler_t);
    }
    // SAFETY: the handler is a plain function that lives for ever and ends the process.
    unsafe { inkwell::support::error_handling::install_fatal_error_handler(fatal) };
}

/// LLVM's last words, as a line of ours.
extern "C" fn fatal(reason: *const libc::c_char) {
    // SAFETY: LLVM passes a C string that lives through the call.
    let reason = unsafe { std::ffi::CStr::from_ptr(reason) }.to_string_lossy();
    let line = format!("error: LLVM: {}\n", reason.replace('\n', " "));
    let _ = std::io::stderr().write_all(line.as_bytes());
    std::process::exit(3);
}
