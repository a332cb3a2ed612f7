//! ConstantOfShape on the CPU: one element broadcast.

use super::ConstantOfShape;
use crate::args::concrete_one;
use crate::error::Result;
use crate::movement::strided;
use crate::op::Context;
use lgp_memory::{Layout, Shape, Tensor, TensorView};

pub(super) fn run(
    op: &ConstantOfShape,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (_, shape) = concrete_one(op, inputs)?;
    let view = Layout::contiguous(&Shape::default())?.broadcast(&shape)?;
    Ok(vec![strided(ctx, &op.value.view(), &view)?])
}
