//! Ends a guest's wait from another thread or from a signal handler.
//!
//! The handle is an eventfd that every wait of the context polls beside what it waits for. It stays raised until it is
//! cleared, so that one that is raised just before a wait begins ends that wait too: no wake-up is lost.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// See the module.
#[derive(Clone, Debug)]
pub struct Interrupt {
    event: Arc<OwnedFd>,
}

impl Interrupt {
    /// A handle that is not raised.
    pub fn new() -> std::io::Result<Interrupt> {
        Ok(Interrupt { event: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?) })
    }

    /// A handle on an eventfd (or anything that becomes readable and stays so) of the caller's.
    pub fn from_fd(event: OwnedFd) -> Interrupt {
        Interrupt { event: Arc::new(event) }
    }

    /// Ends the current wait and every later one until [`Interrupt::clear`]. One `write` of eight bytes: it may be called from
    /// a signal handler.
    pub fn raise(&self) {
        // A full counter (EAGAIN) is raised already; nothing else can fail on an eventfd that is open.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Makes waits possible again.
    pub fn clear(&self) {
        // EAGAIN: it was not raised.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }

    /// Whether a wait would end at once.
    pub fn is_raised(&self) -> bool {
        let mut fds = [PollFd::new(&self.event, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
