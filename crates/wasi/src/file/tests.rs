use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;

use crate::testing::{DIR, Guest, MEMORY_BYTES, READ, WRITE, errno};
use crate::witx::{Abi, fdflags, fstflags, oflags, rights};
use crate::{Errno, GuestMemory, InputPipe, Limits, OutputPipe, Stdio, WasiCtxBuilder};

const END: u32 = MEMORY_BYTES as u32;

#[test]
fn what_is_written_is_read_back_at_positions() {
    let mut guest = Guest::new();
    let fd = guest.open("file", oflags::CREAT, READ | WRITE).unwrap();
    assert_eq!(guest.write(fd, b"hello world").unwrap(), 11);
    assert_eq!(guest.seek(fd, 0, 0).unwrap(), 0);
    assert_eq!(guest.read(fd, 5).unwrap(), b"hello");
    assert_eq!(guest.seek(fd, 1, 1).unwrap(), 6);
    assert_eq!(guest.read(fd, 100).unwrap(), b"world");
    assert_eq!(guest.read(fd, 100).unwrap(), b"");
    assert_eq!(guest.seek(fd, -5, 2).unwrap(), 6);
    guest.ctx.fd_tell(guest.memory.as_mut_slice(), fd, 0).unwrap();
    assert_eq!(guest.u64_at(0), 6);
    assert_eq!(errno(guest.seek(fd, -1, 0)), Errno::Inval);
    assert_eq!(errno(guest.seek(fd, 0, 3)), Errno::Inval);
    assert_eq!(std::fs::read(guest.host("file")).unwrap(), b"hello world");
}

#[test]
fn the_old_interface_orders_whence_otherwise() {
    let mut guest = Guest::new();
    guest.create("file", b"0123456789");
    let fd = guest.open("file", 0, READ).unwrap();
    for (whence, offset, position) in [(2, 4, 4), (0, 2, 6), (1, -1, 9)] {
        guest.ctx.fd_seek(Abi::Unstable, guest.memory.as_mut_slice(), fd, offset, whence, 0).unwrap();
        assert_eq!(guest.u64_at(0), position);
    }
}

#[test]
fn positioned_calls_leave_the_position() {
    let mut guest = Guest::new();
    let fd = guest.open("file", oflags::CREAT, READ | WRITE).unwrap();
    guest.write(fd, b"0123456789").unwrap();
    let (at, len) = guest.put(b"xy");
    let iovec = guest.iovec(at, len);
    guest.ctx.fd_pwrite(guest.memory.as_mut_slice(), fd, iovec, 1, 3, 0).unwrap();
    assert_eq!(guest.u32_at(0), 2);
    let iovec = guest.iovec(2048, 4);
    guest.ctx.fd_pread(guest.memory.as_mut_slice(), fd, iovec, 1, 2, 0).unwrap();
    assert_eq!(&guest.memory[2048..2052], b"2xy5");
    assert_eq!(guest.seek(fd, 0, 1).unwrap(), 10);
    let far = guest.ctx.fd_pread(guest.memory.as_mut_slice(), fd, iovec, 1, u64::MAX, 0);
    assert_eq!(errno(far), Errno::Inval);
}

#[test]
fn append_mode_writes_at_the_end_and_can_be_changed() {
    let mut guest = Guest::new();
    guest.create("log", b"one ");
    let fd = guest.open_in(DIR, "log", true, 0, READ | WRITE, fdflags::APPEND.into()).unwrap();
    guest.write(fd, b"two ").unwrap();
    guest.seek(fd, 0, 0).unwrap();
    guest.write(fd, b"three").unwrap();
    assert_eq!(std::fs::read(guest.host("log")).unwrap(), b"one two three");
    assert_eq!(guest.fdstat(fd).unwrap().1, fdflags::APPEND);
    guest.ctx.fd_fdstat_set_flags(fd, 0).unwrap();
    guest.seek(fd, 0, 0).unwrap();
    guest.write(fd, b"ONE").unwrap();
    assert_eq!(std::fs::read(guest.host("log")).unwrap(), b"ONE two three");
    assert_eq!(errno(guest.ctx.fd_fdstat_set_flags(fd, fdflags::SYNC.into())), Errno::NotSup);
    assert_eq!(errno(guest.ctx.fd_fdstat_set_flags(fd, 1 << 16)), Errno::Inval);
    assert_eq!(errno(guest.ctx.fd_fdstat_set_flags(fd, 32)), Errno::Inval);
}

