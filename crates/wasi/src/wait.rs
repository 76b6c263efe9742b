//! Waiting: the one place where a guest blocks on a descriptor.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as HostErrno;

use crate::descriptor::{Descriptor, Object, Waiting};
use crate::{Errno, Error, WasiCtx};

/// How an attempt on a stream is to be made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// As the descriptor is.
    Plain,
    /// With `RWF_NOWAIT`: fails with EAGAIN where it would block.
    NoWait,
    /// At most `PIPE_BUF` bytes, which a pipe that polls writable takes without blocking.
    Small,
}

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl WasiCtx {
    /// Waits for `events` on `fd`, or looks only; false when there are none. An interrupt ends it.
    fn ready(&self, fd: BorrowedFd<'_>, events: PollFlags, look_only: bool) -> Result<bool, Error> {
        let timeout = look_only.then_some(&NO_TIME);
        loop {
            let result = match &self.interrupt {
                None => poll(&mut [PollFd::from_borrowed_fd(fd, events)], timeout),
                Some(interrupt) => {
                    let mut fds = [
                        PollFd::from_borrowed_fd(interrupt.as_fd(), PollFlags::IN),
                        PollFd::from_borrowed_fd(fd, events),
                    ];
                    let result = poll(&mut fds, timeout);
                    let [interrupted, fd] = fds;
                    if result.is_ok() && !interrupted.revents().is_empty() {
                        return Err(Error::Interrupted);
                    }
                    result.map(|_| usize::from(!fd.revents().is_empty()))
                }
            };
            match result {
                Ok(0) if look_only => return Ok(false),
                Ok(0) | Err(HostErrno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Makes attempts at a transfer until one does something, waiting for `events` in between as the descriptor's flags say.
    pub(crate) fn transfer<T>(
        &self,
        descriptor: &Descriptor,
        events: PollFlags,
        mut attempt: impl FnMut(Attempt) -> Result<T, HostErrno>,
    ) -> Result<T, Error> {
        let (fd, waiting) = match &descriptor.object {
            Object::Stream { fd, waiting } => (fd.as_fd(), *waiting),
            Object::Socket(fd) => (fd.as_fd(), Waiting::TryFirst),
            // Files do not wait.
            _ => return retry(|| attempt(Attempt::Plain)),
        };
        let nonblocking = descriptor.nonblocking();
        if waiting == Waiting::Shared {
            return self.transfer_shared(fd, events, nonblocking, attempt);
        }
        if waiting == Waiting::PollFirst && !nonblocking {
            self.ready(fd, events, false)?;
        }
        loop {
            match attempt(Attempt::Plain) {
                Err(HostErrno::AGAIN) if nonblocking => return Err(Errno::Again.into()),
                Err(HostErrno::AGAIN) => drop(self.ready(fd, events, false)?),
                Err(HostErrno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    /// On a description whose flags are not ours to change.
    fn transfer_shared<T>(
        &self,
        fd: BorrowedFd<'_>,
        events: PollFlags,
        nonblocking: bool,
        mut attempt: impl FnMut(Attempt) -> Result<T, HostErrno>,
    ) -> Result<T, Error> {
        if !nonblocking && self.interrupt.is_none() {
            // Nothing could end the wait, so the kernel may as well wait in the call itself. EAGAIN: whoever shares the
            // description has made it non-blocking.
            loop {
                match attempt(Attempt::Plain) {
                    Err(HostErrno::AGAIN) => drop(self.ready(fd, events, false)?),
                    Err(HostErrno::INTR) => {}
                    result => return Ok(result?),
                }
            }
        }
        loop {
            if !self.ready(fd, events, nonblocking)? {
                return Err(Errno::Again.into());
            }
            // Somebody else may have taken what was there. Kernels without RWF_NOWAIT for this kind of file get an attempt
            // that blocks in that one case only.
            let result = match attempt(Attempt::NoWait) {
                Err(HostErrno::OPNOTSUPP | HostErrno::NOSYS) => attempt(Attempt::Small),
                result => result,
            };
            match result {
                Err(HostErrno::AGAIN) if nonblocking => return Err(Errno::Again.into()),
                Err(HostErrno::AGAIN | HostErrno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }
}

/// Repeats a call that a signal cut short before it did anything.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T, HostErrno>) -> Result<T, Error> {
    loop {
        match call() {
            Err(HostErrno::INTR) => {}
            result => return Ok(result?),
        }
    }
}
