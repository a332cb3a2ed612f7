//! The input elements that an interpolated element is made of, and their weights.

use super::{Resize, ResizeMode};
use crate::error::Result;
use crate::list::list;
use lgp_memory::Error;
use num_traits::cast;

/// The elements and weights of all outputs, one output after the other.
pub(super) struct Taps {
    all: Vec<(usize, f64)>,
    /// Where each output's elements end in `all`.
    ends: Vec<usize>,
}

impl Taps {
    /// The taps of outputs at these positions on an axis of `n > 0`, resized by `scale`.
    pub(super) fn new(
        op: &Resize,
        positions: impl ExactSizeIterator<Item = f64>,
        scale: f64,
        n: usize,
    ) -> Result<Self> {
        let mut ends = list(std::iter::repeat_n(0, positions.len()))?;
        let mut all = Vec::new();
        if !op.antialias {
            // A cubic kernel spans four elements, a linear one two.
            reserve(&mut all, positions.len().saturating_mul(4))?;
        }
        for (x, end) in positions.zip(&mut ends) {
            taps(op, x, scale, n, &mut all)?;
            *end = all.len();
        }
        Ok(Self { all, ends })
    }

    /// The number of taps of all outputs together.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// The number of outputs.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[(usize, f64)]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(&start, &end)| &self.all[start..end])
    }
}

/// Makes room for `more` taps.
fn reserve(all: &mut Vec<(usize, f64)>, more: usize) -> Result<()> {
    let bytes = all.len().saturating_add(more).saturating_mul(size_of::<(usize, f64)>());
    Ok(all.try_reserve(more).map_err(|_| Error::OutOfMemory { bytes })?)
}

/// Adds the elements around `x` on an axis of `n > 0`, resized by `scale`. Positions outside count
/// as the edge, or not at all.
fn taps(op: &Resize, x: f64, scale: f64, n: usize, all: &mut Vec<(usize, f64)>) -> Result<()> {
    let scale = if op.antialias { scale.min(1.) } else { 1. };
    let reach = if op.mode == ResizeMode::Linear { 1. } else { 2. };
    // With any output the scale is at least 1/n, so that the kernel spans at most a few times n.
    let whole = |x: f64| cast::<_, i64>(x).unwrap_or(i64::MAX / 4);
    let (base, size) = (x.floor(), i64::try_from(n).unwrap_or(i64::MAX / 4));
    let first = whole((-reach / scale).floor() + 1.);
    let last = 1i64.saturating_sub(first);
    let base_at = whole(base);
    let start = all.len();
    for i in first..=last {
        let distance = cast::<_, f64>(i).unwrap_or(0.) - (x - base);
        let weight = kernel(op.mode, distance * scale);
        let at = base_at.saturating_add(i);
        if op.exclude_outside && !(0..size).contains(&at) {
            continue;
        }
        let at = usize::try_from(at.clamp(0, size - 1)).unwrap_or(0);
        match all[start..].last_mut() {
            Some((last, sum)) if *last == at => *sum += weight,
            _ => {
                reserve(all, 1)?;
                all.push((at, weight));
            }
        }
    }
    let out = &mut all[start..];
    let sum: f64 = out.iter().map(|(_, weight)| weight).sum();
    if sum != 0. {
        out.iter_mut().for_each(|(_, weight)| *weight /= sum);
    }
    Ok(())
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
