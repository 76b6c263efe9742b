//! `sock_*`: on sockets that the guest was given, and on what it accepts from them.

use rustix::event::PollFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags,
};
use std::os::fd::OwnedFd;

use crate::descriptor::{Descriptor, Object};
use crate::iovec::Spans;
use crate::memory::GuestMemory;
use crate::witx::{fdflags, rights};
use crate::{Errno, Error, WasiCtx};

const RECV_PEEK: u32 = 1;
const RECV_WAITALL: u32 = 2;
const RECV_DATA_TRUNCATED: u16 = 1;
const SHUTDOWN_READ: u32 = 1;
const SHUTDOWN_WRITE: u32 = 2;

fn socket(descriptor: &Descriptor) -> Result<&OwnedFd, Errno> {
    match &descriptor.object {
        Object::Socket(fd) => Ok(fd),
        _ => Err(Errno::NotSock),
    }
}

impl WasiCtx {
    /// Takes a connection from a listening socket.
    pub fn sock_accept<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        fd: u32,
        flags: u32,
        accepted: u32,
    ) -> Result<(), Error> {
        let descriptor = self.table.get(fd)?;
        memory.check(accepted, 4)?;
        let flags = u16::try_from(flags).ok().filter(|flags| flags & !fdflags::NONBLOCK == 0);
        let flags = flags.ok_or(Errno::Inval)?;
        let listener = socket(&descriptor)?;
        descriptor.require(rights::SOCK_ACCEPT)?;
        if self.table.is_full() {
            return Err(Errno::Mfile.into());
        }
        let connection = self.transfer(&descriptor, PollFlags::IN, |_| {
            rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        })?;
        let number = self.table.insert(Descriptor::socket(connection, flags)?)?;
        Ok(memory.write_u32(accepted, number)?)
    }

    /// Receives; may peek, and may wait until all of the buffers are full.
    #[expect(clippy::too_many_arguments, reason = "the specification's parameters")]
    pub fn sock_recv<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        fd: u32,
        ri_data: u32,
        ri_data_len: u32,
        ri_flags: u32,
        ro_datalen: u32,
        ro_flags: u32,
    ) -> Result<(), Error> {
        let descriptor = self.table.get(fd)?;
        memory.check(ro_datalen, 4)?;
        memory.check(ro_flags, 2)?;
        if ri_flags & !(RECV_PEEK | RECV_WAITALL) != 0 {
            return Err(Errno::Inval.into());
        }
        let mut spans = Spans::read(memory, ri_data, ri_data_len, self.limits.iovecs)?;
        let socket = socket(&descriptor)?;
        descriptor.require(rights::FD_READ)?;
        let peek = ri_flags & RECV_PEEK != 0;
        let wait_all = ri_flags & RECV_WAITALL != 0 && !peek && !descriptor.nonblocking();
        let host_flags = if peek { RecvFlags::PEEK } else { RecvFlags::empty() };
        let mut received = 0u32;
        let mut truncated = 0;
        loop {
            let part = spans.scatter(memory, |buffers| {
                let message = self.transfer(&descriptor, PollFlags::IN, |_| {
                    let mut control = RecvAncillaryBuffer::default();
                    let message = rustix::net::recvmsg(socket, buffers, &mut control, host_flags)?;
                    Ok((message.bytes, message.flags))
                })?;
                if message.1.contains(ReturnFlags::TRUNC) {
                    truncated = RECV_DATA_TRUNCATED;
                }
                Ok(message.0)
            });
            let part = match part {
                // What has arrived is not lost; the error comes with the next call.
                Err(Error::Errno(_)) if received > 0 => break,
                other => other?,
            };
            received += part as u32;
            spans.advance(part);
            if !wait_all || part == 0 || spans.total() == 0 {
                break;
            }
        }
        memory.write_u32(ro_datalen, received)?;
        Ok(memory.write(ro_flags, &u16::to_le_bytes(truncated))?)
    }

    /// Sends.
    pub fn sock_send<M: GuestMemory + ?Sized>(
        &self,
        memory: &mut M,
        fd: u32,
        si_data: u32,
        si_data_len: u32,
        si_flags: u32,
        so_datalen: u32,
    ) -> Result<(), Error> {
        let descriptor = self.table.get(fd)?;
        memory.check(so_datalen, 4)?;
        if si_flags != 0 {
            return Err(Errno::Inval.into());
        }
        let spans = Spans::read(memory, si_data, si_data_len, self.limits.iovecs)?;
        let socket = socket(&descriptor)?;
        descriptor.require(rights::FD_WRITE)?;
        let sent = spans.gather(memory, |buffers| {
            self.transfer(&descriptor, PollFlags::OUT, |_| {
                let mut control = SendAncillaryBuffer::default();
                rustix::net::sendmsg(socket, buffers, &mut control, SendFlags::NOSIGNAL)
            })
        })?;
        Ok(memory.write_u32(so_datalen, sent as u32)?)
    }

    /// Ends a connection in one or both directions.
    pub fn sock_shutdown(&self, fd: u32, how: u32) -> Result<(), Error> {
        let descriptor = self.table.get(fd)?;
        let socket = socket(&descriptor)?;
        descriptor.require(rights::SOCK_SHUTDOWN)?;
        const BOTH: u32 = SHUTDOWN_READ | SHUTDOWN_WRITE;
        let how = match how {
            SHUTDOWN_READ => Shutdown::Read,
            SHUTDOWN_WRITE => Shutdown::Write,
            BOTH => Shutdown::Both,
            _ => return Err(Errno::Inval.into()),
        };
        Ok(rustix::net::shutdown(socket, how)?)
    }
}

#[cfg(test)]
mod tests;
