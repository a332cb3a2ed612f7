//! One thread's part of a product: its rows and panels, in blocks that stay in the caches.

use super::kernel::{self, Four, PANEL, Vector};
use super::pack::Packed;
use super::tile::Tile;
use super::{Epilogue, Rows, Target, Word};
use crate::isa::{Isa, Simd};
use std::ops::Range;

/// Steps of the inner dimension in a block: a panel's share of so many steps stays in the
/// second-level cache, beside the rows that are multiplied with it.
const STEPS: usize = 512;

/// Rows that are multiplied with all panels before the next rows, so that their steps of a block
/// stay in the second-level cache. Processors with vectors of sixteen mostly have 1 to 2 MiB of it,
/// others down to 512 KiB.
const fn rows_at_once(lanes: usize) -> usize {
    if lanes == 16 { 240 } else { 120 }
}

/// Rows and a panel that are multiplied over some steps of the inner dimension.
struct Piece<'a> {
    /// The rows from the first step on.
    a: Rows<'a>,
    /// The numbers of the rows.
    lines: Range<usize>,
    panel: usize,
    steps: Range<usize>,
}

/// The rows and panels that one thread computes.
pub(super) struct Part<'a> {
    pub(super) rows: Range<usize>,
    pub(super) panels: Range<usize>,
    pub(super) a: Rows<'a>,
    pub(super) b: Packed<'a>,
    pub(super) c: Target<'a>,
    pub(super) epilogue: Epilogue<'a>,
}

impl Part<'_> {
    /// # Safety
    /// Nobody else uses the part's elements of `c`.
    pub(super) unsafe fn compute(&self, simd: Simd, word: Word) {
        let (m, n, k) = (self.rows.end, self.b.columns, self.b.steps);
        let c = &self.c;
        if self.rows.is_empty() || n == 0 {
            return;
        }
        let reach = |row: usize, width: usize| (m - 1).checked_mul(row)?.checked_add(width);
        let fits = reach(self.a.row, k).is_some_and(|r| r <= self.a.words.len())
            && c.column.checked_add(n).is_some_and(|end| {
                reach(c.row, end).is_some_and(|r| r <= c.c.len()) && (m == 1 || c.row >= end)
            })
            && self.panels.end <= self.b.panels()
            && Packed::words(k, n) == Some(self.b.words.len())
            && self.epilogue.bias.is_none_or(|b| b.len() >= c.column + n)
            && self
                .epilogue
                .residual
                .is_none_or(|r| reach(c.row, c.column + n).is_some_and(|m| m <= r.len()));
        assert!(fits, "operands of {m}x{k} by {k}x{n}");
        // SAFETY: the operands reach as far as the sizes say; a `Simd` proves the machine's
        // instructions; the caller vouches for `c`.
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
        // Of a product of one row no block is read again. It is the whole product's rows that count: a part's depend
        // on the number of threads, and sums in blocks differ in their last digits.
        let blocks = if self.rows.end == 1 { 1 } else { k.div_ceil(STEPS).max(1) };
        let size = k.div_ceil(blocks);
        let mut copy = Vec::new();
        for block in 0..blocks {
            let steps = (block * size).min(k)..((block + 1) * size).min(k);
            // All panels take these rows before the next ones, so the rows stay in the second-level
            // cache.
            for first in self.rows.clone().step_by(rows_at_once(V::LANES)) {
                let lines = first..self.rows.end.min(first + rows_at_once(V::LANES));
                let a = self.left(&lines, &steps, &mut copy);
                let last = block + 1 == blocks;
                let mut panels = self.panels.clone();
                if lines.len() == 1 {
                    // SAFETY: as below.
                    panels.start = unsafe { self.row::<V, NV>(&a, lines.start, &steps, last) };
                }
                for panel in panels {
                    let piece = Piece { a, lines: lines.clone(), panel, steps: steps.clone() };
                    // SAFETY: the panel is one of `b`'s and the rows are `a`'s or a copy of them.
                    unsafe { self.panel::<V, MR, NV>(&piece, last) };
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

    /// Computes one row's whole panels, several at once. The answer is the first panel that is
    /// left.
    ///
    /// # Safety
    /// As [`Part::blocks`].
    #[inline(always)]
    unsafe fn row<V: Vector, const NV: usize>(
        &self,
        a: &Rows<'_>,
        row: usize,
        steps: &Range<usize>,
        last: bool,
    ) -> usize {
        /// Groups of `NV` vectors at once, with as many sums as the processor adds to in parallel.
        const GROUPS: usize = 4;
        let width = NV * V::LANES;
        let at_once = (GROUPS * width / PANEL).max(1);
        let whole = self.panels.end.min(self.b.columns / PANEL);
        let mut panel = self.panels.start;
        while panel + at_once <= whole {
            let columns: [usize; GROUPS] = std::array::from_fn(|i| panel * PANEL + i * width);
            // SAFETY: the panels are whole ones of `b`, and the row is `a`'s.
            unsafe {
                let b = columns.map(|column| {
                    let panel = column / PANEL * self.b.steps * PANEL;
                    self.b.words[panel + steps.start * PANEL + column % PANEL..].as_ptr()
                });
                let c = columns.map(|column| self.at(row, column));
                let add = self.c.add || steps.start > 0;
                let next = at_once * self.b.steps * PANEL;
                kernel::row::<V, NV, GROUPS>(steps.len(), a.words.as_ptr(), b, c, add, next);
                if last && !self.epilogue.is_empty() {
                    let c = std::slice::from_raw_parts_mut(c[0], at_once * PANEL);
                    self.finish::<V>(row, panel * PANEL, c);
                }
            }
            panel += at_once;
        }
        panel
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
        let tiles = lines.len().div_ceil(MR);
        // While it multiplies this panel, a tile fetches its share of the next one. Weights come from
        // memory, and few rows would wait for them.
        let passes = PANEL / (NV * V::LANES);
        let ahead = PANEL.div_ceil(tiles * passes);
        let mut next = b.wrapping_add(self.b.steps * PANEL);
        let mut at = 0;
        for left in (1..=tiles).rev() {
            let height = (lines.len() - at).div_ceil(left);
            let a = (a.words[at * a.row..].as_ptr(), a.row);
            let c = self.at(lines.start + at, column);
            let add = self.c.add || steps.start > 0;
            let tile = Tile { height, steps: steps.len(), add, a, b, next: (next, ahead) };
            // SAFETY: a tile lies inside the operands.
            unsafe {
                if width == PANEL {
                    tile.compute::<V, MR, NV>((c, self.c.row));
                } else {
                    tile.compute_edge::<V, MR, NV>((c, self.c.row), width);
                }
                if last && !self.epilogue.is_empty() {
                    for i in 0..height {
                        let c = std::slice::from_raw_parts_mut(c.add(i * self.c.row), width);
                        self.finish::<V>(lines.start + at + i, column, c);
                    }
                }
            }
            next = next.wrapping_add(steps.len() * passes * ahead);
            at += height;
        }
    }

    /// An element of the result, by the product's row and column.
    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> *mut f32 {
        self.c.c.at(row * self.c.row + self.c.column + column)
    }

    /// The epilogue of one row of a tile.
    #[inline(always)]
    fn finish<V: Vector>(&self, row: usize, column: usize, c: &mut [f32]) {
        self.epilogue.apply(V::FUSED, (row, self.c.row), self.c.column + column, c);
    }
}
