//! Normalisation over the last axes on the CPU.

use super::LastAxes;
use crate::args::{axis, concrete_one, optional, required};
use crate::error::Result;
use crate::matrix::Real;
use crate::norm::{affine, moments};
use crate::number::with_type;
use crate::op::{Context, Op};
use crate::reduction::sum;
use crate::simd::dispatch;
use lgp_memory::{Shape, Tensor, TensorView};
use num_traits::NumCast;

impl LastAxes {
    /// The result of `op`, which is this norm.
    pub(crate) fn run(
        &self,
        op: &dyn Op,
        ctx: &Context,
        inputs: &[Option<TensorView<'_>>],
    ) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(op, inputs)?;
        let axis = axis(self.axis, shape.rank())?;
        let last = Shape::from(&shape[axis..]);
        let mut out = ctx.alloc(dtype, shape)?;
        with_type!(dtype, real T => normalise::<T>(self, ctx, inputs, &last, &mut out))?;
        Ok(vec![out])
    }
}

fn normalise<T: Real>(
    norm: &LastAxes,
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
    let count = <T as NumCast>::from(n).unwrap_or_else(T::infinity);
    let epsilon = <T as NumCast>::from(norm.epsilon).unwrap_or_else(T::zero);
    let passes = if norm.centred { 4 } else { 3 };
    ctx.split(out.as_mut_slice::<T>()?, n, n * passes, |first, part| {
        for (i, part) in part.chunks_exact_mut(n).enumerate() {
            let x = &x[(first + i) * n..][..n];
            if !norm.centred {
                dispatch(
                    ctx.simd(),
                    #[inline(always)]
                    || by_mean_square(x, scale, part, count, epsilon),
                );
                continue;
            }
            let (mean, deviation) = moments(ctx.simd(), x, norm.epsilon);
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

/// `out = x / sqrt(mean(x²) + epsilon) · scale`, with the mean over `count` elements.
#[inline(always)]
fn by_mean_square<T: Real>(x: &[T], scale: &[T], out: &mut [T], count: T, epsilon: T) {
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
