//! Quantisation with a scale that follows from the values.

mod device;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{concrete, output, required, same_dtype};
use crate::device::Launches;
use crate::error::Result;
use crate::number::Number;
use crate::op::{Context, Op, ValueInfo};
use crate::ops::quantize_linear::{Params, bytes_f32};
use crate::reduction::fold;
use crate::simd::dispatch;
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `DynamicQuantizeLinear`: input x in f32; outputs y in u8, its scale (f32) and its zero point
/// (u8), chosen so that 0 and all of x are in range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DynamicQuantizeLinear;

impl Op for DynamicQuantizeLinear {
    fn name(&self) -> &'static str {
        "DynamicQuantizeLinear"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        same_dtype("the input", DType::F32, x.ty.dtype)?;
        let mut out = output(DType::U8, x.sym_shape().map(<[_]>::to_vec));
        out.extend(output(DType::F32, Some(vec![])));
        out.extend(output(DType::U8, Some(vec![])));
        Ok(out)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let rank = inputs.first().copied().flatten().and_then(ValueInfo::rank).unwrap_or(0);
        (0..rank).fold(Axes::new(), |axes, axis| axes.all([(0, axis)], [(0, axis)]))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(inputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        concrete(self, inputs)?;
        let x = required(inputs, 0)?;
        let mut out = ctx.alloc(DType::U8, x.shape().clone())?;
        let x = x.as_slice::<f32>()?;
        let (scale, zero) = dynamic_params(ctx, x);
        let params = Params::new(scale, zero.into(), (0, 255));
        ctx.split(out.as_mut_slice::<u8>()?, 1, 4, |start, part| {
            bytes_f32(ctx.simd(), &x[start..start + part.len()], part, params);
        });
        Ok(vec![out, Tensor::scalar(scale)?, Tensor::scalar(zero)?])
    }
}

#[inline(always)]
fn same(x: f32) -> f32 {
    x
}

/// Number of elements whose least and largest one thread finds at a time.
const PIECE: usize = 1 << 14;

/// Scale and zero point of values that are quantised to u8.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a byte")]
fn dynamic_params(ctx: &Context, x: &[f32]) -> (f32, u8) {
    // The pieces are the same for any number of threads, and so is the result.
    let mut bounds = vec![(0., 0.); x.len().div_ceil(PIECE)];
    ctx.split(&mut bounds, 1, PIECE / 2, |first, bounds| {
        for (bounds, x) in bounds.iter_mut().zip(x[first * PIECE..].chunks(PIECE)) {
            *bounds = dispatch(
                ctx.simd(),
                #[inline(always)]
                || {
                    // A piece is small enough that the second pass reads it from the cache.
                    (fold(x, 0., same, Number::least), fold(x, 0., same, Number::most))
                },
            );
        }
    });
    let (low, high) =
        bounds.iter().fold((0f32, 0f32), |(low, high), &(l, h)| (low.least(l), high.most(h)));
    let scale = (high - low) / 255.;
    // If all elements are 0, any scale will do. A scale of NaN or infinity shows in the result.
    let scale = if scale == 0. { 1. } else { scale };
    let zero = (-low / scale).round_ties_even().clamp(0., 255.);
    (scale, zero as u8)
}
