//! Instance normalisation on the CPU.

use super::InstanceNorm;
use crate::args::{concrete_one, required};
use crate::error::Result;
use crate::matrix::Real;
use crate::movement::around;
use crate::norm::{affine, moments};
use crate::number::with_type;
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};

pub(super) fn run(
    op: &InstanceNorm,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let mut out = ctx.alloc(dtype, shape)?;
    with_type!(dtype, real T => normalise::<T>(op, ctx, inputs, &mut out))?;
    Ok(vec![out])
}

fn normalise<T: Real>(
    op: &InstanceNorm,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    out: &mut Tensor,
) -> Result<()> {
    let x = required(inputs, 0)?;
    let scale = required(inputs, 1)?.as_slice::<T>()?;
    let bias = required(inputs, 2)?.as_slice::<T>()?;
    let (_, channels, plane) = around(x.shape(), 1);
    let x = x.as_slice::<T>()?;
    ctx.split(out.as_mut_slice::<T>()?, plane, plane * 3, |first, part| {
        for (i, part) in part.chunks_exact_mut(plane).enumerate() {
            let c = (first + i) % channels;
            let x = &x[(first + i) * plane..][..plane];
            let (mean, deviation) = moments(ctx.simd(), x, op.epsilon);
            affine(ctx.simd(), x, part, mean, deviation * scale[c], bias[c]);
        }
    });
    Ok(())
}
