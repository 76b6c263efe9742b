//! Help, the manual page and the version, out of the table.

use std::fmt::Write as _;

use crate::table::{self, Command, Flag};

/// Columns of a help text.
const WIDTH: usize = 90;

/// What `mote --version` prints.
pub fn version() -> String {
    format!("mote {}\n", env!("CARGO_PKG_VERSION"))
}

/// What `mote help` prints.
pub fn overview() -> String {
    let mut text = String::from(
        "Mote runs WebAssembly on servers: at the speed of native code, in the memory of a bare process.\n\n\
         Usage: mote COMMAND …\n\nCommands:\n",
    );
    for command in table::commands() {
        let _ = writeln!(text, "  {:<12} {}", command.name, command.summary);
    }
    text.push_str(
        "\nmote COMMAND --help says more, mote man | man -l - says everything.\n\
         Exit code of run: the guest's own; 134 for a trap, 125 when Mote fails, 126 for a module that cannot run,\n\
         127 for a file that is not there.\n",
    );
    text
}

/// What `mote COMMAND --help` prints.
pub fn of_command(command: Command) -> String {
    let mut text = format!("{}\n\nUsage: mote {} {}\n", command.summary, command.name, command.synopsis);
    if !command.doc.is_empty() {
        text.push('\n');
        wrap(&mut text, command.doc, "");
    }
    if command.flags().next().is_some() {
        text.push_str("\nOptions:\n");
    }
    for flag in command.flags() {
        let _ = writeln!(text, "  {}", usage(flag));
        wrap(&mut text, flag.summary, "        ");
        wrap(&mut text, flag.doc, "        ");
    }
    text
}

fn usage(flag: Flag) -> String {
    let Flag { short, name, value, .. } = flag;
    let short = short.map(|letter| format!("-{letter}, ")).unwrap_or_default();
    let gap = if value.is_empty() { "" } else { " " };
    format!("{short}--{name}{gap}{value}")
}

fn wrap(text: &mut String, paragraph: &str, indent: &str) {
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        if column > 0 && column + 1 + word.chars().count() > WIDTH {
            text.push('\n');
            column = 0;
        }
        text.push_str(if column == 0 { indent } else { " " });
        column += word.chars().count() + if column == 0 { indent.len() } else { 1 };
        text.push_str(word);
    }
    if column > 0 {
        text.push('\n');
    }
}

/// The manual page, in roff.
pub fn manual() -> String {
    let mut page = format!(
        ".TH MOTE 1 \"\" \"mote {}\" \"User Commands\"\n.SH NAME\nmote \\- run WebAssembly modules\n\
         .SH SYNOPSIS\n.B mote\n.I COMMAND\n[\\fIOPTIONS\\fR] ...\n.SH DESCRIPTION\n\
         Mote compiles a WebAssembly module to native code once, keeps the result in a cache, and runs it from there.\n\
         .SH COMMANDS\n",
        env!("CARGO_PKG_VERSION")
    );
    for command in table::commands() {
        let _ = writeln!(page, ".SS mote {} {}", roff(command.name), roff(command.synopsis));
        let _ = writeln!(page, "{}", roff(command.summary));
        if !command.doc.is_empty() {
            let _ = writeln!(page, ".PP\n{}", roff(command.doc));
        }
        for flag in command.flags() {
            let _ = writeln!(page, ".TP\n\\fB{}\\fR\n{}", roff(&usage(flag)), roff(flag.summary));
            if !flag.doc.is_empty() {
                let _ = writeln!(page, "{}", roff(flag.doc));
            }
        }
    }
    page.push_str(
        ".SH EXIT STATUS\nOf \\fBmote run\\fR: the guest's own; 134 when the guest trapped; 125 when Mote itself failed; \
         126 when the module cannot run; 127 when the file is not there. SIGINT and SIGTERM end a guest as they end any program: \
         a shell shows 130 and 143. Other commands exit with 2 for a wrong command line, else likewise.\n\
         .SH ENVIRONMENT\n\
         .TP\n.B MOTE_CACHE_DIR\nThe directory of the cache.\n\
         .TP\n.B XDG_CACHE_HOME\nWithout MOTE_CACHE_DIR the cache is mote/artifacts in this directory, else .cache/mote/artifacts in the home directory.\n\
         .TP\n.B MOTE_CACHE_SIZE\nTotal size of the cache's entries, for example 500M (default: 2G).\n\
         .TP\n.B MOTE_COMPILE\nThe compiler's program file (default: mote\\-compile beside mote, else on PATH).\n",
    );
    page
}

fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    // A line that begins with a dot or a quote would be a request.
    match escaped.chars().next() {
        Some('.' | '\'') => format!("\\&{escaped}"),
        _ => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_flag_is_in_the_help_and_the_manual() {
        let (overview, manual) = (overview(), manual());
        for command in table::commands() {
            assert!(overview.contains(command.summary));
            let help = of_command(command);
            assert!(help.lines().all(|line| line.chars().count() <= WIDTH), "{help}");
            for flag in command.flags() {
                assert!(help.contains(&format!("--{}", flag.name)));
                assert!(manual.contains(&roff(&usage(flag))));
            }
        }
    }
}
