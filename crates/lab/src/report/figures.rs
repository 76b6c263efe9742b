//! How numbers and names of metrics are written. `page.js` writes numbers by the same rules (`significant`, `quantity`); the browser test
//! compares the two.

use std::collections::BTreeMap;

use serde::Serialize;

use super::key;
use crate::record::{FailureKind, Metric, Mode};

/// What a metric counts, which decides how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Seconds,
    Bytes,
    Count,
}

/// All metrics, in the order in which they are offered.
pub const METRICS: [Metric; 10] = [
    Metric::CpuS,
    Metric::WallS,
    Metric::Instructions,
    Metric::StartS,
    Metric::PeakBytes,
    Metric::PrivateBytes,
    Metric::CompileCpuS,
    Metric::CompileWallS,
    Metric::CompilePeakBytes,
    Metric::SizeBytes,
];

/// A metric's name for people.
pub fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::CpuS => "CPU time",
        Metric::WallS => "Wall time",
        Metric::Instructions => "Instructions",
        Metric::PeakBytes => "Peak memory",
        Metric::PrivateBytes => "Private memory",
        Metric::CompileCpuS => "CPU time of compiling",
        Metric::CompileWallS => "Wall time of compiling",
        Metric::CompilePeakBytes => "Peak memory of compiling",
        Metric::StartS => "Start to exit",
        Metric::SizeBytes => "Size",
    }
}

/// A metric's name after "of" or "native's".
pub fn metric_noun(metric: Metric) -> &'static str {
    match metric {
        Metric::CpuS => "CPU time",
        Metric::WallS => "wall time",
        Metric::Instructions => "instructions",
        Metric::PeakBytes => "peak memory",
        Metric::PrivateBytes => "private memory",
        Metric::CompileCpuS => "CPU time of compiling",
        Metric::CompileWallS => "wall time of compiling",
        Metric::CompilePeakBytes => "peak memory of compiling",
        Metric::StartS => "time from start to exit",
        Metric::SizeBytes => "size",
    }
}

/// What is counted, in a sentence's end.
fn metric_meaning(metric: Metric) -> &'static str {
    match metric {
        Metric::CpuS => "user and system time of the process and of what it waited for",
        Metric::WallS => "from start to exit",
        Metric::Instructions => "as the processor counted them",
        Metric::PeakBytes => "the largest resident set of the process",
        Metric::PrivateBytes => "private dirty memory of one process while its guest sleeps",
        Metric::CompileCpuS => "user and system time of compiling ahead of time",
        Metric::CompileWallS => "from start to exit of compiling ahead of time",
        Metric::CompilePeakBytes => "the largest resident set of the compiler",
        Metric::StartS => "a module that does nothing, from start to exit",
        Metric::SizeBytes => "of a file, or of files together",
    }
}

/// What a metric counts.
pub fn kind(metric: Metric) -> Kind {
    match metric {
        Metric::CpuS | Metric::WallS | Metric::CompileCpuS | Metric::CompileWallS | Metric::StartS => {
            Kind::Seconds
        }
        Metric::PeakBytes | Metric::PrivateBytes | Metric::CompilePeakBytes | Metric::SizeBytes => {
            Kind::Bytes
        }
        Metric::Instructions => Kind::Count,
    }
}

/// A mode's name for people.
pub fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Native => "native",
        Mode::AheadOfTime => "ahead of time",
        Mode::JustInTime => "just in time",
        Mode::Interpreter => "interpreter",
    }
}

fn failure_name(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Missing => "missing",
        FailureKind::Unsupported => "unsupported",
        FailureKind::Crash => "crashed",
        FailureKind::Timeout => "too slow",
        FailureKind::WrongOutput => "wrong output",
        FailureKind::Interrupted => "not run",
    }
}

