//! Matrix products with a packed right side, and what happens to the result while it is in the
//! cache: bias, residual and activation.
//!
//! The left side is read as it lies. Rows that are a power of two apart would meet in the same
//! cache sets, so those are copied to a kinder distance first.

mod kernel;
mod pack;
#[cfg(test)]
mod tests;
mod tile;

use crate::epilogue::Activation;
use crate::isa::{Isa, Simd};
use crate::op::Context;
use crate::par::Shared;
pub(crate) use kernel::PANEL;
use kernel::{Four, Vector};
pub(crate) use pack::{Packed, pack, pack_bf16, pairs_of_row};
use std::ops::Range;
use tile::Tile;

/// Steps of the inner dimension that pass at once: a panel's share then stays in the second-level
/// cache, beside the rows that meet it.
const STEPS: usize = 512;

/// Rows that meet all panels before others do: their steps fill half of the second-level cache.
const ROWS: usize = 240;

/// The left side: rows of words that follow each other, `row` words apart.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) words: &'a [f32],
    pub(crate) row: usize,
}

/// What happens to each element of a product: the bias of its column is added, then the residual
/// at its place, then comes the activation.
#[derive(Clone, Copy, Default)]
pub(crate) struct Epilogue<'a> {
    pub(crate) bias: Option<&'a [f32]>,
    /// As many elements as the result, whose rows lie without gaps.
    pub(crate) residual: Option<&'a [f32]>,
    pub(crate) activation: Activation,
}

/// Whether words are numbers or pairs of bf16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    F32,
    /// Only where [`Simd::bf16`] allows; elsewhere the product panics.
    Pairs,
}

/// `c = epilogue(a · b)` for `m` rows, split between the context's threads.
///
/// # Panics
/// When an operand is shorter than the sizes say: the operators check theirs first.
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

/// Rows and a panel that meet for some steps of the inner dimension.
struct Piece<'a> {
    /// The rows from the first step on.
    a: Rows<'a>,
    /// Which rows they are.
    lines: Range<usize>,
    panel: usize,
    steps: Range<usize>,
}

/// What one thread computes.
struct Part<'a> {
    rows: Range<usize>,
    panels: Range<usize>,
    a: Rows<'a>,
    b: Packed<'a>,
    c: &'a Shared<'a, f32>,
    c_row: usize,
    epilogue: Epilogue<'a>,
}

