//! Transpose on the CPU.

use super::Transpose;
use crate::args::required;
use crate::error::Result;
use crate::movement::strided;
use crate::op::Context;
use lgp_memory::{Layout, Tensor, TensorView};

pub(super) fn run(
    op: &Transpose,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let x = required(inputs, 0)?;
    let view = Layout::contiguous(x.shape())?.permuted(&op.perm(x.shape().rank())?)?;
    if view.is_contiguous() {
        // Only axes of size 1 moved.
        return Ok(vec![x.to_tensor()?.reshape(view.dims())?]);
    }
    Ok(vec![strided(ctx, x, &view)?])
}
