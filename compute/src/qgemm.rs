//! Products of bytes with packed 8-bit weights: matrices and channels-last convolutions.
//!
//! The left side is u8 and never copied: each row of the product is a list of pointers, one for
//! each tap of a window. The right side is i8 and packed once. The epilogue works on the 32-bit
//! sums while they are in registers.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod epilogue;
mod pack;
mod positions;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vnni;

use crate::error::Result;
use crate::isa::{Isa, Simd};
use crate::op::Context;
use crate::par::{Failure, Shared};
use crate::simd::dispatch;
use std::ops::Range;

pub(crate) use epilogue::{Epilogue, LARGE, ToBytes, ToFloats, round};
pub(crate) use pack::{PANEL, Packed};
pub(crate) use positions::positions;

/// The instructions that a product may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Any machine.
    Scalar,
    /// AVX2.
    Avx2,
    /// AVX-512 with its byte products.
    Vnni,
}

impl Level {
    /// The best level that a context allows.
    fn of(simd: Simd) -> Self {
        match simd.isa() {
            Isa::Avx512 if simd.vnni() => Self::Vnni,
            Isa::Avx512 | Isa::Avx2 => Self::Avx2,
            Isa::Scalar => Self::Scalar,
        }
    }
}

/// The positions of the rows of the left side.
pub(crate) trait Rows {
    /// Writes the position of each tap of some rows: for each tap, `step` apart, one for each row.
    fn fill(&self, first: usize, count: usize, step: usize, at: &mut [*const u8]);
}

/// The panels of the widest tile.
const WIDE: usize = 4;

/// Rows of a block: their pointers and their bytes stay in the first-level and second-level caches
/// while all weights are read.
const BLOCK: usize = 192;

/// A product with its operands. Their sizes were checked when the product was made, and the `Simd`
/// proves the machine's instructions.
pub(crate) struct Product<'a, E> {
    simd: Simd,
    weights: &'a Packed,
    seeds: &'a [i32],
    epilogue: &'a E,
}

impl<'a, E: Epilogue> Product<'a, E> {
    /// `seeds` are the start of each column's sum, filled up to whole panels.
    ///
    /// # Panics
    /// When there are fewer seeds, scales or biases than columns of whole panels.
    pub(crate) fn new(simd: Simd, weights: &'a Packed, seeds: &'a [i32], epilogue: &'a E) -> Self {
        let columns = weights.panels() * PANEL;
        let lines = weights.panels() * weights.panel();
        assert!(
            seeds.len() >= columns
                && epilogue.reaches(columns, 0, 0)
                && weights.lines.len() == lines,
            "operands for {columns} columns"
        );
        Self { simd, weights, seeds, epilogue }
    }

    /// Computes `m` rows, split between the context's threads. `out` has rows of `stride` elements,
    /// of which the first `n` are written; the last row may have only `n`.
    ///
    /// # Errors
    /// Out of memory.
    ///
    /// # Safety
    /// Each pointer from `rows` points to as many readable bytes as a segment of the weights has,
    /// filled up to a multiple of four.
    ///
    /// # Panics
    /// When `out`, or a tensor that the epilogue adds, is shorter.
    pub(crate) unsafe fn run(
        &self,
        ctx: &Context,
        rows: &(impl Rows + Sync),
        m: usize,
        (out, stride): (&mut [E::Out], usize),
    ) -> Result<()> {
        let (n, panels) = (self.weights.n, self.weights.panels());
        if m == 0 || n == 0 {
            return Ok(());
        }
        let reach = (m - 1).checked_mul(stride).and_then(|r| r.checked_add(n));
        assert!(
            (stride >= n || m == 1)
                && reach.is_some_and(|r| r <= out.len())
                && self.epilogue.reaches(panels * PANEL, m, n),
            "a result of {m}x{n}"
        );
        let operations = m.saturating_mul(n).saturating_mul(self.weights.panel()) / 2;
        let by_rows = m > n.max(64) || panels <= 2;
        let units = if by_rows { m.div_ceil(4) } else { panels.div_ceil(2) };
        let parts = ctx.parts(units, operations);
        let each = units.div_ceil(parts);
        let shared = Shared::new(out);
        let failure = Failure::default();
        ctx.parallel(units.div_ceil(each), |i| {
            let range = i * each..units.min((i + 1) * each);
            let (lines, panels) = if by_rows {
                (range.start * 4..m.min(range.end * 4), 0..panels)
            } else {
                (0..m, range.start * 2..panels.min(range.end * 2))
            };
            // SAFETY: the pointers are as the caller vouches; rows and panels exist, `out` has
            // them, and parts differ in rows or columns.
            failure.note(unsafe { self.part(rows, lines, panels, &shared, stride) });
        });
        failure.result()
    }

