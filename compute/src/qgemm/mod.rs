//! Products of bytes with packed 8-bit weights: matrices and channels-last convolutions.
//!
//! The left side is u8 and never copied: each row of the product is a list of pointers, one for
//! each tap of a window. The right side is i8 and packed once. What becomes of the 32-bit sums is
//! done while they are in registers.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod epilogue;
mod pack;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vnni;

use crate::isa::{Isa, Simd};

pub(crate) use epilogue::{Epilogue, LARGE, ToBytes, ToFloats, round};
pub(crate) use pack::{PANEL, Packed};

/// The instructions that a product may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// Any machine.
    Scalar,
    /// AVX2.
    Avx2,
    /// AVX-512 with its byte products.
    Vnni,
}

impl Level {
    /// The best of what a context allows.
    pub(crate) fn of(simd: Simd) -> Self {
        match simd.isa() {
            Isa::Avx512 if simd.vnni() => Self::Vnni,
            Isa::Avx512 | Isa::Avx2 => Self::Avx2,
            Isa::Scalar => Self::Scalar,
        }
    }
}

/// Where the rows of the left side are.
pub(crate) trait Rows {
    /// Writes the position of each tap of some rows: tap by tap, `step` apart.
    fn fill(&self, first: usize, count: usize, step: usize, at: &mut [*const u8]);
}

/// Rows that are worked on at once: their pointers, and the bytes behind them, stay in the
/// first caches while the weights pass by.
const BLOCK: usize = 192;

/// A product with its operands.
pub(crate) struct Product<'a, E> {
    pub(crate) level: Level,
    pub(crate) weights: &'a Packed,
    /// What each column starts from, filled up to whole panels.
    pub(crate) seeds: &'a [i32],
    pub(crate) epilogue: &'a E,
}

impl<E: Epilogue> Product<'_, E> {
    /// Computes rows `first..` into `out`, which has whole rows of `stride` elements of which the
    /// first `n` are written.
    ///
    /// # Safety
    /// The pointers that `rows` gives point to as many readable bytes as a segment of the weights
    /// has, filled up to a multiple of four.
    pub(crate) unsafe fn run(
        &self,
        rows: &impl Rows,
        first: usize,
        out: &mut [E::Out],
        stride: usize,
    ) {
        let (n, taps) = (self.weights.n, self.weights.taps);
        assert!(stride >= n && self.seeds.len() == n.div_ceil(PANEL) * PANEL);
        let count = (out.len() + (stride - n)) / stride.max(1);
        let mut at = vec![std::ptr::null(); taps * BLOCK];
        for start in (0..count).step_by(BLOCK) {
            let block = BLOCK.min(count - start);
            rows.fill(first + start, block, BLOCK, &mut at);
            let end = ((start + block) * stride).min(out.len());
            let out = &mut out[start * stride..end];
            match self.level {
                // SAFETY: the pointers are as the caller vouches, `out` has `block` rows, and the
                // machine has the level.
                Level::Scalar => unsafe { self.block_by_panels::<1>(&at, block, out, stride) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the pointers are as the caller vouches, `out` has `block` rows, and the
                // machine has the level.
                Level::Avx2 => unsafe { self.block_by_panels::<4>(&at, block, out, stride) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the pointers are as the caller vouches, `out` has `block` rows, and the
                // machine has the level.
                Level::Vnni => unsafe { self.block_vnni(&at, block, out, stride) },
                #[cfg(not(target_arch = "x86_64"))]
                // SAFETY: the pointers are as the caller vouches, `out` has `block` rows, and the
                // machine has the level.
                _ => unsafe { self.block_by_panels::<1>(&at, block, out, stride) },
            }
        }
    }

    /// A block by panels of 16 columns and `R` rows: one is scalar, four AVX2.
    unsafe fn block_by_panels<const R: usize>(
        &self,
        at: &[*const u8],
        count: usize,
        out: &mut [E::Out],
        stride: usize,
    ) {
        let n = self.weights.n;
        for panel in 0..n.div_ceil(PANEL) {
            let seeds: [i32; PANEL] = std::array::from_fn(|i| self.seeds[panel * PANEL + i]);
            let columns = PANEL.min(n - panel * PANEL);
            for row in (0..count).step_by(R) {
                let rows = R.min(count - row);
                let mut sums = [seeds; 4];
                // SAFETY: there are pointers for `rows` rows from `row` on; the level says that
                // the machine has AVX2.
                unsafe {
                    let at = at.as_ptr().add(row);
                    #[cfg(target_arch = "x86_64")]
                    if R == 4 {
                        let w = self.weights;
                        match rows {
                            1 => avx2::rows::<1>(w, panel, at, BLOCK, &mut sums),
                            2 => avx2::rows::<2>(w, panel, at, BLOCK, &mut sums),
                            3 => avx2::rows::<3>(w, panel, at, BLOCK, &mut sums),
                            _ => avx2::rows::<4>(w, panel, at, BLOCK, &mut sums),
                        }
                    }
                    if R == 1 {
                        scalar::row(self.weights, panel, at, BLOCK, &mut sums[0]);
                    }
                }
                for (i, sums) in sums[..rows].iter().enumerate() {
                    let out = &mut out[(row + i) * stride + panel * PANEL..][..columns];
                    for (j, (out, sum)) in out.iter_mut().zip(sums).enumerate() {
                        *out = self.epilogue.element(*sum, panel * PANEL + j);
                    }
                }
            }
        }
    }

    /// A block by the widest tiles that the columns allow.
    #[cfg(target_arch = "x86_64")]
    unsafe fn block_vnni(&self, at: &[*const u8], count: usize, out: &mut [E::Out], stride: usize) {
        let panels = self.weights.n.div_ceil(PANEL);
        let mut panel = 0;
        while panel < panels {
            let wide = match panels - panel {
                4.. => 4,
                2.. => 2,
                _ => 1,
            };
            let mut row = 0;
            while row < count {
                let left = count - row;
                let tile = vnni::Tile {
                    weights: self.weights,
                    seeds: self.seeds,
                    panel,
                    rows: at[row..].as_ptr(),
                    step: BLOCK,
                };
                let out = out[row * stride + panel * PANEL..].as_mut_ptr();
                let e = self.epilogue;
                // SAFETY: the level says that the machine has VNNI; there are pointers and output
                // for as many rows as the tile has, and as many panels.
                row += unsafe {
                    match (wide, left) {
                        (4, 6..) => run::<6, 4, E>(&tile, e, out, stride),
                        (4, 3..) => run::<3, 4, E>(&tile, e, out, stride),
                        (4, _) => run::<1, 4, E>(&tile, e, out, stride),
                        (2, 12..) => run::<12, 2, E>(&tile, e, out, stride),
                        (2, 4..) => run::<4, 2, E>(&tile, e, out, stride),
                        (2, _) => run::<1, 2, E>(&tile, e, out, stride),
                        (_, 12..) => run::<12, 1, E>(&tile, e, out, stride),
                        (_, 4..) => run::<4, 1, E>(&tile, e, out, stride),
                        (_, _) => run::<1, 1, E>(&tile, e, out, stride),
                    }
                };
            }
            panel += wide;
        }
    }
}

/// One tile; how many rows it has.
///
/// # Safety
/// As [`vnni::tile`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn run<const M: usize, const N: usize, E: Epilogue>(
    tile: &vnni::Tile<'_>,
    epilogue: &E,
    out: *mut E::Out,
    stride: usize,
) -> usize {
    // SAFETY: as the caller vouches.
    unsafe { vnni::tile::<M, N, E>(tile, epilogue, out, stride) };
    M
}
