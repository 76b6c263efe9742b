//! Reading a command line by the table.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::exit::Failure;
use crate::table::{self, Command, Flag};

/// What was on the command line of one command.
#[derive(Debug)]
pub struct Arguments {
    /// Flags in the order they came, each with its value (empty for one that takes none).
    pub flags: Vec<(&'static str, OsString)>,
    /// Everything else.
    pub operands: Vec<OsString>,
    /// `--help` or `-h` was there.
    pub help: bool,
}

/// Reads the words after a command's name. With `stop_at_operand`, everything from the first operand on is an operand.
pub fn parse(
    command: Command,
    words: impl Iterator<Item = OsString>,
    stop_at_operand: bool,
) -> Result<Arguments, Failure> {
    let mut words = words;
    let mut parsed = Arguments { flags: Vec::new(), operands: Vec::new(), help: false };
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            parsed.operands.extend(words);
            break;
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            let mut parts = long.splitn(2, |&byte| byte == b'=');
            let name = parts.next().unwrap_or_default();
            let attached = parts.next().map(|value| OsString::from_vec(value.to_vec()));
            if name == b"help" {
                parsed.help = true;
                continue;
            }
            let flag = command.flags().find(|flag| flag.name.as_bytes() == name);
            let flag = flag.ok_or_else(|| unknown(command, &word, name))?;
            add(&mut parsed, flag, attached, &mut words)?;
        } else if bytes.len() > 1 && bytes.starts_with(b"-") {
            let text = word.to_str().unwrap_or_default();
            let mut letters = text.strip_prefix('-').unwrap_or_default().chars();
            while let Some(letter) = letters.next() {
                if letter == 'h' {
                    parsed.help = true;
                    continue;
                }
                let flag = command.flags().find(|flag| flag.short == Some(letter));
                let flag = flag.ok_or_else(|| unknown(command, &word, b""))?;
                let rest = letters.as_str();
                let attached = (!flag.value.is_empty() && !rest.is_empty()).then(|| OsString::from(rest));
                let ends = attached.is_some();
                add(&mut parsed, flag, attached, &mut words)?;
                if ends {
                    break;
                }
            }
            if text.is_empty() {
                return Err(unknown(command, &word, b""));
            }
        } else {
            parsed.operands.push(word);
            if stop_at_operand {
                parsed.operands.extend(words);
                break;
            }
        }
    }
    Ok(parsed)
}

fn add(
    parsed: &mut Arguments,
    flag: Flag,
    attached: Option<OsString>,
    words: &mut impl Iterator<Item = OsString>,
) -> Result<(), Failure> {
    let name = flag.name;
    let value = match (flag.value.is_empty(), attached) {
        (true, None) => OsString::new(),
        (true, Some(_)) => return Err(Failure::usage(format!("--{name} takes no value"))),
        (false, Some(value)) => value,
        (false, None) => words
            .next()
            .ok_or_else(|| Failure::usage(format!("--{name} needs a value: --{name} {}", flag.value)))?,
    };
    if !flag.repeats && parsed.flags.iter().any(|(given, _)| *given == name) {
        return Err(Failure::usage(format!("--{name} is given twice")));
    }
    parsed.flags.push((name, value));
    Ok(())
}

fn unknown(command: Command, word: &OsStr, name: &[u8]) -> Failure {
    let given = String::from_utf8_lossy(name);
    let near = nearest(&given, command.flags().map(|flag| flag.name));
    let what = format!("unknown option {} of mote {}", word.display(), command.name);
    Failure::usage(match near {
        Some(near) => format!("{what}; did you mean --{near}?"),
        None => format!("{what}; see mote {} --help", command.name),
    })
}

/// The error for a command that is not there.
pub fn unknown_command(name: &OsStr) -> Failure {
    let near = nearest(&name.to_string_lossy(), table::commands().map(|command| command.name));
    Failure::usage(match near {
        Some(near) => format!("unknown command {}; did you mean {near}?", name.display()),
        None if name.to_string_lossy().ends_with(".wasm") => {
            format!("unknown command {0}; to run a module: mote run {0}", name.display())
        }
        None => format!("unknown command {}; see mote help", name.display()),
    })
}

/// The name that is fewest edits away, when it is few.
fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 40;
    if given.is_empty() || given.len() > LONGEST {
        return None;
    }
    names
        .map(|name| (distance(given.as_bytes(), name.as_bytes()), name))
        .filter(|(edits, name)| *edits <= 1 + name.len() / 4)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// Levenshtein's distance, in bytes.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut left = i + 1;
        let mut diagonal = i;
        for (y, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let above = *cell;
            *cell = (diagonal + usize::from(x != y)).min(above + 1).min(left + 1);
            (left, diagonal) = (*cell, above);
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(command: &str, line: &[&str]) -> Result<Arguments, Failure> {
        let command = table::command(command).unwrap();
        parse(command, line.iter().map(OsString::from), command.name == "run")
    }

    fn refused(command: &str, line: &[&str]) -> String {
        read(command, line).unwrap_err().to_string()
    }

    #[test]
    fn the_guest_gets_what_follows_the_file() {
        let read = read("run", &["--dir", "a", "--dir=b::c", "x.wasm", "--dir", "-q", "--"]).unwrap();
        assert_eq!(read.flags, [("dir", "a".into()), ("dir", "b::c".into())]);
        assert_eq!(read.operands, ["x.wasm", "--dir", "-q", "--"]);
    }

    #[test]
    fn short_flags_join_and_take_values() {
        let joined = read("compile", &["-qoout.mote", "x.wasm"]).unwrap();
        assert_eq!(joined.flags, [("quiet", "".into()), ("output", "out.mote".into())]);
        let apart = read("compile", &["x.wasm", "-o", "-"]).unwrap();
        assert_eq!(apart.flags, [("output", "-".into())]);
        assert_eq!(read("run", &["--", "--x"]).unwrap().operands, ["--x"]);
        assert_eq!(read("run", &["-"]).unwrap().operands, ["-"]);
        assert!(read("run", &["-h"]).unwrap().help);
    }

    #[test]
    fn mistakes_say_what_was_meant() {
        assert!(refused("run", &["--max-memmory", "1M"]).ends_with("did you mean --max-memory?"));
        assert!(refused("run", &["--zzz"]).ends_with("see mote run --help"));
        assert!(refused("run", &["-z"]).contains("unknown option -z"));
        assert!(refused("run", &["--dir"]).contains("--dir HOST[::GUEST][:ro]"));
        assert!(refused("run", &["--quiet=yes"]).contains("takes no value"));
        assert!(refused("run", &["--cpu", "a", "--cpu", "b"]).contains("twice"));
        assert!(unknown_command(OsStr::new("rum")).to_string().ends_with("did you mean run?"));
        assert!(unknown_command(OsStr::new("hello.wasm")).to_string().contains("mote run hello.wasm"));
    }

    #[test]
    fn words_that_are_not_text_are_refused_or_passed_on() {
        let bad = OsString::from_vec(vec![b'-', 0xff]);
        let run = table::command("run").unwrap();
        assert!(parse(run, [bad.clone()].into_iter(), true).is_err());
        let passed = parse(run, [OsString::from("x.wasm"), bad.clone()].into_iter(), true).unwrap();
        assert_eq!(passed.operands.last(), Some(&bad));
    }

    #[test]
    fn distances() {
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
        assert_eq!(distance(b"same", b"same"), 0);
    }
}
