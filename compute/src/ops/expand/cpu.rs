//! Expand on the CPU.

use super::Expand;
use crate::args::{concrete_one, required};
use crate::error::Result;
use crate::movement::strided;
use crate::op::Context;
use lgp_memory::{Layout, Shape, Tensor, TensorView};

pub(super) fn run(
    op: &Expand,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (_, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    Ok(vec![to(ctx, x, &shape)?])
}

/// `x` repeated to a shape that it broadcasts to.
pub(crate) fn to(ctx: &Context, x: &TensorView<'_>, shape: &Shape) -> Result<Tensor> {
    if shape == x.shape() {
        return Ok(x.to_tensor()?);
    }
    strided(ctx, x, &Layout::contiguous(x.shape())?.broadcast(shape)?)
}
