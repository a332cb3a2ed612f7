//! Slice on a device, with ranges that are known.

use super::Slice;
use crate::device::{Launches, plain, viewed};
use crate::op::ValueInfo;

pub(super) fn launches(
    op: &Slice,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let mut view = plain(inputs.first().copied().flatten()?)?;
    for cut in op.cuts(inputs, view.dims().len()).ok()?? {
        let (start, len) = cut.on(view.dims()[cut.axis]);
        view = view.sliced(cut.axis, start, isize::try_from(cut.step).ok()?, len).ok()?;
    }
    viewed(&view, outputs.first()?)
}
