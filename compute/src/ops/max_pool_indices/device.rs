//! Max pooling with indices on devices.

use super::MaxPoolIndices;
use crate::device::{Argument, Call, Kernel, Launches, groups, planes};
use crate::op::ValueInfo;
use crate::ops::pool::Windows;

const GROUP: usize = 64;

pub(super) fn launches(
    op: &MaxPoolIndices,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let Windows { dtype, dims, shape, axes } = Windows::of(&op.pool, inputs, outputs)?;
    let kernel =
        Kernel::new("max_pool_indices", include_str!("max_pool_indices.cl"), [GROUP, 1, 1]);
    let kernel =
        kernel.elements(dtype)?.window(&axes).define("COLUMN_MAJOR", usize::from(op.column_major));
    let count = u32::try_from(dims[0] * dims[1]).ok()?;
    let mut arguments = vec![Argument::Input(0), Argument::Output(0), Argument::Output(1)];
    arguments.push(Argument::U32(count));
    arguments.extend(planes(&axes)?);
    let outputs: usize = shape.iter().product();
    let taps: usize = axes.iter().map(|axis| axis.kernel).product();
    let bytes = dims.byte_len(dtype).ok()? + shape.byte_len(dtype).ok()? + 8 * outputs;
    let (flops, bytes) = ((outputs * taps) as u64, bytes as u64);
    Some(Call { kernel, groups: [groups(outputs, GROUP), 1, 1], arguments, flops, bytes }.into())
}
