//! Pad on a device: by a constant, all of it first, then what is inside.

use super::{Pad, PadMode, kept};
use crate::device::{Argument, Launches, fills, literal, moves, plain};
use crate::op::ValueInfo;
use lgp_memory::DType;

pub(super) fn launches(
    op: &Pad,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let (x, output) = (inputs.first().copied().flatten()?, outputs.first()?);
    let (mut from, mut to) = (plain(x)?, plain(output)?);
    if op.mode != PadMode::Constant {
        return None;
    }
    let value = match inputs.get(2).copied().flatten() {
        None => op.value.unwrap_or(0.),
        Some(given) => {
            let value = given.constant.as_ref()?;
            *value.as_slice::<f32>().ok()?.first()?
        }
    };
    if value != 0. && output.ty.dtype != DType::F32 {
        return None;
    }
    let count = output.ty.concrete_shape()?.elements().ok()?;
    let fill = fills(output.ty.dtype, &literal(value), Argument::Output(0), count)?;
    let mut launches = Launches::from(fill);
    for (axis, amounts) in op.amounts(inputs, from.dims().len()).ok()??.into_iter().enumerate() {
        let kept = kept(from.dims()[axis], amounts);
        let len = usize::try_from(kept.end - kept.start).ok()?;
        from = from.sliced(axis, usize::try_from(kept.start).ok()?, 1, len).ok()?;
        to = to.sliced(axis, usize::try_from(amounts.0.max(0)).ok()?, 1, len).ok()?;
    }
    if !from.dims().contains(&0) {
        let (source, target) = ((Argument::Input(0), &from), (Argument::Output(0), &to));
        launches.calls.push(moves(output.ty.dtype, source, target)?);
    }
    Some(launches)
}
