//! Programs in C (wasi-libc) and Rust (its standard library) that check what they see of WASI from inside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

#[path = "guests/compiled.rs"]
mod compiled;
#[path = "guests/interpreter.rs"]
mod interpreter;
#[path = "guests/signatures.rs"]
mod signatures;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mote_wasi::{InputPipe, Interrupt, Limits, OutputPipe, Stdio, WasiCtx, WasiCtxBuilder};

/// How a guest ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Exit(u8),
    Interrupted,
    Trap,
}

type Engine = fn(&Program, WasiCtx) -> End;

const ENGINES: [(&str, Engine); 2] = [("mote", compiled::run), ("wasmi", interpreter::run)];

/// A program of `tests/guests`, made ready for the engines.
struct Program {
    source: &'static str,
    wasm: Vec<u8>,
    module: mote_runtime::Module,
}

/// Compiles a program of `tests/guests` to wasm.
fn compile(source: &str) -> Vec<u8> {
    let source_path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests").join(source);
    let wasm = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{source}-{:?}.wasm", std::thread::current().id()));
    let mut command = if source.ends_with(".rs") {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition=2024", "--target=wasm32-wasip1", "-Copt-level=1", "-Cstrip=debuginfo"]);
        rustc
    } else {
        let mut clang = Command::new("clang-19");
        clang.args(["--target=wasm32-wasi", "-O1", "-Wall", "-Wextra", "-Werror"]);
        clang
    };
    let output = command.arg("-o").arg(&wasm).arg(&source_path).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}; scripts/setup installs it"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(&wasm).unwrap();
    std::fs::remove_file(&wasm).unwrap();
    bytes
}

struct Run {
    end: End,
    stdout: String,
    stderr: String,
}

impl Program {
    fn new(source: &'static str) -> Program {
        let wasm = compile(source);
        let module = compiled::module(&wasm);
        Program { source, wasm, module }
    }

    /// Runs it on each engine with a fresh directory as `/` and another, read-only, as `/ro`.
    fn run(&self, stdin: &str, configure: impl Fn(&mut WasiCtxBuilder), check: impl Fn(Run)) {
        for (name, engine) in ENGINES {
            eprintln!("{} on {name}", self.source);
            let (root, fixed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            std::fs::write(fixed.path().join("fixed"), b"fixed").unwrap();
            let (stdout, stderr) = (OutputPipe::new(1 << 20), OutputPipe::new(1 << 20));
            let mut builder = WasiCtxBuilder::new();
            builder.preopen(root.path(), "/", false).preopen(fixed.path(), "/ro", true);
            builder.stdin(Stdio::Input(InputPipe::new(stdin)));
            builder.stdout(Stdio::Output(stdout.clone())).stderr(Stdio::Output(stderr.clone()));
            builder.limits(Limits { descriptors: 100, ..Limits::default() });
            configure(&mut builder);
            let end = engine(self, builder.build().unwrap());
            let text = |pipe: OutputPipe| String::from_utf8(pipe.contents()).unwrap();
            let run = Run { end, stdout: text(stdout), stderr: text(stderr) };
            eprint!("{}", run.stderr);
            check(run);
        }
    }
}

#[test]
fn strings_and_streams() {
    let configure = |builder: &mut WasiCtxBuilder| {
        builder.arg("strings.wasm").arg("one two").arg("").arg("ä");
        builder.env("HOME", "/home/guest").env("EMPTY", "");
    };
    Program::new("strings.c").run("first line\nlast line", configure, |run| {
        assert_eq!(run.end, End::Exit(42));
        let expected: String = (0..5000).map(|number| format!("{number}\n")).collect();
        assert!(run.stdout == expected);
        assert_eq!(run.stderr, "to the other stream\n");
    });
}

#[test]
fn files() {
    Program::new("files.c").run(
        "",
        |_| {},
        |run| {
            assert_eq!((run.end, &*run.stdout), (End::Exit(0), "files ok\n"));
        },
    );
}

#[test]
fn directories() {
    Program::new("directories.c").run(
        "",
        |_| {},
        |run| {
            assert_eq!((run.end, &*run.stdout), (End::Exit(0), "directories ok\n"));
        },
    );
}

#[test]
fn rust_standard_library() {
    let configure = |builder: &mut WasiCtxBuilder| {
        builder.arg("std.wasm").arg("argument").env("KEY", "value");
    };
    Program::new("std.rs").run("in\nput\n", configure, |run| {
        assert_eq!((run.end, &*run.stdout), (End::Exit(9), "std ok\n"));
    });
}

#[test]
fn ends() {
    let program = Program::new("ends.c");
    for (argument, end, stdout) in [
        ("exit", End::Exit(7), "atexit\n"),
        ("_exit", End::Exit(3), ""),
        ("trap", End::Trap, ""),
        ("return", End::Exit(3), "atexit\n"),
    ] {
        let configure = |builder: &mut WasiCtxBuilder| {
            builder.arg("ends").arg(argument);
        };
        program.run("", configure, |run| {
            assert_eq!(run.end, end, "{argument}");
            assert_eq!(run.stdout, stdout);
        });
    }
}

#[test]
fn a_waiting_guest_is_interrupted() {
    let program = Program::new("ends.c");
    for argument in ["sleep", "read"] {
        let (reader, _writer) = std::io::pipe().unwrap();
        let configure = |builder: &mut WasiCtxBuilder| {
            let interrupt = Interrupt::new().unwrap();
            builder.arg("ends").arg(argument).interrupt(interrupt.clone());
            builder.stdin(Stdio::Fd(reader.try_clone().unwrap().into()));
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                interrupt.raise();
            });
        };
        program.run("", configure, |run| assert_eq!(run.end, End::Interrupted));
    }
}

