//! Pooling on the CPU: line by line, one tap at a time, so that the inner loop vectorises.

use super::Pool;
use crate::args::{concrete_one, required};
use crate::error::Result;
use crate::isa::Simd;
use crate::number::{Number, with_type};
use crate::op::Context;
use crate::ops::pooling::PoolKind;
use crate::simd::{self, dispatch};
use crate::window::{Axis, three};
use lgp_memory::{Tensor, TensorView};
use num_traits::Bounded;

pub(super) fn run(
    op: &Pool,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let axes = three(&op.windows(x.shape())?)?;
    let mut out = ctx.alloc(dtype, shape)?;
    match op.kind {
        PoolKind::Max => {
            with_type!(dtype, number T => {
                let least = lowest::<T>();
                windows(ctx, &axes, x.as_slice::<T>()?, out.as_mut_slice()?, least, T::most, |_| {});
                Ok(())
            })?;
        }
        PoolKind::Sum => {
            with_type!(dtype, real T => {
                windows(ctx, &axes, x.as_slice::<T>()?, out.as_mut_slice()?, T::ZERO, T::add, |_| {});
                Ok(())
            })?;
        }
        PoolKind::Average { count_include_pad } => {
            with_type!(dtype, real T => {
                let counts = counts::<T>(&axes, count_include_pad);
                let mean = |line: Line<'_, T>| {
                    let [n, _, _] = counts.each_ref().map(Vec::as_slice);
                    let outer = n[line.od].mul(counts[1][line.oh]);
                    for (o, n) in line.out.iter_mut().zip(&counts[2]) {
                        *o = o.div(outer.mul(*n));
                    }
                };
                windows(ctx, &axes, x.as_slice::<T>()?, out.as_mut_slice()?, T::ZERO, T::add, mean);
                Ok(())
            })?;
        }
    }
    Ok(vec![out])
}

/// The least value of a type: the start of a maximum.
fn lowest<T: Number + Bounded>() -> T {
    let infinite = T::ZERO.sub(T::ONE).div(T::ZERO);
    // Division of an integer by zero gives 0 here: integers have no infinity.
    if infinite < T::ZERO { infinite } else { T::min_value() }
}

/// The number of elements that a mean counts in each window, along each axis.
fn counts<T: Number>(axes: &[Axis; 3], padded: bool) -> [Vec<T>; 3] {
    axes.map(|axis| {
        let count = |o| {
            if !padded {
                return axis.taps(o).len();
            }
            // Elements of the window beyond the padding do not count.
            let room = axis.begin + axis.input + axis.end - o * axis.stride;
            axis.kernel.min(room.div_ceil(axis.dilation))
        };
        (0..axis.output).map(|o| T::count(count(o).max(1))).collect()
    })
}

/// One line of outputs and its place.
struct Line<'a, T> {
    od: usize,
    oh: usize,
    out: &'a mut [T],
}

/// Folds every window with `combine`; `finish` sees each line when it is done.
fn windows<T: Number>(
    ctx: &Context,
    axes: &[Axis; 3],
    x: &[T],
    out: &mut [T],
    start: T,
    combine: impl Fn(T, T) -> T + Sync,
    finish: impl Fn(Line<'_, T>) + Sync,
) {
    let [d, h, w] = axes;
    let plane = d.input * h.input * w.input;
    let outputs = d.output * h.output * w.output;
    let taps = d.kernel.saturating_mul(h.kernel).saturating_mul(w.kernel);
    ctx.split(out, outputs, outputs.saturating_mul(taps), |first, part| {
        for (i, part) in part.chunks_exact_mut(outputs).enumerate() {
            let x = &x[(first + i) * plane..][..plane];
            for (line, out) in part.chunks_exact_mut(w.output).enumerate() {
                let (od, oh) = (line / h.output, line % h.output);
                out.fill(start);
                for kd in d.taps(od) {
                    for kh in h.taps(oh) {
                        let from = (d.at(od, kd) * h.input + h.at(oh, kh)) * w.input;
                        fold_line(ctx.simd(), w, &x[from..from + w.input], out, &combine);
                    }
                }
                finish(Line { od, oh, out });
            }
        }
    });
}

/// Folds one line of input into one of outputs.
#[inline(always)]
fn fold_line<T: Number>(
    simd: Simd,
    w: &Axis,
    x: &[T],
    out: &mut [T],
    combine: &impl Fn(T, T) -> T,
) {
    if w.kernel > w.input {
        // Most taps may see only padding, and their number has no limit.
        for (o, out) in out.iter_mut().enumerate() {
            *out = w.taps(o).fold(*out, |sum, kw| combine(sum, x[w.at(o, kw)]));
        }
        return;
    }
    dispatch(
        simd,
        #[inline(always)]
        || {
            for kw in 0..w.kernel {
                let valid = w.valid(kw);
                if valid.is_empty() {
                    continue;
                }
                let x = &x[w.at(valid.start, kw)..];
                let out = &mut out[valid];
                match w.stride {
                    1 => out.iter_mut().zip(x).for_each(|(o, x)| *o = combine(*o, *x)),
                    2 => {
                        simd::every_second(
                            out,
                            x,
                            #[inline(always)]
                            |o, x| *o = combine(*o, x),
                        );
                    }
                    stride => {
                        let x = x.iter().step_by(stride);
                        out.iter_mut().zip(x).for_each(|(o, x)| *o = combine(*o, *x));
                    }
                }
            }
        },
    );
}
