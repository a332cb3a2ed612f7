//! Max pooling with indices on the CPU, window by window.

use super::MaxPoolIndices;
use crate::args::{concrete, required};
use crate::error::{Error, Result};
use crate::number::{Number, with_type};
use crate::op::Context;
use crate::window::{Axis, three};
use lgp_memory::{Tensor, TensorView};

pub(super) fn run(
    op: &MaxPoolIndices,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let types = concrete(op, inputs)?;
    let x = required(inputs, 0)?;
    let axes = three(&op.pool.windows(x.shape())?)?;
    let [(dtype, shape), (index, _)] = &types[..] else {
        return Err(Error::invalid("there are no two outputs"));
    };
    let mut values = ctx.alloc(*dtype, shape.clone())?;
    let mut indices = ctx.alloc(*index, shape.clone())?;
    with_type!(*dtype, number T => {
        let at = indices.as_mut_slice::<i64>()?;
        windows(ctx, &axes, op.column_major, x.as_slice::<T>()?, at);
        let x = x.as_slice::<T>()?;
        let stored = |at: i64| row_major(&axes, op.column_major, at);
        for (value, &at) in values.as_mut_slice::<T>()?.iter_mut().zip(&*at) {
            *value = stored(at).and_then(|at| x.get(at)).copied().unwrap_or(T::ZERO);
        }
        Ok(())
    })?;
    Ok(vec![values, indices])
}

/// The position in memory of an index.
fn row_major(axes: &[Axis; 3], column_major: bool, at: i64) -> Option<usize> {
    let at = usize::try_from(at).ok()?;
    if !column_major {
        return Some(at);
    }
    let [d, h, w] = axes.map(|axis| axis.input);
    let (plane, rest) = (at / (d * h * w), at % (d * h * w));
    let (id, ih, iw) = (rest % d, rest / d % h, rest / d / h);
    Some(((plane * d + id) * h + ih) * w + iw)
}

/// The index of each window's first largest element; a NaN is larger than all.
fn windows<T: Number>(
    ctx: &Context,
    axes: &[Axis; 3],
    column_major: bool,
    x: &[T],
    indices: &mut [i64],
) {
    let [d, h, w] = axes;
    let plane = d.input * h.input * w.input;
    let outputs = d.output * h.output * w.output;
    let taps = d.kernel.saturating_mul(h.kernel).saturating_mul(w.kernel);
    ctx.split(indices, outputs, outputs.saturating_mul(taps), |first, part| {
        for (i, index) in part.iter_mut().enumerate() {
            let (image, o) = (first + i / outputs, i % outputs);
            let (od, oh, ow) = (o / (h.output * w.output), o / w.output % h.output, o % w.output);
            let x = &x[image * plane..][..plane];
            let mut best: Option<(T, usize)> = None;
            for kd in d.taps(od) {
                for kh in h.taps(oh) {
                    for kw in w.taps(ow) {
                        let (id, ih, iw) = (d.at(od, kd), h.at(oh, kh), w.at(ow, kw));
                        let value = x[(id * h.input + ih) * w.input + iw];
                        if best.is_some_and(|(top, _)| top.most(value) == top || is_nan(top)) {
                            continue;
                        }
                        let at = if column_major {
                            id + d.input * (ih + h.input * iw)
                        } else {
                            (id * h.input + ih) * w.input + iw
                        };
                        best = Some((value, at));
                    }
                }
            }
            let at = best.map_or(0, |(_, at)| image * plane + at);
            *index = i64::try_from(at).unwrap_or(i64::MAX);
        }
    });
}

#[allow(clippy::eq_op, reason = "only NaN differs from itself")]
fn is_nan<T: Number>(x: T) -> bool {
    x != x
}
