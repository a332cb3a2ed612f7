//! The loops that apply a function to each element of a tensor.

use crate::error::Result;
use crate::isa::Simd;
use crate::op::Context;
use crate::simd::{self, dispatch};
use lgp_memory::{Element, Tensor, TensorView};

/// Applies `f` to every element. `cost` is the rough number of operations of `f`.
#[inline(always)]
pub(super) fn map<T: Element, U: Element>(
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

/// [`map`] to the same type, of `x` or of the elements of `out`.
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

/// One loop, compiled once for all callers of a function.
#[inline(never)]
fn line<T: Copy, U>(simd: Simd, out: &mut [U], x: &[T], f: impl Fn(T) -> U) {
    dispatch(
        simd,
        #[inline(always)]
        || simd::map(out, x, f),
    );
}
