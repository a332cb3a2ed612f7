//! Tests of the histogram and of the methods that choose a range from it.

use super::super::super::fixtures::{normal, rng};
use super::*;
use rand::RngExt;

fn filled(values: &[f32]) -> Histogram {
    let mut histogram = Histogram::default();
    histogram.add(values).unwrap();
    histogram
}

/// Signal over noise in dB, by an integral over a density, of rounding to `levels` even steps over
/// the range.
fn sqnr_db(density: impl Fn(f64) -> f64, range: Range, levels: u32) -> f64 {
    let (low, last) = (f64::from(range.low()), f64::from(levels - 1));
    let scale = f64::from(range.high() - range.low()) / last;
    let (mut signal, mut noise) = (0f64, 0f64);
    for i in 0..200_000 {
        let x = (f64::from(i) + 0.5) * 8e-5 - 8.0;
        let step = ((x - low) / scale).round().clamp(0.0, last);
        signal += density(x) * x * x;
        noise += density(x) * (x - low - step * scale).powi(2);
    }
    10.0 * (signal / noise).log10()
}

/// The optimal uniform quantiser of N(0, 1), "Quantizing for Minimum Distortion" (1960): 9.25,
/// 14.27 and 19.38 dB at 2, 3 and 4 bits.
#[test]
fn mse_on_gaussian() {
    let mut rng = rng(11);
    let values: Vec<f32> = (0..200_000).map(|_| normal(&mut rng)).collect();
    let histogram = filled(&values);
    for (bits, expected) in [(2, 9.25), (3, 14.27), (4, 19.38)] {
        for symmetric in [true, false] {
            let range = histogram.range(RangeMethod::Mse, bits, symmetric).unwrap();
            let found = sqnr_db(|x| (-x * x / 2.0).exp(), range, 1 << bits);
            assert!((found - expected).abs() < 0.02, "{bits} {symmetric} {found} {range:?}");
        }
    }
}

/// A uniform source has 20·log10(2^b) dB: 24.08 at 4 bits, 48.17 at 8, when the outer cells are as
/// wide as the others, which the method finds.
#[test]
fn mse_on_uniform() {
    let values: Vec<f32> = (0..200_000).map(|i| (i as f32 + 0.5) / 1e5 - 1.0).collect();
    let histogram = filled(&values);
    for (bits, expected) in [(4u8, 24.08), (8, 48.17)] {
        let range = histogram.range(RangeMethod::Mse, bits, true).unwrap();
        let found = sqnr_db(|x| f64::from(x.abs() < 1.0), range, 1u32 << bits);
        assert!((found - expected).abs() < 0.05, "{bits} {found} {range:?}");
    }
}

#[test]
fn percentiles_of_uniform() {
    let values: Vec<f32> = (0..100_000).map(|i| i as f32 / 1e5 * 3.0 - 1.0).collect();
    let histogram = filled(&values);
    let percentile = RangeMethod::Percentile(99.0);
    let range = histogram.range(percentile, 8, false).unwrap();
    assert!((range.low() + 0.97).abs() < 3e-3 && (range.high() - 1.97).abs() < 3e-3, "{range:?}");
    let range = histogram.range(percentile, 8, true).unwrap();
    assert!((range.high() - 1.97).abs() < 3e-3 && range.low() == -range.high(), "{range:?}");
    for method in [RangeMethod::MinMax, RangeMethod::Percentile(100.0)] {
        let range = histogram.range(method, 8, false).unwrap();
        assert!((range.low() + 1.0).abs() < 1e-6 && (range.high() - 1.99997).abs() < 1e-5);
    }
}

/// The divergence ignores rare outliers, and keeps all of a uniform distribution.
#[test]
fn entropy_ignores_outliers() {
    let mut rng = rng(13);
    let mut values: Vec<f32> = (0..200_000).map(|_| normal(&mut rng)).collect();
    values.extend([40.0, -35.0]);
    let range = filled(&values).range(RangeMethod::Entropy, 8, false).unwrap();
    assert!(range.high() > 2.5 && range.high() < 12.0, "{range:?}");
    let values: Vec<f32> = (0..200_000).map(|_| rng.random::<f32>()).collect();
    let range = filled(&values).range(RangeMethod::Entropy, 8, false).unwrap();
    assert!(range.low() == 0.0 && range.high() > 0.95, "{range:?}");
}

/// The counts do not depend on the order in which the range grew, up to one doubling of the width.
#[test]
fn grows_by_doubling() {
    let values = [0.0, 0.0, 0.01, -0.02, 5.0, -1000.0, 3.0, 0.0];
    let mut histogram = Histogram::default();
    for value in values {
        histogram.add(&[value]).unwrap();
    }
    assert_eq!((histogram.total(), histogram.extent()), (8, (-1000.0, 5.0)));
    assert_eq!(histogram.counts.iter().sum::<u64>(), 8);
    let reach = histogram.width * (BINS / 2) as f64;
    assert!((1000.0..2001.0).contains(&reach), "{reach}");
    assert_eq!(histogram.counts[..BINS / 2].iter().sum::<u64>(), 2);
    let zeros = filled(&[0.0, 0.0]);
    for method in [RangeMethod::MinMax, RangeMethod::Entropy, RangeMethod::Mse] {
        assert_eq!(zeros.range(method, 8, false).unwrap(), Range::new(0.0, 0.0).unwrap());
    }
}

#[test]
fn refuses_what_does_not_fit() {
    assert!(Histogram::default().range(RangeMethod::MinMax, 8, false).is_err());
    for value in [f32::NAN, f32::INFINITY] {
        assert!(Histogram::default().add(&[1.0, value]).is_err());
    }
    let histogram = filled(&[1.0]);
    assert!(histogram.range(RangeMethod::MinMax, 9, false).is_err());
    for p in [50.0, 101.0, f64::NAN] {
        assert!(histogram.range(RangeMethod::Percentile(p), 8, false).is_err());
    }
}
