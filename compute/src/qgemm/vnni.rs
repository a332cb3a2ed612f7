//! The product's tile in AVX-512 with VNNI: `vpdpbusd` multiplies 64 pairs of bytes and adds each
//! four products to a sum.

use super::epilogue::Epilogue;
use super::pack::{PANEL, Packed};
use std::arch::x86_64::*;

/// A tile's operands.
pub(super) struct Tile<'a> {
    pub(super) weights: &'a Packed,
    pub(super) seeds: &'a [i32],
    /// The first panel.
    pub(super) panel: usize,
    /// For each tap, `step` apart, a pointer for each row to as many bytes as a segment has.
    pub(super) rows: *const *const u8,
    pub(super) step: usize,
}

/// Computes `M` rows of `N` panels.
///
/// # Safety
/// The tile's pointers are as [`Tile::rows`] says, its panels exist, and `out` may be written for
/// `M` rows, `stride` apart, of the columns that exist.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")]
#[expect(clippy::needless_range_loop, reason = "the indices are also those of the registers")]
pub(super) unsafe fn tile<const M: usize, const N: usize, S: Epilogue>(
    tile: &Tile<'_>,
    store: &S,
    out: *mut S::Out,
    stride: usize,
) {
    let Tile { weights, seeds, panel, rows, step } = *tile;
    let column = panel * PANEL;
    // SAFETY: the caller vouches for the pointers; each panel has a line for every group of every
    // tap, and the seeds fill whole panels.
    unsafe {
        let lines = weights.panel();
        let mut line = weights.lines.as_ptr().add(panel * lines);
        let mut acc = [[_mm512_setzero_si512(); N]; M];
        for n in 0..N {
            let seed = _mm512_loadu_si512(seeds.as_ptr().add(column + n * PANEL).cast());
            for m in 0..M {
                acc[m][n] = seed;
            }
        }
        for tap in 0..weights.taps {
            let mut x = [std::ptr::null::<u8>(); M];
            for m in 0..M {
                x[m] = *rows.add(tap * step + m);
            }
            for _ in 0..weights.groups {
                let mut w = [_mm512_setzero_si512(); N];
                for n in 0..N {
                    w[n] = _mm512_load_si512(line.add(n * lines).cast());
                }
                line = line.add(1);
                for m in 0..M {
                    let four = _mm512_set1_epi32(x[m].cast::<i32>().read_unaligned());
                    x[m] = x[m].add(4);
                    for n in 0..N {
                        acc[m][n] = _mm512_dpbusd_epi32(acc[m][n], four, w[n]);
                    }
                }
            }
        }
        let columns = (weights.n - column).min(N * PANEL);
        // This copies the sums to memory once: without it the compiler keeps them in memory
        // throughout.
        let sums = std::hint::black_box(acc);
        for (m, sums) in sums.iter().enumerate() {
            store.store(sums, column, out.add(m * stride), columns);
        }
    }
}
