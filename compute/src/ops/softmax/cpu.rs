//! Softmax on the CPU.

use super::Softmax;
use crate::args::{axis, concrete_one, required};
use crate::error::Result;
use crate::isa::Simd;
use crate::movement::around;
use crate::number::{Number, with_type};
use crate::op::Context;
use crate::ops::unary::Exp;
use crate::reduction::fold;
use crate::simd::{self, dispatch};
use lgp_memory::{Tensor, TensorView};

pub(super) fn run(
    op: &Softmax,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let mut out = ctx.alloc(dtype, shape)?;
    normalize(op, ctx, Some(required(inputs, 0)?), &mut out)?;
    Ok(vec![out])
}

/// The softmax of `x`, or of the elements of `out` where there is no `x`.
pub(super) fn normalize(
    op: &Softmax,
    ctx: &Context,
    x: Option<&TensorView<'_>>,
    out: &mut Tensor,
) -> Result<()> {
    let axis = axis(op.axis, out.shape().rank())?;
    let (_, n, inner) = around(out.shape(), axis);
    if out.is_empty() {
        return Ok(());
    }
    let (n, inner) = if op.flatten { (n * inner, 1) } else { (n, inner) };
    let block = n * inner;
    let simd = ctx.simd();
    with_type!(out.dtype(), real T => {
        let x = x.map(TensorView::as_slice::<T>).transpose()?;
        let one = |x: &[T], out: &mut [T]| match (inner, simd.fused()) {
            (1, true) => row::<T, true>(simd, x, out, op.log),
            (1, false) => row::<T, false>(simd, x, out, op.log),
            _ => columns(simd, x, out, inner, op.log),
        };
        ctx.split(out.as_mut_slice::<T>()?, block, block * 20, |first, part| {
            let mut copy: Vec<T> = Vec::with_capacity(if x.is_none() { block } else { 0 });
            for (i, out) in part.chunks_exact_mut(block).enumerate() {
                match x {
                    Some(x) => one(&x[(first + i) * block..][..block], out),
                    None => {
                        copy.clear();
                        copy.extend_from_slice(out);
                        one(&copy, out);
                    }
                }
            }
        });
        Ok(())
    })
}

/// The softmax of one row.
fn row<T: Exp + Number, const FUSED: bool>(simd: Simd, x: &[T], out: &mut [T], log: bool) {
    dispatch(
        simd,
        #[inline(always)]
        || {
            let top = fold(
                x,
                T::neg_infinity(),
                #[inline(always)]
                |x| x,
                Number::most,
            );
            simd::map(
                out,
                x,
                #[inline(always)]
                move |x: T| (x - top).weight_::<FUSED>(),
            );
            let sum = fold(
                out,
                T::ZERO,
                #[inline(always)]
                |x| x,
                Number::add,
            );
            if log {
                // In two steps: the sum of a large maximum and a small logarithm would be rounded.
                let shift = sum.ln();
                out.iter_mut().zip(x).for_each(|(o, x)| *o = *x - top - shift);
            } else {
                let scale = T::ONE / sum;
                out.iter_mut().for_each(|o| *o = *o * scale);
            }
        },
    );
}

/// The softmax over the rows of a matrix of `inner` columns, column by column.
fn columns<T: Exp + Number>(simd: Simd, x: &[T], out: &mut [T], inner: usize, log: bool) {
    let mut top = vec![T::neg_infinity(); inner];
    let mut sum = vec![T::ZERO; inner];
    dispatch(
        simd,
        #[inline(always)]
        || {
            for x in x.chunks_exact(inner) {
                top.iter_mut().zip(x).for_each(|(top, x)| *top = top.most(*x));
            }
            for (out, x) in out.chunks_exact_mut(inner).zip(x.chunks_exact(inner)) {
                simd::zip(
                    out,
                    x,
                    &top,
                    #[inline(always)]
                    |x: T, t: T| (x - t).weight_::<false>(),
                );
                sum.iter_mut().zip(&*out).for_each(|(sum, o)| *sum = *sum + *o);
            }
            if log {
                sum.iter_mut().for_each(|sum| *sum = sum.ln());
                for (out, x) in out.chunks_exact_mut(inner).zip(x.chunks_exact(inner)) {
                    let parameters = x.iter().zip(top.iter().zip(&sum));
                    out.iter_mut().zip(parameters).for_each(|(o, (x, (t, s)))| *o = *x - *t - *s);
                }
            } else {
                for out in out.chunks_exact_mut(inner) {
                    out.iter_mut().zip(&sum).for_each(|(o, sum)| *o = *o / *sum);
                }
            }
        },
    );
}
