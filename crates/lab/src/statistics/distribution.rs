//! The null distributions behind the intervals: the binomial of the sign test, Wilcoxon's signed-rank and rank-sum statistics, Student's t.
//!
//! All are for two-sided intervals of at least 95%. Counts are exact up to the sizes named here and normal approximations beyond.

/// The probability that an interval may miss on both sides together.
const ALPHA: f64 = 0.05;

/// The 0.975 quantile of the standard normal distribution.
const Z_975: f64 = 1.959_963_984_540_054;

/// The largest sample for which the binomial is summed exactly: 2⁻⁵⁰⁰ is far from the smallest double.
const EXACT_BINOMIAL: usize = 500;

/// The largest sample for which the signed-rank statistic is counted exactly.
const EXACT_SIGNED_RANK: usize = 50;

/// The largest sample on either side for which the rank-sum statistic is counted exactly.
const EXACT_RANK_SUM: usize = 30;

/// Student's t, 0.975 quantiles for 1 to 30 degrees of freedom (NIST/SEMATECH e-Handbook, section 1.3.6.7.2).
const STUDENT_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The 0.975 quantile of Student's t. No degree of freedom counts as one.
pub fn student_975(degrees: usize) -> f64 {
    let degrees = degrees.max(1);
    if let Some(quantile) = STUDENT_975.get(degrees - 1) {
        return *quantile;
    }
    // Abramowitz and Stegun, 26.7.5, the first two terms: from 31 degrees on good to four digits.
    let (z, n) = (Z_975, degrees as f64);
    z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
}

/// The k for which the k-th smallest and the k-th largest of `n` values hold the median with at least 95%; none below 6 values.
pub fn median_rank(n: usize) -> Option<usize> {
    if n > EXACT_BINOMIAL {
        // P(B ≤ k - 1) with continuity correction.
        return Some(rank_below(n as f64 / 2.0, n as f64 / 4.0));
    }
    let mut mass = 0.5_f64.powi(i32::try_from(n).ok()?);
    let mut tail = 0.0;
    let mut rank = 0;
    for below in 0..n {
        tail += mass;
        if 2.0 * tail > ALPHA {
            break;
        }
        rank = below + 1;
        mass *= (n - below) as f64 / (below + 1) as f64;
    }
    (rank > 0).then_some(rank)
}

/// The k for which the k-th smallest and the k-th largest Walsh average of `n` values hold the centre with at least 95%; none below 6.
pub fn signed_rank(n: usize) -> Option<usize> {
    if n > EXACT_SIGNED_RANK {
        let n = n as f64;
        return Some(rank_below(n * (n + 1.0) / 4.0, n * (n + 1.0) * (2.0 * n + 1.0) / 24.0));
    }
    // How many of the 2ⁿ sets of ranks have each sum.
    let mut counts = vec![0.0; n * (n + 1) / 2 + 1];
    if let Some(first) = counts.first_mut() {
        *first = 1.0;
    }
    for rank in 1..=n {
        let shifted = std::iter::repeat_n(0.0, rank).chain(counts.iter().copied());
        counts = counts.iter().zip(shifted).map(|(without, with)| without + with).collect();
    }
    rank_within(&counts, 2.0_f64.powi(i32::try_from(n).ok()?))
}

/// The k for which the k-th smallest and the k-th largest of the `n * m` differences hold the shift between two samples with at least 95%;
/// none when the samples are too few (4 against 4 suffice).
pub fn rank_sum(n: usize, m: usize) -> Option<usize> {
    if n == 0 || m == 0 {
        return None;
    }
    if n > EXACT_RANK_SUM || m > EXACT_RANK_SUM {
        let (n, m) = (n as f64, m as f64);
        return Some(rank_below(n * m / 2.0, n * m * (n + m + 1.0) / 12.0)).filter(|_| n.min(m) >= 4.0);
    }
    // The coefficients of the Gaussian binomial (n + m over n): the product of (1 - q^(m+i)) / (1 - q^i) for i from 1 to n.
    let mut counts = vec![0.0; n * m / 2 + 1];
    if let Some(first) = counts.first_mut() {
        *first = 1.0;
    }
    let mut all = 1.0;
    for i in 1..=n {
        let shifted = std::iter::repeat_n(0.0, m + i).chain(counts.iter().copied());
        let product: Vec<f64> = counts.iter().zip(shifted).map(|(one, other)| one - other).collect();
        counts.clear();
        for (place, value) in product.iter().enumerate() {
            let before = place.checked_sub(i).and_then(|place| counts.get(place)).copied();
            counts.push(value + before.unwrap_or(0.0));
        }
        all *= (m + i) as f64 / i as f64;
    }
    rank_within(&counts, all)
}

