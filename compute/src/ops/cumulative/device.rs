//! Running sums and products on devices.

use super::Cumulative;
use crate::args::{axis, optional};
use crate::device::{Argument, Call, Kernel, Launches, c_type, load, store};
use crate::movement::around;
use crate::op::ValueInfo;
use lgp_memory::DType;

/// Work-items that share a line.
const GROUP: usize = 64;

pub(super) fn launches(op: &Cumulative, inputs: &[Option<&ValueInfo>]) -> Option<Launches> {
    let (x, along) = (optional(inputs, 0)?, optional(inputs, 1)?);
    let (dtype, shape) = (x.ty.dtype, x.ty.concrete_shape()?);
    let &[along] = along.ints("the axis").ok()??.as_slice() else { return None };
    let (outer, n, inner) = around(&shape, axis(along, shape.rank()).ok()?);
    let lines = outer.checked_mul(inner)?;
    if lines == 0 || n == 0 {
        return Some(Launches::default());
    }
    // Integers wrap, and in C only unsigned integers do.
    let sum = match dtype {
        DType::F32 | DType::F16 | DType::BF16 => "float",
        DType::F64 | DType::Bool => return None,
        _ => "u64",
    };
    let ty = c_type(dtype)?;
    let stored = if sum == "float" { "(v)".to_owned() } else { format!("({ty})(v)") };
    let kernel = Kernel::new("cumulative", include_str!("cumulative.cl"), [GROUP, 1, 1])
        .define("TYPE", ty)
        .define("SUM", sum)
        .define("LOAD(i)", load(dtype, "x", "(i)"))
        .define("STORE(v, i)", store(dtype, &stored, "y", "(i)"))
        .define("JOIN(a, b)", if op.product { "((a) * (b))" } else { "((a) + (b))" })
        .define("START", u8::from(op.product))
        .define("EXCLUSIVE", u8::from(op.exclusive))
        .define("REVERSE", u8::from(op.reverse));
    let mut arguments = vec![Argument::Input(0), Argument::Output(0)];
    for number in [n, inner] {
        arguments.push(Argument::U32(u32::try_from(number).ok()?));
    }
    let count = (lines * n) as u64;
    let (flops, bytes) = (2 * count, 3 * count * dtype.size() as u64);
    Some(Call { kernel, groups: [lines, 1, 1], arguments, flops, bytes }.into())
}
