//! How often intervals report a change between measurements that differ by a known factor: the interval of
//! `lgp_measure::stats`, and a percentile bootstrap. Each row is a kind of noise, a number of values and a factor.
//! `cargo run --release -p lgp-measure --example intervals`.

#[path = "../src/stats_random.rs"]
mod random;

use lgp_measure::stats::{Better, Ratio, Verdict, ratio};
use random::Random;

/// Pairs of sets in each row.
const PAIRS: u64 = 2_000;
/// Resamples of a bootstrap.
const RESAMPLES: usize = 2_000;
const TOLERANCE: f64 = 0.05;

fn main() {
    println!("| noise | values | factor | interval of | shown | regression | holds the factor |");
    println!("|---|---|---|---|---|---|---|");
    for (noise, draw) in [("log-normal", normal as Draw), ("with interruptions", interrupted)] {
        for values in [4, 5, 10, 20] {
            for factor in [1., 1.2] {
                for (method, interval) in [
                    ("Hodges and Lehmann", hodges_lehmann as Interval),
                    ("bootstrap, medians", bootstrap),
                ] {
                    row((noise, draw), values, factor, (method, interval));
                }
            }
        }
    }
}

type Draw = fn(&mut Random) -> f64;
type Interval = fn(&[f64], &[f64], &mut Random) -> Ratio;

fn row(noise: (&str, Draw), values: usize, factor: f64, method: (&str, Interval)) {
    let (mut shown, mut alarms, mut holds) = (0u32, 0u32, 0u32);
    for seed in 0..PAIRS {
        let mut random = Random(seed << 32);
        let old: Vec<f64> = (0..values).map(|_| noise.1(&mut random)).collect();
        let new: Vec<f64> = (0..values).map(|_| factor * noise.1(&mut random)).collect();
        let ratio = method.1(&old, &new, &mut random);
        shown += u32::from(ratio.verdict(Better::Lower) != Verdict::NoDifferenceShown);
        alarms += u32::from(ratio.is_regression(Better::Lower, TOLERANCE));
        holds += u32::from(ratio.low <= factor && factor <= ratio.high);
    }
    let [shown, alarms, holds] =
        [shown, alarms, holds].map(|count| 100. * f64::from(count) / PAIRS as f64);
    let (noise, method) = (noise.0, method.0);
    println!(
        "| {noise} | {values} | {factor} | {method} | {shown:.1} % | {alarms:.1} % | {holds:.1} % |"
    );
}

fn hodges_lehmann(old: &[f64], new: &[f64], _: &mut Random) -> Ratio {
    ratio(old, new).unwrap_or(Ratio { estimate: 1., low: 0., high: f64::INFINITY })
}

/// The percentile bootstrap of the ratio of medians.
fn bootstrap(old: &[f64], new: &[f64], random: &mut Random) -> Ratio {
    let mut again = |values: &[f64]| {
        let pick = |_| values[(random.uniform() * values.len() as f64) as usize];
        median((0..values.len()).map(pick).collect())
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| again(new) / again(old)).collect();
    ratios.sort_by(f64::total_cmp);
    let cut = RESAMPLES / 40;
    let estimate = median(new.to_vec()) / median(old.to_vec());
    Ratio { estimate, low: ratios[cut], high: ratios[RESAMPLES - 1 - cut] }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2].midpoint(values[values.len() / 2])
}

fn normal(random: &mut Random) -> f64 {
    let turn = (std::f64::consts::TAU * random.uniform()).cos();
    10. * (0.03 * (-2. * random.uniform().ln()).sqrt() * turn).exp()
}

/// One in ten takes up to twice as long.
fn interrupted(random: &mut Random) -> f64 {
    let longer = if random.uniform() < 0.1 { 1. + random.uniform() } else { 1. };
    longer * normal(random)
}