#[test]
fn vectors_are_filled_in_their_order_whatever_their_addresses() {
    let mut guest = Guest::new();
    guest.create("file", b"abcdefghij");
    // Twelve buffers (more than are kept without an allocation), in falling addresses, one of them empty.
    let mut array = Vec::new();
    for index in 0..12u32 {
        array.extend((9000 - index * 100).to_le_bytes());
        array.extend(u32::from(index != 4).to_le_bytes());
    }
    let (at, _) = guest.put(&array);
    let fd = guest.open("file", 0, READ).unwrap();
    for count in [3, 12] {
        guest.memory[7900..9001].fill(0);
        guest.seek(fd, 0, 0).unwrap();
        guest.ctx.fd_read(guest.memory.as_mut_slice(), fd, at, count, 0).unwrap();
        let read = guest.u32_at(0);
        assert_eq!(read, count.min(10));
        let got: Vec<u8> = (0..count)
            .filter(|index| *index != 4)
            .map(|index| guest.memory[(9000 - index * 100) as usize])
            .take(read as usize)
            .collect();
        assert_eq!(got, &b"abcdefghij"[..read as usize]);
    }
    let out = guest.open("out", oflags::CREAT, WRITE).unwrap();
    guest.ctx.fd_write(guest.memory.as_mut_slice(), out, at, 12, 0).unwrap();
    assert_eq!(std::fs::read(guest.host("out")).unwrap(), b"abcdefghij\0");
}

#[test]
fn buffers_that_overlap_give_a_short_read() {
    let mut guest = Guest::new();
    guest.create("file", b"abcdef");
    let fd = guest.open("file", 0, READ).unwrap();
    let array: Vec<u8> = [0, 0, 2000, 4, 2002, 4].iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    let (at, _) = guest.put(&array);
    guest.ctx.fd_read(guest.memory.as_mut_slice(), fd, at, 3, 0).unwrap();
    assert_eq!(guest.u32_at(0), 4);
    assert_eq!(&guest.memory[2000..2006], b"abcd\0\0");
}

#[test]
fn hostile_vectors_are_refused() {
    let mut guest = Guest::new();
    guest.create("file", b"abcdef");
    let fd = guest.open("file", 0, READ).unwrap();
    let read = |guest: &mut Guest, array, count, result| {
        guest.ctx.fd_read(guest.memory.as_mut_slice(), fd, array, count, result)
    };
    for (address, len) in [(END - 4, 8), (END, 1), (u32::MAX, 1), (1, u32::MAX), (END + 1, 0)] {
        let iovec = guest.iovec(address, len);
        assert_eq!(errno(read(&mut guest, iovec, 1, 0)), Errno::Fault, "{address} {len}");
    }
    let good = guest.iovec(END - 4, 4);
    assert_eq!(errno(read(&mut guest, END - 7, 1, 0)), Errno::Fault);
    assert_eq!(errno(read(&mut guest, u32::MAX, 1, 0)), Errno::Fault);
    assert_eq!(errno(read(&mut guest, good, u32::MAX, 0)), Errno::Inval);
    assert_eq!(errno(read(&mut guest, good, 1025, 0)), Errno::Inval);
    assert_eq!(errno(read(&mut guest, good, 1, END - 3)), Errno::Fault);
    // Nothing was consumed by the calls that failed.
    read(&mut guest, good, 1, 0).unwrap();
    assert_eq!(&guest.memory[MEMORY_BYTES - 4..], b"abcd");
    read(&mut guest, good, 0, 0).unwrap();
    assert_eq!(guest.u32_at(0), 0);
    // Lengths that add up to more than a u32: 5 buffers of the whole memory would not, so a large memory is needed.
    let mut ctx = WasiCtxBuilder::new();
    ctx.stdout(Stdio::Null);
    let ctx = ctx.build().unwrap();
    let mut memory = vec![0u8; 16 << 20];
    for index in 0..1024u32 {
        memory.write_u32(index * 8, 8192).unwrap();
        memory.write_u32(index * 8 + 4, 8 << 20).unwrap();
    }
    assert_eq!(errno(ctx.fd_write(memory.as_mut_slice(), 1, 0, 1024, 0)), Errno::Inval);
    ctx.fd_write(memory.as_mut_slice(), 1, 0, 500, 0).unwrap();
    assert_eq!(memory.read_u32(0).unwrap(), 500 * (8 << 20));
}

/// A memory that other threads may write to: no slices of it exist.
struct Shared(Vec<u8>);

