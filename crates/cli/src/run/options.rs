//! What the command line of `mote run` asks for.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use mote_store::Options;

use crate::arguments::Arguments;
use crate::build::set_option;
use crate::exit::Failure;
use crate::values::{bytes, duration, text};

/// Largest `--env-file`.
const ENV_FILE_MAX_BYTES: u64 = 16 << 20;

/// Largest `--max-stack`: what is asked for is mapped before the guest runs.
const STACK_MAX_BYTES: u64 = 4 << 30;

/// A directory for the guest.
#[derive(Debug, PartialEq, Eq)]
pub struct Preopen {
    pub host: PathBuf,
    pub guest: String,
    pub read_only: bool,
}

/// `--preload NAME=FILE`.
#[derive(Debug, PartialEq, Eq)]
pub struct Preload {
    pub name: String,
    pub file: PathBuf,
}

/// Everything, in the order that was given where order matters.
#[derive(Debug, Default)]
pub struct RunOptions {
    pub file: PathBuf,
    /// What the guest sees as its name, then its arguments.
    pub guest_arguments: Vec<OsString>,
    pub directories: Vec<Preopen>,
    pub environment: Vec<(OsString, OsString)>,
    pub listen: Vec<String>,
    pub invoke: Option<String>,
    pub preloads: Vec<Preload>,
    pub max_memory_bytes: Option<u64>,
    pub max_stack_bytes: Option<u64>,
    pub timeout: Option<Duration>,
    pub compiler: Options,
    pub no_cache: bool,
    pub stats: bool,
    pub profile: bool,
    /// Where `--profile-stacks` goes.
    pub profile_stacks: Option<PathBuf>,
    pub quiet: bool,
}

impl RunOptions {
    pub fn new(arguments: Arguments) -> Result<Self, Failure> {
        let mut operands = arguments.operands.into_iter();
        let Some(file) = operands.next() else {
            return Err(Failure::usage("mote run needs a FILE; see mote run --help"));
        };
        let mut options = Self { guest_arguments: vec![file.clone()], file: file.into(), ..Self::default() };
        options.guest_arguments.extend(operands);
        for (flag, value) in arguments.flags {
            options.set(flag, value)?;
        }
        Ok(options)
    }

    fn set(&mut self, flag: &'static str, value: OsString) -> Result<(), Failure> {
        match flag {
            "dir" => self.directories.push(preopen(&value)?),
            "env" => self.variable(value.as_bytes())?,
            "env-file" => self.env_file(&value)?,
            "argv0" => {
                if let Some(name) = self.guest_arguments.first_mut() {
                    *name = value;
                }
            }
            "listen" => self.listen.push(text(flag, &value)?.to_owned()),
            "invoke" => self.invoke = Some(text(flag, &value)?.to_owned()),
            "preload" => self.preloads.push(preload(&value)?),
            "max-memory" => self.max_memory_bytes = Some(bytes(flag, &value)?),
            "max-stack" => {
                let bytes = bytes(flag, &value)?;
                if bytes > STACK_MAX_BYTES {
                    return Err(Failure::usage(format!(
                        "--max-stack: {} is more than the largest stack, 4G",
                        value.display()
                    )));
                }
                self.max_stack_bytes = Some(bytes);
            }
            "timeout" => self.timeout = Some(duration(flag, &value)?),
            "no-cache" => self.no_cache = true,
            "stats" => self.stats = true,
            "profile" => self.profile = true,
            "profile-stacks" => {
                self.profile = true;
                self.profile_stacks = Some(value.into());
            }
            "quiet" => self.quiet = true,
            _ if set_option(&mut self.compiler, flag, &value)? => {}
            _ => return Err(Failure::own(format!("--{flag} is in the table and not in the code"))),
        }
        Ok(())
    }

    /// `NAME=VALUE`, or `NAME` to inherit. One that is not set here is not set there either.
    fn variable(&mut self, setting: &[u8]) -> Result<(), Failure> {
        let (name, value) = match setting.iter().position(|&byte| byte == b'=') {
            Some(at) => {
                let (name, value) = setting.split_at_checked(at).unwrap_or_default();
                (name, Some(OsStr::from_bytes(value.get(1..).unwrap_or_default()).to_owned()))
            }
            None => (setting, std::env::var_os(OsStr::from_bytes(setting))),
        };
        if name.is_empty() {
            return Err(Failure::usage(format!(
                "--env: {} has no name; write NAME=VALUE, or NAME to inherit",
                OsStr::from_bytes(setting).display()
            )));
        }
        let name = OsStr::from_bytes(name).to_owned();
        // The last setting of a name is the one that counts, as in a shell.
        self.environment.retain(|(given, _)| *given != name);
        self.environment.extend(value.map(|value| (name, value)));
        Ok(())
    }

