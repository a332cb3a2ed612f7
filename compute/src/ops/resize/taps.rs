//! Which elements an interpolated one is made of, and their weights.

use super::{Resize, ResizeMode};
use num_traits::cast;

/// Positions and their weights.
pub(super) type Taps = Vec<(usize, f64)>;

/// The elements around `x` on an axis of `n > 0`, resized by `scale`. Positions outside count as
/// the edge, or not at all.
pub(super) fn taps(op: &Resize, x: f64, scale: f64, n: usize) -> Taps {
    let scale = if op.antialias { scale.min(1.) } else { 1. };
    let reach = if op.mode == ResizeMode::Linear { 1. } else { 2. };
    // A scale that leaves any output is at least 1/n, so that the kernel spans a few times n.
    let whole = |x: f64| cast::<_, i64>(x).unwrap_or(i64::MAX / 4);
    let (base, size) = (x.floor(), i64::try_from(n).unwrap_or(i64::MAX / 4));
    let first = whole((-reach / scale).floor() + 1.);
    let last = 1i64.saturating_sub(first);
    let base_at = whole(base);
    let mut out: Taps = Vec::new();
    for i in first..=last {
        let distance = cast::<_, f64>(i).unwrap_or(0.) - (x - base);
        let weight = kernel(op.mode, distance * scale);
        let at = base_at.saturating_add(i);
        if op.exclude_outside && !(0..size).contains(&at) {
            continue;
        }
        let at = usize::try_from(at.clamp(0, size - 1)).unwrap_or(0);
        match out.last_mut() {
            Some((last, sum)) if *last == at => *sum += weight,
            _ => out.push((at, weight)),
        }
    }
    let sum: f64 = out.iter().map(|(_, weight)| weight).sum();
    if sum != 0. {
        out.iter_mut().for_each(|(_, weight)| *weight /= sum);
    }
    out
}

/// The weight of an element at a distance.
fn kernel(mode: ResizeMode, x: f64) -> f64 {
    let x = x.abs();
    match mode {
        ResizeMode::Cubic { a } => {
            let a = f64::from(a);
            if x <= 1. {
                ((a + 2.) * x - (a + 3.)) * x * x + 1.
            } else if x < 2. {
                ((x - 5.) * x + 8.) * x * a - 4. * a
            } else {
                0.
            }
        }
        _ => (1. - x).max(0.),
    }
}
