//! `mote-lab`: measures WebAssembly runtimes side by side. docs/lab.md is the user's page.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{CommandFactory, Parser};
use mote_lab::options::{Command, Options, PeersAction, RunOptions};
use mote_lab::record::Report;
use mote_lab::run::interrupt::{EXIT_CODE, Interrupt};
use mote_lab::run::{self, OwnModule, Settings, agent};
use mote_lab::suite::Suite;
use mote_lab::{compare, install, peer, report, table};

fn main() -> ExitCode {
    match start(Options::parse()) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mote-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(options: Options) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    match options.command {
        None => {
            let Some(name) = &options.suite else { bail!("which suite? `mote-lab list` shows them") };
            let suite = Suite::find(name)?;
            let interrupt = Interrupt::install()?;
            let report = run::suite(&suite, &settings(&options.run, options.quick), &interrupt)?;
            finish(&report, &options.run, &mut out)
        }
        Some(Command::Run { module, dir, native, run, args }) => {
            let interrupt = Interrupt::install()?;
            let report =
                run::own_module(OwnModule { module, dir, native, args }, &settings(&run, false), &interrupt)?;
            finish(&report, &run, &mut out)
        }
        Some(Command::List) => done(list(&mut out)),
        Some(Command::Compare { old, new, fail_if_slower }) => {
            let changes = compare::changes(&compare::read(&old)?, &compare::read(&new)?);
            write!(out, "{changes}")?;
            Ok(if fail_if_slower && changes.slower() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        Some(Command::Report { files, html }) => {
            let reports = files.iter().map(|file| compare::read(file)).collect::<Result<Vec<Report>>>()?;
            done(write_file(&html, report::html(&reports).as_bytes()))
        }
        Some(Command::Peers { action }) => peers(action, &mut out),
        Some(Command::Completions { shell }) => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Options::command(), "mote-lab", &mut text);
            done(out.write_all(&text).map_err(Into::into))
        }
        Some(Command::MeasureOne { timeout_ms, dir, command }) => {
            drop(out);
            done(agent::main(std::time::Duration::from_millis(timeout_ms), &dir, &command))
        }
    }
}

fn done(result: Result<()>) -> Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}

fn settings(options: &RunOptions, quick: bool) -> Settings {
    Settings {
        quick,
        subjects: options.peers.clone(),
        rounds: options.rounds,
        seed: options.seed,
        timeout: options.timeout,
        corpus: options.corpus.clone(),
    }
}

/// Writes the files first: the terminal may be gone.
fn finish(report: &Report, options: &RunOptions, out: &mut impl Write) -> Result<ExitCode> {
    if let Some(file) = &options.json {
        let mut text = serde_json::to_vec_pretty(report).context("the report cannot be written")?;
        text.push(b'\n');
        write_file(file, &text)?;
    }
    if let Some(file) = &options.html {
        write_file(file, report::html(std::slice::from_ref(report)).as_bytes())?;
    }
    let printed = table::print(report, out);
    if !report.complete {
        eprintln!("mote-lab: interrupted; what was measured was kept");
        return Ok(ExitCode::from(EXIT_CODE));
    }
    done(printed.map_err(Into::into))
}

fn write_file(file: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

fn list(out: &mut impl Write) -> Result<()> {
    for suite in Suite::all()? {
        writeln!(out, "{}: {}", suite.name, suite.description)?;
        for set in &suite.sets {
            writeln!(out, "  {} ({}): {}", set.group, set.builds.join(", "), set.workloads.join(" "))?;
        }
    }
    let peers = peer::all()?;
    let names: Vec<&str> =
        peers.iter().flat_map(|peer| &peer.subjects).map(|subject| subject.name.as_str()).collect();
    writeln!(out, "subjects: {}", names.join(" "))?;
    Ok(())
}

fn peers(action: Option<PeersAction>, out: &mut impl Write) -> Result<ExitCode> {
    match action {
        None => done(install::list(out)),
        Some(PeersAction::Install { names }) => done(install::install(&names, out)),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
