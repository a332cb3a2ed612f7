//! Causal depthwise convolution on the CPU: a multiple of a shifted row for each tap.

use super::CausalConv;
use crate::args::{concrete, optional, required};
use crate::error::{Error, Result};
use crate::matrix::Real;
use crate::number::with_type;
use crate::op::Context;
use crate::simd::dispatch;
use lgp_memory::{Tensor, TensorView};

pub(super) fn run(
    op: &CausalConv,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let mut out = Vec::new();
    for (dtype, shape) in concrete(op, inputs)? {
        out.push(ctx.alloc(dtype, shape)?);
    }
    let [y, state] = &mut out[..] else {
        return Err(Error::invalid("there are no two outputs"));
    };
    with_type!(y.dtype(), real T => {
        convolve::<T>(ctx, inputs, y.as_mut_slice()?, state.as_mut_slice()?)
    })?;
    Ok(out)
}

fn convolve<T: Real>(
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    y: &mut [T],
    state: &mut [T],
) -> Result<()> {
    let (x, weight) = (required(inputs, 0)?, required(inputs, 1)?);
    let bias = optional(inputs, 2).map(TensorView::as_slice::<T>).transpose()?;
    let past = optional(inputs, 3).map(TensorView::as_slice::<T>).transpose()?;
    let (channels, length, k) = (x.shape()[1], x.shape()[2], weight.shape()[2]);
    let (x, weight) = (x.as_slice::<T>()?, weight.as_slice::<T>()?);
    let carried = k - 1;
    // Element `i` of state and x together, in row `r`.
    let at = |r: usize, i: usize| match i.checked_sub(carried) {
        Some(i) => x[r * length + i],
        None => past.map_or(T::zero(), |past| past[r * carried + i]),
    };
    for (r, state) in state.chunks_exact_mut(carried.max(1)).enumerate() {
        for (i, state) in state.iter_mut().enumerate() {
            *state = at(r, length + i);
        }
    }
    ctx.split(y, length, length.saturating_mul(k), |first, part| {
        for (i, out) in part.chunks_exact_mut(length).enumerate() {
            let (r, c) = (first + i, (first + i) % channels);
            out.fill(bias.map_or(T::zero(), |b| b[c]));
            let x = &x[r * length..][..length];
            for (tap, &w) in weight[c * k..][..k].iter().enumerate() {
                let (head, tail) = out.split_at_mut((carried - tap).min(length));
                for (i, o) in head.iter_mut().enumerate() {
                    *o = *o + w * at(r, i + tap);
                }
                dispatch(
                    ctx.simd(),
                    #[inline(always)]
                    || tail.iter_mut().zip(x).for_each(|(o, x)| *o = *o + w * *x),
                );
            }
        }
    });
    Ok(())
}
