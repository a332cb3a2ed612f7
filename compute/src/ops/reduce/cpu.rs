//! Reductions on the CPU: the reduced axes are moved to the end, and each row becomes one number.

use super::{Reduce, ReduceKind};
use crate::args::{concrete_one, infos, required};
use crate::error::{Error, Result};
use crate::movement::strided;
use crate::number::{Number, with_type};
use crate::op::{Context, Op};
use crate::ops::unary::Exp;
use crate::reduction::fold;
use crate::simd::dispatch;
use lgp_memory::{DType, Layout, Tensor, TensorView};

pub(super) fn run(
    op: &Reduce,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let known = infos(inputs)?;
    let known: Vec<_> = known.iter().map(Option::as_ref).collect();
    let reduced = op.reduced(&known, x.shape().rank())?;
    let reduced = reduced.ok_or_else(|| Error::unsupported("so many axes"))?;
    let mut out = ctx.alloc(dtype, shape)?;
    let (moved, n) = gathered_last(ctx, x, &reduced)?;
    reduce_rows(op.kind, ctx, &moved.view(), n, &mut out)?;
    Ok(vec![out])
}

/// The reduction in another dtype.
pub(super) fn through(
    op: &Reduce,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    to: DType,
) -> Result<Vec<Tensor>> {
    let (dtype, _) = concrete_one(op, inputs)?;
    let numbers = crate::ops::Cast { to }.run(ctx, &inputs[..1])?;
    let mut inputs = inputs.to_vec();
    inputs[0] = numbers.first().map(Tensor::view);
    let out = run(op, ctx, &inputs)?;
    let out: Vec<_> = out.iter().map(|x| Some(x.view())).collect();
    crate::ops::Cast { to: dtype }.run(ctx, &out)
}

/// The tensor with some axes moved to the end, and the number of elements of these.
pub(crate) fn gathered_last(
    ctx: &Context,
    x: &TensorView<'_>,
    last: &[usize],
) -> Result<(Tensor, usize)> {
    let rank = x.shape().rank();
    let kept = (0..rank).filter(|axis| !last.contains(axis));
    let perm: Vec<usize> = kept.chain(last.iter().copied()).collect();
    let n = last.iter().fold(1usize, |n, &axis| n.saturating_mul(x.shape()[axis]));
    if perm.is_sorted() {
        return Ok((x.to_tensor()?, n));
    }
    Ok((strided(ctx, x, &Layout::contiguous(x.shape())?.permuted(&perm)?)?, n))
}

/// Reduces every row of `n` elements to one. The extremes of an empty row are the infinities, or
/// the ends of the integers' range.
pub(crate) fn reduce_rows(
    kind: ReduceKind,
    ctx: &Context,
    x: &TensorView<'_>,
    n: usize,
    out: &mut Tensor,
) -> Result<()> {
    match x.dtype() {
        DType::F32 => floats::<f32>(kind, ctx, x, n, out),
        DType::F64 => floats::<f64>(kind, ctx, x, n, out),
        dtype => with_type!(dtype, number T => integers::<T>(kind, ctx, x, n, out)),
    }
}

/// Calls `f` on every row.
#[inline(always)]
fn rows<T: Number>(
    ctx: &Context,
    x: &TensorView<'_>,
    n: usize,
    out: &mut Tensor,
    f: impl Fn(&[T]) -> T + Sync,
) -> Result<()> {
    let x = x.as_slice::<T>()?;
    ctx.split(out.as_mut_slice::<T>()?, 1, n, |first, part| {
        dispatch(
            ctx.simd(),
            #[inline(always)]
            || {
                for (i, out) in part.iter_mut().enumerate() {
                    *out = f(&x[(first + i) * n..][..n]);
                }
            },
        );
    });
    Ok(())
}

fn floats<T: Exp + Number>(
    kind: ReduceKind,
    ctx: &Context,
    x: &TensorView<'_>,
    n: usize,
    out: &mut Tensor,
) -> Result<()> {
    macro_rules! each {
        ($start:expr, |$x:ident| $map:expr, $combine:path, |$sum:ident| $finish:expr) => {
            rows(
                ctx,
                x,
                n,
                out,
                #[inline(always)]
                |row: &[T]| {
                    let $sum = fold(
                        row,
                        $start,
                        #[inline(always)]
                        |$x: T| $map,
                        $combine,
                    );
                    $finish
                },
            )
        };
    }
    let count = T::count(n);
    match kind {
        ReduceKind::Mean => each!(T::ZERO, |x| x, Number::add, |s| s / count),
        ReduceKind::Sum => each!(T::ZERO, |x| x, Number::add, |s| s),
        ReduceKind::Max => each!(T::neg_infinity(), |x| x, Number::most, |s| s),
        ReduceKind::Min => each!(T::infinity(), |x| x, Number::least, |s| s),
        ReduceKind::Prod => each!(T::ONE, |x| x, Number::mul, |s| s),
        ReduceKind::L1 => each!(T::ZERO, |x| Number::abs(x), Number::add, |s| s),
        ReduceKind::L2 => each!(T::ZERO, |x| x * x, Number::add, |s| s.sqrt()),
        ReduceKind::SumSquare => each!(T::ZERO, |x| x * x, Number::add, |s| s),
        ReduceKind::LogSumExp => rows(
            ctx,
            x,
            n,
            out,
            #[inline(always)]
            |row: &[T]| {
                let top = fold(row, T::neg_infinity(), |x| x, Number::most);
                // An infinite maximum is the result itself; subtracting it would give NaN.
                let shift = if top.is_infinite() { T::ZERO } else { top };
                let sum = fold(
                    row,
                    T::ZERO,
                    #[inline(always)]
                    |x: T| (x - shift).exp_(),
                    Number::add,
                );
                sum.ln() + shift
            },
        ),
    }
}

fn integers<T: Number + num_traits::Bounded>(
    kind: ReduceKind,
    ctx: &Context,
    x: &TensorView<'_>,
    n: usize,
    out: &mut Tensor,
) -> Result<()> {
    let count = T::count(n.max(1));
    let all = |row: &[T], start, f: fn(T, T) -> T| row.iter().fold(start, |sum, x| f(sum, *x));
    match kind {
        ReduceKind::Mean => rows(ctx, x, n, out, |row| all(row, T::ZERO, T::add).div(count)),
        ReduceKind::Sum => rows(ctx, x, n, out, |row| all(row, T::ZERO, T::add)),
        ReduceKind::Max => rows(ctx, x, n, out, |row| all(row, T::min_value(), T::most)),
        ReduceKind::Min => rows(ctx, x, n, out, |row| all(row, T::max_value(), T::least)),
        ReduceKind::Prod => rows(ctx, x, n, out, |row| all(row, T::ONE, T::mul)),
        ReduceKind::L1 => rows(ctx, x, n, out, |row| all(row, T::ZERO, |s, x| s.add(x.abs()))),
        ReduceKind::SumSquare => {
            rows(ctx, x, n, out, |row| all(row, T::ZERO, |s, x| s.add(x.mul(x))))
        }
        ReduceKind::L2 | ReduceKind::LogSumExp => {
            Err(Error::unsupported(format!("dtype {}", T::DTYPE)))
        }
    }
}
