use super::mean::Numbers;
use super::*;
use crate::record::Verdict;

fn near(one: f64, other: f64, within: f64) -> bool {
    (one - other).abs() <= within
}

/// NIST/SEMATECH e-Handbook of Statistical Methods, 7.1.6 "What are outliers in the data?": 90 values, of which 1441 is the one outlier.
const NIST_OUTLIERS: [f64; 90] = [
    30., 171., 184., 201., 212., 250., 265., 270., 272., 289., 305., 306., 322., 322., 336., 346., 351.,
    370., 390., 404., 409., 411., 436., 437., 439., 441., 444., 448., 451., 453., 470., 480., 482., 487.,
    494., 495., 499., 503., 514., 521., 522., 527., 548., 550., 559., 560., 570., 572., 574., 578., 585.,
    592., 592., 607., 616., 618., 621., 629., 637., 638., 640., 656., 668., 707., 709., 719., 737., 739.,
    752., 758., 766., 792., 792., 794., 802., 818., 830., 832., 843., 858., 860., 869., 918., 925., 953.,
    991., 1000., 1005., 1068., 1441.,
];

#[test]
fn outlier_of_the_handbook() {
    assert_eq!(median(&NIST_OUTLIERS), Some(559.5));
    assert_eq!(outliers(&NIST_OUTLIERS), [89]);
}

#[test]
fn median_interval_of_snedecor_and_cochran() {
    // The example of ci.median in R's package statpsych, after Snedecor and Cochran, Statistical Methods, 8th edition: 20.7 (10.8 to 30.9).
    let samples = [
        30.2, 20.4, 15.1, 10.2, 10.5, 60.8, 20.8, 25.0, 20.7, 30.9, 10.8, 5.1, 50.9, 40.0, 20.9, 10.8, 0.0,
        20.5, 50.8,
    ];
    let series = summarise(&samples);
    assert_eq!((series.median, series.low, series.high), (20.7, 10.8, 30.9));
}

#[test]
fn signed_rank_interval_of_the_membrane_data() {
    // Permeability of a membrane (Iowa State University, Stat 403): the Hodges-Lehmann estimate of ten values is 1.385, the 95.2% interval
    // from the 9th to the 47th of 55 Walsh averages 1.13 to 1.67.
    let data: [f64; 10] = [0.90, 1.13, 1.89, 1.14, 1.45, 1.38, 1.91, 1.64, 0.83, 1.46];
    let powers: Vec<f64> = data.iter().map(|value| value.exp()).collect();
    let ratio = paired(&powers, &[1.0; 10]).unwrap();
    assert!(near(ratio.value.ln(), 1.385, 0.000_5), "{ratio:?}");
    assert!(near(ratio.low.ln(), 1.13, 0.006), "{ratio:?}");
    assert!(near(ratio.high.ln(), 1.67, 0.006), "{ratio:?}");
    assert_eq!(ratio.rounds, 10);
}

#[test]
fn student_interval_of_the_sleep_data() {
    // Student, "The probable error of a mean" (1908): additional hours of sleep, ten patients, differences of two drugs; mean 1.58, 95% interval
    // 0.7001 to 2.4599 (R's t.test on its data set `sleep`).
    let differences = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
    let (low, high) = student_interval(&differences).unwrap();
    assert!(near(low, 0.7001, 0.0005) && near(high, 2.4599, 0.0005), "{low} {high}");
}

#[test]
fn rank_sum_interval_of_hollander_and_wolfe() {
    // Hollander, Wolfe and Chicken's depression scores taken as two samples: SAS NPAR1WAY gives a shift of 0.5600 and
    // Moses's 95% limits -0.3700 and 1.1830 (CAMIS, "Non-parametric point estimation in SAS").
    let x: [f64; 9] = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30];
    #[allow(clippy::approx_constant)]
    let y: [f64; 9] = [0.878, 0.647, 0.598, 2.050, 1.060, 1.290, 1.060, 3.140, 1.290];
    let powers = |values: &[f64]| values.iter().map(|value| value.exp()).collect::<Vec<_>>();
    let ratio = unpaired(&powers(&x), &powers(&y)).unwrap();
    assert!(near(ratio.value.ln(), 0.56, 0.000_5), "{ratio:?}");
    assert!(near(ratio.low.ln(), -0.37, 0.000_5), "{}", ratio.low.ln());
    assert!(near(ratio.high.ln(), 1.183, 0.000_5), "{}", ratio.high.ln());
}

