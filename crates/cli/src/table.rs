//! The commands and their flags, as data: `commands.txt`.
//!
//! The parser, the help, the manual page and the completions all read that one text. It is text and not a table of structs because a
//! static of strings is full of pointers, which a position-independent program must relocate at start: pages of private memory in every
//! process, for help that is hardly ever shown.

const TEXT: &str = include_str!("commands.txt");

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub name: &'static str,
    /// What follows the name in a command line.
    pub synopsis: &'static str,
    /// One line.
    pub summary: &'static str,
    /// More, possibly nothing.
    pub doc: &'static str,
    flags: &'static str,
}

/// A flag of a command.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    pub short: Option<char>,
    /// Without the dashes.
    pub name: &'static str,
    /// The name of its value; empty when it takes none.
    pub value: &'static str,
    pub kind: Kind,
    /// It may be given more than once.
    pub repeats: bool,
    /// One line.
    pub summary: &'static str,
    /// More, possibly nothing.
    pub doc: &'static str,
}

/// What a flag's value is: decides completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    None,
    Text,
    File,
    Directory,
    /// One of these, with commas between.
    Words(&'static str),
}

/// All commands, in the order of the help.
pub fn commands() -> impl Iterator<Item = Command> {
    let mut rest = TEXT;
    std::iter::from_fn(move || {
        let start = rest.strip_prefix("= ")?;
        let (body, next) = match start.split_once("\n= ") {
            // The next command keeps its mark.
            Some((body, _)) => (body, start.get(body.len() + 1..).unwrap_or_default()),
            None => (start, ""),
        };
        rest = next;
        let (head, body) = body.split_once('\n').unwrap_or((body, ""));
        let (name, synopsis) = head.split_once(' ').unwrap_or((head, ""));
        let (summary, body) = body.split_once('\n').unwrap_or((body, ""));
        let flags_at =
            if body.starts_with('-') { 0 } else { body.find("\n-").map_or(body.len(), |at| at + 1) };
        let (doc, flags) = body.split_at_checked(flags_at).unwrap_or((body, ""));
        Some(Command { name, synopsis, summary, doc: doc.trim(), flags: flags.trim_end() })
    })
}

/// The command of this name.
pub fn command(name: &str) -> Option<Command> {
    commands().find(|command| command.name == name)
}

impl Command {
    /// Its flags, in the order of the help.
    pub fn flags(self) -> impl Iterator<Item = Flag> {
        let mut lines = self.flags.lines().peekable();
        std::iter::from_fn(move || {
            let mut head = lines.next()?;
            let mut repeats = false;
            if let Some(once) = head.strip_suffix(" *") {
                (head, repeats) = (once, true);
            }
            let (head, kind) = head.rsplit_once(" @").unwrap_or((head, "none"));
            let (short, head) = match head.strip_prefix('-').and_then(|head| head.split_once(", ")) {
                Some((short, head)) => (short.chars().next(), head),
                None => (None, head),
            };
            let head = head.strip_prefix("--").unwrap_or(head);
            let (name, value) = head.split_once(' ').unwrap_or((head, ""));
            let summary = lines.next_if(|line| line.starts_with(' ')).unwrap_or_default().trim();
            let doc = lines.next_if(|line| line.starts_with(' ')).unwrap_or_default().trim();
            let kind = match kind {
                "none" => Kind::None,
                "file" => Kind::File,
                "directory" => Kind::Directory,
                words if words.contains(',') => Kind::Words(words),
                _ => Kind::Text,
            };
            Some(Flag { short, name, value, kind, repeats, summary, doc })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_well_formed() {
        let names: Vec<_> = commands().map(|command| command.name).collect();
        assert_eq!(
            names,
            [
                "run",
                "snapshot",
                "compile",
                "validate",
                "inspect",
                "cache",
                "wast",
                "completions",
                "man",
                "help"
            ],
            "a command without code, or code without a command"
        );
        for command in commands() {
            assert!(command.summary.ends_with('.'), "{command:?}");
            for flag in command.flags() {
                assert!(flag.summary.contains('.') || flag.summary.ends_with(')'), "{flag:?}");
                assert!(
                    flag.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
                    "{flag:?}"
                );
                assert_eq!(flag.value.is_empty(), flag.kind == Kind::None, "{flag:?}");
            }
        }
    }

    #[test]
    fn flags_are_read_whole() {
        let run = command("run").unwrap();
        let dir = run.flags().find(|flag| flag.name == "dir").unwrap();
        assert_eq!((dir.value, dir.kind, dir.repeats), ("HOST[::GUEST][:ro]", Kind::Directory, true));
        assert!(dir.doc.contains("cannot change"));
        let level = run.flags().find(|flag| flag.name == "opt-level").unwrap();
        assert_eq!(level.kind, Kind::Words("0,1,3"));
        let output = command("compile").unwrap().flags().find(|flag| flag.name == "output").unwrap();
        assert_eq!((output.short, output.value, output.repeats), (Some('o'), "FILE", false));
        assert_eq!(run.flags().count(), 19);
        assert_eq!(command("man").unwrap().flags().count(), 0);
        assert!(run.doc.starts_with("FILE is"), "{}", run.doc);
    }
}