    fn env_file(&mut self, path: &OsStr) -> Result<(), Failure> {
        let said = |error: String| Failure::own(format!("--env-file: {}: {error}", path.display()));
        let mut contents = Vec::new();
        fs::File::open(path)
            .and_then(|file| file.take(ENV_FILE_MAX_BYTES + 1).read_to_end(&mut contents))
            .map_err(|error| said(error.to_string()))?;
        if contents.len() as u64 > ENV_FILE_MAX_BYTES {
            return Err(said(format!("larger than the limit of {ENV_FILE_MAX_BYTES} bytes")));
        }
        for (number, line) in contents.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii_start();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            self.variable(line).map_err(|_| said(format!("line {}: no name before \"=\"", number + 1)))?;
        }
        Ok(())
    }
}

/// `HOST`, `HOST:ro`, `HOST::GUEST`, `HOST::GUEST:ro`.
fn preopen(value: &OsStr) -> Result<Preopen, Failure> {
    let shown = text("dir", value)?;
    let (paths, read_only) = match shown.strip_suffix(":ro") {
        Some(paths) => (paths, true),
        None => (shown, false),
    };
    let (host, guest) = paths.split_once("::").unwrap_or((paths, paths));
    if host.is_empty() || guest.is_empty() {
        return Err(Failure::usage(format!("--dir: {shown} names no directory; write HOST[::GUEST][:ro]")));
    }
    Ok(Preopen { host: host.into(), guest: guest.to_owned(), read_only })
}

fn preload(value: &OsStr) -> Result<Preload, Failure> {
    let shown = text("preload", value)?;
    match shown.split_once('=') {
        Some((name, file)) if !file.is_empty() => Ok(Preload { name: name.to_owned(), file: file.into() }),
        _ => Err(Failure::usage(format!("--preload: {shown} is not NAME=FILE"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{arguments, table};

    fn read(line: &[&str]) -> Result<RunOptions, Failure> {
        let run = table::command("run").unwrap();
        RunOptions::new(arguments::parse(run, line.iter().map(OsString::from), true)?)
    }

    #[test]
    fn every_flag_of_the_table_is_handled() {
        for flag in table::command("run").unwrap().flags() {
            let value = match flag.name {
                "timeout" => "1s",
                "max-memory" | "max-stack" => "1M",
                "opt-level" => "1",
                "preload" => "env=a.wasm",
                "env-file" => "/dev/null",
                _ if flag.value.is_empty() => "",
                _ => "value",
            };
            RunOptions::default().set(flag.name, value.into()).unwrap();
        }
    }

    #[test]
    fn directories() {
        let parsed = |text: &str| preopen(OsStr::new(text)).ok();
        let is = |host: &str, guest: &str, read_only| {
            Some(Preopen { host: host.into(), guest: guest.into(), read_only })
        };
        assert_eq!(parsed("a"), is("a", "a", false));
        assert_eq!(parsed("a:ro"), is("a", "a", true));
        assert_eq!(parsed("a::/b"), is("a", "/b", false));
        assert_eq!(parsed("a:b::/c:ro"), is("a:b", "/c", true));
        for bad in ["", "::", "a::", "::b", ":ro"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_environment_is_what_was_asked_for_and_nothing_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "# remark\n\n  A=file\r\nB==x\nMOTE_TEST_UNSET_VARIABLE\nPATH\n").unwrap();
        let path = file.path().to_str().unwrap();
        let options =
            read(&["--env", "C=1", "--env", "A=2", "--env-file", path, "--env", "C=3", "x.wasm"]).unwrap();
        let inherited = std::env::var_os("PATH").unwrap();
        let expected: [(&str, OsString); 4] =
            [("A", "file".into()), ("B", "=x".into()), ("PATH", inherited), ("C", "3".into())];
        assert_eq!(options.environment, expected.map(|(name, value)| (name.into(), value)));
        fs::write(file.path(), "A=1\n=2\n").unwrap();
        assert!(read(&["--env-file", path, "x"]).unwrap_err().to_string().contains("line 2"));
        assert!(read(&["--env", "=1", "x"]).is_err());
        let endless = read(&["--env-file", "/dev/zero", "x"]).unwrap_err().to_string();
        assert!(endless.contains("larger than the limit of 16777216 bytes"), "{endless}");
        assert!(read(&["--max-stack", "5G", "x"]).unwrap_err().to_string().contains("4G"));
        assert!(read(&["--env-file", "/nonexistent", "x"]).unwrap_err().to_string().contains("/nonexistent"));
    }

    #[test]
    fn the_guest_sees_the_file_or_argv0_as_its_name() {
        assert_eq!(read(&["x.wasm", "a", "--b"]).unwrap().guest_arguments, ["x.wasm", "a", "--b"]);
        assert_eq!(read(&["--argv0", "me", "x.wasm", "a"]).unwrap().guest_arguments, ["me", "a"]);
        assert!(read(&["-q"]).unwrap_err().to_string().contains("FILE"));
        assert!(read(&["--preload", "nofile", "x"]).is_err());
    }
}
