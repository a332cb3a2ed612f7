//! Deformable convolution on the CPU: the moved taps are gathered to columns, which a matrix
//! product takes.

use super::DeformConv;
use crate::args::{concrete_one, optional, required};
use crate::error::Result;
use crate::matrix::{Mat, Real, product};
use crate::number::with_type;
use crate::op::Context;
use crate::window::{Axis, three};
use lgp_memory::{Tensor, TensorView};
use num_traits::NumCast;

pub(super) fn run(
    op: &DeformConv,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, weight) = (required(inputs, 0)?, required(inputs, 1)?);
    let axes = op.windows(&x.shape()[2..], &weight.shape()[2..])?;
    let mut out = ctx.alloc(dtype, shape)?;
    with_type!(dtype, real T => {
        compute::<T>(op, ctx, &three(&axes)?, axes.len(), inputs, out.as_mut_slice()?)
    })?;
    Ok(vec![out])
}

fn compute<T: Real>(
    op: &DeformConv,
    ctx: &Context,
    axes: &[Axis; 3],
    rank: usize,
    inputs: &[Option<TensorView<'_>>],
    out: &mut [T],
) -> Result<()> {
    let (x, weight) = (required(inputs, 0)?, required(inputs, 1)?);
    let (channels, m) = (x.shape()[1], weight.shape()[0]);
    let (x, weight) = (x.as_slice::<T>()?, weight.as_slice::<T>()?);
    let offset = required(inputs, 2)?.as_slice::<T>()?;
    let bias = optional(inputs, 3).map(TensorView::as_slice::<T>).transpose()?;
    let mask = optional(inputs, 4).map(TensorView::as_slice::<T>).transpose()?;
    if out.is_empty() {
        return Ok(());
    }
    // Without channels, x has no elements and its plane may have any size.
    let plane = axes.iter().fold(1, |n: usize, a| n.saturating_mul(a.input));
    let outputs: usize = axes.iter().map(|a| a.output).product();
    let taps: usize = axes.iter().map(|a| a.kernel).product();
    let (c, per_group) = (channels / op.group, m / op.group);
    let mut columns = ctx.scratch(T::DTYPE, [channels, taps, outputs])?;
    let columns = columns.as_mut_slice::<T>()?;
    for (image, out) in out.chunks_exact_mut(m * outputs).enumerate() {
        let x = &x[image * channels * plane..][..channels * plane];
        ctx.split(columns, outputs, outputs * 16, |first, part| {
            for (i, column) in part.chunks_exact_mut(outputs).enumerate() {
                let (channel, tap) = ((first + i) / taps, (first + i) % taps);
                let set = channel / (channels / op.offset_group);
                let row = (image * op.offset_group + set) * taps + tap;
                let moves = &offset[row * rank * outputs..][..rank * outputs];
                let mask = mask.map(|mask| &mask[row * outputs..][..outputs]);
                gather(axes, rank, tap, &x[channel * plane..][..plane], moves, mask, column);
            }
        });
        for (i, row) in out.chunks_exact_mut(outputs).enumerate() {
            row.fill(bias.map_or(T::zero(), |b| b[i]));
        }
        for (g, out) in out.chunks_exact_mut(per_group * outputs).enumerate() {
            let k = c * taps;
            let weight = Mat::rows(&weight[g * per_group * k..][..per_group * k], k);
            let columns = Mat::rows(&columns[g * k * outputs..][..k * outputs], outputs);
            product(ctx, (per_group, outputs, k), weight, columns, out, outputs, true)?;
        }
    }
    Ok(())
}

/// The values that one tap of one channel reads for each output.
fn gather<T: Real>(
    axes: &[Axis; 3],
    rank: usize,
    tap: usize,
    x: &[T],
    moves: &[T],
    mask: Option<&[T]>,
    column: &mut [T],
) {
    let [d, h, w] = axes;
    let outputs = column.len();
    let tap = [tap / (w.kernel * h.kernel), tap / w.kernel % h.kernel, tap % w.kernel];
    for (i, value) in column.iter_mut().enumerate() {
        let o = [i / (w.output * h.output), i / w.output % h.output, i % w.output];
        let mut at = [T::zero(); 3];
        for axis in 0..3 {
            let a = &axes[axis];
            let place = number::<T>(o[axis] * a.stride + tap[axis] * a.dilation) - number(a.begin);
            // The axes that fill the rank up to 3 have no offsets.
            let moved = (axis + rank).checked_sub(3).map(|axis| moves[axis * outputs + i]);
            at[axis] = place + moved.unwrap_or_else(T::zero);
        }
        let seen = between([d.input, h.input, w.input], x, at);
        *value = mask.map_or(seen, |mask| seen * mask[i]);
    }
}

/// The value of `x` at a place between elements, linearly, with zeros around.
fn between<T: Real>(sizes: [usize; 3], x: &[T], at: [T; 3]) -> T {
    let floor = at.map(T::floor);
    let mut sum = T::zero();
    for corner in 0..8usize {
        let mut weight = T::one();
        let mut index = Some(0usize);
        for axis in 0..3 {
            let up = corner >> axis & 1 == 1;
            let rest = at[axis] - floor[axis];
            weight = weight * if up { rest } else { T::one() - rest };
            let place = if up { floor[axis] + T::one() } else { floor[axis] };
            let place = Some(place).filter(|p| *p >= T::zero()).and_then(<usize as NumCast>::from);
            let place = place.filter(|&p| p < sizes[axis]);
            index = index.zip(place).map(|(i, p)| i * sizes[axis] + p);
        }
        // A corner of weight 0 is not read: it may lie outside.
        if let Some(value) = index.filter(|_| weight != T::zero()).and_then(|i| x.get(i)) {
            sum = sum + weight * *value;
        }
    }
    sum
}

fn number<T: Real>(n: usize) -> T {
    <T as NumCast>::from(n).unwrap_or_else(T::infinity)
}
