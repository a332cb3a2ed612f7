//! The product's tile in AVX2. The byte instruction of AVX2 saturates sums of two products, so
//! bytes are widened to 16 bits, whose products are added in pairs without saturation.
//!
//! The rows are widened once for all panels. The floor is one multiplication for eight columns and
//! two elements, which is as many as the instructions that saturate need.

use super::epilogue::Epilogue;
use super::pack::{PANEL, Packed};
use std::arch::x86_64::*;

/// Rows of a tile.
pub(super) const ROWS: usize = 4;

/// Bytes of widened rows that stay in the second-level cache while all panels are read.
const WIDE: usize = 1 << 15;

/// Rows that are widened at once, at most `most`, for weights of so many lines a panel.
pub(super) fn block(lines: usize, most: usize) -> usize {
    let rows = WIDE / lines.saturating_mul(size_of::<[i32; 2]>()).max(1);
    (rows / ROWS * ROWS).clamp(2 * ROWS, most.max(2 * ROWS))
}

/// Pairs of 16-bit numbers from bytes: of each four, first all even ones of a row, then all odd
/// ones.
///
/// # Safety
/// `at` has, for each tap, `step` apart, a pointer for each of `count` rows to as many bytes as a
/// segment of the weights has.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn widen(
    weights: &Packed,
    at: &[*const u8],
    step: usize,
    count: usize,
    wide: &mut [i32],
) {
    const LOW: i32 = 0x00ff_00ff;
    let (groups, lines) = (weights.groups, weights.panel());
    if lines == 0 {
        return;
    }
    let low = _mm256_set1_epi32(LOW);
    for (row, wide) in wide.chunks_exact_mut(2 * lines).take(count).enumerate() {
        let (even, odd) = wide.split_at_mut(lines);
        let segments = even.chunks_exact_mut(groups).zip(odd.chunks_exact_mut(groups));
        for (tap, (even, odd)) in segments.enumerate() {
            let (even, even_rest) = even.as_chunks_mut::<8>();
            let (odd, odd_rest) = odd.as_chunks_mut::<8>();
            // SAFETY: the caller vouches for the pointer to four bytes for each group; the stores
            // are of whole chunks.
            unsafe {
                let mut x = at[tap * step + row].cast::<i32>();
                for (even, odd) in even.iter_mut().zip(odd) {
                    let four = _mm256_loadu_si256(x.cast());
                    _mm256_storeu_si256(even.as_mut_ptr().cast(), _mm256_and_si256(four, low));
                    _mm256_storeu_si256(odd.as_mut_ptr().cast(), _mm256_srli_epi16::<8>(four));
                    x = x.add(8);
                }
                for (even, odd) in even_rest.iter_mut().zip(odd_rest) {
                    let four = x.read_unaligned();
                    (*even, *odd) = (four & LOW, four >> 8 & LOW);
                    x = x.add(1);
                }
            }
        }
    }
}

/// A tile's operands.
pub(super) struct Tile<'a> {
    pub(super) weights: &'a Packed,
    pub(super) seeds: &'a [i32],
    pub(super) panel: usize,
    /// The first of the rows, as [`widen`] writes them.
    pub(super) rows: *const i32,
}

/// Computes `R` rows of a panel.
///
/// # Safety
/// The tile's rows and its panel exist, and `out` may be written for `R` rows, `stride` apart, of
/// the columns that exist.
#[inline]
#[target_feature(enable = "avx2,fma")]
#[expect(clippy::needless_range_loop, reason = "the indices are also those of the registers")]
pub(super) unsafe fn tile<const R: usize, S: Epilogue>(
    tile: &Tile<'_>,
    store: &S,
    out: *mut S::Out,
    stride: usize,
) {
    let Tile { weights, seeds, panel, rows } = *tile;
    let column = panel * PANEL;
    // SAFETY: the caller vouches for the rows; the panel has as many lines as a row has pairs of
    // each kind, and the seeds fill whole panels.
    unsafe {
        let lines = weights.panel();
        let seeds = seeds.as_ptr().add(column).cast::<__m256i>();
        let seeds = [_mm256_loadu_si256(seeds), _mm256_loadu_si256(seeds.add(1))];
        let mut acc = [seeds; R];
        let mut line = weights.lines.as_ptr().add(panel * lines).cast::<__m256i>();
        for group in 0..lines {
            let (mut even, mut odd) = (seeds, seeds);
            for i in 0..2 {
                let w = _mm256_load_si256(line.add(i));
                even[i] = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(w));
                odd[i] = _mm256_srai_epi16::<8>(w);
            }
            line = line.add(2);
            for r in 0..R {
                let x = rows.add(r * 2 * lines + group);
                let (a, b) = (_mm256_set1_epi32(*x), _mm256_set1_epi32(*x.add(lines)));
                for i in 0..2 {
                    let sum = _mm256_add_epi32(acc[r][i], _mm256_madd_epi16(a, even[i]));
                    acc[r][i] = _mm256_add_epi32(sum, _mm256_madd_epi16(b, odd[i]));
                }
            }
        }
        let columns = (weights.n - column).min(PANEL);
        // This copies the sums to memory once: without it the compiler keeps them in memory
        // throughout.
        let sums = std::hint::black_box(acc);
        for (r, sums) in sums.iter().enumerate() {
            store.store_panel(sums, column, out.add(r * stride), columns);
        }
    }
}
