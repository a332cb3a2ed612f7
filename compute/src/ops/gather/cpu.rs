//! Gather on the CPU.

use super::Gather;
use crate::args::{axis, concrete_one, required};
use crate::error::{Error, Result};
use crate::movement::around;
use crate::op::Context;
use lgp_memory::{DType, Tensor, TensorView};

pub(super) fn run(
    op: &Gather,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let axis = axis(op.axis, x.shape().rank())?;
    let (_, size, inner) = around(x.shape(), axis);
    let indices = positions(required(inputs, 1)?, size)?;
    let mut out = ctx.alloc(dtype, shape)?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let bytes = inner * dtype.size();
    let blocks = out.as_bytes_mut()?.chunks_exact_mut(indices.len() * bytes);
    for (to, from) in blocks.zip(x.as_bytes().chunks_exact(size * bytes)) {
        for (to, &i) in to.chunks_exact_mut(bytes).zip(&indices) {
            to.copy_from_slice(&from[i * bytes..(i + 1) * bytes]);
        }
    }
    Ok(vec![out])
}

/// The indices, counted from the front of an axis of a given size.
fn positions(indices: &TensorView<'_>, size: usize) -> Result<Vec<usize>> {
    let position = |i: i64| {
        let signed = i64::try_from(size).unwrap_or(i64::MAX);
        usize::try_from(if i < 0 { i.saturating_add(signed) } else { i })
            .ok()
            .filter(|&p| p < size)
            .ok_or_else(|| Error::invalid(format!("index {i} is outside an axis of size {size}")))
    };
    match indices.dtype() {
        DType::I32 => indices.as_slice::<i32>()?.iter().map(|&i| position(i.into())).collect(),
        _ => indices.as_slice::<i64>()?.iter().map(|&i| position(i)).collect(),
    }
}
