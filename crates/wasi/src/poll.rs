//! `poll_oneoff`: waits for the first of several clocks and descriptors.
//!
//! The subscriptions are read once. What is ready already (files, pipes in memory, descriptors that are not open) makes the
//! wait a look; everything else becomes one `ppoll` beside the interrupt handle. A time of the realtime clock is a timerfd, so
//! that setting the host's clock moves it as it should; other times are the `ppoll`'s timeout on the monotonic clock.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as HostErrno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::descriptor::{Descriptor, Object};
use crate::memory::{GuestMemory, field};
use crate::process::now;
use crate::witx::{Abi, EVENT_BYTES, clockid, eventtype, rights};
use crate::{Errno, Error, WasiCtx};

const ABSTIME: u16 = 1;
const HANGUP: u16 = 1;

/// What one subscription waits for.
enum Source {
    /// A time of a clock, in nanoseconds.
    Clock { clock: ClockId, deadline_ns: u64 },
    /// A host descriptor.
    Wait { descriptor: Arc<Descriptor>, events: PollFlags },
    /// Nothing: the event is known.
    Ready(Result<(u64, u16), Errno>),
}

struct Subscription {
    userdata: u64,
    kind: u8,
    source: Source,
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

impl WasiCtx {
    /// Waits until at least one of the subscribed events has happened, and writes those that have.
    pub fn poll_oneoff<M: GuestMemory + ?Sized>(
        &self,
        abi: Abi,
        memory: &mut M,
        subscriptions: u32,
        events: u32,
        count: u32,
        nevents: u32,
    ) -> Result<(), Error> {
        if count == 0 || count > self.limits.subscriptions {
            return Err(Errno::Inval.into());
        }
        let input_bytes = count.checked_mul(abi.subscription_bytes()).ok_or(Errno::Fault)?;
        memory.check(subscriptions, input_bytes)?;
        memory.check(events, count.checked_mul(EVENT_BYTES).ok_or(Errno::Fault)?)?;
        memory.check(nevents, 4)?;
        let first = self.subscription(abi, memory, subscriptions)?;
        if let (1, None, Source::Clock { clock, deadline_ns }) = (count, &self.interrupt, &first.source) {
            // A plain sleep.
            while let Err(HostErrno::INTR) = clock_nanosleep_absolute(*clock, &timespec(*deadline_ns)) {}
            write_event(memory, events, &first, Ok((0, 0)))?;
            return Ok(memory.write_u32(nevents, 1)?);
        }
        // Bounded by `Limits::subscriptions`.
        let mut wanted = Vec::with_capacity(count as usize);
        wanted.push(first);
        for index in 1..count {
            let address = field(subscriptions, index.wrapping_mul(abi.subscription_bytes()))?;
            wanted.push(self.subscription(abi, memory, address)?);
        }
        let happened = self.wait_for(&wanted)?;
        let mut at = events;
        let mut written = 0;
        for (subscription, outcome) in wanted.iter().zip(happened) {
            if let Some(outcome) = outcome {
                write_event(memory, at, subscription, outcome)?;
                at = at.wrapping_add(EVENT_BYTES);
                written += 1;
            }
        }
        Ok(memory.write_u32(nevents, written)?)
    }

    /// Reads a subscription.
    fn subscription<M: GuestMemory + ?Sized>(
        &self,
        abi: Abi,
        memory: &M,
        address: u32,
    ) -> Result<Subscription, Errno> {
        let userdata = memory.read_u64(address)?;
        let kind = memory.read_u8(field(address, 8)?)?;
        let source = match kind {
            eventtype::CLOCK => {
                // The older revision has an identifier before the clock.
                let clock = field(address, if abi == Abi::Unstable { 24 } else { 16 })?;
                let id = memory.read_u32(clock)?;
                let timeout_ns = memory.read_u64(field(clock, 8)?)?;
                let flags = memory.read_u16(field(clock, 24)?)?;
                clock_source(id, timeout_ns, flags)
            }
            eventtype::FD_READ | eventtype::FD_WRITE => {
                let fd = memory.read_u32(field(address, 16)?)?;
                match self.table.get(fd) {
                    Ok(descriptor) => descriptor_source(descriptor, kind),
                    Err(errno) => Source::Ready(Err(errno)),
                }
            }
            _ => return Err(Errno::Inval),
        };
        Ok(Subscription { userdata, kind, source })
    }

