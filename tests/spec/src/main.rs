//! The program `mote-wast`: runs WebAssembly test scripts on Mote.
//!
//! `mote-wast [-O0|-O1|-O3] [--compile-only] [--skips FILE] FILE…`; ends with 0 when nothing failed, 1 otherwise.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Context, bail};
use mote_compiler::OptLevel;
use mote_spec::{Report, Settings, Skips};

const USAGE: &str = "usage: mote-wast [-O0|-O1|-O3] [--compile-only] [--skips FILE] FILE...";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mote-wast: {error:#}");
            ExitCode::from(125)
        }
    }
}

/// Whether nothing failed.
fn run() -> anyhow::Result<bool> {
    let mut settings = Settings::default();
    settings.options.opt_level = OptLevel::O1;
    let mut skips = Skips::default();
    let mut files = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-O0" => settings.options.opt_level = OptLevel::O0,
            "-O1" => settings.options.opt_level = OptLevel::O1,
            "-O3" => settings.options.opt_level = OptLevel::O3,
            "--compile-only" => settings.compile_only = true,
            "--skips" => {
                let path = arguments.next().context("--skips needs a file")?;
                let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
                skips = Skips::parse(&text).map_err(|error| anyhow::anyhow!("{path}: {error}"))?;
            }
            "--" => files.extend(arguments.by_ref()),
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(true);
            }
            other if other.starts_with('-') => bail!("unknown option `{other}`; {USAGE}"),
            _ => files.push(argument),
        }
    }
    if files.is_empty() {
        bail!("{USAGE}");
    }
    let mut total = Report::default();
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| file.clone())?;
        total.add(mote_spec::run(&file, &text, &skips, &settings));
    }
    for failure in &total.failures {
        println!("{failure}");
    }
    println!("{total}");
    Ok(total.failures.is_empty())
}
