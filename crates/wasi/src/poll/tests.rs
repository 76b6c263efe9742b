use std::io::Write;
use std::time::{Duration, Instant};

use crate::testing::{Guest, MEMORY_BYTES, READ, WRITE, errno};
use crate::witx::{Abi, oflags};
use crate::{Errno, Error, GuestMemory, InputPipe, Interrupt, OutputPipe, Stdio};

const IN: u32 = 0x1000;
const OUT: u32 = 0x8000;
const MILLI: u64 = 1_000_000;

#[derive(Debug, PartialEq, Eq)]
struct Event {
    userdata: u64,
    error: u16,
    kind: u8,
    bytes: u64,
    flags: u16,
}

fn clock(userdata: u64, id: u32, timeout: u64, flags: u16) -> [u8; 48] {
    let mut record = [0; 48];
    let record_mut = &mut record[..];
    record_mut.write(0, &userdata.to_le_bytes()).unwrap();
    record_mut.write(16, &id.to_le_bytes()).unwrap();
    record_mut.write(24, &timeout.to_le_bytes()).unwrap();
    record_mut.write(40, &flags.to_le_bytes()).unwrap();
    record
}

fn descriptor(userdata: u64, kind: u8, fd: u32) -> [u8; 48] {
    let mut record = [0; 48];
    record[..8].copy_from_slice(&userdata.to_le_bytes());
    record[8] = kind;
    record[16..20].copy_from_slice(&fd.to_le_bytes());
    record
}

fn poll(guest: &mut Guest, subscriptions: &[[u8; 48]]) -> Result<Vec<Event>, Error> {
    guest.memory.as_mut_slice().write(IN, subscriptions.as_flattened()).unwrap();
    let count = subscriptions.len() as u32;
    guest.ctx.poll_oneoff(Abi::Preview1, guest.memory.as_mut_slice(), IN, OUT, count, 0)?;
    let count = guest.u32_at(0);
    let event = |index| {
        let at = OUT + index * 32;
        Event {
            userdata: guest.u64_at(at),
            error: guest.memory.read_u16(at + 8).unwrap(),
            kind: guest.memory.read_u8(at + 10).unwrap(),
            bytes: guest.u64_at(at + 16),
            flags: guest.memory.read_u16(at + 24).unwrap(),
        }
    };
    Ok((0..count).map(event).collect())
}

fn now(guest: &mut Guest, id: u32) -> u64 {
    guest.ctx.clock_time_get(guest.memory.as_mut_slice(), id, 0, 0).unwrap();
    guest.u64_at(0)
}

#[test]
fn clocks_wait_for_their_time() {
    // With and without an interrupt handle the waits take different ways.
    for interrupt in [None, Some(Interrupt::new().unwrap())] {
        let mut guest = Guest::with(|builder| {
            if let Some(interrupt) = interrupt.clone() {
                builder.interrupt(interrupt);
            }
        });
        for id in [0, 1] {
            for absolute in [false, true] {
                let start = if absolute { now(&mut guest, id) } else { 0 };
                let before = Instant::now();
                let events = poll(&mut guest, &[clock(42, id, start + 20 * MILLI, absolute.into())]).unwrap();
                let took = before.elapsed();
                assert!(took >= Duration::from_millis(19) && took < Duration::from_secs(5), "{took:?}");
                assert_eq!(events, [Event { userdata: 42, error: 0, kind: 0, bytes: 0, flags: 0 }]);
            }
        }
        // In the past.
        assert_eq!(poll(&mut guest, &[clock(1, 1, 5, 1)]).unwrap().len(), 1);
        assert_eq!(poll(&mut guest, &[clock(1, 0, 0, 1)]).unwrap().len(), 1);
        assert_eq!(poll(&mut guest, &[clock(1, 1, 0, 0)]).unwrap().len(), 1);
    }
}

