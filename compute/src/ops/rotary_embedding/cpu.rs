//! Rotary position embedding on the CPU, one head of one position at a time.

use super::RotaryEmbedding;
use crate::args::{concrete_one, optional, required};
use crate::error::{Error, Result};
use crate::isa::Simd;
use crate::matrix::Real;
use crate::number::with_type;
use crate::op::Context;
use crate::simd::dispatch;
use lgp_memory::{Tensor, TensorView};

pub(super) fn run(
    op: &RotaryEmbedding,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, cos) = (required(inputs, 0)?, required(inputs, 1)?);
    let sin = required(inputs, 2)?;
    let mut out = ctx.alloc(dtype, shape.clone())?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    // Heads are the axis before or after the positions.
    let (heads, length, size, heads_first) = match shape.dims() {
        [_, heads, length, size] => (*heads, *length, *size, true),
        [_, length, hidden] => {
            let size = match op.heads {
                Some(heads) => hidden / heads,
                None => 2 * cos.shape().last().copied().unwrap_or(0),
            };
            (hidden / size, *length, size, false)
        }
        _ => return Err(Error::invalid("x has neither rank 3 nor 4")),
    };
    let half = cos.shape().last().copied().unwrap_or(0);
    let positions = positions(inputs, cos, shape.first().copied().unwrap_or(0), length)?;
    with_type!(dtype, real T => {
        let (x, cos, sin) = (x.as_slice::<T>()?, cos.as_slice::<T>()?, sin.as_slice::<T>()?);
        ctx.split(out.as_mut_slice::<T>()?, size, size * 4, |first, part| {
            for (i, out) in part.chunks_exact_mut(size).enumerate() {
                let row = first + i;
                let token = if heads_first {
                    row / (heads * length) * length + row % length
                } else {
                    row / heads
                };
                let at = positions.as_ref().map_or(token, |p| p[token]) * half;
                let x = &x[row * size..][..size];
                let angle = (&cos[at..at + half], &sin[at..at + half]);
                turn(ctx.simd(), op.interleaved, x, angle, out);
            }
        });
        Ok(())
    })?;
    Ok(vec![out])
}

/// The row of the cache for each token; `None` where each token has a row of its own.
fn positions(
    inputs: &[Option<TensorView<'_>>],
    cos: &TensorView<'_>,
    batch: usize,
    length: usize,
) -> Result<Option<Vec<usize>>> {
    let Some(ids) = optional(inputs, 3) else { return Ok(None) };
    let rows = cos.shape().first().copied().unwrap_or(0);
    let one = |id: i64| {
        let row = usize::try_from(id).ok().filter(|&id| id < rows);
        row.ok_or_else(|| Error::invalid(format!("position {id} is not one of {rows}")))
    };
    let given = ids.as_slice::<i64>()?;
    if let ([first], 1) = (given, ids.shape().rank()) {
        let sequence = (0i64..).take(length).map(|i| one(first.saturating_add(i)));
        let sequence = sequence.collect::<Result<Vec<usize>>>()?;
        return Ok(Some(sequence.repeat(batch)));
    }
    given.iter().copied().map(one).collect::<Result<_>>().map(Some)
}

/// Rotates the pairs of one head; the elements after them are copied.
fn turn<T: Real>(simd: Simd, interleaved: bool, x: &[T], angle: (&[T], &[T]), out: &mut [T]) {
    let (cos, sin) = angle;
    let half = cos.len();
    let (turned, rest) = out.split_at_mut(2 * half);
    rest.copy_from_slice(&x[2 * half..]);
    dispatch(
        simd,
        #[inline(always)]
        || {
            if interleaved {
                let pairs = turned.chunks_exact_mut(2).zip(x.chunks_exact(2));
                for ((out, x), (c, s)) in pairs.zip(cos.iter().zip(sin)) {
                    out[0] = *c * x[0] - *s * x[1];
                    out[1] = *s * x[0] + *c * x[1];
                }
            } else {
                let (real, imaginary) = turned.split_at_mut(half);
                let (a, b) = x[..2 * half].split_at(half);
                for i in 0..half {
                    real[i] = cos[i] * a[i] - sin[i] * b[i];
                    imaginary[i] = sin[i] * a[i] + cos[i] * b[i];
                }
            }
        },
    );
}
