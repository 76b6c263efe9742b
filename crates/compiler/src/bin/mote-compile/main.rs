//! `mote-compile`: a WebAssembly module to an artifact, in a process of its own.
//!
//! The module may be hostile and LLVM was not written for hostile input, so this process bounds itself: memory and time by
//! resource limits and a watchdog, system calls by a filter once its files are open. Exit status: 0 done; 1 the module is
//! refused; 2 wrong usage; 3 the compiler's own failure, limits of memory and time included. The last line on standard error
//! then begins with `error: `.

mod files;
mod sandbox;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Parser;
use mote_compiler::{CompileError, OptLevel, Options};

const REFUSED: u8 = 1;
const FAILED: u8 = 3;

/// Compile a WebAssembly module to native code.
#[derive(Parser)]
#[command(name = "mote-compile", disable_version_flag = true)]
struct Arguments {
    /// The module, binary or text; `-` is standard input.
    #[arg(required_unless_present = "version")]
    input: Option<PathBuf>,
    /// Where the artifact goes; `-` is standard output.
    #[arg(short, required_unless_present_any = ["validate", "version"])]
    output: Option<PathBuf>,
    /// How much to optimise: 0, 1 or 3.
    #[arg(long, default_value = "3", value_parser = ["0", "1", "3"])]
    opt_level: String,
    /// The CPU to compile for, by LLVM's name; the host's by default.
    #[arg(long)]
    cpu: Option<String>,
    /// Keep every load and store of the guest in order, so that what a trap leaves in memory is exact.
    #[arg(long)]
    strict_traps: bool,
    /// Make every NaN of arithmetic the canonical one.
    #[arg(long)]
    canonical_nans: bool,
    /// The module's name in messages.
    #[arg(long)]
    name: Option<String>,
    /// Only check the module.
    #[arg(long)]
    validate: bool,
    /// Bytes of memory to use at most, with an optional suffix K, M or G.
    #[arg(long, default_value = "4G", value_parser = bytes)]
    max_memory: u64,
    /// Seconds to take at most.
    #[arg(long, default_value_t = 600)]
    max_time: u64,
    /// Threads; one for each processor by default. The artifact does not depend on it.
    #[arg(long)]
    jobs: Option<usize>,
    /// Print lines `progress DONE TOTAL` on standard error, and die with the parent process.
    #[arg(long)]
    progress: bool,
    /// Print the version.
    #[arg(long)]
    version: bool,
}

fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (text.get(..text.len() - 1), 10),
        Some(b'm' | b'M') => (text.get(..text.len() - 1), 20),
        Some(b'g' | b'G') => (text.get(..text.len() - 1), 30),
        _ => (Some(text), 0),
    };
    let number = digits.and_then(|digits| digits.parse::<u64>().ok());
    number.and_then(|number| number.checked_shl(shift)).ok_or_else(|| "not a number of bytes".to_owned())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.version {
        println!("{}", mote_compiler::version());
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Refused(message)) => fail(REFUSED, arguments.name.as_deref(), &message),
        Err(Failure::Own(message)) => fail(FAILED, arguments.name.as_deref(), &message),
    }
}

/// Why there is no artifact.
enum Failure {
    /// The module's fault.
    Refused(String),
    /// The compiler's or the machine's.
    Own(String),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Own(format!("{error:#}"))
    }
}

fn fail(status: u8, name: Option<&str>, message: &str) -> ExitCode {
    let message = message.replace('\n', " ");
    let line = match name {
        Some(name) => format!("error: {name}: {message}\n"),
        None => format!("error: {message}\n"),
    };
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
    ExitCode::from(status)
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let jobs =
        arguments.jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let options = Options {
        opt_level: match arguments.opt_level.as_str() {
            "0" => OptLevel::O0,
            "1" => OptLevel::O1,
            _ => OptLevel::O3,
        },
        cpu: arguments.cpu.clone(),
        strict_traps: arguments.strict_traps,
        canonical_nans: arguments.canonical_nans,
        jobs,
        ..Options::default()
    };
    if arguments.progress {
        sandbox::die_with_parent()?;
    }
    let input = files::Input::open(arguments.input.as_deref())?;
    let output = match &arguments.output {
        Some(path) if !arguments.validate => Some(files::Output::open(path)?),
        _ => None,
    };
    sandbox::enter(&sandbox::Bounds {
        memory: arguments.max_memory,
        time: Duration::from_secs(arguments.max_time),
        jobs,
    })?;
    let wasm = input.read(options.limits.module_bytes)?;
    let wasm = binary(&wasm, arguments.name.as_deref())?;
    let Some(output) = output else {
        return mote_compiler::validate(&wasm, &options).map_err(failure);
    };
    let reporter = Reporter::new(arguments.progress);
    let artifact =
        mote_compiler::compile_with_progress(&wasm, &options, &|done, total| reporter.tell(done, total));
    output.write(&artifact.map_err(failure)?)?;
    Ok(())
}

/// The module's binary form: what does not begin as one is tried as text.
fn binary<'a>(bytes: &'a [u8], name: Option<&str>) -> Result<std::borrow::Cow<'a, [u8]>, Failure> {
    let is_text = !bytes.starts_with(b"\0asm") && !bytes.is_empty() && std::str::from_utf8(bytes).is_ok();
    if !is_text {
        return Ok(bytes.into());
    }
    wat::parse_bytes(bytes).map_err(|mut error| {
        if let Some(name) = name {
            error.set_path(name);
        }
        // The first line says what, the second where.
        let text = error.to_string();
        let mut lines = text.lines().map(str::trim);
        let what = lines.next().unwrap_or_default().to_owned();
        let place = lines.find_map(|line| line.strip_prefix("--> ")).unwrap_or_default();
        Failure::Refused(format!("neither a binary module nor a text one: {what} ({place})"))
    })
}

fn failure(error: CompileError) -> Failure {
    match error {
        CompileError::Invalid { .. } | CompileError::Unsupported { .. } | CompileError::Limit { .. } => {
            Failure::Refused(error.to_string())
        }
        other => Failure::Own(other.to_string()),
    }
}

/// Prints progress, not more often than a person can see.
struct Reporter {
    last: Option<Mutex<Instant>>,
}

impl Reporter {
    const PAUSE: Duration = Duration::from_millis(50);

    fn new(wanted: bool) -> Self {
        Self { last: wanted.then(|| Mutex::new(Instant::now())) }
    }

    fn tell(&self, done: u64, total: u64) {
        let Some(Ok(mut last)) = self.last.as_ref().map(Mutex::lock) else { return };
        if last.elapsed() >= Self::PAUSE || done == total {
            *last = Instant::now();
            let _ = writeln!(std::io::stderr(), "progress {done} {total}");
        }
    }
}
