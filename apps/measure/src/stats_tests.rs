//! Intervals of cases with known results.

#[path = "stats_random.rs"]
mod random;

use super::*;
use random::Random;

impl Random {
    /// Times of about 10 with a few per cent of noise; one in 20 is interrupted.
    fn times(&mut self, count: usize, factor: f64) -> Vec<f64> {
        let mut one = || {
            let normal =
                (-2. * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
            let interrupted = if self.uniform() < 0.05 { 1.5 } else { 1. };
            10. * factor * (0.03 * normal).exp() * interrupted
        };
        (0..count).map(|_| one()).collect()
    }
}

#[test]
fn chances_are_those_of_the_published_table() {
    // The largest U that Mann and Whitney's table rejects at 5 %, two-sided.
    for (old, new, rejected) in [
        (4, 4, 0),
        (5, 5, 2),
        (6, 6, 5),
        (8, 8, 13),
        (10, 10, 23),
        (5, 10, 8),
        (15, 15, 64),
        (20, 20, 127),
    ] {
        assert_eq!(outside(old, new), rejected, "{old} {new}");
        assert_eq!(outside(new, old), rejected, "{new} {old}");
    }
    // Beyond exact counts, the normal distribution continues where they end.
    let (counted, normal) = (outside(40, 40), outside(40, 41));
    assert!(counted < normal && normal < counted + 24, "{counted} {normal}");
    let sum: f64 = chances(7, 9).iter().sum();
    assert!((sum - 1.).abs() < 1e-12, "{sum}");
}

#[test]
fn noise_alone_seldom_raises_an_alarm() {
    // Five per cent of the pairs, plus three standard deviations of that count.
    for (count, pairs, shown_max) in [(5, 1_000, 71), (20, 400, 33), (45, 100, 11)] {
        let (mut shown, mut alarms) = (0, 0);
        for seed in 0..pairs {
            let mut random = Random(seed << 32);
            let (old, new) = (random.times(count, 1.), random.times(count, 1.));
            let ratio = ratio(&old, &new).expect("enough values");
            shown += usize::from(ratio.verdict(Better::Lower) != Verdict::NoDifferenceShown);
            alarms += usize::from(ratio.is_regression(Better::Lower, 0.05));
        }
        assert!(shown <= shown_max, "{shown} of {pairs} with {count} values");
        assert_eq!(alarms, 0, "with {count} values and a tolerance");
    }
}

#[test]
fn a_fifth_more_is_found() {
    // With five values, two interrupted ones hide the change.
    for (count, found_min) in [(5, 75), (20, 100)] {
        let mut found = 0;
        for seed in 0..100u64 {
            let mut random = Random(seed << 32 | 1);
            let (old, new) = (random.times(count, 1.), random.times(count, 1.2));
            let slower = ratio(&old, &new).expect("enough values");
            let faster = ratio(&new, &old).expect("as before");
            found += usize::from(slower.is_regression(Better::Lower, 0.05));
            let verdicts = [slower, faster].map(|ratio| ratio.verdict(Better::Lower));
            let one_sided = verdicts == [Verdict::Worse, Verdict::Better];
            assert!(one_sided || verdicts == [Verdict::NoDifferenceShown; 2], "{verdicts:?}");
            assert!(!faster.is_regression(Better::Lower, 0.05));
            assert_eq!(faster.is_regression(Better::Higher, 0.05), faster.high < 0.95);
            assert!(!slower.is_regression(Better::Neither, 0.05));
            assert!((slower.estimate * faster.estimate - 1.).abs() < 0.01);
        }
        assert!(found >= found_min, "{found} of 100 with {count} values");
    }
}

#[test]
fn shifts_are_measured() {
    for factor in [0.5, 0.9, 1., 1.1, 3.] {
        let mut inside = 0;
        for seed in 0..100u64 {
            let mut random = Random(seed << 32 | 2);
            let (old, new) = (random.times(20, 1.), random.times(20, factor));
            let Ratio { estimate, low, high } = ratio(&old, &new).expect("enough values");
            assert!(low <= estimate && estimate <= high);
            assert!((estimate / factor - 1.).abs() < 0.05, "{estimate}");
            inside += usize::from(low <= factor && factor <= high);
        }
        assert!(inside >= 88, "{inside} of 100 intervals have {factor}");
    }
}

#[test]
fn odd_values_have_an_answer_or_none() {
    let same = [7.; 6];
    let all = |values: &[f64]| ratio(&[1., 2., 3., 4., 5.], values);
    assert_eq!(ratio(&same, &same), Some(Ratio { estimate: 1., low: 1., high: 1. }));
    assert_eq!(ratio(&[0.; 4], &[0.; 4]), Some(Ratio { estimate: 1., low: 1., high: 1. }));
    let errors = ratio(&[0.; 5], &[1.; 5]).expect("five values each");
    assert!(errors.low.is_infinite() && errors.is_regression(Better::Lower, 0.05));
    let gone = ratio(&[1.; 5], &[0.; 5]).expect("five values each");
    assert_eq!((gone.high, gone.verdict(Better::Lower)), (0., Verdict::Better));
    for values in [&[1.; 3][..], &[], &[1., 2., 3., -1.], &[f64::NAN; 5], &[f64::INFINITY; 5]] {
        assert_eq!(all(values), None, "{values:?}");
    }
    let many: Vec<f64> = (0..1_000_000).map(|i| 1. + f64::from(i % 10)).collect();
    assert!(ratio(&many, &many).is_some_and(|ratio| ratio.low <= 1. && 1. <= ratio.high));
}

#[test]
fn percentiles_are_samples() {
    let to = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
    for (sorted, p50, p95, p99) in [
        (vec![], 0., 0., 0.),
        (vec![7.], 7., 7., 7.),
        (to(2), 1., 2., 2.),
        (to(20), 10., 19., 20.),
        (to(100), 50., 95., 99.),
        (to(1000), 500., 950., 990.),
    ] {
        assert_eq!([50, 95, 99].map(|p| percentile(&sorted, p)), [p50, p95, p99]);
    }
}
