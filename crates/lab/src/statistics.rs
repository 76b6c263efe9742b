//! From samples to what may be said: medians and their intervals, outliers, ratios of two subjects, means over workloads, verdicts.
//!
//! Times on a shared machine are skewed, heavy-tailed and drift, so that nothing here supposes a normal distribution where ranks do. A
//! single cell is [`summarise`]d. Two subjects are compared round by round ([`paired`]): both of a round ran close to each other and in
//! random order, so that drift cancels and, when they are the same, the logarithm of their ratio is as likely above zero as below, by any
//! amount. That symmetry is all that the signed-rank interval asks for. Two runs on different days are compared by [`unpaired`]. A geometric
//! mean over workloads ([`paired_mean`]) gets its interval from resampled rounds within each workload. [`Ratio::verdict`] says the rest.
//! docs/lab-method.md explains the choices.

mod distribution;
mod mean;
mod ratio;

pub use mean::{medians_mean, paired_mean, unpaired_mean};
pub use ratio::{MINIMAL_EFFECT, Ratio, log_ratios, paired, unpaired};

use crate::record::Series;

/// Samples beyond this many are not used for intervals and ratios: the work grows with their square, and no suite asks for as many.
pub const MAX_SAMPLES: usize = 512;

/// A modified z-score beyond this names an outlier (Iglewicz and Hoaglin, *How to Detect and Handle Outliers*, 1993).
const OUTLIER_SCORE: f64 = 3.5;

/// The median deviation of a normal distribution with a standard deviation of 1.
const NORMAL_DEVIATION: f64 = 0.6745;

/// Deviations below this part of the median are no outliers, however narrow the rest lies: clocks and page counts are not finer.
const OUTLIER_FLOOR: f64 = 0.001;

/// Among fewer samples than these none can be told from the others.
const OUTLIER_SAMPLES: usize = 4;

/// The samples with their median, its 95% interval and the places of the outliers. Without a finite sample the estimates are zero.
pub fn summarise(samples: &[f64]) -> Series {
    let (low, high) = median_interval(samples).unwrap_or_default();
    Series {
        samples: samples.to_vec(),
        median: median(samples).unwrap_or_default(),
        low,
        high,
        outliers: outliers(samples),
    }
}

/// The median of the finite samples; the middle of the two in the middle when their number is even.
pub fn median(samples: &[f64]) -> Option<f64> {
    median_of_sorted(&sorted(samples.iter().copied()))
}

/// A 95% interval of the median.
///
/// From six samples on it is distribution-free: two order statistics that hold the median with at least 95% whatever the distribution. Below
/// six even the smallest and the largest hold it with less (93.8% for five, 75% for three), and resampling three values cannot show what
/// they do not hold; so it is Student's t on the logarithms there (on the values themselves when one is not positive), widened where it does
/// not reach the median. It supposes log-normal samples, and is wide: 2.5 standard deviations to each side for three. A single sample is its
/// own interval.
pub fn median_interval(samples: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(samples.iter().copied().take(MAX_SAMPLES));
    let middle = median_of_sorted(&sorted)?;
    if sorted.first() == sorted.last() {
        return Some((middle, middle));
    }
    if let Some(rank) = distribution::median_rank(sorted.len()) {
        return rank_interval(&sorted, rank);
    }
    let positive = sorted.first().is_some_and(|least| *least > 0.0);
    let (low, high) = if positive {
        let logs: Vec<f64> = sorted.iter().map(|sample| sample.ln()).collect();
        let (low, high) = student_interval(&logs)?;
        (low.exp(), high.exp())
    } else {
        student_interval(&sorted)?
    };
    Some((low.min(middle), high.max(middle)))
}

/// The places of the samples whose modified z-score, 0.6745 × (deviation from the median) ÷ (median deviation), is above 3.5.
pub fn outliers(samples: &[f64]) -> Vec<usize> {
    let Some(middle) = median(samples) else {
        return Vec::new();
    };
    if samples.len() < OUTLIER_SAMPLES {
        return Vec::new();
    }
    let deviation = median_deviation(samples, middle);
    samples
        .iter()
        .enumerate()
        .filter(|(_, sample)| {
            let distance = (*sample - middle).abs();
            distance > OUTLIER_FLOOR * middle.abs() && distance > OUTLIER_SCORE * deviation / NORMAL_DEVIATION
        })
        .map(|(place, _)| place)
        .collect()
}

/// A standard deviation that outliers do not move: the median deviation from the median ÷ 0.6745. Zero without samples.
pub fn spread(samples: &[f64]) -> f64 {
    median(samples).map_or(0.0, |middle| median_deviation(samples, middle) / NORMAL_DEVIATION)
}

/// The median of the distances from the median.
fn median_deviation(samples: &[f64], middle: f64) -> f64 {
    let distances = sorted(samples.iter().map(|sample| (sample - middle).abs()));
    median_of_sorted(&distances).unwrap_or_default()
}

/// The finite values in ascending order.
fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(lower + (upper - lower) / 2.0)
}

/// The `rank`-th smallest and the `rank`-th largest value.
fn rank_interval(sorted: &[f64], rank: usize) -> Option<(f64, f64)> {
    let low = sorted.get(rank.checked_sub(1)?)?;
    let high = sorted.get(sorted.len().checked_sub(rank)?)?;
    Some((*low, *high))
}

/// The mean's interval by Student's t; a single value is its own.
fn student_interval(values: &[f64]) -> Option<(f64, f64)> {
    let (mean, variance) = moments(values)?;
    let error = (variance / values.len() as f64).sqrt();
    let reach = distribution::student_975(values.len() - 1) * error;
    Some((mean - reach, mean + reach))
}

/// Mean and variance (of the population that the values are drawn from); none without values.
fn moments(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, squares / (count - 1.0).max(1.0)))
}

#[cfg(test)]
mod tests;