impl GuestMemory for Shared {
    fn byte_len(&self) -> u64 {
        self.0.byte_len()
    }
    fn read(&self, address: u32, into: &mut [u8]) -> Result<(), crate::OutOfBounds> {
        self.0.read(address, into)
    }
    fn write(&mut self, address: u32, from: &[u8]) -> Result<(), crate::OutOfBounds> {
        self.0.as_mut_slice().write(address, from)
    }
    fn bytes(&self) -> Option<&[u8]> {
        None
    }
    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        None
    }
}

#[test]
fn a_shared_memory_is_served_through_a_buffer() {
    let mut guest = Guest::new();
    let contents: Vec<u8> = (0..100_000u32).map(|byte| byte as u8).collect();
    let fd = guest.open("file", oflags::CREAT, READ | WRITE).unwrap();
    let mut memory = Shared(vec![0; MEMORY_BYTES]);
    memory.write(4096, &contents).unwrap();
    let spans = [4096u32, 1000, 5096, 99_000];
    for (index, word) in spans.iter().enumerate() {
        memory.write_u32(64 + index as u32 * 4, *word).unwrap();
    }
    guest.ctx.fd_write(&mut memory, fd, 64, 2, 0).unwrap();
    let written = memory.read_u32(0).unwrap();
    assert_eq!(written, 65536, "a short write");
    assert_eq!(std::fs::read(guest.host("file")).unwrap(), &contents[..65536]);
    memory.0[4096..].fill(0);
    guest.seek(fd, 0, 0).unwrap();
    guest.ctx.fd_read(&mut memory, fd, 64, 2, 0).unwrap();
    assert_eq!(memory.read_u32(0).unwrap(), 65536);
    assert_eq!(memory.0[4096..][..65536], contents[..65536]);
    guest.ctx.random_get(&mut memory, 4096, 1000).unwrap();
    assert!(memory.0[4096..5096] != contents[..1000]);
    assert!(memory.0[5088..5096] != [0; 8], "filled to the end");
}

#[test]
fn what_a_file_is_open_for_is_kept() {
    let mut guest = Guest::new();
    guest.create("file", b"abc");
    let reader = guest.open("file", 0, READ).unwrap();
    let writer = guest.open("file", 0, WRITE).unwrap();
    assert_eq!(errno(guest.write(reader, b"x")), Errno::Badf);
    assert_eq!(errno(guest.read(writer, 1)), Errno::Badf);
    let (filetype, _, base, _) = guest.fdstat(reader).unwrap();
    assert_eq!((filetype, base & READ, base & WRITE), (4, READ, 0));
    assert!(base & rights::FD_SEEK != 0, "a file can seek whatever was asked");
    assert_eq!(guest.fdstat(writer).unwrap().2 & (READ | WRITE), WRITE);
    assert_eq!(errno(guest.read(99, 1)), Errno::Badf);
    assert_eq!(errno(guest.read(u32::MAX, 1)), Errno::Badf);
}

#[test]
fn rights_can_be_given_up_and_not_taken_back() {
    let mut guest = Guest::new();
    guest.create("file", b"abc");
    let fd = guest.open("file", 0, READ | WRITE).unwrap();
    let base = guest.fdstat(fd).unwrap().2;
    guest.ctx.fd_fdstat_set_rights(fd, base & !rights::FD_SEEK & !WRITE, 0).unwrap();
    assert_eq!(errno(guest.seek(fd, 1, 0)), Errno::NotCapable);
    assert_eq!(guest.seek(fd, 0, 1).unwrap(), 0, "telling needs less");
    assert_eq!(errno(guest.write(fd, b"x")), Errno::Badf);
    assert_eq!(errno(guest.ctx.fd_fdstat_set_rights(fd, base, 0)), Errno::NotCapable);
    // A directory that passes no writing on.
    let (_, _, base, inheriting) = guest.fdstat(DIR).unwrap();
    guest.ctx.fd_fdstat_set_rights(DIR, base & !rights::PATH_UNLINK_FILE, inheriting & !WRITE).unwrap();
    assert_eq!(errno(guest.open("file", 0, WRITE)), Errno::NotCapable);
    assert_eq!(errno(guest.unlink("file")), Errno::NotCapable);
    guest.open("file", 0, READ).unwrap();
}

