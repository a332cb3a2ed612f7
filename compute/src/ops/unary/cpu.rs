//! Element-wise functions on the CPU.

use super::table::{on_cpu, on_integers};
use super::{Unary, UnaryKind};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::isa::Simd;
use crate::number::with_type;
use crate::op::{Context, Op};
use crate::simd::{self, dispatch};
use lgp_memory::{DType, Element, Tensor, TensorView};

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

/// The functions whose result has the dtype of what they are of: `x`, or what is in `out`.
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

/// Computes in f64 and gives the result the input's dtype.
fn by_f64(op: &Unary, ctx: &Context, x: &TensorView<'_>) -> Result<Vec<Tensor>> {
    let cast = |x: TensorView<'_>, to: DType| crate::ops::Cast { to }.run(ctx, &[Some(x)]);
    let wide = cast(x.clone(), DType::F64)?;
    let wide = run(op, ctx, &wide.iter().map(|x| Some(x.view())).collect::<Vec<_>>())?;
    wide.iter().try_fold(Vec::new(), |mut all, wide| {
        all.extend(cast(wide.view(), x.dtype())?);
        Ok(all)
    })
}

/// Applies `f` to every element. `cost` is its operations, roughly.
#[inline(always)]
fn map<T: Element, U: Element>(
    ctx: &Context,
    x: &TensorView<'_>,
    out: &mut Tensor,
    cost: usize,
    f: impl Fn(T) -> U + Copy + Sync,
) -> Result<()> {
    let x = x.as_slice::<T>()?;
    ctx.split(out.as_mut_slice::<U>()?, 1, cost, |start, out| {
        line(ctx.simd(), out, &x[start..start + out.len()], f);
    });
    Ok(())
}

/// [`map`] to the same type, of `x` or of what is in `out`.
#[inline(always)]
pub(super) fn same<T: Element>(
    ctx: &Context,
    x: Option<&TensorView<'_>>,
    out: &mut Tensor,
    cost: usize,
    f: impl Fn(T) -> T + Copy + Sync,
) -> Result<()> {
    let Some(x) = x else {
        ctx.split(out.as_mut_slice::<T>()?, 1, cost, |_, out| {
            simd::over(out, |_, out, x| line(ctx.simd(), out, x, f));
        });
        return Ok(());
    };
    map(ctx, x, out, cost, f)
}

/// One loop, compiled once for all that call it.
#[inline(never)]
fn line<T: Copy, U>(simd: Simd, out: &mut [U], x: &[T], f: impl Fn(T) -> U) {
    dispatch(
        simd,
        #[inline(always)]
        || simd::map(out, x, f),
    );
}
