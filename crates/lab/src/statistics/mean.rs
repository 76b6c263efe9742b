//! Geometric means over workloads, with intervals from resampled rounds.
//!
//! The workloads are what they are: the mean is over these, not over all programs that there might be, so that only rounds are resampled,
//! within each workload. The workloads' estimates are independent; the variance of their mean is the sum of theirs.

use super::ratio::{
    Pooled, Ratio, differences, log_ratios, logs, paired, pooled, unpaired, walsh_averages, welch_degrees,
};
use super::{MAX_SAMPLES, distribution, median, median_of_sorted};

/// Resamples per workload. The variance of one workload is then good to 10%, that of a mean over twenty to 2%.
const RESAMPLES: usize = 200;

/// Seeds the resampling: the same samples give the same interval.
const SEED: u64 = 0x6d6f_7465_206c_6162;

/// One workload's samples of a subject and of the baseline.
pub type Pair<'a> = (&'a [f64], &'a [f64]);

/// The geometric mean of [`paired`] over workloads; workloads without a common round do not count.
pub fn paired_mean(workloads: &[Pair<'_>]) -> Option<Ratio> {
    if let [(subject, baseline)] = workloads {
        return paired(subject, baseline);
    }
    mean(workloads.iter().filter_map(|(subject, baseline)| {
        if let Some(pooled) = pooled(subject, baseline) {
            return Some(Estimate::of(pooled));
        }
        let logs = log_ratios(subject, baseline);
        let centre = |rounds: &[f64]| median_of_sorted(&walsh_averages(rounds));
        Estimate::resampled(logs.len(), centre(&logs)?, |places| centre(&pick(&logs, places)))
    }))
}

/// The geometric mean over workloads of the ratio of the medians, the rounds resampled together.
pub fn medians_mean(workloads: &[Pair<'_>]) -> Option<Ratio> {
    let ratio = |subject: &[f64], baseline: &[f64]| {
        let ratio = median(subject)? / median(baseline)?;
        (ratio > 0.0 && ratio.is_finite()).then(|| ratio.ln())
    };
    if let [(subject, baseline)] = workloads {
        let value = ratio(subject, baseline)?;
        let interval = paired(subject, baseline)?;
        return Some(Ratio::from_logs(value, (interval.low.ln(), interval.high.ln()), interval.rounds));
    }
    mean(workloads.iter().filter_map(|(subject, baseline)| {
        let value = ratio(subject, baseline)?;
        if let Some(pooled) = pooled(subject, baseline) {
            return Some(Estimate::of(Pooled { value, ..pooled }));
        }
        let rounds = subject.len().min(baseline.len()).min(MAX_SAMPLES);
        Estimate::resampled(rounds, value, |places| ratio(&pick(subject, places), &pick(baseline, places)))
    }))
}

/// The geometric mean of [`unpaired`] over workloads.
pub fn unpaired_mean(workloads: &[Pair<'_>]) -> Option<Ratio> {
    if let [(subject, baseline)] = workloads {
        return unpaired(subject, baseline);
    }
    mean(workloads.iter().filter_map(|(subject, baseline)| {
        let (subject, baseline) = (logs(subject), logs(baseline));
        let value = median_of_sorted(&differences(&subject, &baseline))?;
        // Each side is resampled by itself; the estimate's variance is the sum of what each contributes.
        let rounds = subject.len().min(baseline.len());
        let by_subject = Estimate::resampled(subject.len(), value, |places| {
            median_of_sorted(&differences(&pick(&subject, places), &baseline))
        })?;
        let by_baseline = Estimate::resampled(baseline.len(), value, |places| {
            median_of_sorted(&differences(&subject, &pick(&baseline, places)))
        })?;
        Some(Estimate {
            value,
            variance: by_subject.variance + by_baseline.variance,
            degrees: rounds.saturating_sub(1),
        })
    }))
}

/// A workload's estimate of the log ratio.
struct Estimate {
    value: f64,
    variance: f64,
    degrees: usize,
}

impl Estimate {
    fn of(pooled: Pooled) -> Self {
        let Pooled { value, variance, degrees } = pooled;
        Self { value, variance, degrees }
    }

    /// With the variance of `estimate` over resamples of `rounds` places.
    fn resampled(rounds: usize, value: f64, estimate: impl Fn(&[usize]) -> Option<f64>) -> Option<Self> {
        if rounds == 0 {
            return None;
        }
        let mut numbers = Numbers(SEED);
        let mut places = vec![0; rounds];
        let mut squares = 0.0;
        for _ in 0..RESAMPLES {
            places.fill_with(|| numbers.below(rounds));
            // Around the estimate itself, not around the resamples' mean: their bias is part of the error.
            squares += (estimate(&places)? - value).powi(2);
        }
        // Resamples of n values vary by (n - 1) / n of what samples of n vary by: of weight when n is 3.
        let short = rounds as f64 / (rounds as f64 - 1.0).max(1.0);
        Some(Self { value, variance: squares / RESAMPLES as f64 * short, degrees: rounds - 1 })
    }
}

/// The mean of the workloads' estimates, its interval by Student's t with Satterthwaite's degrees of freedom.
fn mean(estimates: impl Iterator<Item = Estimate>) -> Option<Ratio> {
    let estimates: Vec<Estimate> = estimates.collect();
    let rounds = estimates.iter().map(|estimate| estimate.degrees + 1).min()?;
    let count = estimates.len() as f64;
    let value = estimates.iter().map(|estimate| estimate.value).sum::<f64>() / count;
    let parts: Vec<(f64, usize)> =
        estimates.iter().map(|estimate| (estimate.variance, estimate.degrees)).collect();
    let error = parts.iter().map(|(variance, _)| variance).sum::<f64>().sqrt() / count;
    let reach = distribution::student_975(welch_degrees(&parts)) * error;
    Some(Ratio::from_logs(value, (value - reach, value + reach), rounds))
}

/// The values at these places.
fn pick(values: &[f64], places: &[usize]) -> Vec<f64> {
    places.iter().filter_map(|place| values.get(*place)).copied().collect()
}

/// Pseudo-random numbers (SplitMix64: Steele, Lea and Flood, 2014).
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}
