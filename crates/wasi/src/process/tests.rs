use crate::testing::{Guest, MEMORY_BYTES, errno};
use crate::{Errno, Error, GuestMemory, Interrupt, WasiCtxBuilder};

const END: u32 = MEMORY_BYTES as u32;

#[test]
fn arguments_and_environment_arrive_as_c_strings() {
    let mut guest = Guest::with(|builder| {
        builder.arg("prog").arg("").arg("ä b").env("HOME", "/").env("EMPTY", "");
    });
    let (ctx, memory) = (&guest.ctx, guest.memory.as_mut_slice());
    ctx.args_sizes_get(memory, 0, 4).unwrap();
    assert_eq!((memory.read_u32(0), memory.read_u32(4)), (Ok(3), Ok(11)));
    ctx.args_get(memory, 100, END - 11).unwrap();
    assert_eq!(&memory[MEMORY_BYTES - 11..], "prog\0\0ä b\0".as_bytes());
    let starts: Vec<u32> = (0..3).map(|index| memory.read_u32(100 + index * 4).unwrap()).collect();
    assert_eq!(starts, [END - 11, END - 6, END - 5]);
    ctx.environ_sizes_get(memory, 0, 4).unwrap();
    assert_eq!((memory.read_u32(0), memory.read_u32(4)), (Ok(2), Ok(14)));
    ctx.environ_get(memory, 100, 200).unwrap();
    assert_eq!(&memory[200..214], b"HOME=/\0EMPTY=\0");
    assert_eq!((memory.read_u32(100), memory.read_u32(104)), (Ok(200), Ok(207)));
    assert_eq!(errno(ctx.args_get(memory, 100, END - 10)), Errno::Fault);
    assert_eq!(errno(ctx.args_get(memory, END - 11, 0)), Errno::Fault);
    assert_eq!(errno(ctx.args_get(memory, u32::MAX - 3, 0)), Errno::Fault);
    assert_eq!(errno(ctx.args_sizes_get(memory, END - 3, 0)), Errno::Fault);
    assert_eq!(errno(ctx.environ_get(memory, 0, u32::MAX)), Errno::Fault);
    assert_eq!(errno(ctx.environ_sizes_get(memory, 0, END)), Errno::Fault);
}

#[test]
fn a_guest_without_anything_has_nothing() {
    let ctx = WasiCtxBuilder::new().build().unwrap();
    let mut memory = vec![0xff; 16];
    let memory = memory.as_mut_slice();
    ctx.args_sizes_get(memory, 0, 4).unwrap();
    assert_eq!(memory.read_u64(0), Ok(0));
    ctx.args_get(memory, 16, 16).unwrap();
    assert_eq!(errno(ctx.fd_prestat_get(memory, 3, 0)), Errno::Badf);
}

#[test]
fn clocks_tell_the_time() {
    let mut guest = Guest::new();
    let (ctx, memory) = (&guest.ctx, guest.memory.as_mut_slice());
    let host = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    ctx.clock_time_get(memory, 0, 0, 0).unwrap();
    let now = std::time::Duration::from_nanos(memory.read_u64(0).unwrap());
    assert!(now >= host && now - host < std::time::Duration::from_secs(10));
    for clock in 0..4 {
        ctx.clock_res_get(memory, clock, 0).unwrap();
        assert!((1..=1_000_000_000).contains(&memory.read_u64(0).unwrap()));
        ctx.clock_time_get(memory, clock, u64::MAX, 0).unwrap();
        ctx.clock_time_get(memory, clock, 0, 8).unwrap();
        assert!(memory.read_u64(8).unwrap() >= memory.read_u64(0).unwrap());
        assert!(memory.read_u64(0).unwrap() > 0);
    }
    // Processor time passes when the processor works.
    ctx.clock_time_get(memory, 3, 0, 0).unwrap();
    let start = memory.read_u64(0).unwrap();
    let mut sum = 0u64;
    for index in 0..1_000_000u64 {
        sum = std::hint::black_box(sum.wrapping_add(index));
    }
    ctx.clock_time_get(memory, 3, 0, 0).unwrap();
    assert!(memory.read_u64(0).unwrap() > start);
    for clock in [4, u32::MAX] {
        assert_eq!(errno(ctx.clock_time_get(memory, clock, 0, 0)), Errno::Inval);
        assert_eq!(errno(ctx.clock_res_get(memory, clock, 0)), Errno::Inval);
    }
    assert_eq!(errno(ctx.clock_time_get(memory, 0, 0, END - 7)), Errno::Fault);
    assert_eq!(errno(ctx.clock_res_get(memory, 0, END - 7)), Errno::Fault);
}

#[test]
fn randomness_is_fresh_and_fills_the_whole_range() {
    let mut guest = Guest::new();
    let (ctx, memory) = (&guest.ctx, guest.memory.as_mut_slice());
    ctx.random_get(memory, END - 32, 32).unwrap();
    let first = memory[MEMORY_BYTES - 32..].to_vec();
    ctx.random_get(memory, END - 32, 32).unwrap();
    assert_ne!(first, memory[MEMORY_BYTES - 32..]);
    ctx.random_get(memory, 1, END - 2).unwrap();
    assert_eq!((memory[0], memory[MEMORY_BYTES - 1]), (0, memory[MEMORY_BYTES - 1]));
    for part in memory[1..MEMORY_BYTES - 1].chunks(4096) {
        assert!(part.len() < 64 || part.iter().any(|byte| *byte != 0));
    }
    ctx.random_get(memory, END, 0).unwrap();
    assert_eq!(errno(ctx.random_get(memory, END - 1, 2)), Errno::Fault);
    assert_eq!(errno(ctx.random_get(memory, 1, u32::MAX)), Errno::Fault);
}

#[test]
fn drawing_much_randomness_can_be_interrupted() {
    let interrupt = Interrupt::new().unwrap();
    let mut builder = WasiCtxBuilder::new();
    builder.interrupt(interrupt.clone());
    let ctx = builder.build().unwrap();
    let mut memory = vec![0; 4 << 20];
    interrupt.raise();
    assert_eq!(ctx.random_get(memory.as_mut_slice(), 0, 4 << 20), Err(Error::Interrupted));
    interrupt.clear();
    ctx.random_get(memory.as_mut_slice(), 0, 4 << 20).unwrap();
}

#[test]
fn the_end_carries_its_code() {
    let ctx = WasiCtxBuilder::new().build().unwrap();
    assert_eq!(ctx.proc_exit(7), Error::Exit(7));
    assert_eq!(ctx.proc_exit(256 + 3).exit_status(), Some(3));
    assert_eq!(ctx.proc_exit(u32::MAX).exit_status(), Some(255));
    assert_eq!(ctx.proc_raise(6), Err(Error::Signal(6)));
    assert_eq!(ctx.proc_raise(6).unwrap_err().exit_status(), Some(134));
    for ignored in [0, 16, 17, 22, 27] {
        ctx.proc_raise(ignored).unwrap();
    }
    for stopping in 18..=21 {
        assert_eq!(errno(ctx.proc_raise(stopping)), Errno::NotSup);
    }
    for unknown in [31, 255, 256 + 6, u32::MAX] {
        assert_eq!(errno(ctx.proc_raise(unknown)), Errno::Inval);
    }
    ctx.sched_yield().unwrap();
    assert_eq!(Error::Interrupted.exit_status(), None);
}