#[test]
fn few_samples_have_wide_intervals() {
    let series = summarise(&[1.0, 1.1, 1.2]);
    assert_eq!(series.median, 1.1);
    // Student's t on the logarithms: exp(mean ± 4.303 × 0.0912 / √3).
    assert!(near(series.low, 0.876, 0.002) && near(series.high, 1.377, 0.002), "{series:?}");
    let one = summarise(&[5.0]);
    assert_eq!((one.median, one.low, one.high), (5.0, 5.0, 5.0));
    assert!(one.outliers.is_empty());
    let ratio = paired(&[2.0], &[1.0]).unwrap();
    assert!(
        near(ratio.value, 2.0, 1e-12) && ratio.low == ratio.value && ratio.high == ratio.value,
        "{ratio:?}"
    );
    assert_eq!(ratio.verdict(), Verdict::Unsure);
    assert_eq!(ratio.verdict_exact(), Verdict::Slower);
}

#[test]
fn one_round_of_the_one_borrows_the_noise_of_the_other() {
    // As measured on an interpreter that takes too long for more rounds.
    let (slow, fast) = ([10.4], [1.0, 1.05, 0.97, 1.02, 0.99, 1.01, 1.2]);
    let ratio = paired(&slow, &fast).unwrap();
    assert!(near(ratio.value, 10.4 / 1.01, 0.01), "{ratio:?}");
    // The deviation of fast's logarithms is 0.0706: exp(± 2.447 × 0.0706 × √(1 + 1/7)).
    assert!(near(ratio.high / ratio.value, 1.203, 0.002), "{ratio:?}");
    assert_eq!(ratio.verdict(), Verdict::Slower);
    for mean in [paired_mean, medians_mean] {
        let mean = mean(&[(&slow, &fast), (&slow, &fast)]).unwrap();
        assert_eq!(mean.verdict(), Verdict::Slower);
        assert!(near(mean.value, ratio.value, 1e-9) && mean.high < ratio.high, "{mean:?}");
    }
    for counts in [[1, 7], [1, 3], [2, 7]] {
        let same = verdicts(1000, |seed| {
            let mut samples = Noise::new(seed, 0.05).rounds(7, &[1.0, 1.0]);
            samples.iter_mut().zip(counts).for_each(|(samples, count)| samples.truncate(count));
            paired(&samples[0], &samples[1]).unwrap()
        });
        println!("A/A, {counts:?} rounds: faster, slower, unsure {same:?}");
        assert!(same[2] >= 930, "{counts:?}: {same:?}");
    }
}

#[test]
fn nothing_and_nonsense_give_no_estimate() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[f64::NAN]), None);
    assert_eq!(summarise(&[]).median, 0.0);
    assert_eq!(paired(&[], &[1.0]), None);
    assert_eq!(paired(&[0.0, -1.0, f64::NAN], &[1.0; 3]), None);
    assert_eq!(paired(&[1.0; 3], &[0.0, f64::INFINITY, -0.0]), None);
    assert_eq!(unpaired(&[1.0], &[]), None);
    assert_eq!(paired_mean(&[]), None);
    assert_eq!(medians_mean(&[(&[], &[]), (&[0.0], &[0.0])]), None);
    let series = summarise(&[-1.0, 0.0, 1.0]);
    assert!(series.low < 0.0 && series.high > 0.0);
    let extremes = [f64::MIN_POSITIVE, f64::MAX];
    let ratio = paired(&extremes, &[1.0, 1.0]).unwrap();
    assert!(!ratio.low.is_nan() && !ratio.high.is_nan());
}

