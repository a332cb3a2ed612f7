//! TopK on devices: a work-group finds one element after the other.

use super::TopK;
use crate::args::{axis, optional};
use crate::device::{Argument, Call, Kernel, Launches, c_type, load};
use crate::movement::around;
use crate::op::ValueInfo;
use lgp_memory::DType;

const GROUP: usize = 256;
/// Most elements that are read to find all k of a line; beyond this, the CPU sorts the line
/// faster.
const SEEN_MAX: usize = 1 << 24;

pub(super) fn launches(
    op: &TopK,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let (x, y) = (optional(inputs, 0)?, outputs.first()?);
    let (dtype, shape) = (x.ty.dtype, x.ty.concrete_shape()?);
    let along = axis(op.axis, shape.rank()).ok()?;
    let (outer, n, inner) = around(&shape, along);
    let k = y.ty.concrete_shape()?[along];
    let lines = outer.checked_mul(inner)?;
    if lines == 0 || k == 0 {
        return Some(Launches::default());
    }
    let seen = n.checked_mul(k).filter(|seen| *seen <= SEEN_MAX)?;
    let register = match dtype {
        DType::F16 | DType::BF16 => "float",
        _ => c_type(dtype)?,
    };
    let kernel = Kernel::new("top_k", include_str!("top_k.cl"), [GROUP, 1, 1])
        .define("TYPE", c_type(dtype)?)
        .define("REGISTER", register)
        .define("LOAD(i)", load(dtype, "x", "(i)"))
        .define("LARGEST", u8::from(op.largest));
    let mut arguments = vec![Argument::Input(0), Argument::Output(0), Argument::Output(1)];
    for number in [n, k, inner] {
        arguments.push(Argument::U32(u32::try_from(number).ok()?));
    }
    let flops = (lines * seen) as u64;
    let bytes = (lines * (n * dtype.size() + k * (dtype.size() + 8))) as u64;
    Some(Call { kernel, groups: [lines, 1, 1], arguments, flops, bytes }.into())
}