#[test]
fn clocks_and_polling() {
    let configure = |builder: &mut WasiCtxBuilder| {
        let (stdin, mut word) = std::io::pipe().unwrap();
        let (ready, stderr) = std::io::pipe().unwrap();
        builder.stdin(Stdio::Fd(stdin.into())).stderr(Stdio::Fd(stderr.into()));
        std::thread::spawn(move || {
            let mut lines = BufReader::new(ready).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "ready");
            std::thread::sleep(Duration::from_millis(20));
            word.write_all(b"ping").unwrap();
            for line in lines {
                eprintln!("{}", line.unwrap());
            }
        });
    };
    Program::new("clocks.c").run("", configure, |run| {
        assert_eq!((run.end, &*run.stdout), (End::Exit(0), "clocks ok\n"));
    });
}

#[test]
fn a_server_on_a_preopened_socket() {
    let configure = |builder: &mut WasiCtxBuilder| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // After 0, 1, 2 and the two directories.
        builder.arg("server").arg("5").socket(listener);
        std::thread::spawn(move || {
            for round in 0..3 {
                let mut stream = TcpStream::connect(address).unwrap();
                let request = vec![round; 100_000];
                let mut writer = stream.try_clone().unwrap();
                let sent = request.clone();
                let sender = std::thread::spawn(move || {
                    writer.write_all(&sent).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let mut response = Vec::new();
                stream.read_to_end(&mut response).unwrap();
                sender.join().unwrap();
                assert!(response == request);
            }
        });
    };
    Program::new("server.c").run("", configure, |run| assert_eq!(run.end, End::Exit(0)));
}

#[test]
fn a_deadline_ends_a_guest_that_waits_or_computes() {
    let program = Program::new("ends.c");
    for argument in ["sleep", "spin"] {
        let mut builder = WasiCtxBuilder::new();
        builder.arg("ends").arg(argument);
        let start = std::time::Instant::now();
        let end = compiled::run_until(&program, builder.build().unwrap(), Some(Duration::from_millis(50)));
        assert_eq!(end, End::Interrupted, "{argument}");
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}

/// Writes what `random_get` and `args_get` gave from and to a memory, then exits with what `fd_write` returned.
const MEMORY: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_unstable" "args_get" (func $args_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
    (memory (export "memory") MEMORY)
    (func (export "_start")
        (drop (call $args_get (i32.const 64) (i32.const 128)))
        (i32.store (i32.const 0) (i32.load (i32.const 64)))
        (i32.store (i32.const 4) (i32.const 5))
        (call $proc_exit (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#;

#[test]
fn shared_memories_work_as_well_and_a_missing_one_is_said() {
    for memory in ["1 1", "1 2 shared"] {
        let wasm = wat::parse_str(MEMORY.replace("MEMORY", memory)).unwrap();
        let module = compiled::module(&wasm);
        let program = Program { source: "memory.wat", wasm, module };
        let stdout = OutputPipe::new(100);
        let mut builder = WasiCtxBuilder::new();
        builder.arg("hello").stdout(Stdio::Output(stdout.clone()));
        assert_eq!(compiled::run(&program, builder.build().unwrap()), End::Exit(0), "{memory}");
        assert_eq!(stdout.contents(), b"hello", "{memory}");
    }
    let text = MEMORY.replace("(export \"memory\") MEMORY", "1 1");
    let module = compiled::module(&wat::parse_str(text).unwrap());
    let ctx = WasiCtxBuilder::new().build().unwrap();
    let error = compiled::start(&module, ctx, None).unwrap_err();
    assert!(error.to_string().contains("must export its memory"), "{error}");
}

#[test]
fn every_function_is_there_with_the_type_of_the_interface() {
    for name in ["wasi_snapshot_preview1", "wasi_unstable"] {
        let module = compiled::module(&wat::parse_str(signatures::importing_all(name)).unwrap());
        assert_eq!(module.imports().len(), 46);
        compiled::start(&module, WasiCtxBuilder::new().build().unwrap(), None).unwrap();
    }
}

#[test]
fn random_arguments_make_errors_and_nothing_worse() {
    let seed = std::env::var("MOTE_SEED").map_or(0x9e37_79b9_7f4a_7c15, |seed| seed.parse().unwrap());
    eprintln!("MOTE_SEED={seed}");
    let mut state: u64 = seed;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let outside = tempfile::tempdir().unwrap();
    let root = outside.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let mut memory = vec![0u8; 65536];
    let mut succeeded = std::collections::HashSet::new();
    for _ in 0..500 {
        let interrupt = Interrupt::new().unwrap();
        // Waits end at once.
        interrupt.raise();
        let (listener, pipe) = (TcpListener::bind("127.0.0.1:0").unwrap(), std::io::pipe().unwrap());
        let mut builder = WasiCtxBuilder::new();
        builder.arg("a").env("b", "c").preopen(&root, "/", false).preopen(&root, "/ro", true);
        builder.socket(listener).stdin(Stdio::Fd(pipe.0.into())).interrupt(interrupt);
        builder.limits(Limits { descriptors: 20, ..Limits::default() });
        let ctx = builder.build().unwrap();
        // Descriptor 6 is a file.
        memory[..4].copy_from_slice(b"file");
        ctx.path_open(memory.as_mut_slice(), 3, 0, 0, 4, 1, !0, !0, 0, 0).unwrap();
        for _ in 0..200 {
            // Small addresses lead to paths in one half of the calls, to small numbers in the other.
            if random() % 2 == 0 {
                memory[..128].fill_with(|| b"aab/."[random() as usize % 5]);
            } else {
                memory[..128].as_chunks_mut().0.fill_with(|| ((random() % 9) as u32).to_le_bytes());
            }
            let (name, params) = signatures::FUNCTIONS[random() as usize % 46];
            let args: Vec<wasmi::Val> = params
                .chars()
                .enumerate()
                .map(|(index, param)| {
                    let value = match random() % 32 {
                        0 => u64::MAX,
                        1 => random(),
                        2 => random() >> (random() % 64),
                        3 => 65536 - random() % 65,
                        _ => [0, 1, 2, 3, 4, 5, 6, 64][random() as usize % 8],
                    };
                    match (name, param, index) {
                        // Would fill the disk.
                        ("fd_allocate", 'l', _) => wasmi::Val::I64((value % 100_000) as i64),
                        (_, 'l', _) => wasmi::Val::I64(value as i64),
                        _ => wasmi::Val::I32(value as i32),
                    }
                })
                .collect();
            let result = interpreter::call(name, &ctx, &mut interpreter::Memory(&mut memory), &args);
            if result.is_ok() {
                succeeded.insert(name);
            }
        }
    }
    let outside: Vec<_> =
        std::fs::read_dir(outside.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(outside, [root], "nothing was made outside");
    assert!(succeeded.len() >= 36, "the arguments reach most functions: {succeeded:?}");
}

#[test]
fn a_file_system_without_space_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(dir.path()).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a small tmpfs can only be mounted by root");
        return;
    }
    struct Unmount<'d>(&'d Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(self.0).status();
        }
    }
    let _unmount = Unmount(dir.path());
    let mut builder = WasiCtxBuilder::new();
    builder.preopen(dir.path(), "/", false);
    let ctx = builder.build().unwrap();
    let mut memory = vec![0u8; 256 << 10];
    let memory = memory.as_mut_slice();
    memory[64] = b'f';
    let rights = mote_wasi::rights::FD_WRITE;
    ctx.path_open(memory, 3, 0, 64, 1, 1, rights, 0, 0, 0).unwrap();
    memory[8..16].copy_from_slice(&[0, 16, 0, 0, 0, 0, 3, 0]);
    ctx.fd_write(memory, 4, 8, 1, 0).unwrap();
    assert_eq!(memory[..4], (64u32 << 10).to_le_bytes(), "what fits");
    let full = mote_wasi::Error::from(mote_wasi::Errno::NoSpc);
    assert_eq!(ctx.fd_write(memory, 4, 8, 1, 0), Err(full));
    assert_eq!(ctx.fd_allocate(4, 0, 100_000), Err(full));
    ctx.fd_close(4).unwrap();
}
