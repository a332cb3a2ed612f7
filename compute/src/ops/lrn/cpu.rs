//! Local response normalisation on the CPU.

use super::Lrn;
use crate::args::{concrete_one, required};
use crate::error::Result;
use crate::matrix::Real;
use crate::movement::around;
use crate::number::with_type;
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};
use num_traits::NumCast;

pub(super) fn run(
    op: &Lrn,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let mut out = ctx.alloc(dtype, shape)?;
    with_type!(dtype, real T => normalise::<T>(op, ctx, x, &mut out))?;
    Ok(vec![out])
}

fn normalise<T: Real>(op: &Lrn, ctx: &Context, x: &TensorView<'_>, out: &mut Tensor) -> Result<()> {
    let number = |n: f32| <T as NumCast>::from(n).unwrap_or_else(T::nan);
    let size = <T as NumCast>::from(op.size).unwrap_or_else(T::infinity);
    let (alpha, beta, bias) = (number(op.alpha) / size, number(op.beta), number(op.bias));
    let (_, channels, plane) = around(x.shape(), 1);
    let x = x.as_slice::<T>()?;
    let (before, after) = ((op.size - 1) / 2, op.size / 2);
    let cost = plane.saturating_mul(op.size.min(channels)).saturating_add(plane * 40);
    ctx.split(out.as_mut_slice::<T>()?, plane, cost, |first, part| {
        for (i, part) in part.chunks_exact_mut(plane).enumerate() {
            let (image, c) = ((first + i) / channels, (first + i) % channels);
            let last = c.saturating_add(after).min(channels - 1);
            part.fill(T::zero());
            for c in c.saturating_sub(before)..=last {
                let x = &x[(image * channels + c) * plane..][..plane];
                part.iter_mut().zip(x).for_each(|(o, x)| *o = *o + *x * *x);
            }
            let x = &x[(first + i) * plane..][..plane];
            part.iter_mut().zip(x).for_each(|(o, x)| *o = *x / (bias + alpha * *o).powf(beta));
        }
    });
    Ok(())
}
