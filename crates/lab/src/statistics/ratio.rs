//! The ratio of two subjects on one workload, with its interval, and the verdict.

use super::{MAX_SAMPLES, distribution, median_of_sorted, moments, rank_interval, sorted, student_interval};
use crate::record::Verdict;

/// A difference within 1% is called nothing: the layout of code and stack alone moves programs by as much from build to build (Mytkowicz
/// et al., *Producing wrong data without doing anything obviously wrong*, 2009), and no reader should choose by it.
pub const MINIMAL_EFFECT: f64 = 0.01;

/// A ratio with its 95% interval; below 1 the subject needs less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The estimate.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The rounds that the interval comes from: the fewest of any workload for a mean. One has no interval: both ends are the estimate.
    pub rounds: usize,
}

impl Ratio {
    /// Faster or slower when the whole interval lies further from 1 than [`MINIMAL_EFFECT`]; else, and from one round, unsure.
    pub fn verdict(&self) -> Verdict {
        if self.rounds < 2 {
            return Verdict::Unsure;
        }
        self.verdict_exact()
    }

    /// The verdict on what has no noise (a file's size): one sample is enough.
    pub fn verdict_exact(&self) -> Verdict {
        if self.low > 1.0 + MINIMAL_EFFECT {
            Verdict::Slower
        } else if self.high < 1.0 / (1.0 + MINIMAL_EFFECT) {
            Verdict::Faster
        } else {
            Verdict::Unsure
        }
    }

    /// From an estimate and an interval of the logarithm.
    pub(super) fn from_logs(value: f64, (low, high): (f64, f64), rounds: usize) -> Self {
        let value = value.exp();
        Self { value, low: low.exp().min(value), high: high.exp().max(value), rounds }
    }
}

/// The logarithms of subject ÷ baseline, round by round. Rounds that one of them lacks, and values that are not positive, are left out.
pub fn log_ratios(subject: &[f64], baseline: &[f64]) -> Vec<f64> {
    subject
        .iter()
        .zip(baseline)
        .filter(|(subject, baseline)| usable(**subject) && usable(**baseline))
        .map(|(subject, baseline)| (subject / baseline).ln())
        .filter(|log| log.is_finite())
        .take(MAX_SAMPLES)
        .collect()
}

/// Below this many common rounds (a slow interpreter runs once or twice) a spread cannot be told from them.
const PAIRED_ROUNDS: usize = 3;

/// Subject ÷ baseline where the samples at the same place belong to the same round; none when one of them has none.
///
/// The estimate is Hodges and Lehmann's: the median of the averages of all pairs of log ratios (Walsh averages). From six rounds on the
/// interval is Wilcoxon's signed-rank one, exact whatever the noise is, as long as it is symmetric, which two subjects in random order
/// make it; with three to five, Student's t on the log ratios. With one or two, the pooled t on the logarithms of both: as if their noise
/// were alike, which lets the one with more rounds speak for the other.
pub fn paired(subject: &[f64], baseline: &[f64]) -> Option<Ratio> {
    let rounds = log_ratios(subject, baseline);
    if rounds.len() < PAIRED_ROUNDS {
        let Pooled { value, variance, degrees } = pooled(subject, baseline)?;
        let reach = distribution::student_975(degrees) * variance.sqrt();
        return Some(Ratio::from_logs(value, (value - reach, value + reach), degrees + 1));
    }
    let averages = walsh_averages(&rounds);
    let value = median_of_sorted(&averages)?;
    let interval = match distribution::signed_rank(rounds.len()) {
        Some(rank) => rank_interval(&averages, rank)?,
        None => student_interval(&rounds)?,
    };
    Some(Ratio::from_logs(value, interval, rounds.len()))
}

/// A log ratio from two samples whose noise is taken for alike.
pub(super) struct Pooled {
    pub value: f64,
    pub variance: f64,
    pub degrees: usize,
}

/// None when one of them has no sample, or enough common rounds to be paired.
pub(super) fn pooled(subject: &[f64], baseline: &[f64]) -> Option<Pooled> {
    if log_ratios(subject, baseline).len() >= PAIRED_ROUNDS {
        return None;
    }
    let (subject, baseline) = (logs(subject), logs(baseline));
    let value = median_of_sorted(&differences(&subject, &baseline))?;
    let mut squares = 0.0;
    let mut degrees = 0;
    let mut shares = 0.0;
    for logs in [&subject, &baseline] {
        let (_, variance) = moments(logs)?;
        squares += variance * (logs.len() - 1) as f64;
        degrees += logs.len() - 1;
        shares += 1.0 / logs.len() as f64;
    }
    Some(Pooled { value, variance: squares / (degrees as f64).max(1.0) * shares, degrees })
}

/// Subject ÷ baseline where their samples were taken apart.
///
/// The estimate is Hodges and Lehmann's for two samples: the median of all differences of logarithms. The interval is that of the rank-sum
/// test (Moses); where the samples are too few for it (fewer than four against four), Welch's t.
pub fn unpaired(subject: &[f64], baseline: &[f64]) -> Option<Ratio> {
    let (subject, baseline) = (logs(subject), logs(baseline));
    let differences = differences(&subject, &baseline);
    let value = median_of_sorted(&differences)?;
    let interval = match distribution::rank_sum(subject.len(), baseline.len()) {
        Some(rank) => rank_interval(&differences, rank)?,
        None => welch_interval(&subject, &baseline)?,
    };
    Some(Ratio::from_logs(value, interval, subject.len().min(baseline.len())))
}

fn usable(sample: f64) -> bool {
    sample > 0.0 && sample.is_finite()
}

/// The logarithms of the usable samples.
pub(super) fn logs(samples: &[f64]) -> Vec<f64> {
    samples.iter().filter(|sample| usable(**sample)).map(|sample| sample.ln()).take(MAX_SAMPLES).collect()
}

/// The averages of all pairs of values, each with itself too, in ascending order.
pub(super) fn walsh_averages(values: &[f64]) -> Vec<f64> {
    sorted(
        values
            .iter()
            .enumerate()
            .flat_map(|(place, one)| values.iter().skip(place).map(move |other| one + (other - one) / 2.0)),
    )
}

/// All differences between a value of the one and a value of the other, in ascending order.
pub(super) fn differences(subject: &[f64], baseline: &[f64]) -> Vec<f64> {
    sorted(subject.iter().flat_map(|one| baseline.iter().map(move |other| one - other)))
}

/// The interval of a difference of means whose variances may differ.
fn welch_interval(subject: &[f64], baseline: &[f64]) -> Option<(f64, f64)> {
    let (mean, variance) = moments(subject)?;
    let (base_mean, base_variance) = moments(baseline)?;
    let parts = [
        (variance / subject.len() as f64, subject.len() - 1),
        (base_variance / baseline.len() as f64, baseline.len() - 1),
    ];
    let error = parts.iter().map(|(part, _)| part).sum::<f64>().sqrt();
    let reach = distribution::student_975(welch_degrees(&parts)) * error;
    let difference = mean - base_mean;
    Some((difference - reach, difference + reach))
}

/// Welch and Satterthwaite's degrees of freedom of a sum of variances, each with its own.
pub(super) fn welch_degrees(parts: &[(f64, usize)]) -> usize {
    let all: f64 = parts.iter().map(|(part, _)| part).sum();
    let squares: f64 = parts.iter().map(|(part, degrees)| part.powi(2) / (*degrees).max(1) as f64).sum();
    let degrees = all.powi(2) / squares;
    if degrees.is_finite() {
        degrees.floor() as usize
    } else {
        // No noise at all.
        1
    }
}
