//! The list of what is skipped, each with its reason.
//!
//! One entry a line: `suite/file.wast[:line[-line]] reason`, `#` begins a comment. An entry that skipped nothing is an error, so that the list
//! stays true.

use std::cell::Cell;
use std::ops::RangeInclusive;

/// One entry of the list.
#[derive(Debug)]
pub struct Skip {
    /// `suite/file.wast`.
    pub file: String,
    /// Lines of the directives; everything when absent.
    pub lines: Option<RangeInclusive<usize>>,
    /// Why.
    pub reason: String,
    used: Cell<bool>,
}

/// The list.
#[derive(Debug, Default)]
pub struct Skips(Vec<Skip>);

impl Skips {
    /// Reads the list; an error names the line that is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut skips = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong =
                || format!("line {}: expected `file[:line[-line]] reason`, found `{line}`", number + 1);
            let (place, reason) = line.split_once(char::is_whitespace).ok_or_else(wrong)?;
            let (file, lines) = match place.split_once(':') {
                None => (place, None),
                Some((file, lines)) => {
                    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
                    let first = first.parse().map_err(|_| wrong())?;
                    let last = last.parse().map_err(|_| wrong())?;
                    (file, Some(first..=last))
                }
            };
            skips.push(Skip {
                file: file.to_owned(),
                lines,
                reason: reason.trim().to_owned(),
                used: Cell::new(false),
            });
        }
        Ok(Self(skips))
    }

    /// The entries for one file.
    pub fn of(&self, file: &str) -> FileSkips<'_> {
        FileSkips(self.0.iter().filter(|skip| skip.file == file).collect())
    }

    /// Entries that skipped nothing.
    pub fn unused(&self) -> impl Iterator<Item = &Skip> {
        self.0.iter().filter(|skip| !skip.used.get())
    }
}

/// The entries for one file.
#[derive(Debug, Default)]
pub struct FileSkips<'a>(Vec<&'a Skip>);

impl<'a> FileSkips<'a> {
    /// Why the directive on this line is skipped, when it is.
    pub fn reason(&self, line: usize) -> Option<&'a str> {
        let found =
            self.0.iter().find(|skip| skip.lines.as_ref().is_none_or(|lines| lines.contains(&line)))?;
        found.used.set(true);
        Some(&found.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_file_and_line() {
        let skips =
            Skips::parse("# comment\n\na/b.wast:3-5 three\na/b.wast:9 nine\nc.wast all of it\n").unwrap();
        let file = skips.of("a/b.wast");
        assert_eq!(file.reason(2), None);
        assert_eq!(file.reason(4), Some("three"));
        assert_eq!(skips.of("c.wast").reason(1), Some("all of it"));
        let unused: Vec<&str> = skips.unused().map(|skip| skip.reason.as_str()).collect();
        assert_eq!(unused, ["nine"]);
    }

    #[test]
    fn a_skip_without_a_reason_is_refused() {
        assert!(Skips::parse("a.wast:3").is_err());
        assert!(Skips::parse("a.wast:x reason").is_err());
    }
}
