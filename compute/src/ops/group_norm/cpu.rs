//! Group normalisation on the CPU.

use super::GroupNorm;
use crate::args::required;
use crate::error::Result;
use crate::matrix::Real;
use crate::movement::around;
use crate::norm::{affine, moments};
use crate::number::with_type;
use crate::op::Context;
use lgp_memory::{DType, Shape, Tensor, TensorView};

impl GroupNorm {
    /// The result for inputs that are checked, with its dtype and shape, which are those of x.
    pub(crate) fn normalised(
        &self,
        ctx: &Context,
        inputs: &[Option<TensorView<'_>>],
        dtype: DType,
        shape: Shape,
    ) -> Result<Vec<Tensor>> {
        let mut out = ctx.alloc(dtype, shape)?;
        with_type!(dtype, real T => normalise::<T>(self, ctx, inputs, &mut out))?;
        Ok(vec![out])
    }
}

fn normalise<T: Real>(
    op: &GroupNorm,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    out: &mut Tensor,
) -> Result<()> {
    let x = required(inputs, 0)?;
    let scale = required(inputs, 1)?.as_slice::<T>()?;
    let bias = required(inputs, 2)?.as_slice::<T>()?;
    let (_, channels, plane) = around(x.shape(), 1);
    let per_group = channels / op.groups;
    let x = x.as_slice::<T>()?;
    // With one channel a group the two readings of a parameter are the same.
    let entry = |p: &[T], c: usize| p[if p.len() == channels { c } else { c / per_group }];
    let group = per_group * plane;
    ctx.split(out.as_mut_slice::<T>()?, group, group * 3, |first, part| {
        for (i, part) in part.chunks_exact_mut(group).enumerate() {
            let x = &x[(first + i) * group..][..group];
            let (mean, deviation) = moments(ctx.simd(), x, op.epsilon);
            let rows = part.chunks_exact_mut(plane).zip(x.chunks_exact(plane));
            for (j, (part, x)) in rows.enumerate() {
                let c = (first + i) % op.groups * per_group + j;
                affine(ctx.simd(), x, part, mean, deviation * entry(scale, c), entry(bias, c));
            }
        }
    });
    Ok(())
}
