//! Split on the CPU.

use super::Split;
use crate::args::{axis, concrete, required};
use crate::error::Result;
use crate::movement::strided;
use crate::op::Context;
use lgp_memory::{Layout, Tensor, TensorView};

pub(super) fn run(
    op: &Split,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let pieces = concrete(op, inputs)?;
    let x = required(inputs, 0)?;
    let along = axis(op.axis, x.shape().rank())?;
    let whole = Layout::contiguous(x.shape())?;
    let mut start = 0;
    let mut out = Vec::with_capacity(pieces.len());
    for (_, shape) in pieces {
        out.push(strided(ctx, x, &whole.sliced(along, start, 1, shape[along])?)?);
        start += shape[along];
    }
    Ok(out)
}
