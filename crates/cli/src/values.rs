//! Values of flags: sizes, durations.

use std::ffi::OsStr;
use std::time::Duration;

use crate::exit::Failure;

/// A value that must be text.
pub fn text<'a>(flag: &str, value: &'a OsStr) -> Result<&'a str, Failure> {
    value.to_str().ok_or_else(|| Failure::usage(format!("--{flag}: {} is not UTF-8", value.display())))
}

/// `65536`, `64K`, `64M`, `2G`, `1T`: bytes.
pub fn bytes(flag: &str, value: &OsStr) -> Result<u64, Failure> {
    let text = text(flag, value)?;
    mote_store::parse_bytes(text).ok_or_else(|| {
        Failure::usage(format!("--{flag}: {text} is not a size; write for example 65536, 64M or 2G"))
    })
}

/// `500ms`, `1.5s`, `10`, `2m`, `1h`.
pub fn duration(flag: &str, value: &OsStr) -> Result<Duration, Failure> {
    let text = text(flag, value)?;
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(number_end).unwrap_or((text, ""));
    let seconds = match unit {
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "" | "s" => Some(1.0),
        "m" | "min" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    seconds
        .zip(number.parse::<f64>().ok())
        .and_then(|(unit, number)| Duration::try_from_secs_f64(unit * number).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| {
            Failure::usage(format!("--{flag}: {text} is not a duration; write for example 500ms, 10s or 2m"))
        })
}

/// Bytes for people.
pub fn shown_bytes(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let mut shown = bytes as f64;
    let mut unit = "B";
    for next in units {
        if shown < 1000.0 {
            break;
        }
        shown /= 1000.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{shown:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let read = |text: &str| duration("timeout", OsStr::new(text)).ok();
        assert_eq!(read("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(read("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(read("2"), Some(Duration::from_secs(2)));
        assert_eq!(read("2m"), Some(Duration::from_secs(120)));
        for bad in ["", "s", "-1s", "1y", "0", "1e400s", "9999999999999999999999h", "nan"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn bytes_for_people() {
        assert_eq!(shown_bytes(17), "17 B");
        assert_eq!(shown_bytes(1_500_000), "1.5 MB");
    }
}