#[test]
fn a_mean_without_noise_is_the_geometric_mean() {
    let (one, two, three, six) = ([1.0; 7], [2.0; 7], [3.0; 7], [6.0; 7]);
    for mean in [paired_mean, medians_mean, unpaired_mean] {
        let ratio = mean(&[(&two, &one), (&three, &one), (&six, &two)]).unwrap();
        assert!(near(ratio.value, 18f64.cbrt(), 1e-12), "{ratio:?}");
        assert!(near(ratio.low, ratio.value, 1e-9) && near(ratio.high, ratio.value, 1e-9), "{ratio:?}");
        assert_eq!(ratio.verdict(), Verdict::Slower);
        let (faster, same) =
            (mean(&[(&one, &two), (&one, &three)]).unwrap(), mean(&[(&one, &one), (&two, &two)]).unwrap());
        assert_eq!((faster.verdict(), same.verdict()), (Verdict::Faster, Verdict::Unsure));
    }
}

#[test]
fn differences_below_the_minimal_effect_are_nothing() {
    let one = [1.0; 7];
    assert_eq!(paired(&[1.009; 7], &one).unwrap().verdict(), Verdict::Unsure);
    assert_eq!(paired(&[1.011; 7], &one).unwrap().verdict(), Verdict::Slower);
    assert_eq!(paired(&one, &[1.011; 7]).unwrap().verdict(), Verdict::Faster);
}

/// Noise as seen on a shared virtual machine: a load that wanders and that all runs of a round share, a spread of each run, one-sided bursts.
struct Noise {
    numbers: Numbers,
    load: f64,
    spread: f64,
}

impl Noise {
    fn new(seed: u64, spread: f64) -> Self {
        Self { numbers: Numbers(seed), load: 0.0, spread }
    }