/// The largest k with 2 P(statistic ≤ k - 1) ≤ 5%, from how often each value of the statistic comes.
fn rank_within(counts: &[f64], all: f64) -> Option<usize> {
    let mut tail = 0.0;
    let rank = counts
        .iter()
        .take_while(|count| {
            tail += **count / all;
            2.0 * tail <= ALPHA
        })
        .count();
    (rank > 0).then_some(rank)
}

/// [`rank_within`] of a normal distribution, with continuity correction.
fn rank_below(mean: f64, variance: f64) -> usize {
    (mean + 0.5 - Z_975 * variance.sqrt()).floor().max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_as_tabled() {
        // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, column 0.975.
        for (degrees, quantile) in
            [(1, 12.706), (6, 2.447), (30, 2.042), (31, 2.040), (60, 2.000), (100, 1.984)]
        {
            assert!((student_975(degrees) - quantile).abs() < 0.0006, "{degrees}");
        }
        assert_eq!(student_975(0), 12.706);
        assert!((student_975(usize::MAX) - 1.96).abs() < 0.0001);
    }

    #[test]
    fn median_ranks_as_tabled() {
        // The textbook table "confidence intervals for the population median": n, rank of the narrowest interval with at least 95%.
        let tabled = [
            (6, 1),
            (7, 1),
            (8, 1),
            (9, 2),
            (10, 2),
            (11, 2),
            (12, 3),
            (13, 3),
            (15, 4),
            (17, 5),
            (18, 5),
            (19, 5),
            (20, 6),
        ];
        for (n, rank) in tabled {
            assert_eq!(median_rank(n), Some(rank), "{n}");
        }
        for few in 0..6 {
            assert_eq!(median_rank(few), None, "{few}");
        }
        // The approximation goes on where the exact sum ends.
        let (exact, approximate) = (median_rank(500).unwrap(), median_rank(501).unwrap());
        assert!(exact.abs_diff(approximate) <= 1, "{exact} {approximate}");
    }

    #[test]
    fn signed_ranks_as_tabled() {
        // Two-sided 5% critical values T of Wilcoxon's signed-rank test (Zar, Biostatistical Analysis, table B.12); k is T + 1.
        let tabled = [
            (6, 0),
            (7, 2),
            (8, 3),
            (9, 5),
            (10, 8),
            (11, 10),
            (12, 13),
            (15, 25),
            (20, 52),
            (25, 89),
            (30, 137),
            (50, 434),
        ];
        for (n, critical) in tabled {
            assert_eq!(signed_rank(n), Some(critical + 1), "{n}");
        }
        for few in 0..6 {
            assert_eq!(signed_rank(few), None, "{few}");
        }
        let (exact, approximate) = (signed_rank(50).unwrap(), signed_rank(51).unwrap());
        assert!(approximate > exact && approximate < exact + 30, "{exact} {approximate}");
    }

    #[test]
    fn rank_sums_as_tabled() {
        // Two-sided 5% critical values U of the Mann-Whitney test (the same book's table B.11 gives their complements n * m - U).
        let tabled = [
            ((4, 4), 0),
            ((5, 5), 2),
            ((3, 5), 0),
            ((6, 6), 5),
            ((7, 7), 8),
            ((10, 10), 23),
            ((5, 10), 8),
            ((20, 20), 127),
        ];
        for ((n, m), critical) in tabled {
            assert_eq!(rank_sum(n, m), Some(critical + 1), "{n} {m}");
            assert_eq!(rank_sum(m, n), Some(critical + 1), "{m} {n}");
        }
        assert_eq!(rank_sum(3, 3), None);
        assert_eq!(rank_sum(0, 9), None);
        let (exact, approximate) = (rank_sum(30, 30).unwrap(), rank_sum(31, 30).unwrap());
        assert!(approximate > exact && approximate < exact + 20, "{exact} {approximate}");
    }
}
