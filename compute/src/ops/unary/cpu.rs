//! Element-wise functions on the CPU.

use super::loops::{map, same};
use super::table::{on_cpu, on_integers};
use super::{Unary, UnaryKind};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::number::with_type;
use crate::op::{Context, Op};
use lgp_memory::{DType, Tensor, TensorView};

pub(super) fn run(
    op: &Unary,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let mut out = ctx.alloc(dtype, shape)?;
    match (op.kind, x.dtype()) {
        (UnaryKind::Shrink { .. }, dtype) if !dtype.is_float() => return by_f64(op, ctx, x),
        (UnaryKind::Not, _) => map(ctx, x, &mut out, 1, |x: bool| !x)?,
        (UnaryKind::IsNaN, DType::F32) => map(ctx, x, &mut out, 1, |x: f32| x.is_nan())?,
        (UnaryKind::IsNaN, _) => map(ctx, x, &mut out, 1, |x: f64| x.is_nan())?,
        (UnaryKind::IsInf { positive, negative }, DType::F32) => {
            map(ctx, x, &mut out, 1, |x: f32| {
                x.is_infinite() & if x > 0. { positive } else { negative }
            })?
        }
        (UnaryKind::IsInf { positive, negative }, _) => map(ctx, x, &mut out, 1, |x: f64| {
            x.is_infinite() & if x > 0. { positive } else { negative }
        })?,
        _ => numbers(op, ctx, Some(x), &mut out)?,
    }
    Ok(vec![out])
}

/// The functions whose result has their input's dtype. The input is `x`, or the elements of `out`.
pub(super) fn numbers(
    op: &Unary,
    ctx: &Context,
    x: Option<&TensorView<'_>>,
    out: &mut Tensor,
) -> Result<()> {
    match (op.kind, out.dtype()) {
        (kind, DType::F32) => on_cpu::<f32>(kind, ctx, x, out),
        (kind, DType::F64) => on_cpu::<f64>(kind, ctx, x, out),
        (kind, dtype) => with_type!(dtype, number T => match on_integers::<T>(kind) {
            Some(f) => same(ctx, x, out, 1, f),
            None => Err(Error::unsupported(format!("dtype {dtype}"))),
        }),
    }
}

/// Computes in f64 and casts the result to the input's dtype.
fn by_f64(op: &Unary, ctx: &Context, x: &TensorView<'_>) -> Result<Vec<Tensor>> {
    let cast = |x: TensorView<'_>, to: DType| crate::ops::Cast { to }.run(ctx, &[Some(x)]);
    let wide = cast(x.clone(), DType::F64)?;
    let wide = run(op, ctx, &wide.iter().map(|x| Some(x.view())).collect::<Vec<_>>())?;
    wide.iter().try_fold(Vec::new(), |mut all, wide| {
        all.extend(cast(wide.view(), x.dtype())?);
        Ok(all)
    })
}
