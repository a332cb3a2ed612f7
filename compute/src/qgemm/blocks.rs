//! The rows and panels of a product, a block at a time, at each level of instructions.

use super::epilogue::Epilogue;
use super::{PANEL, Product, scalar};
#[cfg(target_arch = "x86_64")]
use super::{WIDE, avx2, vnni};
use crate::par::Shared;
use std::ops::Range;

/// Rows that are computed at once, and the panels of the result.
pub(super) struct Block<'a, T> {
    /// For each tap, `step` apart, a pointer for each row.
    pub(super) at: &'a [*const u8],
    pub(super) step: usize,
    /// The first row.
    pub(super) row: usize,
    pub(super) count: usize,
    pub(super) panels: Range<usize>,
    pub(super) out: &'a Shared<'a, T>,
    pub(super) stride: usize,
}

impl<E: Epilogue> Product<'_, E> {
    /// A block row by row, without vector instructions.
    ///
    /// # Safety
    /// As [`Product::part`](super::Product).
    pub(super) unsafe fn by_rows(&self, block: &Block<'_, E::Out>) {
        for panel in block.panels.clone() {
            let mut seeds = [0; PANEL];
            seeds.copy_from_slice(&self.seeds[panel * PANEL..][..PANEL]);
            for row in 0..block.count {
                let mut sums = seeds;
                // SAFETY: there are pointers for the row, and its output as the caller vouches.
                let out = unsafe {
                    let at = block.at.as_ptr().add(row);
                    scalar::row(self.weights, panel, at, block.step, &mut sums);
                    self.piece(block, row, panel, 1)
                };
                for (j, (out, sum)) in out.iter_mut().zip(sums).enumerate() {
                    *out = self.epilogue.element(sum, panel * PANEL + j);
                }
                if E::FINISHES {
                    self.epilogue.finish(self.position(block, row, panel), out);
                }
            }
        }
    }

    /// A block whose rows are widened into `wide` first.
    ///
    /// # Safety
    /// As [`Product::part`](super::Product); the machine has AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn by_widened(&self, block: &Block<'_, E::Out>, wide: &mut [i32]) {
        let (weights, seeds) = (self.weights, self.seeds);
        // SAFETY: there are pointers for all rows of the block.
        unsafe { avx2::widen(weights, block.at, block.step, block.count, wide) };
        for panel in block.panels.clone() {
            for row in (0..block.count).step_by(avx2::ROWS) {
                let rows = wide[row * 2 * weights.panel()..].as_ptr();
                let tile = avx2::Tile { weights, seeds, panel, rows };
                let out = block.out.at((block.row + row) * block.stride + panel * PANEL);
                let (store, stride) = (self.epilogue, block.stride);
                let height = avx2::ROWS.min(block.count - row);
                // SAFETY: the rows are widened, and `out` has them as the caller vouches.
                unsafe {
                    match height {
                        1 => avx2::tile::<1, E>(&tile, store, out, stride),
                        2 => avx2::tile::<2, E>(&tile, store, out, stride),
                        3 => avx2::tile::<3, E>(&tile, store, out, stride),
                        _ => avx2::tile::<{ avx2::ROWS }, E>(&tile, store, out, stride),
                    }
                    for i in if E::FINISHES { row..row + height } else { 0..0 } {
                        let out = self.piece(block, i, panel, 1);
                        self.epilogue.finish(self.position(block, i, panel), out);
                    }
                }
            }
        }
    }

    /// The columns of some panels in one row of a block.
    ///
    /// # Safety
    /// As [`Product::part`](super::Product).
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
    /// As [`Product::part`](super::Product).
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma")]
    pub(super) unsafe fn by_tiles(&self, block: &Block<'_, E::Out>) {
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