impl Part<'_> {
    /// # Safety
    /// Nobody else uses the part's elements of `c`.
    unsafe fn compute(&self, simd: Simd, word: Word) {
        let (m, n, k) = (self.rows.end, self.b.columns, self.b.steps);
        if self.rows.is_empty() || n == 0 {
            return;
        }
        let reach = |row: usize, width: usize| (m - 1).checked_mul(row)?.checked_add(width);
        let fits = reach(self.a.row, k).is_some_and(|r| r <= self.a.words.len())
            && reach(self.c_row, n).is_some_and(|r| r <= self.c.len())
            && (m == 1 || self.c_row >= n)
            && self.panels.end <= self.b.panels()
            && Packed::words(k, n) == Some(self.b.words.len())
            && self.epilogue.bias.is_none_or(|b| b.len() >= n)
            && self.epilogue.residual.is_none_or(|r| reach(n, n).is_some_and(|m| m <= r.len()));
        assert!(fits, "operands of {m}x{k} by {k}x{n}");
        // SAFETY: the operands reach as far as the sizes say; a `Simd` proves what the machine
        // has; for `c` the caller vouches.
        unsafe {
            match (word, simd.isa()) {
                #[cfg(target_arch = "x86_64")]
                (Word::Pairs, _) => {
                    assert!(simd.bf16(), "bf16 products on a machine that has them");
                    self.bf16();
                }
                #[cfg(target_arch = "x86_64")]
                (Word::F32, Isa::Avx512) => self.avx512(),
                #[cfg(target_arch = "x86_64")]
                (Word::F32, Isa::Avx2) => self.avx2(),
                _ => {
                    assert!(word == Word::F32, "bf16 products on a machine that has them");
                    self.blocks::<Four, 4, 2>();
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma")]
    unsafe fn bf16(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.blocks::<kernel::Bf16, 12, 2>() }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn avx512(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.blocks::<kernel::Sixteen, 12, 2>() }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.blocks::<kernel::Eight, 6, 2>() }
    }

    /// All tiles of at most `MR` rows, blocked along the inner dimension.
    ///
    /// # Safety
    /// As [`Part::compute`], the operands were checked, and the machine has the vectors.
    #[inline(always)]
    unsafe fn blocks<V: Vector, const MR: usize, const NV: usize>(&self) {
        let k = self.b.steps;
        let blocks = k.div_ceil(STEPS).max(1);
        let size = k.div_ceil(blocks);
        let mut copy = Vec::new();
        for block in 0..blocks {
            let steps = (block * size).min(k)..((block + 1) * size).min(k);
            // Rows that meet all panels before others do stay in the second-level cache.
            for first in self.rows.clone().step_by(ROWS) {
                let lines = first..self.rows.end.min(first + ROWS);
                let a = self.left(&lines, &steps, &mut copy);
                for panel in self.panels.clone() {
                    let piece = Piece { a, lines: lines.clone(), panel, steps: steps.clone() };
                    // SAFETY: the panel is one of `b`'s and the rows are `a`'s or a copy of them.
                    unsafe { self.panel::<V, MR, NV>(&piece, block + 1 == blocks) };
                }
            }
        }
    }

    /// Rows of the left side from the first step of a block on.
    fn left<'b>(
        &'b self,
        lines: &Range<usize>,
        steps: &Range<usize>,
        copy: &'b mut Vec<f32>,
    ) -> Rows<'b> {
        let row = self.a.row;
        let from = &self.a.words[lines.start * row + steps.start..];
        if lines.len() <= 4 || !row.is_multiple_of(512) {
            return Rows { words: from, row };
        }
        copy.clear();
        copy.reserve(lines.len() * (steps.len() + 16));
        for i in 0..lines.len() {
            copy.extend_from_slice(&from[i * row..][..steps.len()]);
            copy.extend_from_slice(&[0.; 16]);
        }
        Rows { words: copy, row: steps.len() + 16 }
    }

    /// The tiles of one panel.
    ///
    /// # Safety
    /// As [`Part::blocks`].
    #[inline(always)]
    unsafe fn panel<V: Vector, const MR: usize, const NV: usize>(
        &self,
        piece: &Piece<'_>,
        last: bool,
    ) {
        let Piece { a, lines, panel, steps } = piece;
        let column = panel * PANEL;
        let width = PANEL.min(self.b.columns - column);
        let b = self.b.words[panel * self.b.steps * PANEL + steps.start * PANEL..].as_ptr();
        let mut next = b.wrapping_add(self.b.steps * PANEL);
        let tiles = lines.len().div_ceil(MR);
        let mut at = 0;
        for left in (1..=tiles).rev() {
            let height = (lines.len() - at).div_ceil(left);
            let a = (a.words[at * a.row..].as_ptr(), a.row);
            let c = self.c.at((lines.start + at) * self.c_row + column);
            let tile = Tile { height, steps, a, b, next };
            // SAFETY: a tile lies inside the operands.
            unsafe {
                if width == PANEL {
                    tile.compute::<V, MR, NV>((c, self.c_row));
                } else {
                    tile.compute_edge::<V, MR, NV>((c, self.c_row), width);
                }
                if last && !self.epilogue.is_empty() {
                    for i in 0..height {
                        let c = std::slice::from_raw_parts_mut(c.add(i * self.c_row), width);
                        self.finish(lines.start + at + i, column, c);
                    }
                }
            }
            next = next.wrapping_add(steps.len() / 4 * 16);
            at += height;
        }
    }

    /// The epilogue of one row of a tile.
    #[inline(always)]
    fn finish(&self, row: usize, column: usize, c: &mut [f32]) {
        if let Some(bias) = self.epilogue.bias {
            c.iter_mut().zip(&bias[column..]).for_each(|(c, b)| *c += b);
        }
        if let Some(residual) = self.epilogue.residual {
            let residual = &residual[row * self.b.columns + column..];
            c.iter_mut().zip(residual).for_each(|(c, r)| *c += r);
        }
        self.epilogue.activation.apply(c);
    }
}

impl Epilogue<'_> {
    fn is_empty(&self) -> bool {
        self.bias.is_none()
            && self.residual.is_none()
            && matches!(self.activation, Activation::None)
    }
}
