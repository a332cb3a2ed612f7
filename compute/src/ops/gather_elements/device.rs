//! GatherElements on devices. An index out of range takes the nearest element, where the CPU
//! refuses it.

use super::GatherElements;
use crate::args::{axis, optional};
use crate::device::{Argument, Call, Kernel, Launches, at_strides, c_type, groups, word};
use crate::index::strides;
use crate::op::ValueInfo;

const GROUP: usize = 64;

pub(super) fn launches(op: &GatherElements, inputs: &[Option<&ValueInfo>]) -> Option<Launches> {
    let (x, indices) = (optional(inputs, 0)?, optional(inputs, 1)?);
    let (dtype, index) = (x.ty.dtype, indices.ty.dtype);
    let (dims, picked) = (x.ty.concrete_shape()?, indices.ty.concrete_shape()?);
    let along = axis(op.axis, dims.rank()).ok()?;
    let count = picked.elements().ok()?;
    if count == 0 {
        return Some(Launches::default());
    }
    let mut steps = strides(&dims);
    let step = std::mem::replace(&mut steps[along], 0);
    let kernel = Kernel::new("gather_elements", include_str!("gather_elements.cl"), [GROUP, 1, 1])
        .define("WORD", word(dtype)?)
        .define("INDEX", c_type(index)?)
        .define("PLACE(i)", at_strides(&picked, &steps, "(i)"));
    let mut arguments = vec![Argument::Input(0), Argument::Input(1), Argument::Output(0)];
    for number in [count, dims[along], step] {
        arguments.push(Argument::U32(u32::try_from(number).ok()?));
    }
    let bytes = (count * (2 * dtype.size() + index.size())) as u64;
    let call = Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops: 0, bytes };
    Some(call.into()).filter(|_| dims[along] > 0)
}
