//! Expand on a device.

use crate::device::{Launches, plain, viewed};
use crate::op::ValueInfo;

pub(super) fn launches(
    _op: &super::Expand,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let output = outputs.first()?;
    let whole = plain(inputs.first().copied().flatten()?)?;
    viewed(&whole.broadcast(&output.ty.concrete_shape()?).ok()?, output)
}
