//! The stores of sums in AVX-512 with VNNI.

use super::{LARGE, ToBytes, ToFloats};
use crate::qgemm::PANEL;
use std::arch::x86_64::*;

/// The lowest `n` bits.
#[inline(always)]
fn mask(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1u64 << n) - 1 }
}

/// [`Epilogue::store`](super::Epilogue::store) of bytes.
///
/// # Safety
/// As [`Epilogue::store`](super::Epilogue::store).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "limits and zero points of bytes, and masks of as many bits as there are lanes"
)]
pub(super) unsafe fn bytes<const N: usize>(
    to: &ToBytes,
    sums: &[__m512i; N],
    column: usize,
    out: *mut u8,
    columns: usize,
) {
    // SAFETY: the scales fill whole panels; the stores are masked to the columns that exist.
    unsafe {
        let large = _mm512_set1_ps(LARGE);
        let mut rounded = *sums;
        for (n, sums) in rounded.iter_mut().enumerate() {
            let scale = _mm512_loadu_ps(to.scale.as_ptr().add(column + n * PANEL));
            let scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(*sums), scale);
            *sums = _mm512_cvtps_epi32(_mm512_min_ps(scaled, large));
        }
        if N == 4 {
            // Saturation to 16 bits changes no result, because the zero point has 8 bits.
            let a = _mm512_packs_epi32(rounded[0], rounded[1]);
            let b = _mm512_packs_epi32(rounded[2], rounded[3]);
            let zero = _mm512_set1_epi16(to.zero as i16);
            let a = _mm512_adds_epi16(a, zero);
            let b = _mm512_adds_epi16(b, zero);
            let bytes = _mm512_packus_epi16(a, b);
            let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            let bytes = _mm512_permutexvar_epi32(order, bytes);
            let bytes = _mm512_max_epu8(bytes, _mm512_set1_epi8(to.low as u8 as i8));
            let bytes = _mm512_min_epu8(bytes, _mm512_set1_epi8(to.high as u8 as i8));
            let bytes = _mm512_xor_si512(bytes, _mm512_set1_epi8(to.flip as i8));
            _mm512_mask_storeu_epi8(out.cast(), mask(columns), bytes);
            return;
        }
        for (n, rounded) in rounded.iter().enumerate() {
            let sum = _mm512_add_epi32(*rounded, _mm512_set1_epi32(to.zero));
            let sum = _mm512_max_epi32(sum, _mm512_set1_epi32(to.low));
            let sum = _mm512_min_epi32(sum, _mm512_set1_epi32(to.high));
            let bytes = _mm512_cvtepi32_epi8(sum);
            let bytes = _mm_xor_si128(bytes, _mm_set1_epi8(to.flip as i8));
            let left = mask(columns.saturating_sub(n * PANEL).min(PANEL)) as u16;
            _mm_mask_storeu_epi8(out.add(n * PANEL).cast(), left, bytes);
        }
    }
}

/// [`Epilogue::store`](super::Epilogue::store) of floats.
///
/// # Safety
/// As [`Epilogue::store`](super::Epilogue::store).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")]
#[allow(clippy::cast_possible_truncation, reason = "masks of as many bits as there are lanes")]
pub(super) unsafe fn floats<const N: usize>(
    to: &ToFloats<'_>,
    sums: &[__m512i; N],
    column: usize,
    out: *mut f32,
    columns: usize,
) {
    // SAFETY: scales and bias fill whole panels; the stores are masked to the columns that exist.
    unsafe {
        for (n, sums) in sums.iter().enumerate() {
            let at = column + n * PANEL;
            let scale = _mm512_loadu_ps(to.scale.as_ptr().add(at));
            let bias = _mm512_loadu_ps(to.bias.as_ptr().add(at));
            let y = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(*sums), scale), bias);
            let left = mask(columns.saturating_sub(n * PANEL).min(PANEL)) as u16;
            _mm512_mask_storeu_ps(out.add(n * PANEL), left, y);
        }
    }
}
