//! Softmax on the CPU.

use super::Softmax;
use crate::args::{axis, concrete_one, required};
use crate::error::Result;
use crate::isa::Simd;
use crate::movement::around;
use crate::number::{Number, with_type};
use crate::op::{Context, Op};
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
    let x = required(op.name(), inputs, 0)?;
    let axis = axis(op.name(), op.axis, shape.rank())?;
    let (_, n, inner) = around(&shape, axis);
    let mut out = ctx.alloc(dtype, shape)?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let (n, inner) = if op.flatten { (n * inner, 1) } else { (n, inner) };
    with_type!(op.name(), dtype, real T => {
        let x = x.as_slice::<T>()?;
        let block = n * inner;
        ctx.split(out.as_mut_slice::<T>()?, block, block * 20, |first, part| {
            for (i, out) in part.chunks_exact_mut(block).enumerate() {
                let x = &x[(first + i) * block..][..block];
                if inner == 1 { row(ctx.simd(), x, out, op.log) } else { columns(ctx.simd(), x, out, inner, op.log) }
            }
        });
        Ok(())
    })?;
    Ok(vec![out])
}

/// The softmax of one row.
fn row<T: Exp + Number>(simd: Simd, x: &[T], out: &mut [T], log: bool) {
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
                move |x: T| (x - top).exp_(),
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
                    |x: T, t: T| (x - t).exp_(),
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
