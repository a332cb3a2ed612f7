//! The product's tile in AVX2. The byte instruction of AVX2 saturates sums of two products, so
//! bytes are widened to 16 bits, whose products are added in pairs without saturation.

use super::pack::{PANEL, Packed};
use std::arch::x86_64::*;

/// Rows of a tile.
pub(super) const ROWS: usize = 4;

/// Sums of up to four rows of bytes and one panel of columns.
///
/// # Safety
/// `rows` has, for each tap, `step` apart, a pointer for each row to as many bytes as a segment
/// has.
#[inline]
#[target_feature(enable = "avx2")]
#[expect(clippy::needless_range_loop, reason = "the indices are also those of the registers")]
pub(super) unsafe fn rows<const R: usize>(
    weights: &Packed,
    panel: usize,
    rows: *const *const u8,
    step: usize,
    sums: &mut [[i32; PANEL]; ROWS],
) {
    let lines = &weights.lines[panel * weights.panel()..][..weights.panel()];
    let low_bytes = _mm256_set1_epi16(0xff);
    // SAFETY: the caller vouches for the pointers, a segment has four bytes a line, and the loads
    // and stores of 32 bytes are of halves of 64-byte arrays.
    unsafe {
        let mut acc = [[_mm256_setzero_si256(); 2]; R];
        for r in 0..R {
            for i in 0..2 {
                acc[r][i] = _mm256_loadu_si256(sums[r].as_ptr().add(8 * i).cast());
            }
        }
        let mut line = lines.as_ptr().cast::<__m256i>();
        for tap in 0..weights.taps {
            let mut x = [std::ptr::null::<u8>(); R];
            for r in 0..R {
                x[r] = *rows.add(tap * step + r);
            }
            for group in 0..weights.groups {
                let (mut even, mut odd) = ([low_bytes; 2], [low_bytes; 2]);
                for i in 0..2 {
                    let w = _mm256_load_si256(line.add(i));
                    even[i] = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(w));
                    odd[i] = _mm256_srai_epi16::<8>(w);
                }
                line = line.add(2);
                for r in 0..R {
                    let four = x[r].add(4 * group).cast::<i32>().read_unaligned();
                    let four = _mm256_set1_epi32(four);
                    let (a, b) = (_mm256_and_si256(four, low_bytes), _mm256_srli_epi16::<8>(four));
                    for i in 0..2 {
                        let both = _mm256_add_epi32(
                            _mm256_madd_epi16(a, even[i]),
                            _mm256_madd_epi16(b, odd[i]),
                        );
                        acc[r][i] = _mm256_add_epi32(acc[r][i], both);
                    }
                }
            }
        }
        for r in 0..R {
            for i in 0..2 {
                _mm256_storeu_si256(sums[r].as_mut_ptr().add(8 * i).cast(), acc[r][i]);
            }
        }
    }
}
