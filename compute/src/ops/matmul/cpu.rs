//! MatMul on the CPU.

use crate::error::Result;
use crate::matrix::{Mat, Real, product};
use crate::number::with_type;
use crate::op::Context;
use crate::walk::Walk;
use lgp_memory::{DType, Shape, Tensor, TensorView};

/// The product of two factors, of the dtype and shape that
/// [`infer`](super::facts::infer) gives for them.
pub(crate) fn run(
    ctx: &Context,
    [a, b]: [&TensorView<'_>; 2],
    dtype: DType,
    shape: &Shape,
) -> Result<Tensor> {
    let mut out = ctx.alloc(dtype, shape.clone())?;
    with_type!(dtype, real T => batched::<T>(ctx, a, b, shape, &mut out))?;
    Ok(out)
}

fn batched<T: Real>(
    ctx: &Context,
    a: &TensorView<'_>,
    b: &TensorView<'_>,
    shape: &Shape,
    out: &mut Tensor,
) -> Result<()> {
    let (batch_a, m, k) = match a.shape().dims() {
        [batch @ .., m, k] => (batch, *m, *k),
        dims => (&[][..], 1, dims.iter().product()),
    };
    let (batch_b, n) = match b.shape().dims() {
        [batch @ .., _, n] => (batch, *n),
        _ => (&[][..], 1),
    };
    let (a, b, out) = (a.as_slice::<T>()?, b.as_slice::<T>()?, out.as_mut_slice::<T>()?);
    if m == 0 || n == 0 || out.is_empty() {
        return Ok(());
    }
    if batch_b.iter().all(|&n| n == 1) {
        // One right side for all: the left side's batch only adds rows.
        let rows = out.len() / n;
        return product(ctx, (rows, n, k), Mat::rows(a, k), Mat::rows(b, n), out, n, false);
    }
    let batch = shape[..batch_a.len().max(batch_b.len())].to_vec();
    let walk = Walk::new(&batch.into(), [&batch_a.into(), &batch_b.into()])?;
    for (i, out) in out.chunks_exact_mut(m * n).enumerate() {
        let [at_a, at_b] = walk.starts(i / walk.row);
        let step = i % walk.row;
        let a = &a[(at_a + step * walk.steps[0]) * m * k..][..m * k];
        let b = &b[(at_b + step * walk.steps[1]) * k * n..][..k * n];
        product(ctx, (m, n, k), Mat::rows(a, k), Mat::rows(b, n), out, n, false)?;
    }
    Ok(())
}
