//! Integer matrix products on the CPU, of operands that are not packed in advance.

use super::MatMulInteger;
use crate::args::{concrete_one, optional, required};
use crate::error::Result;
use crate::op::Context;
use crate::quantized::widened;
use crate::simd::dispatch;
use crate::walk::Walk;
use lgp_memory::{Shape, Tensor, TensorView};

pub(super) fn run(
    op: &MatMulInteger,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (a, b) = (required(inputs, 0)?, required(inputs, 1)?);
    let (vector_a, vector_b) = (a.shape().rank() == 1, b.shape().rank() == 1);
    let (batch_a, m, k) = split(a.shape(), !vector_a);
    let (batch_b, n) = match &b.shape()[..] {
        [_] => (Shape::default(), 1),
        [batch @ .., _, n] => (Shape::from(batch), *n),
        [] => (Shape::default(), 1),
    };
    let mut out = ctx.alloc(dtype, shape.clone())?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let drop = usize::from(!vector_a) + usize::from(!vector_b);
    let batch = Shape::from(&shape[..shape.rank() - drop]);
    let zeros = |i: usize| optional(inputs, i).map_or(Ok(vec![0]), widened);
    let (zero_a, zero_b) = (zeros(2)?, zeros(3)?);
    // A vector of zero points serves every batch.
    let flat = |i: usize| optional(inputs, i).is_none_or(|z| z.shape().rank() <= 1);
    let walk = Walk::new(&batch, [&batch_a, &batch_b])?;
    let (a, b) = (widened(a)?, widened(b)?);
    let values = out.as_mut_slice::<i32>()?;
    ctx.split(values, n, n.saturating_mul(k), |first, part| {
        for (i, row) in part.chunks_exact_mut(n).enumerate() {
            let (at, i) = ((first + i) / m, (first + i) % m);
            let starts = walk.starts(at / walk.row);
            let [in_a, in_b] = std::array::from_fn(|s| starts[s] + (at % walk.row) * walk.steps[s]);
            let a_row = &a[(in_a * m + i) * k..][..k];
            let b = &b[in_b * k * n..][..k * n];
            let zero_a = match zero_a.as_slice() {
                [zero] => *zero,
                all => all[if flat(2) { i } else { in_a * m + i }],
            };
            let zero_b = match zero_b.as_slice() {
                [_] => &zero_b[..],
                all if flat(3) => &all[..n],
                all => &all[in_b * n..][..n],
            };
            dispatch(
                ctx.simd(),
                #[inline(always)]
                || product_row(a_row, b, zero_a, zero_b, row),
            );
        }
    });
    Ok(vec![out])
}

/// The batch, rows and columns of the left side.
fn split(shape: &Shape, matrix: bool) -> (Shape, usize, usize) {
    match &shape[..] {
        [batch @ .., m, k] if matrix => (Shape::from(batch), *m, *k),
        [k] => (Shape::default(), 1, *k),
        _ => (Shape::default(), 1, 1),
    }
}

#[inline(always)]
fn product_row(a: &[i32], b: &[i32], zero_a: i32, zero_b: &[i32], out: &mut [i32]) {
    out.fill(0);
    let mut sum = 0i32;
    for (a, b) in a.iter().zip(b.chunks_exact(out.len())) {
        let a = a - zero_a;
        sum = sum.wrapping_add(a);
        for (out, b) in out.iter_mut().zip(b) {
            *out = out.wrapping_add(a.wrapping_mul(*b));
        }
    }
    match zero_b {
        [0] => {}
        [zero] => out.iter_mut().for_each(|o| *o = o.wrapping_sub(sum.wrapping_mul(*zero))),
        zeros => {
            for (out, zero) in out.iter_mut().zip(zeros) {
                *out = out.wrapping_sub(sum.wrapping_mul(*zero));
            }
        }
    }
}
