//! Convolutions of bytes on devices.

use super::ConvInteger;
use crate::args::optional;
use crate::device::Launches;
use crate::op::ValueInfo;
use crate::ops::conv::device::{Convolution, Integers, shapes};
use crate::window::three;

pub(super) fn launches(
    op: &ConvInteger,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    convolution(op, inputs, outputs)?.launches()
}

pub(super) fn schedules(
    op: &ConvInteger,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Vec<Launches> {
    convolution(op, inputs, outputs).map_or(Vec::new(), |convolution| convolution.schedules())
}

fn convolution(
    op: &ConvInteger,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Convolution> {
    let [x, weight, y] = shapes(inputs, outputs)?;
    let dtype = |i: usize| Some(optional(inputs, i)?.ty.dtype);
    let zeros = |i: usize| optional(inputs, i)?.ty.concrete_shape()?.elements().ok();
    let (zero, weight_zero) = (zeros(2), zeros(3));
    let maps = weight[0];
    if zero.is_some_and(|n| n != 1) || weight_zero.is_some_and(|n| n != 1 && n != maps) {
        return None;
    }
    Some(Convolution {
        dtype: dtype(0)?,
        axes: three(&op.conv.windows(&x, &weight).ok()?).ok()?,
        transposed: false,
        images: y[0],
        groups: op.conv.group,
        channels: weight[1],
        maps: maps / op.conv.group,
        bias: false,
        transformed: false,
        integers: Some(Integers {
            weight: dtype(1)?,
            zero: zero.is_some(),
            weight_zero: weight_zero.map(|n| n != 1),
        }),
    })
}
