use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::testing::{DIR, Guest, MEMORY_BYTES, READ, errno};
use crate::witx::{Abi, fdflags, oflags};
use crate::{Errno, Error, Interrupt};

const LISTENER: u32 = 4;

fn listening() -> (Guest, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let guest = Guest::with(|builder| {
        builder.socket(listener);
    });
    (guest, address)
}

fn accept(guest: &mut Guest, flags: u32) -> Result<u32, Error> {
    guest.ctx.sock_accept(guest.memory.as_mut_slice(), LISTENER, flags, 0)?;
    Ok(guest.u32_at(0))
}

/// `sock_recv` into one buffer: the bytes and the flags that came out.
fn recv(guest: &mut Guest, fd: u32, len: u32, flags: u32) -> Result<(Vec<u8>, u32), Error> {
    let buffer = MEMORY_BYTES as u32 - len;
    let iovec = guest.iovec(buffer, len);
    guest.ctx.sock_recv(guest.memory.as_mut_slice(), fd, iovec, 1, flags, 0, 4)?;
    let got = guest.memory[buffer as usize..][..guest.u32_at(0) as usize].to_vec();
    Ok((got, guest.u32_at(4) & 0xffff))
}

fn send(guest: &mut Guest, fd: u32, bytes: &[u8]) -> Result<u32, Error> {
    let (at, len) = guest.put(bytes);
    let iovec = guest.iovec(at, len);
    guest.ctx.sock_send(guest.memory.as_mut_slice(), fd, iovec, 1, 0, 0)?;
    Ok(guest.u32_at(0))
}

#[test]
fn connections_are_accepted_and_talk() {
    let (mut guest, address) = listening();
    assert_eq!(guest.fdstat(LISTENER).unwrap().0, 6);
    assert_eq!(
        errno(guest.ctx.fd_prestat_get(guest.memory.as_mut_slice(), LISTENER, 0)),
        Errno::Badf,
        "a libc's search for directories ends here"
    );
    let mut client = TcpStream::connect(address).unwrap();
    let fd = accept(&mut guest, 0).unwrap();
    assert_eq!(fd, 5);
    client.write_all(b"request").unwrap();
    assert_eq!(recv(&mut guest, fd, 100, 1).unwrap(), (b"request".to_vec(), 0), "peek");
    assert_eq!(recv(&mut guest, fd, 3, 0).unwrap(), (b"req".to_vec(), 0));
    assert_eq!(guest.read(fd, 100).unwrap(), b"uest");
    assert_eq!(send(&mut guest, fd, b"resp").unwrap(), 4);
    assert_eq!(guest.write(fd, b"onse").unwrap(), 4);
    guest.ctx.sock_shutdown(fd, 2).unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert_eq!(response, "response");
    drop(client);
    assert_eq!(recv(&mut guest, fd, 10, 0).unwrap().0, b"");
    assert_eq!(errno(send(&mut guest, fd, b"x")), Errno::Pipe, "an error, not a signal");
    guest.ctx.fd_close(fd).unwrap();
}

#[test]
fn waiting_for_all_of_the_data_or_for_none() {
    let (mut guest, address) = listening();
    assert_eq!(errno(guest.ctx.sock_accept(guest.memory.as_mut_slice(), LISTENER, 1, 0)), Errno::Inval);
    guest.ctx.fd_fdstat_set_flags(LISTENER, fdflags::NONBLOCK.into()).unwrap();
    assert_eq!(errno(accept(&mut guest, 0)), Errno::Again);
    guest.ctx.fd_fdstat_set_flags(LISTENER, 0).unwrap();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        let mut client = TcpStream::connect(address).unwrap();
        for part in [&b"one "[..], b"two ", b"three"] {
            client.write_all(part).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        client
    });
    let fd = accept(&mut guest, fdflags::NONBLOCK.into()).unwrap();
    assert_eq!(guest.fdstat(fd).unwrap().1, fdflags::NONBLOCK);
    guest.ctx.fd_fdstat_set_flags(fd, 0).unwrap();
    assert_eq!(recv(&mut guest, fd, 13, 2).unwrap().0, b"one two three");
    drop(thread.join().unwrap());
    assert_eq!(recv(&mut guest, fd, 5, 2).unwrap().0, b"", "the end is not waited past");
}

