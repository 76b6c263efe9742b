//! A WASI command in wasmi, with as much of WASI as a program needs that prints its arguments: the engine of the lab's own tests, real and
//! built with them. `wasmi-command MODULE ARGS…`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::io::Write;

use wasmi::{Caller, Engine, Error, Extern, Linker, Module, Store};

type Guest<'a> = Caller<'a, Vec<String>>;

fn memory(guest: &Guest<'_>) -> wasmi::Memory {
    guest.get_export("memory").and_then(Extern::into_memory).expect("the module exports its memory")
}

fn write(guest: &mut Guest<'_>, at: i32, bytes: &[u8]) {
    memory(guest).write(guest, at as usize, bytes).expect("within memory");
}

fn read(guest: &Guest<'_>, at: i32, count: i32) -> Vec<u8> {
    let mut bytes = vec![0; count as usize];
    memory(guest).read(guest, at as usize, &mut bytes).expect("within memory");
    bytes
}

fn number(guest: &Guest<'_>, at: i32) -> i32 {
    i32::from_le_bytes(read(guest, at, 4).try_into().expect("four bytes"))
}

fn main() {
    let mut words = std::env::args().skip(1);
    let file = words.next().expect("a module");
    if file == "--version" {
        println!("wasmi-command {}", env!("CARGO_PKG_VERSION"));
        return;
    }
    let engine = Engine::default();
    let module =
        Module::new(&engine, std::fs::read(&file).expect("the module can be read")).expect("a module");
    let arguments: Vec<String> = std::iter::once(file).chain(words).collect();
    let mut store = Store::new(&engine, arguments);
    let mut linker = Linker::new(&engine);
    let wasi = "wasi_snapshot_preview1";
    linker
        .func_wrap(wasi, "args_sizes_get", |mut guest: Guest<'_>, count: i32, bytes: i32| -> i32 {
            let (number, size) = (
                guest.data().len() as i32,
                guest.data().iter().map(|word| word.len() as i32 + 1).sum::<i32>(),
            );
            write(&mut guest, count, &number.to_le_bytes());
            write(&mut guest, bytes, &size.to_le_bytes());
            0
        })
        .expect("defined once");
    linker
        .func_wrap(wasi, "args_get", |mut guest: Guest<'_>, mut places: i32, mut text: i32| -> i32 {
            for word in guest.data().clone() {
                write(&mut guest, places, &text.to_le_bytes());
                write(&mut guest, text, word.as_bytes());
                write(&mut guest, text + word.len() as i32, &[0]);
                places += 4;
                text += word.len() as i32 + 1;
            }
            0
        })
        .expect("defined once");
    linker
        .func_wrap(
            wasi,
            "fd_write",
            |mut guest: Guest<'_>, fd: i32, vectors: i32, count: i32, written: i32| -> i32 {
                let mut total = 0;
                for place in 0..count {
                    let (at, size) =
                        (number(&guest, vectors + place * 8), number(&guest, vectors + place * 8 + 4));
                    let bytes = read(&guest, at, size);
                    if fd == 1 {
                        std::io::stdout().write_all(&bytes)
                    } else {
                        std::io::stderr().write_all(&bytes)
                    }
                    .expect("written");
                    total += size;
                }
                write(&mut guest, written, &total.to_le_bytes());
                0
            },
        )
        .expect("defined once");
    linker
        .func_wrap(wasi, "proc_exit", |code: i32| -> Result<(), Error> { Err(Error::i32_exit(code)) })
        .expect("defined once");
    let instance = linker.instantiate_and_start(&mut store, &module).expect("instantiated");
    let start = instance.get_typed_func::<(), ()>(&store, "_start").expect("a command");
    if let Err(error) = start.call(&mut store, ()) {
        let code = error.i32_exit_status().unwrap_or_else(|| {
            eprintln!("error: {error}");
            134
        });
        std::process::exit(code);
    }
}
