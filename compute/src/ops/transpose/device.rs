//! Transpose on a device.

use super::Transpose;
use crate::device::{Launches, plain, viewed};
use crate::op::ValueInfo;

pub(super) fn launches(
    op: &Transpose,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let whole = plain(inputs.first().copied().flatten()?)?;
    viewed(&whole.permuted(&op.perm(whole.dims().len()).ok()?).ok()?, outputs.first()?)
}
