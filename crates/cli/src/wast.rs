//! `mote wast`: hands over to `mote-wast`, a program of its own because it has the compiler in it.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::arguments::Arguments;
use crate::exit::Failure;

const PROGRAM: &str = "mote-wast";

pub fn main(arguments: &Arguments) -> Result<u8, Failure> {
    if arguments.operands.is_empty() {
        return Err(Failure::usage("mote wast takes at least one FILE"));
    }
    let program = find().ok_or_else(|| {
        Failure::own(format!(
            "{PROGRAM} not found beside {} nor on PATH; make build makes it",
            env::current_exe().unwrap_or_default().display()
        ))
    })?;
    let mut command = Command::new(&program);
    for (flag, value) in &arguments.flags {
        match *flag {
            "opt-level" => match value.to_str() {
                Some(level @ ("0" | "1" | "3")) => drop(command.arg(format!("-O{level}"))),
                _ => {
                    return Err(Failure::usage(format!(
                        "--opt-level: {} is not a level; there are 0, 1 and 3",
                        value.display()
                    )));
                }
            },
            "compile-only" => drop(command.arg("--compile-only")),
            "skips" => drop(command.arg("--skips").arg(value)),
            _ => return Err(Failure::own(format!("--{flag} is in the table and not in the code"))),
        }
    }
    command.arg("--").args(&arguments.operands);
    // Returns only when it fails.
    let error = command.exec();
    Err(Failure::own(format!("cannot start {}: {error}", program.display())))
}

/// Beside this program, else on `PATH`.
fn find() -> Option<PathBuf> {
    let beside = env::current_exe().ok().and_then(|running| running.parent().map(PathBuf::from));
    let on_path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<_> =
        beside.into_iter().chain(env::split_paths(&on_path).filter(|it| it.is_absolute())).collect();
    directories.into_iter().map(|directory| directory.join(PROGRAM)).find(|program| program.is_file())
}
