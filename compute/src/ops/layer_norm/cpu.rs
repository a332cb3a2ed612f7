//! Layer normalisation on the CPU.

use super::LayerNorm;
use crate::args::{axis, concrete_one, optional, required};
use crate::error::Result;
use crate::matrix::Real;
use crate::norm::{affine, moments};
use crate::number::with_type;
use crate::op::Context;
use crate::simd::dispatch;
use lgp_memory::{Shape, Tensor, TensorView};

pub(super) fn run(
    op: &LayerNorm,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let axis = axis(op.axis, shape.rank())?;
    let last = Shape::from(&shape[axis..]);
    let mut out = ctx.alloc(dtype, shape)?;
    with_type!(dtype, real T => normalise::<T>(op, ctx, inputs, &last, &mut out))?;
    Ok(vec![out])
}

fn normalise<T: Real>(
    op: &LayerNorm,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    last: &Shape,
    out: &mut Tensor,
) -> Result<()> {
    let x = required(inputs, 0)?.as_slice::<T>()?;
    if x.is_empty() {
        return Ok(());
    }
    // Parameters smaller than the row are rare: they are spread out once.
    let spread = |p: &TensorView<'_>| super::super::expand::to(ctx, p, last);
    let scale = spread(required(inputs, 1)?)?;
    let bias = optional(inputs, 2).map(spread).transpose()?;
    let scale = scale.as_slice::<T>()?;
    let bias = bias.as_ref().map(Tensor::as_slice::<T>).transpose()?;
    let n = scale.len();
    ctx.split(out.as_mut_slice::<T>()?, n, n * 4, |first, part| {
        for (i, part) in part.chunks_exact_mut(n).enumerate() {
            let x = &x[(first + i) * n..][..n];
            let (mean, deviation) = moments(ctx.simd(), x, op.epsilon);
            affine(ctx.simd(), x, part, mean, deviation, T::zero());
            dispatch(
                ctx.simd(),
                #[inline(always)]
                || match bias {
                    Some(bias) => {
                        let parameters = scale.iter().zip(bias);
                        part.iter_mut().zip(parameters).for_each(|(o, (s, b))| *o = *o * *s + *b);
                    }
                    None => part.iter_mut().zip(scale).for_each(|(o, s)| *o = *o * *s),
                },
            );
        }
    });
    Ok(())
}