    /// Some panels of some rows.
    ///
    /// # Errors
    /// Out of memory.
    ///
    /// # Safety
    /// As [`Self::run`]; the rows and panels exist, `out` has their elements, and no other thread
    /// uses these.
    unsafe fn part(
        &self,
        rows: &impl Rows,
        lines: Range<usize>,
        panels: Range<usize>,
        out: &Shared<'_, E::Out>,
        stride: usize,
    ) -> Result<()> {
        let simd = self.simd;
        let (mut at, step) = positions(self.weights.taps, BLOCK.min(lines.len()))?;
        for start in lines.clone().step_by(step) {
            let count = step.min(lines.end - start);
            rows.fill(start, count, step, &mut at);
            let panels = panels.clone();
            let block = Block { at: &at, step, row: start, count, panels, out, stride };
            // SAFETY: as the caller vouches; the machine has what the level says.
            unsafe {
                match Level::of(simd) {
                    Level::Scalar => self.by_panels::<1>(&block),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => dispatch(
                        simd,
                        #[inline(always)]
                        || self.by_panels::<4>(&block),
                    ),
                    #[cfg(target_arch = "x86_64")]
                    Level::Vnni => self.by_tiles(&block),
                    #[cfg(not(target_arch = "x86_64"))]
                    _ => self.by_panels::<1>(&block),
                }
            }
        }
        Ok(())
    }

    /// A block by panels of 16 columns and `R` rows: one row is scalar, four rows are AVX2.
    ///
    /// # Safety
    /// As [`Self::part`]; for four rows the machine has AVX2.
    #[inline(always)]
    unsafe fn by_panels<const R: usize>(&self, block: &Block<'_, E::Out>) {
        for panel in block.panels.clone() {
            let mut seeds = [0; PANEL];
            seeds.copy_from_slice(&self.seeds[panel * PANEL..][..PANEL]);
            for row in (0..block.count).step_by(R) {
                let rows = R.min(block.count - row);
                let mut sums = [seeds; 4];
                // SAFETY: there are pointers for `rows` rows from `row` on.
                unsafe {
                    let at = block.at.as_ptr().add(row);
                    #[cfg(target_arch = "x86_64")]
                    if R == 4 {
                        let w = self.weights;
                        match rows {
                            1 => avx2::rows::<1>(w, panel, at, block.step, &mut sums),
                            2 => avx2::rows::<2>(w, panel, at, block.step, &mut sums),
                            3 => avx2::rows::<3>(w, panel, at, block.step, &mut sums),
                            _ => avx2::rows::<4>(w, panel, at, block.step, &mut sums),
                        }
                    }
                    if R == 1 {
                        scalar::row(self.weights, panel, at, block.step, &mut sums[0]);
                    }
                }
                for (i, sums) in sums[..rows].iter().enumerate() {
                    // SAFETY: as the caller vouches.
                    let out = unsafe { self.piece(block, row + i, panel, 1) };
                    for (j, (out, sum)) in out.iter_mut().zip(sums).enumerate() {
                        *out = self.epilogue.element(*sum, panel * PANEL + j);
                    }
                    if E::FINISHES {
                        self.epilogue.finish(self.position(block, row + i, panel), out);
                    }
                }
            }
        }
    }

