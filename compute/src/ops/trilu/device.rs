//! Triangles on devices.

use super::Trilu;
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, groups, word};
use crate::op::ValueInfo;

const GROUP: usize = 64;

pub(super) fn launches(op: &Trilu, inputs: &[Option<&ValueInfo>]) -> Option<Launches> {
    let x = optional(inputs, 0)?;
    let (dtype, shape) = (x.ty.dtype, x.ty.concrete_shape()?);
    let diagonal = match optional(inputs, 1) {
        None => 0,
        Some(k) => *k.ints("k").ok()??.first()?,
    };
    let [.., rows, columns] = shape.dims()[..] else { return None };
    let count = shape.elements().ok()?;
    let kernel = Kernel::new("trilu", include_str!("trilu.cl"), [GROUP, 1, 1])
        .define("WORD", word(dtype)?)
        .define("UPPER", u8::from(op.upper));
    let mut arguments = vec![Argument::Input(0), Argument::Output(0)];
    for number in [count, rows.max(1), columns.max(1)] {
        arguments.push(Argument::U32(u32::try_from(number).ok()?));
    }
    // All diagonals beyond the corners bound the same triangle.
    let far = i64::from(i32::try_from(rows.max(columns)).ok()?);
    arguments.push(Argument::I32(i32::try_from(diagonal.clamp(-far, far)).ok()?));
    let bytes = 2 * shape.byte_len(dtype).ok()? as u64;
    Some(Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops: 0, bytes }.into())
}
