//! Scattering on the CPU, one update after the other: several may change the same element.

use super::{ScatterElements, ScatterNd, ScatterReduction};
use crate::args::{axis, concrete_one, required};
use crate::error::Result;
use crate::number::{Number, with_type};
use crate::ops::gather_elements::element_positions;
use crate::ops::gather_nd::slice_positions;
use lgp_memory::{Tensor, TensorView};

pub(super) fn elements(
    op: &ScatterElements,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    concrete_one(op, inputs)?;
    let (x, indices) = (required(inputs, 0)?, required(inputs, 1)?);
    let axis = axis(op.axis, x.shape().rank())?;
    let to = element_positions(x.shape(), axis, indices)?;
    write(op.reduction, x, required(inputs, 2)?, &to, 1)
}

pub(super) fn slices(op: &ScatterNd, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
    concrete_one(op, inputs)?;
    let (x, updates) = (required(inputs, 0)?, required(inputs, 2)?);
    if updates.is_empty() {
        return Ok(vec![x.to_tensor()?]);
    }
    let (to, run) = slice_positions(x.shape(), 0, required(inputs, 1)?)?;
    write(op.reduction, x, updates, &to, run)
}

/// Writes runs of elements to where `to` says, counted in runs.
fn write(
    reduction: ScatterReduction,
    x: &TensorView<'_>,
    updates: &TensorView<'_>,
    to: &[usize],
    run: usize,
) -> Result<Vec<Tensor>> {
    let mut out = x.to_tensor()?;
    if to.is_empty() || run == 0 {
        return Ok(vec![out]);
    }
    if reduction == ScatterReduction::None {
        let bytes = run * x.dtype().size();
        let target = out.as_bytes_mut()?;
        for (from, &at) in updates.as_bytes().chunks_exact(bytes).zip(to) {
            target[at * bytes..][..bytes].copy_from_slice(from);
        }
        return Ok(vec![out]);
    }
    with_type!(x.dtype(), number T => {
        let combine: fn(T, T) -> T = match reduction {
            ScatterReduction::Mul => Number::mul,
            ScatterReduction::Min => Number::least,
            ScatterReduction::Max => Number::most,
            _ => Number::add,
        };
        let target = out.as_mut_slice::<T>()?;
        for (from, &at) in updates.as_slice::<T>()?.chunks_exact(run).zip(to) {
            for (out, x) in target[at * run..][..run].iter_mut().zip(from) {
                *out = combine(*out, *x);
            }
        }
        Ok(())
    })?;
    Ok(vec![out])
}
