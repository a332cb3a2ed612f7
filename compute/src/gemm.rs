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
#[cfg(target_arch = "x86_64")]
pub(crate) use kernel::{Eight, Sixteen};
pub(crate) use kernel::{Four, PANEL, Vector};
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

/// Where the columns of a product lie in a result.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) c: &'a Shared<'a, f32>,
    /// The distance from row to row.
    pub(crate) row: usize,
    /// The column of `c` at which the product's first one lies.
    pub(crate) column: usize,
    /// Whether the product is added to what is there.
    pub(crate) add: bool,
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
        let c = Target { c: &shared, row: n, column: 0, add: false };
        let part = Part { rows, panels, a, b, c, epilogue };
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
    let c = Target { c: &Shared::new(c), row: c_row, column: 0, add: false };
    let part = Part { rows: 0..m, panels, a, b, c, epilogue };
    // SAFETY: this thread alone writes `c`.
    unsafe { part.compute(simd, Word::F32) };
}

/// `c = epilogue(a · b)` or `c = epilogue(c + a · b)` for `m` rows and some columns of `c`, on this
/// thread. The epilogue counts the columns of `c`.
///
/// # Safety
/// Nobody else uses these columns of `c`.
///
/// # Panics
/// As [`multiply`].
pub(crate) unsafe fn multiply_columns(
    simd: Simd,
    m: usize,
    a: Rows<'_>,
    b: Packed<'_>,
    c: Target<'_>,
    epilogue: Epilogue<'_>,
) {
    let part = Part { rows: 0..m, panels: 0..b.panels(), a, b, c, epilogue };
    // SAFETY: the caller vouches for the columns.
    unsafe { part.compute(simd, Word::F32) };
}

impl Epilogue<'_> {
    /// The last operations on elements of a row of a result of `n` columns, from a column on.
    /// Callers are inside [`crate::simd::dispatch`] or a function of such features.
    #[inline(always)]
    pub(crate) fn apply(
        &self,
        fused: bool,
        (row, n): (usize, usize),
        column: usize,
        c: &mut [f32],
    ) {
        if let Some(bias) = self.bias {
            c.iter_mut().zip(&bias[column..]).for_each(|(c, b)| *c += b);
        }
        if let Some(residual) = self.residual {
            let residual = &residual[row * n + column..];
            c.iter_mut().zip(residual).for_each(|(c, r)| *c += r);
        }
        self.activation.apply(fused, c);
    }

    fn is_empty(&self) -> bool {
        self.bias.is_none()
            && self.residual.is_none()
            && matches!(self.activation, Activation::None)
    }
}
