//! Completion scripts, out of the table.

use std::fmt::Write as _;

use crate::exit::Failure;
use crate::table::{self, Command, Kind};

/// The script for this shell.
pub fn script(shell: &str) -> Result<String, Failure> {
    match shell {
        "bash" => Ok(bash()),
        "zsh" => Ok(zsh()),
        "fish" => Ok(fish()),
        _ => Err(Failure::usage(format!("no completions for {shell}; there are bash, zsh and fish"))),
    }
}

fn command_names() -> String {
    table::commands().map(|command| command.name).collect::<Vec<_>>().join(" ")
}

/// Words that complete a command's operand; empty where files do.
fn operand_words(command: Command) -> String {
    match command.name {
        "cache" => "list prune clear dir".to_owned(),
        "completions" => "bash zsh fish".to_owned(),
        "help" => command_names(),
        _ => String::new(),
    }
}

fn bash() -> String {
    let mut script = String::from(
        "# bash completion of mote\n_mote() {\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n    \
         COMPREPLY=()\n    if ((COMP_CWORD == 1)); then\n",
    );
    let _ = writeln!(
        script,
        "        COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$cur\"))\n        return\n    fi",
        command_names()
    );
    script.push_str("    case ${COMP_WORDS[1]} in\n");
    for command in table::commands() {
        let _ = writeln!(script, "    {})", command.name);
        script.push_str("        case $prev in\n");
        for flag in command.flags() {
            let action = match flag.kind {
                Kind::None => continue,
                Kind::File => "compgen -f".to_owned(),
                Kind::Directory => "compgen -d".to_owned(),
                Kind::Words(words) => format!("compgen -W \"{}\"", words.replace(',', " ")),
                Kind::Text => "compgen -W \"\"".to_owned(),
            };
            let short = flag.short.map(|letter| format!("|-{letter}")).unwrap_or_default();
            let _ = writeln!(
                script,
                "        --{}{short}) COMPREPLY=($({action} -- \"$cur\")); return ;;",
                flag.name
            );
        }
        script.push_str("        esac\n");
        let flags: Vec<_> = command.flags().map(|flag| format!("--{}", flag.name)).collect();
        let words = operand_words(command);
        let operands =
            if words.is_empty() { "compgen -f".to_owned() } else { format!("compgen -W \"{words}\"") };
        let _ = writeln!(
            script,
            "        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"{} --help\" -- \"$cur\")); \
             else COMPREPLY=($({operands} -- \"$cur\")); fi ;;",
            flags.join(" ")
        );
    }
    script.push_str("    esac\n}\ncomplete -o filenames -F _mote mote\n");
    script
}

/// Text inside single quotes, for zsh's `_arguments` and fish.
fn quoted(text: &str) -> String {
    text.replace('\'', "’").replace('[', "(").replace(']', ")").replace(':', " ")
}

fn zsh() -> String {
    let mut script = String::from(
        "#compdef mote\n_mote() {\n  local -a commands\n  if ((CURRENT == 2)); then\n    commands=(\n",
    );
    for command in table::commands() {
        let _ = writeln!(script, "      '{}:{}'", command.name, quoted(command.summary));
    }
    script.push_str(
        "    )\n    _describe command commands\n    return\n  fi\n  local command=$words[2]\n  shift words\n  ((CURRENT--))\n  \
         case $command in\n",
    );
    for command in table::commands() {
        let _ = writeln!(script, "  {})\n    _arguments \\", command.name);
        for flag in command.flags() {
            let action = match flag.kind {
                Kind::None => String::new(),
                Kind::File => format!(":{}:_files", quoted(flag.value)),
                Kind::Directory => format!(":{}:_files -/", quoted(flag.value)),
                Kind::Words(words) => format!(":{}:({})", quoted(flag.value), words.replace(',', " ")),
                Kind::Text => format!(":{}:", quoted(flag.value)),
            };
            let repeats = if flag.repeats { "*" } else { "" };
            let _ = writeln!(script, "      '{repeats}--{}[{}]{action}' \\", flag.name, quoted(flag.summary));
            if let Some(letter) = flag.short {
                let _ = writeln!(script, "      '-{letter}[{}]{action}' \\", quoted(flag.summary));
            }
        }
        let words = operand_words(command);
        let operands = if words.is_empty() { "_files".to_owned() } else { format!("({words})") };
        let _ = writeln!(script, "      '--help[show help]' '*:operand:{operands}' ;;");
    }
    script.push_str("  esac\n}\n_mote \"$@\"\n");
    script
}

fn fish() -> String {
    let mut script = String::from("# fish completion of mote\n");
    for command in table::commands() {
        let _ = writeln!(
            script,
            "complete -c mote -n __fish_use_subcommand -f -a {} -d '{}'",
            command.name,
            quoted(command.summary)
        );
        let seen = format!("complete -c mote -n '__fish_seen_subcommand_from {}'", command.name);
        for flag in command.flags() {
            let value = match flag.kind {
                Kind::None => String::new(),
                Kind::File | Kind::Directory => " -r -F".to_owned(),
                Kind::Words(words) => format!(" -x -a '{}'", words.replace(',', " ")),
                Kind::Text => " -x".to_owned(),
            };
            let short = flag.short.map(|letter| format!(" -s {letter}")).unwrap_or_default();
            let _ = writeln!(script, "{seen} -l {}{short}{value} -d '{}'", flag.name, quoted(flag.summary));
        }
        let words = operand_words(command);
        if !words.is_empty() {
            let _ = writeln!(script, "{seen} -f -a '{words}'");
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command as Process, Stdio};

    #[test]
    fn every_flag_is_in_every_script() {
        for shell in ["bash", "zsh", "fish"] {
            let script = script(shell).unwrap();
            for command in table::commands() {
                for flag in command.flags() {
                    assert!(script.contains(flag.name), "{shell}: {}", flag.name);
                }
            }
        }
        assert!(script("tcsh").is_err());
    }

    #[test]
    fn bash_completes_with_it() {
        let mut bash = Process::new("bash")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash is on this machine");
        let ask = "COMP_WORDS=(mote run --max-m) COMP_CWORD=2; _mote; echo \"${COMPREPLY[@]}\"\n\
                   COMP_WORDS=(mote run --opt-level '') COMP_CWORD=3; _mote; echo \"${COMPREPLY[@]}\"\n\
                   COMP_WORDS=(mote ca) COMP_CWORD=1; _mote; echo \"${COMPREPLY[@]}\"\n";
        let mut stdin = bash.stdin.take().unwrap();
        write!(stdin, "{}\n{ask}", script("bash").unwrap()).unwrap();
        drop(stdin);
        let output = String::from_utf8(bash.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(output, "--max-memory\n0 1 3\ncache\n");
    }
}
