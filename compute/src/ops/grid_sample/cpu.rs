//! GridSample on the CPU: each position becomes a few weighted elements, which serve all channels.

use super::{GridSample, SampleMode, SamplePadding};
use crate::args::{concrete_one, required};
use crate::error::Result;
use crate::index::strides;
use crate::number::with_type;
use crate::op::Context;
use lgp_memory::{DType, Tensor, TensorView};
use num_traits::cast;

/// The coefficient of ONNX's kernel of cubic interpolation.
const CUBIC: f64 = -0.75;

pub(super) fn run(
    op: &GridSample,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let wide = crate::ops::Cast { to: DType::F64 };
    let grid = crate::op::Op::run(&wide, ctx, &[inputs[1].clone()])?;
    let mut out = ctx.alloc(dtype, shape.clone())?;
    let Some(grid) = grid.first().filter(|_| !out.is_empty()) else { return Ok(vec![out]) };
    let grid = grid.as_slice::<f64>()?;
    let spatial = &x.shape()[2..];
    let (channels, points) = (shape[1], shape[2..].iter().product::<usize>());
    let (steps, plane) = (strides(spatial), spatial.iter().product::<usize>());
    with_type!(dtype, real T => {
        let x = x.as_slice::<T>()?;
        let block = channels * points;
        ctx.split(out.as_mut_slice::<T>()?, block, block.saturating_mul(8), |first, part| {
            let mut taps: Vec<(usize, f64)> = Vec::new();
            for (i, part) in part.chunks_exact_mut(block).enumerate() {
                let x = &x[(first + i) * channels * plane..][..channels * plane];
                let grid = &grid[(first + i) * points * spatial.len()..];
                for (p, at) in grid.chunks_exact(spatial.len()).take(points).enumerate() {
                    neighbours(op, at, spatial, &steps, &mut taps);
                    for c in 0..channels {
                        let plane = &x[c * plane..][..plane];
                        let sum = taps.iter().fold(0., |sum, &(at, weight)| {
                            sum + weight * cast::<T, f64>(plane[at]).unwrap_or(f64::NAN)
                        });
                        part[c * points + p] = cast(sum).unwrap_or(T::NAN);
                    }
                }
            }
        });
        Ok(())
    })?;
    Ok(vec![out])
}

/// The elements that are interpolated at a position, with their weights.
fn neighbours(
    op: &GridSample,
    at: &[f64],
    dims: &[usize],
    steps: &[usize],
    taps: &mut Vec<(usize, f64)>,
) {
    taps.clear();
    taps.push((0, 1.));
    // A position's first number is for the last axis.
    for ((&x, &n), &step) in at.iter().rev().zip(dims).zip(steps) {
        let along = line(op, x, n);
        let before = std::mem::take(taps);
        for (from, weight) in before {
            taps.extend(along.iter().map(|&(i, w)| (from + i * step, weight * w)));
        }
    }
}

/// The elements along one axis of `n`, with their weights; elements of weight 0 are left out.
fn line(op: &GridSample, x: f64, n: usize) -> Vec<(usize, f64)> {
    let size = cast::<_, f64>(n).unwrap_or(f64::INFINITY);
    if n == 0 {
        return Vec::new();
    }
    let (low, high) = if op.align_corners { (0., size - 1.) } else { (-0.5, size - 0.5) };
    let x =
        if op.align_corners { (x + 1.) / 2. * (size - 1.) } else { ((x + 1.) * size - 1.) / 2. };
    // NaN has no neighbours; it reads the start, as a clamped position does.
    let x = if x.is_nan() { 0. } else { x };
    let x = if op.mode == SampleMode::Nearest { x.round_ties_even() } else { x };
    let x = match op.padding {
        SamplePadding::Zeros => x,
        // As in PyTorch, each of the cubic's elements is clamped: a position just outside still
        // reads inner elements, and a position far outside reads the edge only.
        SamplePadding::Border if op.mode == SampleMode::Cubic => x.clamp(-2., size + 1.),
        SamplePadding::Border => x.clamp(0., size - 1.),
        SamplePadding::Reflection => reflected(x, low, high),
    };
    let base = x.floor();
    let f = x - base;
    let weights: &[(f64, f64)] = match op.mode {
        SampleMode::Nearest => &[(0., 1.)],
        SampleMode::Linear => &[(0., 1. - f), (1., f)],
        SampleMode::Cubic => {
            &[(-1., cubic(f + 1.)), (0., cubic(f)), (1., cubic(1. - f)), (2., cubic(2. - f))]
        }
    };
    let one = |&(offset, weight): &(f64, f64)| {
        let at = base + offset;
        let at = match op.padding {
            SamplePadding::Zeros => at,
            SamplePadding::Border => at.clamp(0., size - 1.),
            SamplePadding::Reflection => reflected(at, low, high),
        };
        let at = cast::<_, usize>(at.round()).filter(|&at| at < n && weight != 0.);
        at.map(|at| (at, weight))
    };
    weights.iter().filter_map(one).collect()
}

/// A position mirrored at both ends until it lies between them.
fn reflected(x: f64, low: f64, high: f64) -> f64 {
    let span = high - low;
    if span <= 0. {
        return low.max(0.);
    }
    let over = (x - low).rem_euclid(2. * span);
    (if over > span { 2. * span - over } else { over }) + low
}

/// The weight at a distance from 0 to 2.
fn cubic(x: f64) -> f64 {
    if x <= 1. {
        ((CUBIC + 2.) * x - (CUBIC + 3.)) * x * x + 1.
    } else {
        ((x - 5.) * x + 8.) * x * CUBIC - 4. * CUBIC
    }
}
