//! Scattering on the CPU, update after update: later ones may meet the same element.

use super::{ScatterElements, ScatterNd, ScatterReduction};
use crate::args::{axis, concrete_one, required};
use crate::error::Result;
use crate::number::{Number, with_type};
use crate::op::Op;
use crate::ops::gather_elements::element_positions;
use crate::ops::gather_nd::slice_positions;
use lgp_memory::{Tensor, TensorView};

pub(super) fn elements(
    op: &ScatterElements,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    concrete_one(op, inputs)?;
    let name = op.name();
    let (x, indices) = (required(name, inputs, 0)?, required(name, inputs, 1)?);
    let axis = axis(name, op.axis, x.shape().rank())?;
    let to = element_positions(name, x.shape(), axis, indices)?;
    write(name, op.reduction, x, required(name, inputs, 2)?, &to, 1)
}

pub(super) fn slices(op: &ScatterNd, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
    concrete_one(op, inputs)?;
    let name = op.name();
    let (x, updates) = (required(name, inputs, 0)?, required(name, inputs, 2)?);
    if updates.is_empty() {
        return Ok(vec![x.to_tensor()?]);
    }
    let (to, run) = slice_positions(name, x.shape(), 0, required(name, inputs, 1)?)?;
    write(name, op.reduction, x, updates, &to, run)
}

/// Writes runs of elements to where `to` says, counted in runs.
fn write(
    op: &'static str,
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
    with_type!(op, x.dtype(), number T => {
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