    /// The columns of some panels in one row of a block.
    ///
    /// # Safety
    /// As [`Self::part`].
    #[inline(always)]
    unsafe fn piece<'b>(
        &self,
        block: &Block<'b, E::Out>,
        row: usize,
        panel: usize,
        panels: usize,
    ) -> &'b mut [E::Out] {
        let first = (block.row + row) * block.stride + panel * PANEL;
        let columns = (panels * PANEL).min(self.weights.n - panel * PANEL);
        // SAFETY: as the caller vouches.
        unsafe { block.out.slice(first..first + columns) }
    }

    /// The position of a panel's columns of a row in a result without gaps.
    #[inline(always)]
    fn position(&self, block: &Block<'_, E::Out>, row: usize, panel: usize) -> usize {
        (block.row + row) * self.weights.n + panel * PANEL
    }

    /// A block by the widest tiles that the columns allow.
    ///
    /// # Safety
    /// As [`Self::part`].
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma")]
    unsafe fn by_tiles(&self, block: &Block<'_, E::Out>) {
        let mut panel = block.panels.start;
        while panel < block.panels.end {
            let wide = match block.panels.end - panel {
                WIDE.. => WIDE,
                2.. => 2,
                _ => 1,
            };
            let tallest = if wide == WIDE { 6 } else { 12 };
            let mut row = 0;
            for left in (1..=block.count.div_ceil(tallest)).rev() {
                let height = (block.count - row).div_ceil(left);
                let tile = vnni::Tile {
                    weights: self.weights,
                    seeds: self.seeds,
                    panel,
                    rows: block.at[row..].as_ptr(),
                    step: block.step,
                };
                let out = block.out.at((block.row + row) * block.stride + panel * PANEL);
                // SAFETY: there are pointers and output for as many rows as the tile has, and as
                // many panels.
                unsafe {
                    self.tile(&tile, (height, wide), out, block.stride);
                    for i in if E::FINISHES { row..row + height } else { 0..0 } {
                        let out = self.piece(block, i, panel, wide);
                        self.epilogue.finish(self.position(block, i, panel), out);
                    }
                }
                row += height;
            }
            panel += wide;
        }
    }

    /// A tile of `size` rows and panels.
    ///
    /// # Safety
    /// As [`vnni::tile`].
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn tile(
        &self,
        tile: &vnni::Tile<'_>,
        size: (usize, usize),
        out: *mut E::Out,
        stride: usize,
    ) {
        macro_rules! sizes {
            ($(($m:literal, $n:literal))*) => {
                match size {
                    // SAFETY: as the caller promises.
                    $(($m, $n) => unsafe { vnni::tile::<$m, $n, E>(tile, self.epilogue, out, stride) },)*
                    _ => {}
                }
            };
        }
        sizes!((1, 4)(2, 4)(3, 4)(4, 4)(5, 4)(6, 4));
        sizes!((1, 2)(2, 2)(3, 2)(4, 2)(5, 2)(6, 2)(7, 2)(8, 2)(9, 2)(10, 2)(11, 2)(12, 2));
        sizes!((1, 1)(2, 1)(3, 1)(4, 1)(5, 1)(6, 1)(7, 1)(8, 1)(9, 1)(10, 1)(11, 1)(12, 1));
    }
}

/// Rows that are computed at once, and the panels of the result.
struct Block<'a, T> {
    /// For each tap, `step` apart, a pointer for each row.
    at: &'a [*const u8],
    step: usize,
    /// The first row.
    row: usize,
    count: usize,
    panels: Range<usize>,
    out: &'a Shared<'a, T>,
    stride: usize,
}
