//! Transposed convolution on devices: a plain convolution for each phase of the strides.

use super::ConvTranspose;
use crate::args::optional;
use crate::device::Launches;
use crate::op::ValueInfo;
use crate::ops::conv::device::{Convolution, shapes};
use crate::window::three;

pub(super) fn launches(
    op: &ConvTranspose,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    convolution(op, inputs, outputs)?.launches()
}

pub(super) fn schedules(
    op: &ConvTranspose,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Vec<Launches> {
    convolution(op, inputs, outputs).map_or(Vec::new(), |convolution| convolution.schedules())
}

fn convolution(
    op: &ConvTranspose,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Convolution> {
    let [x, weight, y] = shapes(inputs, outputs)?;
    Some(Convolution {
        dtype: outputs.first()?.ty.dtype,
        axes: three(&op.windows(&x[2..], &weight[2..]).ok()?).ok()?,
        transposed: true,
        images: y[0],
        groups: op.group,
        channels: x[1] / op.group,
        maps: weight[1],
        bias: optional(inputs, 2).is_some(),
        transformed: false,
        integers: None,
    })
}
