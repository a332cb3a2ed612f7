//! ArgMax and ArgMin on the CPU.

use super::{ArgKind, ArgReduce};
use crate::args::{axis, concrete_one, required};
use crate::error::Result;
use crate::number::{Number, with_type};
use crate::op::Context;
use crate::ops::reduce::gathered_last;
use lgp_memory::{Tensor, TensorView};

pub(super) fn run(
    op: &ArgReduce,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let axis = axis(op.axis, x.shape().rank())?;
    let mut out = ctx.alloc(dtype, shape)?;
    let (moved, n) = gathered_last(ctx, x, &[axis])?;
    with_type!(x.dtype(), number T => {
        let x = moved.as_slice::<T>()?;
        ctx.split(out.as_mut_slice::<i64>()?, 1, n, |first, part| {
            for (i, out) in part.iter_mut().enumerate() {
                let row = &x[(first + i) * n..][..n];
                *out = i64::try_from(extreme(op, row)).unwrap_or(i64::MAX);
            }
        });
        Ok(())
    })?;
    Ok(vec![out])
}

/// The position of a row's extreme, or of its first NaN.
#[allow(clippy::eq_op, reason = "only NaN differs from itself")]
fn extreme<T: Number>(op: &ArgReduce, row: &[T]) -> usize {
    let mut best = 0;
    for (i, x) in row.iter().enumerate() {
        let to_beat = row[best];
        if to_beat != to_beat {
            break;
        }
        let better = match op.kind {
            ArgKind::Max => *x > to_beat,
            ArgKind::Min => *x < to_beat,
        };
        if better || x != x || (op.select_last_index && *x == to_beat) {
            best = i;
        }
    }
    best
}
