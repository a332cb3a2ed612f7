//! Pad on a device. With a constant, the output is filled first and x copied into it. Otherwise
//! each output reads the element that it repeats.

use super::{Pad, PadMode, kept};
use crate::device::{Argument, Call, Kernel, Launches, fills, groups, literal, moves, plain, word};
use crate::index::strides;
use crate::op::ValueInfo;
use lgp_memory::DType;
use std::fmt::Write as _;

const GROUP: usize = 64;

pub(super) fn launches(
    op: &Pad,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let (x, output) = (inputs.first().copied().flatten()?, outputs.first()?);
    let (mut from, mut to) = (plain(x)?, plain(output)?);
    if op.mode != PadMode::Constant {
        return repeated(op, inputs, output);
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

/// The launch for new elements that repeat elements of the input.
fn repeated(op: &Pad, inputs: &[Option<&ValueInfo>], output: &ValueInfo) -> Option<Launches> {
    let (dtype, to) = (output.ty.dtype, output.ty.concrete_shape()?);
    let from = inputs.first().copied().flatten()?.ty.concrete_shape()?;
    let count = to.elements().ok()?;
    if count == 0 {
        return Some(Launches::default());
    }
    let amounts = op.amounts(inputs, from.rank()).ok()??;
    let axes = from.iter().zip(strides(&from)).zip(to.iter().zip(amounts));
    let mut places = String::new();
    for ((&size, stride), (n, amounts)) in axes.rev() {
        let (begin, kept) = (amounts.0, kept(size, amounts));
        let bounds = [begin, kept.start, kept.end - 1].map(i32::try_from);
        let [Ok(begin), Ok(first), Ok(last)] = bounds else { return None };
        let _ = write!(
            places,
            "from += (u32)repeated((i32)(rest % {n}u) - ({begin}), {first}, {last}) * {stride}u; \
             rest /= {n}u; "
        );
    }
    let mode = match op.mode {
        PadMode::Wrap => "WRAP",
        PadMode::Reflect => "REFLECT",
        PadMode::Constant | PadMode::Edge => "EDGE",
    };
    let kernel = Kernel::new("pad_repeated", include_str!("pad.cl"), [GROUP, 1, 1])
        .define(mode, 1)
        .define("WORD", word(dtype)?)
        .define("PLACES", places);
    let count32 = Argument::U32(u32::try_from(count).ok()?);
    let arguments = vec![Argument::Input(0), Argument::Output(0), count32];
    let bytes = 2 * to.byte_len(dtype).ok()? as u64;
    Some(Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops: 0, bytes }.into())
}
