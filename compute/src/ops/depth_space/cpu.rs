//! DepthToSpace and SpaceToDepth on the CPU: permutations of six axes.

use super::{DepthMode, DepthToSpace, SpaceToDepth};
use crate::args::{concrete_one, required};
use crate::error::Result;
use crate::movement::strided;
use crate::op::Context;
use lgp_memory::{Layout, Shape, Tensor, TensorView};

pub(super) fn depth_to_space(
    op: &DepthToSpace,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (_, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let (n, c, b) = (shape[0], shape[1], op.block);
    let (h, w) = (x.shape()[2], x.shape()[3]);
    let (axes, perm) = match op.mode {
        DepthMode::Dcr => ([n, b, b, c, h, w], [0, 3, 4, 1, 5, 2]),
        DepthMode::Crd => ([n, c, b, b, h, w], [0, 1, 4, 2, 5, 3]),
    };
    let view = Layout::contiguous(&Shape::from(axes))?.permuted(&perm)?;
    Ok(vec![strided(ctx, x, &view)?.reshape(shape)?])
}

pub(super) fn space_to_depth(
    op: &SpaceToDepth,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (_, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let (n, c, b) = (x.shape()[0], x.shape()[1], op.block);
    let axes = [n, c, shape[2], b, shape[3], b];
    let view = Layout::contiguous(&Shape::from(axes))?.permuted(&[0, 3, 5, 1, 2, 4])?;
    Ok(vec![strided(ctx, x, &view)?.reshape(shape)?])
}
