//! Concat on a device: a call for each input.

use super::Concat;
use crate::args::axis;
use crate::device::{Argument, Launches, moves, plain};
use crate::op::ValueInfo;

pub(super) fn launches(
    op: &Concat,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let whole = plain(outputs.first()?)?;
    let along = axis(op.axis, whole.dims().len()).ok()?;
    let (mut launches, mut start) = (Launches::default(), 0);
    for (i, input) in inputs.iter().enumerate() {
        let from = plain((*input)?)?;
        let size = from.dims()[along];
        if !from.dims().contains(&0) {
            let to = whole.sliced(along, start, 1, size).ok()?;
            let dtype = outputs.first()?.ty.dtype;
            let (source, target) = ((Argument::Input(i), &from), (Argument::Output(0), &to));
            launches.calls.push(moves(dtype, source, target)?);
        }
        start += size;
    }
    Some(launches)
}
