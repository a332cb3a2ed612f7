//! Transposed convolution on the CPU: a matrix product whose rows are then added to the output at
//! the places of their taps.

use super::ConvTranspose;
use crate::args::{concrete_one, optional, required};
use crate::error::Result;
use crate::matrix::{Mat, Real, product};
use crate::number::with_type;
use crate::op::Context;
use crate::window::{Axis, three};
use lgp_memory::{Tensor, TensorView};

pub(super) fn run(
    op: &ConvTranspose,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, weight) = (required(inputs, 0)?, required(inputs, 1)?);
    let axes = three(&op.windows(&x.shape()[2..], &weight.shape()[2..])?)?;
    let mut out = ctx.alloc(dtype, shape)?;
    with_type!(dtype, real T => {
        let bias = optional(inputs, 2).map(TensorView::as_slice::<T>).transpose()?;
        let sizes = [x.shape()[1], op.group, weight.shape()[1]];
        let (x, weight) = (x.as_slice::<T>()?, weight.as_slice::<T>()?);
        compute(ctx, &axes, sizes, x, weight, bias, out.as_mut_slice()?)
    })?;
    Ok(vec![out])
}

fn compute<T: Real>(
    ctx: &Context,
    axes: &[Axis; 3],
    [channels, group, m]: [usize; 3],
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    out: &mut [T],
) -> Result<()> {
    let plane: usize = axes.iter().map(|a| a.output).product();
    let outputs: usize = axes.iter().map(|a| a.input).product();
    let taps: usize = axes.iter().map(|a| a.kernel).product();
    if out.is_empty() {
        return Ok(());
    }
    for (i, row) in out.chunks_exact_mut(outputs).enumerate() {
        row.fill(bias.map_or(T::zero(), |b| b[i % (group * m)]));
    }
    let c = channels / group;
    let rows = m * taps;
    let mut folded = ctx.scratch(T::DTYPE, [rows, plane])?;
    let folded = folded.as_mut_slice::<T>()?;
    for (i, out) in out.chunks_exact_mut(m * outputs).enumerate() {
        let (image, g) = (i / group, i % group);
        let x = &x[(image * channels + g * c) * plane..][..c * plane];
        let weight = Mat::rows(&weight[g * c * rows..][..c * rows], rows).t();
        product(ctx, (rows, plane, c), weight, Mat::rows(x, plane), folded, plane, false)?;
        let cost = taps * plane;
        ctx.split(out, outputs, cost, |first, part| {
            for (j, out) in part.chunks_exact_mut(outputs).enumerate() {
                let folded = &folded[(first + j) * taps * plane..][..taps * plane];
                fold(axes, folded, plane, out);
            }
        });
    }
    Ok(())
}

/// Adds every tap's row to one output plane.
fn fold<T: Real>(axes: &[Axis; 3], folded: &[T], plane: usize, out: &mut [T]) {
    let [d, h, w] = axes;
    for (tap, row) in folded.chunks_exact(plane).enumerate() {
        let kw = tap % w.kernel;
        let kh = tap / w.kernel % h.kernel;
        let kd = tap / w.kernel / h.kernel;
        let valid = w.valid(kw);
        if valid.is_empty() {
            continue;
        }
        for od in d.valid(kd) {
            for oh in h.valid(kh) {
                let from = (od * h.output + oh) * w.output;
                let to = (d.at(od, kd) * h.input + h.at(oh, kh)) * w.input;
                let to = out[to + w.at(valid.start, kw)..].iter_mut().step_by(w.stride);
                let from = &row[from + valid.start..from + valid.end];
                to.zip(from).for_each(|(o, x)| *o = *o + *x);
            }
        }
    }
}