#[test]
fn the_earliest_of_several_clocks_ends_the_wait() {
    let mut guest = Guest::new();
    let far = now(&mut guest, 0) + 3_600_000 * MILLI;
    let events = poll(
        &mut guest,
        &[clock(1, 1, u64::MAX, 0), clock(2, 0, far, 1), clock(3, 1, 10 * MILLI, 0), clock(4, 0, 0, 0)],
    )
    .unwrap();
    assert_eq!(events.iter().map(|event| event.userdata).collect::<Vec<_>>(), [4]);
    let soon = now(&mut guest, 0) + 10 * MILLI;
    let events = poll(&mut guest, &[clock(1, 1, u64::MAX, 0), clock(2, 0, soon, 1)]).unwrap();
    assert_eq!(events.iter().map(|event| event.userdata).collect::<Vec<_>>(), [2]);
}

#[test]
fn clocks_that_cannot_be_waited_for_are_errors_of_their_events() {
    let mut guest = Guest::new();
    for (id, flags, expected) in
        [(2, 0, Errno::NotSup), (3, 0, Errno::NotSup), (4, 0, Errno::Inval), (1, 2, Errno::Inval)]
    {
        let events = poll(&mut guest, &[clock(7, id, 0, flags)]).unwrap();
        assert_eq!((events[0].error, events[0].userdata), (expected as u16, 7));
    }
}

#[test]
fn files_are_always_ready() {
    let mut guest = Guest::new();
    guest.create("file", b"12345");
    let fd = guest.open("file", 0, READ | WRITE).unwrap();
    guest.read(fd, 2).unwrap();
    let wanted = [descriptor(1, 1, fd), descriptor(2, 2, fd), clock(3, 1, u64::MAX, 0)];
    let events = poll(&mut guest, &wanted).unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0], Event { userdata: 1, error: 0, kind: 1, bytes: 3, flags: 0 });
    assert_eq!((events[1].userdata, events[1].error, events[1].kind), (2, 0, 2));
}

#[test]
fn descriptors_that_are_not_open_are_errors_of_their_events() {
    let mut guest = Guest::new();
    let events =
        poll(&mut guest, &[descriptor(1, 1, 99), descriptor(2, 2, u32::MAX), descriptor(3, 1, 3)]).unwrap();
    let badf = Errno::Badf as u16;
    assert_eq!(events.iter().map(|event| event.error).collect::<Vec<_>>(), [badf, badf, badf]);
}

#[test]
fn streams_in_memory_are_ready() {
    let mut guest = Guest::with(|builder| {
        builder.stdin(Stdio::Input(InputPipe::new(*b"abc")));
        builder.stdout(Stdio::Output(OutputPipe::new(10)));
    });
    let events = poll(&mut guest, &[descriptor(1, 1, 0), descriptor(2, 2, 1), descriptor(3, 2, 2)]).unwrap();
    assert_eq!(events.iter().map(|event| event.error).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(events[0].bytes, 3);
}

#[test]
fn pipes_are_waited_for() {
    for interrupt in [None, Some(Interrupt::new().unwrap())] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut guest = Guest::with(|builder| {
            builder.stdin(Stdio::Fd(reader.into()));
            if let Some(interrupt) = interrupt.clone() {
                builder.interrupt(interrupt);
            }
        });
        let events = poll(&mut guest, &[descriptor(1, 1, 0), clock(2, 1, 10 * MILLI, 0)]).unwrap();
        assert_eq!(events.iter().map(|event| event.userdata).collect::<Vec<_>>(), [2]);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            writer.write_all(b"four").unwrap();
            writer
        });
        let events = poll(&mut guest, &[descriptor(1, 1, 0), clock(2, 1, 60_000 * MILLI, 0)]).unwrap();
        assert_eq!(events, [Event { userdata: 1, error: 0, kind: 1, bytes: 4, flags: 0 }]);
        guest.read(0, 10).unwrap();
        drop(thread.join().unwrap());
        let events = poll(&mut guest, &[descriptor(1, 1, 0)]).unwrap();
        assert_eq!(events, [Event { userdata: 1, error: 0, kind: 1, bytes: 0, flags: 1 }], "hung up");
    }
}

