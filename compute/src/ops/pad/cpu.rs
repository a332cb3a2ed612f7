//! Pad on the CPU: each axis has a table of its elements' positions in the input.

use super::{Pad, PadMode, kept};
use crate::args::{concrete_one, infos, optional, required};
use crate::error::{Error, Result};
use crate::movement::zero_byte;
use crate::op::{Context, Op};
use lgp_memory::{Tensor, TensorView};
use std::ops::Range;

pub(super) fn run(
    op: &Pad,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let known = infos(inputs)?;
    let known: Vec<_> = known.iter().map(Option::as_ref).collect();
    let amounts = op.amounts(&known, shape.rank())?;
    let amounts = amounts.ok_or_else(|| Error::unsupported("so many axes"))?;
    let fill = fill(op, ctx, x, optional(inputs, 2))?;
    let mut out = ctx.alloc(dtype, shape.clone())?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let tables: Vec<Vec<Option<usize>>> = amounts
        .iter()
        .zip(x.shape().iter().zip(shape.iter()))
        .map(|(&pads, (&from, &to))| {
            let kept = kept(from, pads);
            (0..to).map(|i| source(op.mode, i, pads.0, &kept)).collect()
        })
        .collect();
    let (from, to) = (x.as_bytes(), out.as_bytes_mut()?);
    match dtype.size() {
        1 => pad::<1>(&tables, x.shape(), from, &fill, to),
        2 => pad::<2>(&tables, x.shape(), from, &fill, to),
        4 => pad::<4>(&tables, x.shape(), from, &fill, to),
        8 => pad::<8>(&tables, x.shape(), from, &fill, to),
        _ => pad::<16>(&tables, x.shape(), from, &fill, to),
    }
    Ok(vec![out])
}

/// The bytes of the value that fills the border.
fn fill(
    op: &Pad,
    ctx: &Context,
    x: &TensorView<'_>,
    value: Option<&TensorView<'_>>,
) -> Result<Vec<u8>> {
    if let Some(value) = value {
        return Ok(value.as_bytes().to_vec());
    }
    let Some(value) = op.value else {
        return Ok(vec![zero_byte(x); x.dtype().size()]);
    };
    let value = Tensor::scalar(value)?;
    let cast = crate::ops::Cast { to: x.dtype() }.run(ctx, &[Some(value.view())])?;
    Ok(cast.first().map(|t| t.as_bytes().to_vec()).unwrap_or_default())
}

/// The position in the input of element `i` of a padded axis; `None` is the border's value.
fn source(mode: PadMode, i: usize, begin: i64, kept: &Range<i64>) -> Option<usize> {
    let at = i64::try_from(i).ok()?.checked_sub(begin)?;
    let (first, last) = (kept.start, kept.end - 1);
    let at = match mode {
        _ if kept.is_empty() => return None,
        PadMode::Constant => at,
        PadMode::Edge => at.clamp(first, last),
        PadMode::Wrap => first + (at - first).rem_euclid(kept.end - first),
        PadMode::Reflect if at < first => 2 * first - at,
        PadMode::Reflect if at > last => 2 * last - at,
        PadMode::Reflect => at,
    };
    usize::try_from(at).ok().filter(|_| kept.contains(&at))
}

fn pad<const N: usize>(
    tables: &[Vec<Option<usize>>],
    dims: &[usize],
    from: &[u8],
    fill: &[u8],
    to: &mut [u8],
) {
    let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
    let Some(&fill) = fill.as_chunks::<N>().0.first() else { return };
    let Some((inner, outer)) = tables.split_last() else {
        // A scalar has no border.
        to.copy_from_slice(from);
        return;
    };
    for (row, to) in to.chunks_exact_mut(inner.len()).enumerate() {
        // The row's start in the input, unless an outer axis is in the border.
        let (mut rest, mut stride, mut start) = (row, dims[outer.len()], Some(0));
        for (table, dim) in outer.iter().zip(dims).rev() {
            start = start.and_then(|s: usize| Some(s + table[rest % table.len()]? * stride));
            rest /= table.len();
            stride *= dim;
        }
        match start {
            None => to.fill(fill),
            Some(start) => {
                for (to, source) in to.iter_mut().zip(inner) {
                    *to = source.map_or(fill, |i| from[start + i]);
                }
            }
        }
    }
}
