//! DepthToSpace and SpaceToDepth on a device: permutations of six axes.

use super::{DepthMode, DepthToSpace, SpaceToDepth};
use crate::device::{Launches, viewed};
use crate::op::ValueInfo;
use lgp_memory::{Layout, Shape};

pub(super) fn depth_to_space(
    op: &DepthToSpace,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let x = inputs.first().copied().flatten()?.ty.concrete_shape()?;
    let output = outputs.first()?;
    let (n, c, b) = (x[0], output.ty.concrete_shape()?[1], op.block);
    let (axes, perm) = match op.mode {
        DepthMode::Dcr => ([n, b, b, c, x[2], x[3]], [0, 3, 4, 1, 5, 2]),
        DepthMode::Crd => ([n, c, b, b, x[2], x[3]], [0, 1, 4, 2, 5, 3]),
    };
    viewed(&Layout::contiguous(&Shape::from(axes)).ok()?.permuted(&perm).ok()?, output)
}

pub(super) fn space_to_depth(
    op: &SpaceToDepth,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let x = inputs.first().copied().flatten()?.ty.concrete_shape()?;
    let output = outputs.first()?;
    let (y, b) = (output.ty.concrete_shape()?, op.block);
    let axes = Shape::from([x[0], x[1], y[2], b, y[3], b]);
    viewed(&Layout::contiguous(&axes).ok()?.permuted(&[0, 3, 5, 1, 2, 4]).ok()?, output)
}
