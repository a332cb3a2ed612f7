//! The range of least mean squared error of rounding to evenly spaced values.

/// Trial factors of a scan, and scans, each 10 times finer than the one before it.
const TRIALS: i32 = 20;
const SCANS: i32 = 3;

/// The range `(low, high)` for values `(x, count)`. The search scales both ends together, then,
/// unless the range is symmetric, each by itself.
pub(super) fn range(
    values: &[(f64, f64)],
    levels: usize,
    [low, high]: [f32; 2],
    symmetric: bool,
) -> (f32, f32) {
    let (low, high) = (f64::from(low), f64::from(high));
    let (low, high) = if symmetric { (low.min(-high), high.max(-low)) } else { (low, high) };
    let error = |a: f64, b: f64| squared_error(values, levels, low * a, high * b);
    let mut a = 1.0;
    for scan in 0..SCANS {
        a = best_factor(a, scan, |f| error(f, f));
    }
    let mut b = a;
    if !symmetric {
        for scan in [1, 1, 2, 2] {
            a = best_factor(a, scan, |f| error(f, b));
            b = best_factor(b, scan, |f| error(a, f));
        }
    }
    ((low * a) as f32, (high * b) as f32)
}

/// The best factor in (0, 1] around one; the first scan tries them all in steps of 1/20.
fn best_factor(around: f64, scan: i32, error: impl Fn(f64) -> f64) -> f64 {
    let step = 0.1f64.powi(scan) / f64::from(TRIALS);
    let trials = (-TRIALS..=TRIALS).map(|i| around + f64::from(i) * step);
    let mut best = (error(around), around);
    for factor in trials.filter(|&f| f > 0.0 && f <= 1.0) {
        let found = error(factor);
        if found < best.0 {
            best = (found, factor);
        }
    }
    best.1
}

fn squared_error(values: &[(f64, f64)], levels: usize, low: f64, high: f64) -> f64 {
    let last = (levels - 1) as f64;
    let scale = (high - low) / last;
    if scale == 0.0 {
        return values.iter().map(|(x, count)| count * x * x).sum();
    }
    let one = |&(x, count): &(f64, f64)| {
        let step = ((x - low) / scale).round().clamp(0.0, last);
        count * (x - low - step * scale).powi(2)
    };
    values.iter().map(one).sum()
}
