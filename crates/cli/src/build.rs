//! Commands that only use the compiler: `mote compile`, `mote validate`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Command;

use mote_store::{Compiler, Event, Module, OptLevel, Options};

use crate::arguments::Arguments;
use crate::exit::{self, Failure};
use crate::inspect::is_artifact_name;
use crate::progress::Progress;
use crate::values::text;

/// Sets a flag that is the compiler's; false for one that is not.
pub fn set_option(options: &mut Options, flag: &str, value: &OsStr) -> Result<bool, Failure> {
    match flag {
        "cpu" => options.cpu = Some(text(flag, value)?.to_owned()),
        "strict-traps" => options.strict_traps = true,
        "canonical-nans" => options.canonical_nans = true,
        "opt-level" => {
            options.opt_level = value.to_str().and_then(OptLevel::from_name).ok_or_else(|| {
                Failure::usage(format!(
                    "--opt-level: {} is not a level; there are 0, 1 and 3",
                    value.display()
                ))
            })?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// `mote compile`.
pub fn compile(arguments: &Arguments) -> Result<u8, Failure> {
    let [file] = arguments.operands.as_slice() else {
        return Err(Failure::usage("mote compile takes one FILE"));
    };
    let mut options = Options::default();
    let mut output = None;
    let mut quiet = false;
    for (flag, value) in &arguments.flags {
        match *flag {
            "output" => output = Some(PathBuf::from(value)),
            "quiet" => quiet = true,
            _ => drop(set_option(&mut options, flag, value)?),
        }
    }
    let path = Path::new(file);
    let output = output.unwrap_or_else(|| path.with_extension("mote"));
    check_output(&output, path)?;
    let module = Module::open(path)?;
    let compiler = Compiler::find()?;
    let mut progress = Progress::new(quiet);
    progress.event(Event::Compiling);
    let compiled = compiler
        .compile(&module, &options, &mut |done, total| progress.event(Event::Progress { done, total }));
    progress.clear();
    let mut compiled = compiled?;
    compiled
        .rewind()
        .and_then(|()| save(&mut compiled, &output))
        .map_err(|error| Failure::own(format!("cannot write {}: {error}", output.display())))?;
    Ok(0)
}

/// An artifact is known by its name, and its input is kept.
pub fn check_output(output: &Path, input: &Path) -> Result<(), Failure> {
    if output == input {
        return Err(Failure::usage(format!(
            "{} would be overwritten; name the output with -o",
            input.display()
        )));
    }
    if !is_artifact_name(output) {
        return Err(Failure::usage(format!(
            "{}: an artifact's name ends in .mote, or mote run takes it for a module",
            output.display()
        )));
    }
    Ok(())
}

/// Writes beside the file's name first, so that a full disk or a running guest never sees half of it.
pub fn save(artifact: &mut impl Read, output: &Path) -> io::Result<()> {
    let mut name = output.file_name().map(OsString::from).unwrap_or_default();
    name.push(format!(".tmp-{:x}", std::process::id()));
    let temporary = output.with_file_name(name);
    let written = File::create_new(&temporary)
        .and_then(|mut file| io::copy(artifact, &mut file))
        .and_then(|_| fs::rename(&temporary, output));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// `mote validate`: the compiler's own words pass straight through.
pub fn validate(arguments: &Arguments) -> Result<u8, Failure> {
    if arguments.operands.is_empty() {
        return Err(Failure::usage("mote validate takes at least one FILE"));
    }
    let compiler = Compiler::find()?;
    let mut worst = 0;
    for file in &arguments.operands {
        let checked = check(&compiler, Path::new(file));
        if let Err(failure) = checked {
            eprintln!("mote: {failure}");
            worst = worst.max(failure.code);
        }
    }
    Ok(worst)
}

fn check(compiler: &Compiler, path: &Path) -> Result<(), Failure> {
    let module = Module::open(path)?;
    let input = module.reopen().map_err(|error| Failure::own(format!("{}: {error}", path.display())))?;
    let output = Command::new(compiler.path())
        .args(["--validate", "-"])
        .stdin(input)
        .output()
        .map_err(|error| Failure::own(format!("cannot start {}: {error}", compiler.path().display())))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    let line: String =
        last.strip_prefix("error: ").unwrap_or(last).chars().filter(|c| !c.is_control()).collect();
    let code = if output.status.code() == Some(1) { exit::CANNOT_RUN } else { exit::FAILED };
    let line = if line.is_empty() { format!("the compiler failed: {}", output.status) } else { line };
    Err(Failure::new(code, format!("{}: {line}", path.display())))
}