    /// Between 0 and 1.
    fn unit(&mut self) -> f64 {
        (self.numbers.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// The load of the next run wanders on.
    fn time(&mut self, seconds: f64) -> f64 {
        self.load = 0.98 * self.load + 0.02 * self.normal();
        let burst = if self.unit() < 0.1 { -2.0 * self.spread * (1.0 - self.unit()).ln() } else { 0.0 };
        seconds * (self.load + self.spread * self.normal() + burst).exp()
    }

    /// `rounds` rounds of subjects with these times, in random order within each.
    fn rounds(&mut self, rounds: usize, times: &[f64]) -> Vec<Vec<f64>> {
        let mut samples = vec![Vec::with_capacity(rounds); times.len()];
        for _ in 0..rounds {
            let mut order: Vec<usize> = (0..times.len()).collect();
            for place in (1..order.len()).rev() {
                order.swap(place, self.numbers.below(place + 1));
            }
            for subject in order {
                let time = self.time(times[subject]);
                samples[subject].push(time);
            }
        }
        samples
    }
}

/// How often subject ÷ baseline is called faster, slower and unsure.
fn verdicts(runs: u64, mut run: impl FnMut(u64) -> Ratio) -> [u64; 3] {
    let mut counts = [0; 3];
    for seed in 0..runs {
        match run(seed).verdict() {
            Verdict::Faster => counts[0] += 1,
            Verdict::Slower => counts[1] += 1,
            Verdict::Unsure => counts[2] += 1,
        }
    }
    counts
}

#[test]
fn a_subject_against_itself_is_unsure() {
    for (rounds, spread) in [(2, 0.05), (3, 0.03), (3, 0.1), (7, 0.03), (7, 0.1), (15, 0.1)] {
        let counts = verdicts(1000, |seed| {
            let samples = Noise::new(seed, spread).rounds(rounds, &[1.0, 1.0]);
            paired(&samples[0], &samples[1]).unwrap()
        });
        println!("A/A, {rounds} rounds, spread {spread}: faster, slower, unsure {counts:?}");
        assert!(counts[2] >= 950, "{rounds} rounds, spread {spread}: {counts:?}");
    }
}

/// The table of docs/lab-method.md.
#[test]
fn how_many_rounds_find_five_percent() {
    for (rounds, spread, least) in
        [(7, 0.01, 800), (7, 0.03, 250), (15, 0.01, 980), (30, 0.03, 930), (60, 0.05, 900)]
    {
        let slow = verdicts(1000, |seed| {
            let samples = Noise::new(seed, spread).rounds(rounds, &[1.05, 1.0]);
            paired(&samples[0], &samples[1]).unwrap()
        });
        println!("5% slower, {rounds} rounds, spread {spread}: faster, slower, unsure {slow:?}");
        assert!(slow[1] >= least && slow[0] <= 5, "{rounds} rounds, spread {spread}: {slow:?}");
    }
}

/// Samples of a group of workloads, subject and baseline.
fn group(seed: u64, workloads: usize, rounds: usize, spread: f64, slower: f64) -> Vec<Vec<Vec<f64>>> {
    let mut noise = Noise::new(seed, spread);
    (0..workloads).map(|_| noise.rounds(rounds, &[slower, 1.0])).collect()
}

fn pairs(group: &[Vec<Vec<f64>>]) -> Vec<(&[f64], &[f64])> {
    group.iter().map(|samples| (samples[0].as_slice(), samples[1].as_slice())).collect()
}

/// A mean over workloads: [`paired_mean`] or [`medians_mean`].
type Mean = fn(&[(&[f64], &[f64])]) -> Option<Ratio>;

#[test]
fn a_group_against_itself_is_unsure_and_a_slow_one_slower() {
    const RUNS: u64 = 100;
    for (workloads, rounds, spread) in [(2, 7, 0.1), (5, 3, 0.1), (20, 3, 0.03), (20, 7, 0.05)] {
        for (name, mean) in [("paired", paired_mean as Mean), ("medians", medians_mean)] {
            let mut held = 0;
            let same = verdicts(RUNS, |seed| {
                let ratio = mean(&pairs(&group(seed, workloads, rounds, spread, 1.0))).unwrap();
                held += u64::from(ratio.low <= 1.0 && ratio.high >= 1.0);
                ratio
            });
            let what = format!("{name}, {workloads} workloads, {rounds} rounds, spread {spread}");
            println!("{what}: A/A {same:?}, 1 held {held} of {RUNS}");
            // 95 less two standard deviations of a count of 100.
            assert!(held >= 90, "{what}: the interval holds 1 {held} of {RUNS} times");
            assert!(same[2] >= 95, "{what}: {same:?}");
            if workloads == 20 && name == "paired" {
                let slow = verdicts(RUNS, |seed| {
                    mean(&pairs(&group(seed, workloads, rounds, spread, 1.05))).unwrap()
                });
                println!("{what}: 5% slower {slow:?}");
                assert!(slow[1] >= 95, "{what}: 5% slower {slow:?}");
            }
        }
    }
}

#[test]
fn estimates_follow_the_scale_and_the_inverse() {
    // Properties over random samples: a unit changes nothing, exchanging the two inverts, the interval holds the estimate.
    let mut noise = Noise::new(7, 0.2);
    for case in 0..300 {
        let rounds = 1 + case % 40;
        let samples = noise.rounds(rounds, &[1.3, 1.0]);
        let (subject, baseline) = (&samples[0], &samples[1]);
        let scaled: Vec<f64> = subject.iter().map(|sample| sample * 1e-9).collect();
        let scaled_baseline: Vec<f64> = baseline.iter().map(|sample| sample * 1e-9).collect();
        for estimate in [paired, unpaired] {
            let ratio = estimate(subject, baseline).unwrap();
            assert!(ratio.low <= ratio.value && ratio.value <= ratio.high, "{ratio:?}");
            let same = estimate(&scaled, &scaled_baseline).unwrap();
            let inverse = estimate(baseline, subject).unwrap();
            for (one, other) in [
                (ratio.value, same.value),
                (ratio.low, same.low),
                (ratio.high, same.high),
                (ratio.value, 1.0 / inverse.value),
                (ratio.low, 1.0 / inverse.high),
            ] {
                assert!(near(one, other, 1e-9 * one), "{rounds} rounds: {ratio:?} {same:?} {inverse:?}");
            }
        }
        let series = summarise(subject);
        assert!(series.low <= series.median && series.median <= series.high);
        assert!(series.outliers.iter().all(|place| *place < rounds));
        assert_eq!(series.samples, *subject);
    }
}