/// What the script needs to write names as they are written here.
#[derive(Serialize)]
pub struct Legend {
    metrics: Vec<LegendMetric>,
    modes: Vec<(Mode, &'static str)>,
    failures: BTreeMap<String, &'static str>,
}

#[derive(Serialize)]
struct LegendMetric {
    key: String,
    name: &'static str,
    meaning: &'static str,
    kind: Kind,
}

/// Names of metrics, modes and failures by their keys in the JSON.
pub fn legend() -> Legend {
    let failures = [
        FailureKind::Missing,
        FailureKind::Unsupported,
        FailureKind::Crash,
        FailureKind::Timeout,
        FailureKind::WrongOutput,
        FailureKind::Interrupted,
    ];
    Legend {
        metrics: METRICS
            .iter()
            .map(|metric| LegendMetric {
                key: key(*metric),
                name: metric_name(*metric),
                meaning: metric_meaning(*metric),
                kind: kind(*metric),
            })
            .collect(),
        modes: [Mode::Native, Mode::AheadOfTime, Mode::JustInTime, Mode::Interpreter]
            .iter()
            .map(|mode| (*mode, mode_name(*mode)))
            .collect(),
        failures: failures
            .iter()
            .filter_map(|kind| {
                let key = serde_json::to_value(kind).ok()?.as_str()?.to_string();
                Some((key, failure_name(*kind)))
            })
            .collect(),
    }
}

/// Four significant digits; whole numbers from 1000 on.
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_string();
    }
    if value == 0.0 {
        return "0".to_string();
    }
    let decimals = (3 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    format!("{value:.decimals$}")
}

/// A ratio: `1.047 ×`.
pub fn ratio(value: f64) -> String {
    format!("{} ×", significant(value))
}

/// A metric's value with its unit: `12.34 ms`, `5.120 MiB`.
pub fn quantity(metric: Metric, value: f64) -> String {
    let size = value.abs();
    let (scale, unit) = match kind(metric) {
        Kind::Seconds => match size {
            s if s >= 1.0 || s == 0.0 => (1.0, "s"),
            s if s >= 1e-3 => (1e-3, "ms"),
            s if s >= 1e-6 => (1e-6, "µs"),
            _ => (1e-9, "ns"),
        },
        Kind::Bytes => match size {
            b if b >= 1073741824.0 => (1073741824.0, "GiB"),
            b if b >= 1048576.0 => (1048576.0, "MiB"),
            b if b >= 1024.0 => (1024.0, "KiB"),
            _ => return format!("{value} B"),
        },
        Kind::Count => match size {
            n if n >= 1e9 => (1e9, "G"),
            n if n >= 1e6 => (1e6, "M"),
            n if n >= 1e3 => (1e3, "k"),
            _ => return format!("{value}"),
        },
    };
    format!("{} {unit}", significant(value / scale))
}

/// An interval: `1.200 to 1.300 ms`, the unit once where both have the same.
pub fn interval(metric: Metric, low: f64, high: f64) -> String {
    let (low, high) = (quantity(metric, low), quantity(metric, high));
    match low.split_once(' ') {
        Some((first, unit)) if high.split_once(' ').is_some_and(|(_, other)| other == unit) => {
            format!("{first} to {high}")
        }
        _ => format!("{low} to {high}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits() {
        for (value, text) in [
            (1.0, "1.000"),
            (1.04712, "1.047"),
            (0.98765, "0.9877"),
            (45.314, "45.31"),
            (132.44, "132.4"),
            (12345.6, "12346"),
            (0.0, "0"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(significant(value), text);
        }
    }

    #[test]
    fn units() {
        assert_eq!(quantity(Metric::CpuS, 0.012345), "12.35 ms");
        assert_eq!(quantity(Metric::CpuS, 2.5), "2.500 s");
        assert_eq!(quantity(Metric::StartS, 0.000_812), "812.0 µs");
        assert_eq!(quantity(Metric::PeakBytes, 5_368_709.0), "5.120 MiB");
        assert_eq!(quantity(Metric::SizeBytes, 512.0), "512 B");
        assert_eq!(quantity(Metric::Instructions, 1_234_567_890.0), "1.235 G");
    }

    #[test]
    fn an_interval_names_its_unit_once() {
        assert_eq!(interval(Metric::CpuS, 0.0123, 0.0131), "12.30 to 13.10 ms");
        assert_eq!(interval(Metric::CpuS, 0.98, 1.02), "980.0 ms to 1.020 s");
    }

    #[test]
    fn every_metric_has_a_legend() {
        let legend = legend();
        assert_eq!(legend.metrics.len(), METRICS.len());
        assert!(legend.metrics.iter().all(|metric| !metric.key.is_empty()));
        assert_eq!(legend.failures.len(), 6);
    }
}
