//! Which directory the store is.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::limits::CAPACITY_BYTES;
use crate::module::now_seconds;

/// Where the store is and how much it may hold.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory; `None` keeps every artifact in memory only.
    pub directory: Option<PathBuf>,
    /// Total size of the entries, in bytes.
    pub capacity_bytes: u64,
    /// Why there is no directory, in words for the user; told once per [`crate::Store::obtain`] when set.
    pub without: Option<String>,
    /// The path by which the running program was started, when the caller knows it: see [`crate::Compiler::find_for`].
    pub program: Option<PathBuf>,
    /// A setting of the environment that was not understood, in words for the user.
    pub mistake: Option<String>,
    /// The system's clock in seconds since 1970, for the times of last use.
    pub now_seconds: fn() -> i64,
}

impl Settings {
    /// A store in this directory with the default capacity.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory: Some(directory), ..Self::none() }
    }

    /// No store, on the user's own wish.
    pub fn none() -> Self {
        Self {
            directory: None,
            capacity_bytes: CAPACITY_BYTES,
            without: None,
            program: None,
            mistake: None,
            now_seconds,
        }
    }

    /// What the environment says: `MOTE_CACHE_DIR`, `XDG_CACHE_HOME`, `HOME`; `MOTE_CACHE_SIZE` in bytes, or with the suffix K, M, G or T.
    pub fn from_environment() -> Self {
        let mut settings = match default_directory() {
            Some(directory) => Self::at(directory),
            None => Self {
                without: Some("neither HOME, XDG_CACHE_HOME nor MOTE_CACHE_DIR is set".to_owned()),
                ..Self::none()
            },
        };
        if let Some(size) = env::var_os("MOTE_CACHE_SIZE").filter(|size| !size.is_empty()) {
            match size.to_str().and_then(parse_bytes) {
                Some(bytes) => settings.capacity_bytes = bytes,
                None => {
                    settings.mistake = Some(format!(
                        "MOTE_CACHE_SIZE: {} is not a size; write for example 500M or 2G",
                        size.display()
                    ));
                }
            }
        }
        settings
    }
}

/// The directory that the environment names; as root without a home `/var/cache/mote`.
pub fn default_directory() -> Option<PathBuf> {
    choose(|name| env::var_os(name).filter(|value| !value.is_empty()), rustix::process::geteuid().is_root())
}

fn choose(variable: impl Fn(&str) -> Option<OsString>, root: bool) -> Option<PathBuf> {
    if let Some(directory) = variable("MOTE_CACHE_DIR") {
        return Some(PathBuf::from(directory));
    }
    // The XDG specification: a relative path is invalid and is ignored.
    if let Some(cache) = variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()) {
        return Some(cache.join("mote/artifacts"));
    }
    if let Some(home) = variable("HOME").map(PathBuf::from).filter(|path| path.is_absolute()) {
        return Some(home.join(".cache/mote/artifacts"));
    }
    root.then(|| PathBuf::from("/var/cache/mote"))
}

/// `65536`, `64K`, `64MB`, `2GiB`, `1t`: bytes; each unit is 1024 of the one before.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(digits_end)?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(set: &[(&str, &str)], root: bool) -> Option<PathBuf> {
        choose(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)), root)
    }

    #[test]
    fn the_most_specific_variable_wins() {
        let all = [("MOTE_CACHE_DIR", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        assert_eq!(chosen(&all, false), Some("/a".into()));
        assert_eq!(chosen(&all[1..], false), Some("/b/mote/artifacts".into()));
        assert_eq!(chosen(&all[2..], false), Some("/c/.cache/mote/artifacts".into()));
        assert_eq!(
            chosen(&[("XDG_CACHE_HOME", "rel"), ("HOME", "/c")], false),
            Some("/c/.cache/mote/artifacts".into())
        );
        assert_eq!(chosen(&[], true), Some("/var/cache/mote".into()));
        assert_eq!(chosen(&[], false), None);
    }

    #[test]
    fn sizes_have_units_and_cannot_overflow() {
        assert_eq!(parse_bytes("17"), Some(17));
        assert_eq!(parse_bytes("2G"), Some(2 << 30));
        assert_eq!(parse_bytes(" 3k "), Some(3072));
        assert_eq!(parse_bytes("64M"), Some(64 << 20));
        assert_eq!(parse_bytes("1KiB"), Some(1024));
        for bad in ["", "G", "é", "-1", "1x", "99999999T", "99999999999T", "1.5G", "１", "1 G"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }
}
