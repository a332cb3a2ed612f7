//! Batch normalisation on devices.

use super::BatchNorm;
use crate::device::{Argument, Call, Kernel, Launches, groups, load};
use crate::movement::around;
use crate::op::ValueInfo;

const GROUP: usize = 64;

pub(super) fn launches(op: &BatchNorm, outputs: &[ValueInfo]) -> Option<Launches> {
    let [output] = outputs else { return None };
    let (dtype, shape) = (output.ty.dtype, output.ty.concrete_shape()?);
    let (_, channels, plane) = around(&shape, 1);
    let count = shape.elements().ok()?;
    if count == 0 {
        return Some(Launches::default());
    }
    let kernel = Kernel::new("batch_norm", include_str!("batch_norm.cl"), [GROUP, 1, 1])
        .define("LOAD(p, i)", load(dtype, "p", "(i)"))
        .storing(dtype)?;
    let mut arguments: Vec<Argument> = (0..5).map(Argument::Input).collect();
    arguments.push(Argument::Output(0));
    for size in [count, channels, plane] {
        arguments.push(Argument::U32(u32::try_from(size).ok()?));
    }
    arguments.push(Argument::F32(op.epsilon));
    let (flops, bytes) = (4 * count as u64, 2 * shape.byte_len(dtype).ok()? as u64);
    Some(Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops, bytes }.into())
}
