//! Rotary position embedding on devices.

use super::RotaryEmbedding;
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, groups, load};
use crate::op::ValueInfo;

const GROUP: usize = 64;

pub(super) fn launches(op: &RotaryEmbedding, inputs: &[Option<&ValueInfo>]) -> Option<Launches> {
    let [Some(x), Some(cos), Some(_), ..] = inputs else { return None };
    let (dtype, shape, angles) = (x.ty.dtype, x.ty.concrete_shape()?, cos.ty.concrete_shape()?);
    let count = shape.elements().ok()?;
    if count == 0 {
        return Some(Launches::default());
    }
    let pairs = *angles.last()?;
    let (heads, length, size, heads_first) = match shape.dims() {
        [_, heads, length, size] => (*heads, *length, *size, true),
        [_, length, hidden] => {
            let size = op.heads.map_or(Some(2 * pairs), |heads| hidden.checked_div(heads))?;
            (hidden.checked_div(size)?, *length, size, false)
        }
        _ => return None,
    };
    let mut arguments: Vec<Argument> = (0..3).map(Argument::Input).collect();
    let (pointer, position) = match optional(inputs, 3) {
        None => ("", "(token)"),
        Some(ids) => {
            arguments.push(Argument::Input(3));
            let pointer = "GLOBAL const i64 *ids,";
            // A single position is that of the first token of each sequence.
            match ids.ty.concrete_shape()?.rank() {
                1 => (pointer, "ids[0] + (token) % length"),
                _ => (pointer, "ids[token]"),
            }
        }
    };
    let kernel =
        Kernel::new("rotary_embedding", include_str!("rotary_embedding.cl"), [GROUP, 1, 1])
            .define("LOAD(p, i)", load(dtype, "p", "(i)"))
            .define("INTERLEAVED", u8::from(op.interleaved))
            .define("HEADS_FIRST", u8::from(heads_first))
            .define("IDS_POINTER", pointer)
            .define("POSITION(token)", position)
            .storing(dtype)?;
    arguments.push(Argument::Output(0));
    let positions = angles[..angles.rank() - 1].iter().product();
    for number in [count, heads, length, size, pairs, positions] {
        arguments.push(Argument::U32(u32::try_from(number).ok()?));
    }
    let (flops, bytes) = (3 * count as u64, 2 * shape.byte_len(dtype).ok()? as u64);
    Some(Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops, bytes }.into())
}
