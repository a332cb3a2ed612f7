//! The weights of a layer, laid out once for the products of all steps.

use super::{Cell, Recurrent};
use crate::error::{Error, Result};
use crate::gemm::{self, Epilogue, Packed, Rows, Word};
use crate::matrix::{Mat, product};
use crate::number::Number;
use crate::op::Context;
use crate::ops::unary::Exp;

/// Columns of the product of all states that each step begins with: all gates, but a GRU's first
/// two, because its last gate multiplies something else.
pub(super) fn first_columns(cell: Cell, hidden: usize) -> usize {
    let gates = if matches!(cell, Cell::Gru { .. }) { 2 } else { cell.gates() };
    gates.saturating_mul(hidden)
}

/// Words of one direction's weight `[gates · hidden, features]`; `None` when that overflows.
pub(super) fn input_words<T: Weights>(cell: Cell, features: usize, hidden: usize) -> Option<usize> {
    T::words(cell.gates().checked_mul(hidden)?, features)
}

/// Words of one direction's recurrent weight `[gates · hidden, hidden]`, as the two matrices that a
/// step multiplies; `None` when that overflows.
pub(super) fn state_words<T: Weights>(cell: Cell, hidden: usize) -> Option<usize> {
    let first = first_columns(cell, hidden);
    let last = cell.gates().checked_mul(hidden)?.checked_sub(first)?;
    T::words(first, hidden)?.checked_add(T::words(last, hidden)?)
}

/// Words of both weights in all directions.
///
/// # Errors
/// Sizes that overflow.
pub(super) fn all_words<T: Weights>(
    layer: &Recurrent,
    features: usize,
    hidden: usize,
) -> Result<[usize; 2]> {
    let directions = layer.direction.count();
    let input = input_words::<T>(layer.cell, features, hidden);
    let state = state_words::<T>(layer.cell, hidden);
    let all = |words: Option<usize>| words?.checked_mul(directions);
    match (all(input), all(state)) {
        (Some(input), Some(state)) => Ok([input, state]),
        _ => Err(Error::invalid(format!(
            "weights of {features} features and {hidden} hidden units are too large"
        ))),
    }
}

/// Lays out the weights of all directions; `to` has [`all_words`].
pub(super) fn lay_out<T: Weights>(
    layer: &Recurrent,
    (features, hidden): (usize, usize),
    [weight, recurrent]: [&[T]; 2],
    to: [&mut [T]; 2],
) {
    let (directions, first) = (layer.direction.count(), first_columns(layer.cell, hidden));
    let [input, state] = to;
    let input = input.chunks_exact_mut((input.len() / directions).max(1));
    let weight = weight.chunks_exact((weight.len() / directions).max(1));
    for (weight, to) in weight.zip(input) {
        T::lay_out(weight, features, to);
    }
    let state = state.chunks_exact_mut((state.len() / directions).max(1));
    let recurrent = recurrent.chunks_exact((recurrent.len() / directions).max(1));
    for (recurrent, to) in recurrent.zip(state) {
        let (weight, last) = recurrent.split_at(first * hidden);
        let (to, to_last) = to.split_at_mut(T::words(first, hidden).unwrap_or(0).min(to.len()));
        T::lay_out(weight, hidden, to);
        T::lay_out(last, hidden, to_last);
    }
}

/// Numbers with a product whose right side is laid out once for many steps.
pub(super) trait Weights: Exp + Number {
    /// Words of a weight `[n, k]` that is laid out; `None` when that overflows.
    fn words(n: usize, k: usize) -> Option<usize>;

    /// A weight `[n, k]` as [`Weights::multiply`] reads it; `to` has [`Weights::words`].
    fn lay_out(weight: &[Self], k: usize, to: &mut [Self]);

    /// `out = a · wᵀ + bias` of `[m, k]` and `[n, k]`; the sizes are m, n and k.
    ///
    /// # Errors
    /// A weight that was laid out for other sizes.
    fn multiply(
        ctx: &Context,
        size: (usize, usize, usize),
        a: &[Self],
        weight: &[Self],
        bias: Option<&[Self]>,
        out: &mut [Self],
    ) -> Result<()>;
}

impl Weights for f32 {
    fn words(n: usize, k: usize) -> Option<usize> {
        Packed::words(k, n)
    }

    fn lay_out(weight: &[Self], k: usize, to: &mut [Self]) {
        let n = weight.len().checked_div(k).unwrap_or(0);
        gemm::pack(weight, (k, n), (1, k), to);
    }

    fn multiply(
        ctx: &Context,
        (m, n, k): (usize, usize, usize),
        a: &[Self],
        weight: &[Self],
        bias: Option<&[Self]>,
        out: &mut [Self],
    ) -> Result<()> {
        let packed = Packed::new(weight, k, n)
            .ok_or_else(|| Error::invalid("the weight is laid out otherwise"))?;
        let epilogue = Epilogue { bias, ..Epilogue::default() };
        gemm::multiply(ctx, m, Rows { words: a, row: k }, packed, out, Word::F32, epilogue);
        Ok(())
    }
}

impl Weights for f64 {
    fn words(n: usize, k: usize) -> Option<usize> {
        n.checked_mul(k)
    }

    fn lay_out(weight: &[Self], _: usize, to: &mut [Self]) {
        to.copy_from_slice(weight);
    }

    fn multiply(
        ctx: &Context,
        size: (usize, usize, usize),
        a: &[Self],
        weight: &[Self],
        bias: Option<&[Self]>,
        out: &mut [Self],
    ) -> Result<()> {
        let (_, n, k) = size;
        if let Some(bias) = bias {
            out.chunks_exact_mut(n).for_each(|row| row.copy_from_slice(bias));
        }
        let (a, weight) = (Mat::rows(a, k), Mat::rows(weight, k).t());
        product(ctx, size, a, weight, out, n, bias.is_some())
    }
}
