//! Clip on the CPU.

use super::Clip;
use crate::args::{concrete_one, optional, required};
use crate::error::{Error, Result};
use crate::isa::Simd;
use crate::number::{Number, with_type};
use crate::op::Context;
use crate::simd::{self, dispatch};
use lgp_memory::{Tensor, TensorView};
use num_traits::NumCast;

pub(super) fn run(
    op: &Clip,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let mut out = ctx.alloc(dtype, shape)?;
    limit(op, ctx, Some(x), inputs, &mut out)?;
    Ok(vec![out])
}

/// Limits `x`, or the elements of `out` where there is no `x`.
pub(super) fn limit(
    op: &Clip,
    ctx: &Context,
    x: Option<&TensorView<'_>>,
    inputs: &[Option<TensorView<'_>>],
    out: &mut Tensor,
) -> Result<()> {
    with_type!(out.dtype(), number T => {
        let min = bound::<T>(optional(inputs, 1), op.min)?;
        let max = bound::<T>(optional(inputs, 2), op.max)?;
        let x = x.map(TensorView::as_slice::<T>).transpose()?;
        ctx.split(out.as_mut_slice()?, 1, 1, |start, out| match x {
            Some(x) => clip(ctx.simd(), &x[start..start + out.len()], out, min, max),
            None => simd::over(out, |_, out, x| clip(ctx.simd(), x, out, min, max)),
        });
        Ok(())
    })
}

fn bound<T: Number + NumCast>(
    input: Option<&TensorView<'_>>,
    attribute: Option<f32>,
) -> Result<Option<T>> {
    if let Some(input) = input {
        return Ok(input.as_slice::<T>()?.first().copied());
    }
    let Some(value) = attribute else { return Ok(None) };
    match NumCast::from(value) {
        Some(bound) => Ok(Some(bound)),
        None => Err(Error::invalid(format!("bound {value} does not fit {}", T::DTYPE))),
    }
}

/// A minimum above the maximum gives the maximum everywhere; NaN stays.
fn clip<T: Number>(simd: Simd, x: &[T], out: &mut [T], min: Option<T>, max: Option<T>) {
    let pairs = out.iter_mut().zip(x);
    dispatch(
        simd,
        #[inline(always)]
        || match (min, max) {
            (Some(min), Some(max)) => {
                pairs.for_each(|(o, x)| *o = x.most(min).least(max));
            }
            (Some(min), None) => pairs.for_each(|(o, x)| *o = x.most(min)),
            (None, Some(max)) => pairs.for_each(|(o, x)| *o = x.least(max)),
            (None, None) => pairs.for_each(|(o, x)| *o = *x),
        },
    );
}
