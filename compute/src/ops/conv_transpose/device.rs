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
    let [x, weight, y] = shapes(inputs, outputs)?;
    let conv = Convolution {
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
    };
    conv.product()
}
