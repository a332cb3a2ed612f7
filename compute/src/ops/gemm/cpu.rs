//! Gemm on the CPU.

use super::Gemm;
use crate::args::{concrete_one, optional, required};
use crate::error::Result;
use crate::matrix::{Mat, Real, product};
use crate::number::with_type;
use crate::op::Context;
use crate::walk::Walk;
use lgp_memory::{Shape, Tensor, TensorView};
use num_traits::NumCast;

pub(super) fn run(
    op: &Gemm,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let mut out = ctx.alloc(dtype, shape.clone())?;
    with_type!(dtype, real T => gemm::<T>(op, ctx, inputs, &shape, &mut out))?;
    Ok(vec![out])
}

fn gemm<T: Real>(
    op: &Gemm,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    shape: &Shape,
    out: &mut Tensor,
) -> Result<()> {
    let (a, b) = (required(inputs, 0)?, required(inputs, 1)?);
    let (m, n) = (shape[0], shape[1]);
    let k = if op.trans_a { a.shape()[0] } else { a.shape()[1] };
    let out = out.as_mut_slice::<T>()?;
    let left = Mat::rows(a.as_slice::<T>()?, a.shape()[1]);
    let right = Mat::rows(b.as_slice::<T>()?, b.shape()[1]);
    let left = if op.trans_a { left.t() } else { left };
    let right = if op.trans_b { right.t() } else { right };
    product(ctx, (m, n, k), left, right, out, n, false)?;
    let scale = |factor: f32| <T as NumCast>::from(factor).unwrap_or_else(T::nan);
    let (alpha, beta) = (scale(op.alpha), scale(op.beta));
    // As in BLAS, c is not read if beta is 0: 0 times infinity would be NaN.
    let Some(c) = optional(inputs, 2).filter(|_| op.beta != 0.) else {
        if alpha != T::one() {
            out.iter_mut().for_each(|o| *o = *o * alpha);
        }
        return Ok(());
    };
    let walk = Walk::new(shape, [c.shape()])?;
    let c = c.as_slice::<T>()?;
    if out.is_empty() {
        return Ok(());
    }
    for (i, row) in out.chunks_exact_mut(walk.row).enumerate() {
        let [at] = walk.starts(i);
        for (j, o) in row.iter_mut().enumerate() {
            *o = alpha * *o + beta * c[at + j * walk.steps[0]];
        }
    }
    Ok(())
}
