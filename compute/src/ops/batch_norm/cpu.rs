//! Batch normalisation on the CPU: one multiply and one add an element.

use super::BatchNorm;
use crate::args::{concrete_one, required};
use crate::error::Result;
use crate::matrix::Real;
use crate::movement::around;
use crate::number::with_type;
use crate::op::Context;
use crate::simd::dispatch;
use lgp_memory::{Tensor, TensorView};
use num_traits::NumCast;

pub(super) fn run(
    op: &BatchNorm,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let mut out = ctx.alloc(dtype, shape)?;
    with_type!(dtype, real T => normalise::<T>(op, ctx, inputs, &mut out))?;
    Ok(vec![out])
}

fn normalise<T: Real>(
    op: &BatchNorm,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    out: &mut Tensor,
) -> Result<()> {
    let x = required(inputs, 0)?;
    let parameter = |i| Ok::<_, crate::Error>(required(inputs, i)?.as_slice::<T>()?);
    let (scale, bias) = (parameter(1)?, parameter(2)?);
    let (mean, variance) = (parameter(3)?, parameter(4)?);
    let epsilon = <T as NumCast>::from(op.epsilon).unwrap_or_else(T::epsilon);
    let (_, channels, plane) = around(x.shape(), 1);
    let x = x.as_slice::<T>()?;
    ctx.split(out.as_mut_slice::<T>()?, plane, plane, |first, part| {
        for (i, part) in part.chunks_exact_mut(plane).enumerate() {
            let c = (first + i) % channels;
            let factor = scale[c] / (variance[c] + epsilon).sqrt();
            let shift = bias[c] - mean[c] * factor;
            let x = &x[(first + i) * plane..][..plane];
            dispatch(
                ctx.simd(),
                #[inline(always)]
                || part.iter_mut().zip(x).for_each(|(o, x)| *o = *x * factor + shift),
            );
        }
    });
    Ok(())
}