#[test]
fn descriptors_are_numbered_from_the_lowest_free_one() {
    let mut guest = Guest::with(|builder| {
        builder.limits(Limits { descriptors: 6, ..Limits::default() });
    });
    guest.create("file", b"abc");
    assert_eq!(guest.open("file", 0, READ).unwrap(), 4);
    assert_eq!(guest.open("file", 0, READ).unwrap(), 5);
    assert_eq!(errno(guest.open("new", oflags::CREAT, READ)), Errno::Mfile);
    assert!(!guest.host("new").exists(), "nothing is created for a descriptor that there is no room for");
    guest.ctx.fd_close(4).unwrap();
    assert_eq!(errno(guest.ctx.fd_close(4)), Errno::Badf);
    assert_eq!(guest.open("file", 0, READ).unwrap(), 4);
    guest.ctx.fd_close(0).unwrap();
    assert_eq!(guest.open("file", 0, READ).unwrap(), 0);
}

#[test]
fn renumbering_replaces_an_open_descriptor() {
    let mut guest = Guest::new();
    guest.create("a", b"from a");
    guest.create("b", b"from b");
    let a = guest.open("a", 0, READ).unwrap();
    let b = guest.open("b", 0, READ).unwrap();
    guest.ctx.fd_renumber(a, b).unwrap();
    assert_eq!(guest.read(b, 10).unwrap(), b"from a");
    assert_eq!(errno(guest.read(a, 1)), Errno::Badf);
    assert_eq!(errno(guest.ctx.fd_renumber(b, 1_000_000)), Errno::Badf);
    assert_eq!(errno(guest.ctx.fd_renumber(77, b)), Errno::Badf);
    guest.ctx.fd_renumber(b, b).unwrap();
    assert_eq!(guest.open("a", 0, READ).unwrap(), a, "the number is free again");
}

#[test]
fn a_directory_is_no_file() {
    let mut guest = Guest::new();
    guest.mkdir("d").unwrap();
    let fd = guest.open("d", oflags::DIRECTORY, READ).unwrap();
    let ctx = &guest.ctx;
    assert_eq!(errno(ctx.fd_advise(fd, 0, 0, 0)), Errno::Badf);
    assert_eq!(errno(ctx.fd_allocate(fd, 0, 1)), Errno::Badf);
    assert_eq!(errno(ctx.fd_datasync(fd)), Errno::Badf);
    assert_eq!(errno(ctx.fd_sync(fd)), Errno::Badf);
    assert_eq!(errno(ctx.fd_fdstat_set_flags(fd, fdflags::NONBLOCK.into())), Errno::Badf);
    assert_eq!(errno(ctx.fd_filestat_set_size(fd, 0)), Errno::Badf);
    assert_eq!(errno(guest.seek(fd, 0, 0)), Errno::Badf);
    assert_eq!(errno(guest.ctx.fd_tell(guest.memory.as_mut_slice(), fd, 0)), Errno::Badf);
    assert_eq!(errno(guest.read(fd, 1)), Errno::Badf);
    assert_eq!(errno(guest.write(fd, b"x")), Errno::Badf);
    let iovec = guest.iovec(0, 1);
    assert_eq!(errno(guest.ctx.fd_pread(guest.memory.as_mut_slice(), fd, iovec, 1, 0, 0)), Errno::Badf);
    assert_eq!(errno(guest.ctx.fd_pwrite(guest.memory.as_mut_slice(), fd, iovec, 1, 0, 0)), Errno::Badf);
    assert_eq!(guest.fdstat(fd).unwrap().0, 3);
}

