//! OneHot on devices, for classes that are integers.

use super::OneHot;
use crate::args::{axis, optional};
use crate::device::{Argument, Call, Kernel, Launches, c_type, groups, word};
use crate::movement::around;
use crate::op::ValueInfo;
use lgp_memory::DType;

const GROUP: usize = 64;

pub(super) fn launches(
    op: &OneHot,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let (indices, values) = (optional(inputs, 0)?, optional(inputs, 2)?);
    let (index, dtype) = (indices.ty.dtype, values.ty.dtype);
    let shape = outputs.first()?.ty.concrete_shape()?;
    let at = axis(op.axis, shape.rank()).ok()?;
    let (_, depth, inner) = around(&shape, at);
    let count = shape.elements().ok()?;
    let whole = matches!(index, DType::I32 | DType::I64);
    if !whole || values.ty.concrete_shape()?.elements().ok()? != 2 {
        return None;
    }
    let kernel = Kernel::new("one_hot", include_str!("one_hot.cl"), [GROUP, 1, 1])
        .define("WORD", word(dtype)?)
        .define("INDEX", c_type(index)?);
    let mut arguments = vec![Argument::Input(0), Argument::Input(2), Argument::Output(0)];
    for number in [count, depth, inner] {
        arguments.push(Argument::U32(u32::try_from(number).ok()?));
    }
    let bytes = shape.byte_len(dtype).ok()? + indices.ty.concrete_shape()?.byte_len(index).ok()?;
    let groups = [groups(count, GROUP), 1, 1];
    Some(Call { kernel, groups, arguments, flops: 0, bytes: bytes as u64 }.into())
}