#[test]
fn an_interrupt_ends_a_wait_before_or_during_it() {
    let interrupt = Interrupt::new().unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let mut guest = Guest::with(|builder| {
        builder.stdin(Stdio::Fd(reader.into())).interrupt(interrupt.clone());
    });
    let waits: [&[[u8; 48]]; 3] =
        [&[clock(1, 1, u64::MAX, 0)], &[clock(1, 0, u64::MAX, 1)], &[descriptor(1, 1, 0)]];
    for wait in waits {
        interrupt.raise();
        assert_eq!(poll(&mut guest, wait), Err(Error::Interrupted));
        interrupt.clear();
        let later = interrupt.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            later.raise();
        });
        assert_eq!(poll(&mut guest, wait), Err(Error::Interrupted));
        thread.join().unwrap();
        interrupt.clear();
    }
}

#[test]
fn the_old_interface_has_longer_subscriptions() {
    let mut guest = Guest::new();
    guest.create("file", b"12345");
    let fd = guest.open("file", oflags::CREAT, READ).unwrap();
    let mut records = [0u8; 112];
    let bytes = &mut records[..];
    bytes.write(0, &9u64.to_le_bytes()).unwrap();
    bytes.write(16, &77u64.to_le_bytes()).unwrap();
    bytes.write(24, &1u32.to_le_bytes()).unwrap();
    bytes.write(32, &MILLI.to_le_bytes()).unwrap();
    bytes.write(56, &8u64.to_le_bytes()).unwrap();
    bytes.write(64, &[1]).unwrap();
    bytes.write(72, &fd.to_le_bytes()).unwrap();
    guest.memory.as_mut_slice().write(IN, &records).unwrap();
    guest.ctx.poll_oneoff(Abi::Unstable, guest.memory.as_mut_slice(), IN, OUT, 1, 0).unwrap();
    assert_eq!((guest.u32_at(0), guest.u64_at(OUT)), (1, 9));
    guest.ctx.poll_oneoff(Abi::Unstable, guest.memory.as_mut_slice(), IN, OUT, 2, 0).unwrap();
    assert!(guest.u32_at(0) >= 1);
    assert_eq!(guest.u64_at(OUT + (guest.u32_at(0) - 1) * 32), 8);
}

#[test]
fn hostile_calls_are_refused() {
    let mut guest = Guest::new();
    let end = MEMORY_BYTES as u32;
    let mut wrong = clock(1, 1, 0, 0);
    wrong[8] = 3;
    assert_eq!(errno(poll(&mut guest, &[wrong])), Errno::Inval);
    let (ctx, memory) = (&guest.ctx, guest.memory.as_mut_slice());
    let mut call = |input, output, count, result| {
        errno(ctx.poll_oneoff(Abi::Preview1, memory, input, output, count, result))
    };
    assert_eq!(call(IN, OUT, 0, 0), Errno::Inval);
    assert_eq!(call(IN, OUT, 1025, 0), Errno::Inval);
    assert_eq!(call(IN, OUT, u32::MAX, 0), Errno::Inval);
    assert_eq!(call(end - 47, OUT, 1, 0), Errno::Fault);
    assert_eq!(call(u32::MAX, OUT, 1, 0), Errno::Fault);
    assert_eq!(call(IN, end - 31, 1, 0), Errno::Fault);
    assert_eq!(call(IN, OUT, 1, end - 3), Errno::Fault);
    // As many as there may be, all ready, input and output on top of each other.
    let every: Vec<u8> = (0..1024).flat_map(|index| clock(index, 1, 0, 0)).collect();
    guest.memory.as_mut_slice().write(IN, &every).unwrap();
    guest.ctx.poll_oneoff(Abi::Preview1, guest.memory.as_mut_slice(), IN, IN, 1024, 0).unwrap();
    assert_eq!(guest.u32_at(0), 1024);
    assert_eq!(guest.u64_at(IN + 1023 * 32), 1023);
}
