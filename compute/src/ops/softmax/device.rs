//! Softmax on devices.

use super::Softmax;
use crate::args::axis;
use crate::device::{Argument, Call, Launches, kernel_of_lines, load};
use crate::movement::around;
use crate::op::ValueInfo;

const BODY: &str = concat!(include_str!("../../device/lines.h"), include_str!("softmax.cl"));

pub(super) fn launches(
    op: &Softmax,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let ([Some(x)], [_]) = (inputs, outputs) else { return None };
    let (dtype, shape) = (x.ty.dtype, x.ty.concrete_shape()?);
    let axis = axis(op.axis, shape.rank()).ok()?;
    let (outer, n, inner) = around(&shape, axis);
    let (n, apart) = if op.flatten { (n * inner, 1) } else { (n, inner) };
    let count = outer * apart;
    if count * n == 0 {
        return Some(Launches::default());
    }
    let (kernel, groups) = kernel_of_lines("softmax", BODY, [count, n, apart]);
    let kernel = kernel
        .define("LOGARITHM", u8::from(op.log))
        .define("LOAD(i)", load(dtype, "x", "(i)"))
        .storing(dtype)?;
    let mut arguments = vec![Argument::Input(0), Argument::Output(0)];
    for size in [count, n, apart] {
        arguments.push(Argument::U32(u32::try_from(size).ok()?));
    }
    let flops = 5 * (count * n) as u64;
    let bytes = 2 * shape.byte_len(dtype).ok()? as u64;
    Some(Call { kernel, groups: [groups, 1, 1], arguments, flops, bytes }.into())
}
