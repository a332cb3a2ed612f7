//! Concat on the CPU.

use super::Concat;
use crate::args::{axis, concrete_one};
use crate::error::Result;
use crate::movement::{WORD, around};
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};

pub(super) fn run(
    op: &Concat,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let along = axis(op.axis, shape.rank())?;
    let mut out = ctx.alloc(dtype, shape.clone())?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let (_, size, inner) = around(&shape, along);
    let bytes = inner * dtype.size();
    let row = size * bytes;
    ctx.split(out.as_bytes_mut()?, row, row / WORD, |first, rows| {
        let mut at = 0;
        for x in inputs.iter().flatten() {
            let run = x.shape()[along] * bytes;
            if run == 0 {
                continue;
            }
            let from = x.as_bytes()[first * run..].chunks_exact(run);
            for (to, from) in rows.chunks_exact_mut(row).zip(from) {
                to[at..at + run].copy_from_slice(from);
            }
            at += run;
        }
    });
    Ok(vec![out])
}