    /// Which of `wanted` have happened, once one has.
    fn wait_for(&self, wanted: &[Subscription]) -> Result<Vec<Option<Outcome>>, Error> {
        let look_only = wanted.iter().any(|one| matches!(one.source, Source::Ready(_)));
        let timer = if look_only { None } else { realtime_timer(wanted)? };
        let earliest = wanted
            .iter()
            .filter_map(|one| match one.source {
                Source::Clock { clock: ClockId::Monotonic, deadline_ns } => Some(deadline_ns),
                _ => None,
            })
            .min();
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(wanted.len() + 2);
        let extra = self.interrupt.iter().map(AsFd::as_fd).chain(timer.iter().map(AsFd::as_fd));
        fds.extend(extra.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let extra = fds.len();
        for one in wanted {
            if let Source::Wait { descriptor, events } = &one.source
                && let Some(host) = descriptor.host()
            {
                fds.push(PollFd::from_borrowed_fd(host, *events));
            }
        }
        loop {
            let left_ns = if look_only {
                Some(0)
            } else {
                earliest.map(|deadline_ns| deadline_ns.saturating_sub(now(ClockId::Monotonic)))
            };
            match poll(&mut fds, left_ns.map(timespec).as_ref()) {
                Err(HostErrno::INTR) => continue,
                other => other?,
            };
            if self.interrupt.is_some() && fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
                return Err(Error::Interrupted);
            }
            let mut polled = fds.iter().skip(extra);
            let happened: Vec<_> = wanted
                .iter()
                .map(|one| match &one.source {
                    Source::Ready(outcome) => Some(*outcome),
                    Source::Clock { clock, deadline_ns } => {
                        (now(*clock) >= *deadline_ns).then_some(Ok((0, 0)))
                    }
                    Source::Wait { descriptor, .. } => {
                        let seen = polled.next().map_or(PollFlags::empty(), PollFd::revents);
                        outcome(descriptor, one.kind, seen)
                    }
                })
                .collect();
            if happened.iter().any(Option::is_some) {
                return Ok(happened);
            }
        }
    }
}

/// Bytes and flags of an event, or its error.
type Outcome = Result<(u64, u16), Errno>;

fn clock_source(id: u32, timeout_ns: u64, flags: u16) -> Source {
    let absolute = flags & ABSTIME != 0;
    match id {
        _ if flags & !ABSTIME != 0 => Source::Ready(Err(Errno::Inval)),
        clockid::REALTIME if absolute => Source::Clock { clock: ClockId::Realtime, deadline_ns: timeout_ns },
        // A span of time passes alike on both, and setting the clock does not change it.
        clockid::REALTIME | clockid::MONOTONIC => {
            let start_ns = if absolute { 0 } else { now(ClockId::Monotonic) };
            Source::Clock { clock: ClockId::Monotonic, deadline_ns: start_ns.saturating_add(timeout_ns) }
        }
        // Nothing waits for processor time.
        clockid::PROCESS_CPUTIME_ID | clockid::THREAD_CPUTIME_ID => Source::Ready(Err(Errno::NotSup)),
        _ => Source::Ready(Err(Errno::Inval)),
    }
}

fn descriptor_source(descriptor: Arc<Descriptor>, kind: u8) -> Source {
    let read = kind == eventtype::FD_READ;
    if let Err(errno) = descriptor.require(rights::POLL_FD_READWRITE) {
        return Source::Ready(Err(errno));
    }
    match &descriptor.object {
        Object::Stream { .. } | Object::Socket(_) => {
            let events = if read { PollFlags::IN | PollFlags::RDHUP } else { PollFlags::OUT };
            Source::Wait { descriptor, events }
        }
        Object::File(fd) => {
            let left = if read {
                let size = rustix::fs::fstat(fd).map_or(0, |stat| stat.st_size as u64);
                size.saturating_sub(rustix::fs::tell(fd).unwrap_or(0))
            } else {
                1
            };
            Source::Ready(Ok((left, 0)))
        }
        Object::Input(pipe) if read => Source::Ready(Ok((pipe.len() as u64, 0))),
        Object::Null if read => Source::Ready(Ok((0, HANGUP))),
        Object::Null | Object::Output(_) if !read => Source::Ready(Ok((1, 0))),
        Object::Directory { .. } | Object::Null | Object::Input(_) | Object::Output(_) => {
            Source::Ready(Err(Errno::Badf))
        }
    }
}

/// What a host descriptor's state is to the guest.
fn outcome(descriptor: &Descriptor, kind: u8, seen: PollFlags) -> Option<Outcome> {
    if seen.is_empty() {
        return None;
    }
    if seen.contains(PollFlags::NVAL) {
        return Some(Err(Errno::Badf));
    }
    let hangup = seen.intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR);
    let bytes = match (kind, descriptor.host()) {
        // A listening socket counts no bytes.
        (eventtype::FD_READ, Some(host)) => {
            rustix::io::ioctl_fionread(host).unwrap_or(u64::from(seen.contains(PollFlags::IN)))
        }
        _ => u64::from(seen.contains(PollFlags::OUT)),
    };
    Some(Ok((bytes, if hangup { HANGUP } else { 0 })))
}

/// A timer for the earliest realtime deadline.
fn realtime_timer(wanted: &[Subscription]) -> Result<Option<OwnedFd>, Errno> {
    let earliest = wanted
        .iter()
        .filter_map(|one| match one.source {
            Source::Clock { clock: ClockId::Realtime, deadline_ns } => Some(deadline_ns),
            _ => None,
        })
        .min();
    let Some(deadline_ns) = earliest else {
        return Ok(None);
    };
    let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let setting = Itimerspec {
        it_interval: timespec(0),
        // Zero would disarm it.
        it_value: timespec(deadline_ns.max(1)),
    };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &setting)?;
    Ok(Some(timer))
}

fn write_event<M: GuestMemory + ?Sized>(
    memory: &mut M,
    address: u32,
    subscription: &Subscription,
    outcome: Outcome,
) -> Result<(), Errno> {
    let (error, bytes, flags) = match outcome {
        Ok((bytes, flags)) => (0, bytes, flags),
        Err(errno) => (errno as u64, 0, 0),
    };
    let words = [subscription.userdata, error | u64::from(subscription.kind) << 16, bytes, u64::from(flags)];
    Ok(memory.write(address, words.map(u64::to_le_bytes).as_flattened())?)
}

#[cfg(test)]
mod tests;
