//! Local response normalisation on devices.

use super::Lrn;
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, groups};
use crate::op::ValueInfo;

const GROUP: usize = 64;

pub(super) fn launches(op: &Lrn, inputs: &[Option<&ValueInfo>]) -> Option<Launches> {
    let x = optional(inputs, 0)?;
    let shape = x.ty.concrete_shape()?;
    let count = shape.elements().ok().filter(|count| *count > 0)?;
    let kernel = Kernel::new("lrn", include_str!("lrn.cl"), [GROUP, 1, 1]).floats(x.ty.dtype)?;
    let mut arguments = vec![Argument::Input(0), Argument::Output(0)];
    let channels = shape[1];
    let [before, after] = [(op.size - 1) / 2, op.size / 2].map(|reach| reach.min(channels));
    for size in [count, channels, shape[2..].iter().product(), before, after] {
        arguments.push(Argument::U32(u32::try_from(size).ok()?));
    }
    let size: f32 = num_traits::cast(op.size)?;
    arguments.extend([op.alpha / size, op.bias, op.beta].map(Argument::F32));
    let flops = (count * 2 * op.size.min(channels)) as u64;
    let bytes = 2 * shape.byte_len(x.ty.dtype).ok()? as u64;
    Some(Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops, bytes }.into())
}
