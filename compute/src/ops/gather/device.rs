//! Gather on a device. An index out of range takes the nearest element: a kernel cannot refuse it,
//! as the CPU does.

use super::Gather;
use crate::args::axis;
use crate::device::{Argument, Call, Kernel, Launches, c_type, groups, word};
use crate::movement::around;
use crate::op::ValueInfo;

const GROUP: usize = 64;

pub(super) fn launches(
    op: &Gather,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let (x, indices) = (inputs.first().copied().flatten()?, inputs.get(1).copied().flatten()?);
    let (dtype, shape) = (x.ty.dtype, x.ty.concrete_shape()?);
    let along = axis(op.axis, shape.rank()).ok()?;
    let (_, size, inner) = around(&shape, along);
    let picked = indices.ty.concrete_shape()?.elements().ok()?;
    let count = outputs.first()?.ty.concrete_shape()?.elements().ok()?;
    let kernel = Kernel::new("gather", include_str!("gather.cl"), [GROUP, 1, 1])
        .define("WORD", word(dtype)?)
        .define("INDEX", c_type(indices.ty.dtype)?);
    let mut arguments = vec![Argument::Input(0), Argument::Input(1), Argument::Output(0)];
    for number in [count, size, picked, inner] {
        arguments.push(Argument::U32(u32::try_from(number).ok()?));
    }
    let bytes = (2 * count * dtype.size() + picked * indices.ty.dtype.size()) as u64;
    let call = Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops: 0, bytes };
    Some(call.into()).filter(|_| size > 0)
}
