//! Matrix products with a packed right side, and what happens to the result while it is in the
//! cache: bias, residual and activation.
//!
//! The left side is not packed. Rows that are a multiple of 2 KiB apart would fall into the same
//! cache sets, so such rows are copied with gaps between them first.

mod kernel;
mod pack;
mod part;
#[cfg(test)]
mod tests;
mod tile;

use crate::epilogue::Activation;
use crate::isa::Simd;
use crate::op::Context;
use crate::par::Shared;
pub(crate) use kernel::PANEL;
pub(crate) use pack::{Packed, pack, pack_bf16, pairs_of_row};
use part::Part;

/// The left side: rows of words that follow each other, `row` words apart.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) words: &'a [f32],
    pub(crate) row: usize,
}

/// The last operations on each element of a product: the bias of its column is added, then the
/// residual at its place, then the activation is applied.
#[derive(Clone, Copy, Default)]
pub(crate) struct Epilogue<'a> {
    pub(crate) bias: Option<&'a [f32]>,
    /// As many elements as the result, whose rows lie without gaps.
    pub(crate) residual: Option<&'a [f32]>,
    pub(crate) activation: Activation,
}

/// Whether words are f32 numbers or pairs of bf16 numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    F32,
    /// Only where [`Simd::bf16`] is true; elsewhere the product panics.
    Pairs,
}

/// `c = epilogue(a · b)` for `m` rows, split between the context's threads.
///
/// # Panics
/// When an operand is shorter than the sizes say: operators check their operands first.
pub(crate) fn multiply(
    ctx: &Context,
    m: usize,
    a: Rows<'_>,
    b: Packed<'_>,
    c: &mut [f32],
    word: Word,
    epilogue: Epilogue<'_>,
) {
    let n = b.columns;
    if m == 0 || n == 0 {
        return;
    }
    let operations = m.saturating_mul(n).saturating_mul(b.steps) / 8;
    let panels = b.panels();
    let by_rows = m > n.max(64) || panels == 1;
    let units = if by_rows { m.div_ceil(8) } else { panels };
    let parts = ctx.parts(units, operations);
    let each = units.div_ceil(parts);
    let shared = Shared::new(c);
    ctx.parallel(units.div_ceil(each), |i| {
        let range = i * each..units.min((i + 1) * each);
        let (rows, panels) = if by_rows {
            (range.start * 8..m.min(range.end * 8), 0..panels)
        } else {
            (0..m, range)
        };
        let part = Part { rows, panels, a, b, c: &shared, c_row: n, epilogue };
        // SAFETY: the parts write different rows or columns of `c`.
        unsafe { part.compute(ctx.simd(), word) };
    });
}

/// `c = a · b` for `m` rows that are `c_row` apart, on this thread.
///
/// # Panics
/// As [`multiply`].
pub(crate) fn multiply_here(
    simd: Simd,
    m: usize,
    a: Rows<'_>,
    b: Packed<'_>,
    (c, c_row): (&mut [f32], usize),
) {
    let (panels, epilogue) = (0..b.panels(), Epilogue::default());
    let part = Part { rows: 0..m, panels, a, b, c: &Shared::new(c), c_row, epilogue };
    // SAFETY: this thread alone writes `c`.
    unsafe { part.compute(simd, Word::F32) };
}

impl Epilogue<'_> {
    fn is_empty(&self) -> bool {
        self.bias.is_none()
            && self.residual.is_none()
            && matches!(self.activation, Activation::None)
    }
}