#[test]
fn an_interrupt_ends_a_blocked_accept_and_receive() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let interrupt = Interrupt::new().unwrap();
    let mut guest = Guest::with(|builder| {
        builder.socket(listener).interrupt(interrupt.clone());
    });
    let raise_later = || {
        let interrupt = interrupt.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            interrupt.raise();
        })
    };
    let thread = raise_later();
    assert_eq!(accept(&mut guest, 0), Err(Error::Interrupted));
    thread.join().unwrap();
    interrupt.clear();
    let _client = TcpStream::connect(address).unwrap();
    let fd = accept(&mut guest, 0).unwrap();
    let thread = raise_later();
    assert_eq!(recv(&mut guest, fd, 1, 0), Err(Error::Interrupted));
    thread.join().unwrap();
    // A peer that does not read: what fits is sent, then the wait ends as well.
    loop {
        match send(&mut guest, fd, &[1; 200_000]) {
            Ok(count) => assert!(count > 0),
            Err(error) => {
                assert_eq!(error, Error::Interrupted);
                break;
            }
        }
    }
}

#[test]
fn datagrams_that_do_not_fit_are_marked() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(socket.local_addr().unwrap()).unwrap();
    socket.connect(client.local_addr().unwrap()).unwrap();
    let mut guest = Guest::with(|builder| {
        builder.socket(socket);
    });
    assert_eq!(guest.fdstat(LISTENER).unwrap().0, 5);
    client.send(b"0123456789").unwrap();
    assert_eq!(recv(&mut guest, LISTENER, 4, 0).unwrap(), (b"0123".to_vec(), 1));
    client.send(b"abc").unwrap();
    assert_eq!(recv(&mut guest, LISTENER, 10, 0).unwrap(), (b"abc".to_vec(), 0));
    assert_eq!(send(&mut guest, LISTENER, b"back").unwrap(), 4);
    let mut buffer = [0; 10];
    assert_eq!(client.recv(&mut buffer).unwrap(), 4);
}

#[test]
fn sockets_can_be_polled() {
    let (mut guest, address) = listening();
    let mut record = [0; 48];
    record[8] = 1;
    record[16] = LISTENER as u8;
    let (at, _) = guest.put(&record);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        TcpStream::connect(address).unwrap()
    });
    guest.ctx.poll_oneoff(Abi::Preview1, guest.memory.as_mut_slice(), at, 1024, 1, 0).unwrap();
    assert_eq!(guest.u32_at(0), 1);
    assert_eq!(guest.u32_at(1032) & 0xffff, 0);
    accept(&mut guest, 0).unwrap();
    drop(thread.join().unwrap());
}

#[test]
fn hostile_calls_are_refused() {
    let (mut guest, address) = listening();
    let end = MEMORY_BYTES as u32;
    guest.create("file", b"x");
    let file = guest.open("file", oflags::CREAT, READ).unwrap();
    let _client = TcpStream::connect(address).unwrap();
    let iovec = guest.iovec(64, 8);
    let (ctx, memory) = (&guest.ctx, guest.memory.as_mut_slice());
    for fd in [file, DIR, 0] {
        assert_eq!(errno(ctx.sock_accept(memory, fd, 0, 0)), Errno::NotSock);
        assert_eq!(errno(ctx.sock_recv(memory, fd, iovec, 1, 0, 0, 4)), Errno::NotSock);
        assert_eq!(errno(ctx.sock_send(memory, fd, iovec, 1, 0, 0)), Errno::NotSock);
        assert_eq!(errno(ctx.sock_shutdown(fd, 1)), Errno::NotSock);
    }
    assert_eq!(errno(ctx.sock_accept(memory, LISTENER, 0, end - 3)), Errno::Fault);
    ctx.sock_accept(memory, LISTENER, 0, 0).unwrap();
    let fd = guest.u32_at(0);
    let memory = guest.memory.as_mut_slice();
    assert_eq!(errno(ctx_recv(&guest.ctx, memory, fd, iovec, 4, 0)), Errno::Inval);
    assert_eq!(errno(ctx_recv(&guest.ctx, memory, fd, end - 7, 0, 0)), Errno::Fault);
    assert_eq!(errno(ctx_recv(&guest.ctx, memory, fd, iovec, 0, end - 1)), Errno::Fault);
    assert_eq!(errno(guest.ctx.sock_send(memory, fd, iovec, 1, 1, 0)), Errno::Inval);
    assert_eq!(errno(guest.ctx.sock_send(memory, fd, iovec, 1, 0, end)), Errno::Fault);
    for how in [0, 4, u32::MAX] {
        assert_eq!(errno(guest.ctx.sock_shutdown(fd, how)), Errno::Inval);
    }
    assert_eq!(errno(guest.seek(fd, 0, 1)), Errno::Spipe);
}

fn ctx_recv(
    ctx: &crate::WasiCtx,
    memory: &mut [u8],
    fd: u32,
    iovec: u32,
    flags: u32,
    datalen: u32,
) -> Result<(), Error> {
    ctx.sock_recv(memory, fd, iovec, 1, flags, datalen, 4)
}
