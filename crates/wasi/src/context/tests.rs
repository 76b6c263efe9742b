use super::{BuildError, Limits, Stdio, WasiCtxBuilder};

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
