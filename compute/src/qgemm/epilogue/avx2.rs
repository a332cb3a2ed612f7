//! The stores of sums in AVX2.

use super::{LARGE, ToBytes, ToFloats};
use crate::qgemm::PANEL;
use std::arch::x86_64::*;

/// [`Epilogue::store_panel`](super::Epilogue::store_panel) of bytes.
///
/// # Safety
/// As [`Epilogue::store_panel`](super::Epilogue::store_panel).
#[inline]
#[target_feature(enable = "avx2,fma")]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "limits and zero points of bytes"
)]
pub(super) unsafe fn bytes(
    to: &ToBytes,
    sums: &[__m256i; 2],
    column: usize,
    out: *mut u8,
    columns: usize,
) {
    // SAFETY: the scales fill whole panels; what is written are the columns that exist.
    unsafe {
        let large = _mm256_set1_ps(LARGE);
        let scales = to.scale.as_ptr().add(column);
        let [a, b] = [0, 1].map(|i| {
            let scaled =
                _mm256_mul_ps(_mm256_cvtepi32_ps(sums[i]), _mm256_loadu_ps(scales.add(8 * i)));
            _mm256_cvtps_epi32(_mm256_min_ps(scaled, large))
        });
        // Saturation to 16 bits changes no result, because the zero point has 8 bits. Packing works
        // on halves of registers, so the quarters are put in order.
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(a, b));
        let words = _mm256_adds_epi16(words, _mm256_set1_epi16(to.zero as i16));
        let (low, high) = (_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
        let bytes = _mm_packus_epi16(low, high);
        let bytes = _mm_max_epu8(bytes, _mm_set1_epi8(to.low as u8 as i8));
        let bytes = _mm_min_epu8(bytes, _mm_set1_epi8(to.high as u8 as i8));
        let bytes = _mm_xor_si128(bytes, _mm_set1_epi8(to.flip as i8));
        if columns >= PANEL {
            _mm_storeu_si128(out.cast(), bytes);
        } else {
            let mut all = [0u8; PANEL];
            _mm_storeu_si128(all.as_mut_ptr().cast(), bytes);
            std::ptr::copy_nonoverlapping(all.as_ptr(), out, columns);
        }
    }
}

/// [`Epilogue::store_panel`](super::Epilogue::store_panel) of floats.
///
/// # Safety
/// As [`Epilogue::store_panel`](super::Epilogue::store_panel).
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn floats(
    to: &ToFloats<'_>,
    sums: &[__m256i; 2],
    column: usize,
    out: *mut f32,
    columns: usize,
) {
    // SAFETY: scales and bias fill whole panels; what is written are the columns that exist.
    unsafe {
        let mut all = [0f32; PANEL];
        let to_all = columns < PANEL;
        let target = if to_all { all.as_mut_ptr() } else { out };
        for (i, sums) in sums.iter().enumerate() {
            let scale = _mm256_loadu_ps(to.scale.as_ptr().add(column + 8 * i));
            let bias = _mm256_loadu_ps(to.bias.as_ptr().add(column + 8 * i));
            let y = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(*sums), scale), bias);
            _mm256_storeu_ps(target.add(8 * i), y);
        }
        if to_all {
            std::ptr::copy_nonoverlapping(all.as_ptr(), out, columns);
        }
    }
}