#[test]
fn sizes_and_times_are_set_and_reported() {
    let mut guest = Guest::new();
    let fd = guest.open("file", oflags::CREAT, READ | WRITE).unwrap();
    guest.ctx.fd_filestat_set_size(fd, 1000).unwrap();
    guest.ctx.fd_allocate(fd, 1000, 500).unwrap();
    guest.ctx.fd_advise(fd, 0, 100, 3).unwrap();
    assert_eq!(errno(guest.ctx.fd_advise(fd, 0, 100, 6)), Errno::Inval);
    assert_eq!(errno(guest.ctx.fd_advise(fd, u64::MAX, 100, 0)), Errno::Inval);
    guest.ctx.fd_sync(fd).unwrap();
    guest.ctx.fd_datasync(fd).unwrap();
    assert_eq!(errno(guest.ctx.fd_filestat_set_size(fd, u64::MAX)), Errno::Inval);
    assert_eq!(errno(guest.ctx.fd_allocate(fd, u64::MAX, 1)), Errno::Inval);
    let set = fstflags::ATIM | fstflags::MTIM;
    guest.ctx.fd_filestat_set_times(fd, 1_500_000_000, 7_000_000_009, set).unwrap();
    let host = std::fs::metadata(guest.host("file")).unwrap();
    assert_eq!((host.atime(), host.atime_nsec(), host.mtime(), host.mtime_nsec()), (1, 500_000_000, 7, 9));
    assert_eq!(errno(guest.ctx.fd_filestat_set_times(fd, 0, 0, 3)), Errno::Inval);
    assert_eq!(errno(guest.ctx.fd_filestat_set_times(fd, 0, 0, 16)), Errno::Inval);
    let at = END - 64;
    guest.ctx.fd_filestat_get(Abi::Preview1, guest.memory.as_mut_slice(), fd, at).unwrap();
    let got: Vec<u64> = (0..8).map(|word| guest.u64_at(at + word * 8)).collect();
    let ctime = host.ctime() as u64 * 1_000_000_000 + host.ctime_nsec() as u64;
    assert_eq!(got, [host.dev(), host.ino(), 4, 1, 1500, 1_500_000_000, 7_000_000_009, ctime]);
    let at = END - 56;
    guest.ctx.fd_filestat_get(Abi::Unstable, guest.memory.as_mut_slice(), fd, at).unwrap();
    let got: Vec<u64> = (0..7).map(|word| guest.u64_at(at + word * 8)).collect();
    assert_eq!(got, [host.dev(), host.ino(), 4 | 1 << 32, 1500, 1_500_000_000, 7_000_000_009, ctime]);
    let past = guest.ctx.fd_filestat_get(Abi::Preview1, guest.memory.as_mut_slice(), fd, END - 63);
    assert_eq!(errno(past), Errno::Fault);
    guest.ctx.fd_filestat_set_times(fd, 0, 0, fstflags::MTIM_NOW).unwrap();
    let host = std::fs::metadata(guest.host("file")).unwrap();
    assert_eq!((host.atime(), host.atime_nsec()), (1, 500_000_000), "left as it was");
    assert!(host.mtime() > 1_000_000_000);
}

#[test]
fn preopens_are_announced_in_order() {
    let other = tempfile::tempdir().unwrap();
    let mut guest = Guest::with(|builder| {
        builder.preopen(other.path(), "/data/x", true);
    });
    for (fd, name) in [(3, "/"), (4, "/data/x")] {
        guest.ctx.fd_prestat_get(guest.memory.as_mut_slice(), fd, 0).unwrap();
        assert_eq!((guest.u32_at(0), guest.u32_at(4)), (0, name.len() as u32));
        guest.ctx.fd_prestat_dir_name(guest.memory.as_mut_slice(), fd, 64, name.len() as u32).unwrap();
        assert_eq!(&guest.memory[64..64 + name.len()], name.as_bytes());
    }
    for fd in [0, 1, 2, 5] {
        let prestat = guest.ctx.fd_prestat_get(guest.memory.as_mut_slice(), fd, 0);
        assert_eq!(errno(prestat), Errno::Badf);
        assert_eq!(errno(guest.ctx.fd_prestat_dir_name(guest.memory.as_mut_slice(), fd, 0, 10)), Errno::Badf);
    }
    let short = guest.ctx.fd_prestat_dir_name(guest.memory.as_mut_slice(), 4, 0, 6);
    assert_eq!(errno(short), Errno::NameTooLong);
    let past = guest.ctx.fd_prestat_dir_name(guest.memory.as_mut_slice(), 4, END - 6, 7);
    assert_eq!(errno(past), Errno::Fault);
    assert_eq!(errno(guest.ctx.fd_prestat_get(guest.memory.as_mut_slice(), 4, END - 7)), Errno::Fault);
}

#[test]
fn standard_streams_in_memory() {
    let output = OutputPipe::new(8);
    let mut guest = Guest::with(|builder| {
        builder.stdin(Stdio::Input(InputPipe::new(*b"line one\nline two\n")));
        builder.stdout(Stdio::Output(output.clone()));
    });
    assert_eq!(guest.read(0, 9).unwrap(), b"line one\n");
    assert_eq!(guest.read(0, 100).unwrap(), b"line two\n");
    assert_eq!(guest.read(0, 100).unwrap(), b"");
    assert_eq!(guest.write(1, b"hello").unwrap(), 5);
    assert_eq!(guest.write(1, b"world").unwrap(), 3, "as much as there is room for");
    assert_eq!(errno(guest.write(1, b"!")), Errno::NoSpc);
    assert_eq!(output.contents(), b"hellowor");
    assert_eq!(guest.write(2, b"gone").unwrap(), 4);
    assert_eq!(errno(guest.write(0, b"x")), Errno::Badf);
    assert_eq!(errno(guest.read(1, 1)), Errno::Badf);
    assert_eq!(errno(guest.seek(1, 0, 1)), Errno::Spipe);
    assert_eq!(errno(guest.ctx.fd_sync(1)), Errno::Inval);
    let terminal = rights::FD_SEEK | rights::FD_TELL;
    let (filetype, _, base, _) = guest.fdstat(2).unwrap();
    assert!(filetype != 2 || base & terminal != 0, "must not look like a terminal");
}

