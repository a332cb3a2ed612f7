//! Root mean square normalisation on the CPU.

use super::RmsNorm;
use crate::args::{axis, concrete_one, required};
use crate::error::Result;
use crate::matrix::Real;
use crate::number::with_type;
use crate::op::Context;
use crate::reduction::sum;
use crate::simd::dispatch;
use lgp_memory::{Shape, Tensor, TensorView};
use num_traits::NumCast;

pub(super) fn run(
    op: &RmsNorm,
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
    op: &RmsNorm,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    last: &Shape,
    out: &mut Tensor,
) -> Result<()> {
    let x = required(inputs, 0)?.as_slice::<T>()?;
    if x.is_empty() {
        return Ok(());
    }
    let scale = super::super::expand::to(ctx, required(inputs, 1)?, last)?;
    let scale = scale.as_slice::<T>()?;
    let n = scale.len();
    let count = <T as NumCast>::from(n).unwrap_or_else(T::infinity);
    let epsilon = <T as NumCast>::from(op.epsilon).unwrap_or_else(T::zero);
    ctx.split(out.as_mut_slice::<T>()?, n, n * 3, |first, part| {
        for (i, part) in part.chunks_exact_mut(n).enumerate() {
            let x = &x[(first + i) * n..][..n];
            dispatch(
                ctx.simd(),
                #[inline(always)]
                || row(x, scale, part, count, epsilon),
            );
        }
    });
    Ok(())
}

#[inline(always)]
fn row<T: Real>(x: &[T], scale: &[T], out: &mut [T], count: T, epsilon: T) {
    let squares = sum(
        x,
        #[inline(always)]
        |x| x * x,
    );
    let factor = (squares / count + epsilon).sqrt().recip();
    for (o, (x, s)) in out.iter_mut().zip(x.iter().zip(scale)) {
        *o = *x * factor * *s;
    }
}
