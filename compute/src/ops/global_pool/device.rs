//! Pooling of whole planes on devices.

use super::GlobalPool;
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches};
use crate::op::ValueInfo;
use crate::ops::pooling::GlobalPoolKind;

pub(super) fn launches(
    op: &GlobalPool,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let (x, y) = (optional(inputs, 0)?, outputs.first()?);
    let (dtype, dims) = (x.ty.dtype, x.ty.concrete_shape()?);
    let plane: usize = dims[2..].iter().product();
    let rows = dims[0] * dims[1];
    if plane == 0 || rows == 0 {
        return None;
    }
    let group = if plane > 1024 { 256 } else { 64 };
    let [start, combine, result] = match op.kind {
        GlobalPoolKind::Average => ["0.0f", "((a) + (b))", "((a) / (float)(n))"],
        // NaN stays.
        GlobalPoolKind::Max => ["-INFINITY", "((a) != (a) || (a) > (b) ? (a) : (b))", "(a)"],
        GlobalPoolKind::Sum => ["0.0f", "((a) + (b))", "(a)"],
    };
    let kernel = Kernel::new("global_pool", include_str!("global_pool.cl"), [group, 1, 1])
        .floats(dtype)?
        .define("START", start)
        .define("COMBINE(a, b)", combine)
        .define("RESULT(a, n)", result);
    let arguments =
        vec![Argument::Input(0), Argument::Output(0), Argument::U32(u32::try_from(plane).ok()?)];
    let (flops, bytes) = (dims.elements().ok()? as u64, dims.byte_len(dtype).ok()?);
    let bytes = (bytes + y.ty.concrete_shape()?.byte_len(dtype).ok()?) as u64;
    Some(Call { kernel, groups: [rows, 1, 1], arguments, flops, bytes }.into())
}