#[test]
fn pipes_of_the_host_are_shared_and_stay_blocking() {
    let (reader, mut host_writer) = std::io::pipe().unwrap();
    let (mut host_reader, writer) = std::io::pipe().unwrap();
    let mut guest = Guest::with(|builder| {
        builder.stdin(Stdio::Fd(reader.into())).stdout(Stdio::Fd(writer.into()));
        builder.interrupt(crate::Interrupt::new().unwrap());
    });
    assert_eq!(guest.fdstat(0).unwrap().0, 0);
    guest.ctx.fd_fdstat_set_flags(0, fdflags::NONBLOCK.into()).unwrap();
    assert_eq!(guest.fdstat(0).unwrap().1, fdflags::NONBLOCK);
    assert_eq!(errno(guest.read(0, 10)), Errno::Again);
    host_writer.write_all(b"ping").unwrap();
    assert_eq!(guest.read(0, 10).unwrap(), b"ping");
    drop(host_writer);
    assert_eq!(guest.read(0, 10).unwrap(), b"");
    // More than the pipe holds: what fits is taken, the rest is for the next call.
    guest.ctx.fd_fdstat_set_flags(1, fdflags::NONBLOCK.into()).unwrap();
    let mut written = 0;
    loop {
        match guest.write(1, &[7; 100_000]) {
            Ok(count) => written += count as usize,
            Err(error) => {
                assert_eq!(error, Errno::Again.into());
                break;
            }
        }
    }
    assert!(written >= 4096);
    let mut got = vec![0; written];
    host_reader.read_exact(&mut got).unwrap();
    assert!(got.iter().all(|byte| *byte == 7));
    drop(host_reader);
    let broken = guest.write(1, b"x");
    assert_eq!(errno(broken), Errno::Pipe);
}

#[test]
fn a_blocked_read_is_ended_by_an_interrupt_before_or_during_it() {
    for through_fifo in [false, true] {
        let interrupt = crate::Interrupt::new().unwrap();
        let (reader, _host_writer) = std::io::pipe().unwrap();
        let mut guest = Guest::with(|builder| {
            builder.stdin(Stdio::Fd(reader.into())).interrupt(interrupt.clone());
        });
        let fifo = rustix::fs::mknodat(
            rustix::fs::CWD,
            guest.host("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        );
        fifo.unwrap();
        let fd = if through_fifo { guest.open("fifo", 0, READ).unwrap() } else { 0 };
        interrupt.raise();
        assert_eq!(guest.read(fd, 1).unwrap_err(), crate::Error::Interrupted);
        assert!(interrupt.is_raised());
        interrupt.clear();
        let later = interrupt.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            later.raise();
        });
        assert_eq!(guest.read(fd, 1).unwrap_err(), crate::Error::Interrupted);
        thread.join().unwrap();
    }
}

#[test]
fn a_fifo_does_not_hang_the_open_and_waits_for_a_writer() {
    let mut guest = Guest::new();
    let fifo = guest.host("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert_eq!(errno(guest.open("fifo", 0, WRITE)), Errno::Nxio, "nobody reads");
    let fd = guest.open("fifo", 0, READ).unwrap();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        std::fs::write(fifo, b"late").unwrap();
    });
    assert_eq!(guest.read(fd, 10).unwrap(), b"late");
    thread.join().unwrap();
    let nonblocking = guest.open_in(DIR, "fifo", true, 0, READ, fdflags::NONBLOCK.into()).unwrap();
    assert_eq!(guest.read(nonblocking, 10).unwrap(), b"");
}

#[test]
fn a_full_disk_is_reported() {
    // /dev/full stands for one wherever the tests run.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut guest = Guest::with(|builder| {
        builder.stdout(Stdio::Fd(full.into()));
    });
    assert_eq!(errno(guest.write(1, b"x")), Errno::NoSpc);
}
