//! Where on the CPU: elements are moved by their size.

use super::Where;
use crate::args::{concrete_one, required};
use crate::error::Result;
use crate::op::Context;
use crate::walk::Walk;
use lgp_memory::{Tensor, TensorView};

pub(super) fn run(
    op: &Where,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let c = required(inputs, 0)?;
    let (a, b) = (required(inputs, 1)?, required(inputs, 2)?);
    let mut out = ctx.alloc(dtype, shape.clone())?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let walk = Walk::new(&shape, [c.shape(), a.shape(), b.shape()])?;
    let condition = c.as_slice::<bool>()?;
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let to = out.as_bytes_mut()?;
    match dtype.size() {
        1 => choose::<1>(ctx, &walk, condition, a, b, to),
        2 => choose::<2>(ctx, &walk, condition, a, b, to),
        4 => choose::<4>(ctx, &walk, condition, a, b, to),
        8 => choose::<8>(ctx, &walk, condition, a, b, to),
        _ => choose::<16>(ctx, &walk, condition, a, b, to),
    }
    Ok(vec![out])
}

fn choose<const N: usize>(
    ctx: &Context,
    walk: &Walk<3>,
    condition: &[bool],
    a: &[u8],
    b: &[u8],
    out: &mut [u8],
) {
    let (a, b) = (a.as_chunks::<N>().0, b.as_chunks::<N>().0);
    let out = out.as_chunks_mut::<N>().0;
    let [sc, sa, sb] = walk.steps;
    ctx.split(out, walk.row, walk.row * 2, |first, part| {
        for (i, part) in part.chunks_exact_mut(walk.row).enumerate() {
            let [c, x, y] = walk.starts(first + i);
            for (j, out) in part.iter_mut().enumerate() {
                *out = if condition[c + j * sc] { a[x + j * sa] } else { b[y + j * sb] };
            }
        }
    });
}
