use super::{BuildError, Limits, Stdio, WasiCtx, WasiCtxBuilder};
use crate::GuestMemory;
use crate::witx::oflags;

type Configure<'a> = &'a dyn Fn(&mut WasiCtxBuilder) -> &mut WasiCtxBuilder;

#[test]
fn what_cannot_be_passed_is_refused_by_name() {
    let build = |configure: Configure<'_>| {
        let mut builder = WasiCtxBuilder::new();
        configure(&mut builder);
        builder.build().err().map(|error| error.to_string())
    };
    let message = |configure: Configure<'_>| build(configure).expect("an error");
    assert_eq!(message(&|it| it.arg("a").arg("b\0")), "argument 1 contains a NUL byte");
    assert_eq!(message(&|it| it.env("A", "b\0")), "environment variable 0 contains a NUL byte");
    assert!(message(&|it| it.env("A=B", "c")).contains("\"A=B\""));
    assert!(message(&|it| it.env("", "c")).contains("not empty"));
    assert!(message(&|it| it.preopen("/no/such/dir", "/", false)).contains("/no/such/dir"));
    assert!(message(&|it| it.preopen("/etc/passwd", "/", false)).contains("/etc/passwd"));
    let few = Limits { strings_bytes: 4, ..Limits::default() };
    assert_eq!(message(&|it| it.limits(few).arg("prog")), "the arguments take 5 bytes, the limit is 4");
    let few = Limits { descriptors: 3, ..Limits::default() };
    assert!(message(&|it| it.limits(few).preopen("/", "/", true)).contains("more than 3"));
    assert_eq!(build(&|it| it.inherit_stdio()), None);
}

#[test]
fn a_descriptor_that_was_given_is_used() {
    let file = tempfile::tempfile().unwrap();
    let mut builder = WasiCtxBuilder::new();
    builder.stdout(Stdio::Fd(file.try_clone().unwrap().into()));
    let ctx = builder.build().unwrap();
    let mut memory = vec![0; 64];
    memory[16..20].copy_from_slice(&32u32.to_le_bytes());
    memory[20..24].copy_from_slice(&5u32.to_le_bytes());
    memory[32..37].copy_from_slice(b"hello");
    ctx.fd_write(memory.as_mut_slice(), 1, 16, 1, 0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5);
    assert!(matches!(
        WasiCtxBuilder::new().arg("\0").error,
        Some(BuildError::Nul { what: "argument", index: 0 })
    ));
}

#[test]
fn threads_use_a_context_without_a_lock_around_it() {
    fn shared<T: Send + Sync>(it: T) -> T {
        it
    }
    let dir = tempfile::tempdir().unwrap();
    let mut builder = WasiCtxBuilder::new();
    builder.preopen(dir.path(), "/", false);
    let ctx: WasiCtx = shared(builder.build().unwrap());
    // Each opens, fills, reads back and closes files of its own while the others do; a blocked read holds up nobody.
    let (reader, writer) = std::io::pipe().unwrap();
    let mut blocked = WasiCtxBuilder::new();
    blocked.stdin(Stdio::Fd(reader.into())).preopen(dir.path(), "/", false);
    let blocked = shared(blocked.build().unwrap());
    let work = |ctx: &WasiCtx, thread: u32| {
        let mut memory = vec![0; 4096];
        let memory = memory.as_mut_slice();
        for round in 0..300u32 {
            let name = format!("{thread}-{round}");
            memory.write(100, name.as_bytes()).unwrap();
            let rights = crate::rights::FD_READ | crate::rights::FD_WRITE;
            let create = oflags::CREAT | oflags::EXCL;
            ctx.path_open(memory, 3, 0, 100, name.len() as u32, create, rights, !0, 0, 0).unwrap();
            let fd = memory.read_u32(0).unwrap();
            memory.write_u32(8, 100).unwrap();
            memory.write_u32(12, name.len() as u32).unwrap();
            ctx.fd_write(memory, fd, 8, 1, 0).unwrap();
            memory.write_u32(8, 200).unwrap();
            ctx.fd_pread(memory, fd, 8, 1, 0, 0).unwrap();
            assert_eq!(&memory[200..200 + name.len()], name.as_bytes());
            ctx.fd_close(fd).unwrap();
            ctx.path_unlink_file(memory, 3, 100, name.len() as u32).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut memory = vec![0; 64];
            memory[16..24].copy_from_slice(&[32, 0, 0, 0, 1, 0, 0, 0]);
            blocked.fd_read(memory.as_mut_slice(), 0, 16, 1, 0).unwrap();
        });
        for thread in 0..4 {
            let (work, ctx) = (&work, &ctx);
            scope.spawn(move || work(ctx, thread));
        }
        work(&blocked, 9);
        assert!(!reading.is_finished());
        drop(writer);
    });
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_the_guest_opened_itself_is_known() {
    let mut guest = crate::testing::Guest::new();
    assert!(guest.ctx.opened().is_empty());
    std::fs::write(guest.host("f"), "").unwrap();
    let (path, len) = guest.put(b"f");
    let memory = guest.memory.as_mut_slice();
    guest.ctx.path_open(memory, crate::testing::DIR, 0, path, len, 0, crate::testing::READ, 0, 0, 0).unwrap();
    assert_eq!(guest.ctx.opened(), [4]);
    guest.ctx.fd_close(4).unwrap();
    assert!(guest.ctx.opened().is_empty());
}
