//! Split on a device: a call for each piece.

use super::Split;
use crate::args::axis;
use crate::device::{Argument, Launches, moves, plain};
use crate::op::ValueInfo;

pub(super) fn launches(
    op: &Split,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let whole = plain(inputs.first().copied().flatten()?)?;
    let along = axis(op.axis, whole.dims().len()).ok()?;
    let (mut launches, mut start) = (Launches::default(), 0);
    for (i, output) in outputs.iter().enumerate() {
        let to = plain(output)?;
        let size = to.dims()[along];
        if !to.dims().contains(&0) {
            let from = whole.sliced(along, start, 1, size).ok()?;
            let (source, target) = ((Argument::Input(0), &from), (Argument::Output(i), &to));
            launches.calls.push(moves(output.ty.dtype, source, target)?);
        }
        start += size;
    }
    Some(launches)
}
