//! Range on the CPU.

use super::{Range, too_long};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::number::{Number, with_type};
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};
use num_traits::NumCast;

pub(super) fn run(
    op: &Range,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (start, delta) = (required(inputs, 0)?, required(inputs, 2)?);
    let mut out = ctx.alloc(dtype, shape)?;
    with_type!(dtype, number T => {
        let (start, delta) = (one::<T>(start)?, one::<T>(delta)?);
        for (i, out) in out.as_mut_slice::<T>()?.iter_mut().enumerate() {
            *out = start.add(T::count(i).mul(delta));
        }
        Ok(())
    })?;
    Ok(vec![out])
}

fn one<T: Number>(x: &TensorView<'_>) -> Result<T> {
    let element = x.as_slice::<T>()?.first().copied();
    element.ok_or_else(|| Error::invalid("an input has no elements"))
}

/// Number of elements.
pub(super) fn length(start: &Tensor, limit: &Tensor, delta: &Tensor) -> Result<usize> {
    let floats = start.dtype().is_float();
    with_type!(start.dtype(), [F32 f32, F64 f64, I16 i16, I32 i32, I64 i64] T => {
        let (start, limit) = (one::<T>(&start.view())?, one::<T>(&limit.view())?);
        let delta = one::<T>(&delta.view())?;
        if floats {
            let wide = |x: T| <f64 as NumCast>::from(x).unwrap_or(f64::NAN);
            let n = ((wide(limit) - wide(start)) / wide(delta)).ceil();
            // A negative count is an empty range; NaN and infinity have none.
            <usize as NumCast>::from(n.max(if n.is_nan() { n } else { 0. })).ok_or_else(too_long)
        } else {
            let wide = |x: T| <i128 as NumCast>::from(x).unwrap_or(0);
            let (span, step) = (wide(limit) - wide(start), wide(delta));
            if step == 0 {
                return Err(too_long());
            }
            let n = if (span < 0) == (step < 0) { span.unsigned_abs() } else { 0 };
            usize::try_from(n.div_ceil(step.unsigned_abs())).map_err(|_| too_long())
        }
    })
}
