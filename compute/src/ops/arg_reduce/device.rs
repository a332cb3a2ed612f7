//! ArgMax and ArgMin on devices.

use super::{ArgKind, ArgReduce};
use crate::args::{axis, optional};
use crate::device::{Argument, Call, Launches, c_type, kernel_of_lines, load};
use crate::movement::around;
use crate::op::ValueInfo;
use lgp_memory::DType;

const BODY: &str = concat!(include_str!("../../device/lines.h"), include_str!("arg_reduce.cl"));

pub(super) fn launches(op: &ArgReduce, inputs: &[Option<&ValueInfo>]) -> Option<Launches> {
    let x = optional(inputs, 0)?;
    let (dtype, shape) = (x.ty.dtype, x.ty.concrete_shape()?);
    let (outer, n, inner) = around(&shape, axis(op.axis, shape.rank()).ok()?);
    let lines = outer.checked_mul(inner)?;
    if lines == 0 || n == 0 {
        return Some(Launches::default()).filter(|_| lines == 0);
    }
    let register = match dtype {
        DType::F16 | DType::BF16 => "float",
        _ => c_type(dtype)?,
    };
    let (kernel, groups) = kernel_of_lines("arg_reduce", BODY, [lines, n, inner]);
    let kernel = kernel
        .define("TYPE", c_type(dtype)?)
        .define("REGISTER", register)
        .define("LOAD(i)", load(dtype, "x", "(i)"))
        .define("BEYOND(a, b)", if op.kind == ArgKind::Max { "(a) > (b)" } else { "(a) < (b)" })
        .define("LAST", u8::from(op.select_last_index));
    let mut arguments = vec![Argument::Input(0), Argument::Output(0)];
    for number in [lines, n, inner] {
        arguments.push(Argument::U32(u32::try_from(number).ok()?));
    }
    let count = (lines * n) as u64;
    let bytes = count * dtype.size() as u64 + 8 * lines as u64;
    Some(Call { kernel, groups: [groups, 1, 1], arguments, flops: count, bytes }.into())
}
