//! The program `mote`.
//!
//! It stays in memory for as long as its guest runs, so it holds no compiler and starts with little: a command line is read by a table of
//! text (`commands.txt`), a module becomes an artifact in `mote-store`, and `mote-runtime` runs that.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_main)]

mod arguments;
mod build;
mod cache;
mod completions;
mod disassemble;
mod exit;
mod help;
mod inspect;
mod output;
mod progress;
mod run;
mod snapshot;
mod table;
mod values;
mod wast;

use std::ffi::OsString;

use arguments::Arguments;
use exit::Failure;
use output::print;

#[global_allocator]
static HEAP: mote_runtime::SmallHeap = mote_runtime::SmallHeap;

#[cfg(not(test))]
mote_runtime::program!(start);

#[cfg_attr(test, expect(dead_code, reason = "tests have a start of their own"))]
fn start(words: mote_runtime::program::Words) -> u8 {
    let mut words = words.skip(1);
    let Some(first) = words.next() else {
        return end(Err(Failure::usage("no command; mote help lists them")), false);
    };
    let is_run = first == "run";
    end(command(&first, words), is_run)
}

fn command(name: &OsString, words: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let command = match name.to_str().unwrap_or_default() {
        "--version" | "-V" | "version" => return print(&help::version()).map(|()| 0),
        "--help" | "-h" => return print(&help::overview()).map(|()| 0),
        text => table::command(text).ok_or_else(|| arguments::unknown_command(name))?,
    };
    let arguments = arguments::parse(command, words, command.name == "run")?;
    if arguments.help {
        return print(&help::of_command(command)).map(|()| 0);
    }
    match command.name {
        "run" => run::main(arguments),
        "compile" => build::compile(&arguments),
        "snapshot" => snapshot::main(arguments),
        "validate" => build::validate(&arguments),
        "inspect" => inspect::main(&arguments),
        "cache" => cache::main(&arguments),
        "wast" => wast::main(&arguments),
        "completions" => print(&completions::script(&only(&arguments, "SHELL")?)?).map(|()| 0),
        "man" => print(&help::manual()).map(|()| 0),
        "help" => match arguments.operands.first() {
            None => print(&help::overview()).map(|()| 0),
            Some(name) => {
                let command = name.to_str().and_then(table::command);
                let command = command.ok_or_else(|| arguments::unknown_command(name))?;
                print(&help::of_command(command)).map(|()| 0)
            }
        },
        other => Err(Failure::own(format!("mote {other} is not there yet"))),
    }
}

fn only(arguments: &Arguments, what: &str) -> Result<String, Failure> {
    match arguments.operands.as_slice() {
        [operand] => Ok(operand.to_string_lossy().into_owned()),
        _ => Err(Failure::usage(format!("one {what} is needed"))),
    }
}

fn end(result: Result<u8, Failure>, is_run: bool) -> u8 {
    match result {
        Ok(code) => code,
        Err(failure) => {
            if !failure.message.is_empty() {
                use std::io::Write;
                // Nothing better can be done when standard error is closed.
                let _ = writeln!(std::io::stderr(), "mote: {failure}");
            }
            if is_run && failure.code == exit::USAGE { exit::FAILED } else { failure.code }
        }
    }
}
