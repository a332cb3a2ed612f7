//! Vectors of f32 of several widths under one interface, so that each kernel is written once.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use half::bf16;

/// Lanes of the widest register.
const LANES_MAX: usize = 16;

/// A register of f32.
///
/// # Safety
/// A function may only be called where the CPU features of the type are present, and all of them
/// are inlined into functions that enable those. Pointers must be valid for the elements named.
pub(crate) trait Vector: Copy {
    const LANES: usize;
    /// Whether the CPU features include multiply-adds of one instruction.
    const FUSED: bool;
    unsafe fn splat(x: f32) -> Self;
    /// Reads `LANES` elements.
    unsafe fn load(from: *const f32) -> Self;
    /// Writes `LANES` elements.
    unsafe fn store(self, to: *mut f32);
    /// Reads `n < LANES` elements; the others are zero.
    unsafe fn load_some(from: *const f32, n: usize) -> Self;
    /// Writes the first `n < LANES` elements.
    unsafe fn store_some(self, to: *mut f32, n: usize);
    unsafe fn add(self, b: Self) -> Self;
    unsafe fn sub(self, b: Self) -> Self;
    /// `self · b + c`.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// The lanes in groups of `group`, a power of two below `LANES`, each with the group's lane `i`.
    unsafe fn spread(self, group: usize, i: usize) -> Self;
    /// `min(max(self, low), high)`; NaN stays.
    unsafe fn clamp(self, low: Self, high: Self) -> Self;

    /// Reads `LANES` elements. bf16 lie in memory where the machine multiplies them, which has
    /// registers of its own for them; the others do what keeps the kernels one.
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Self::load_some_bf16(from, Self::LANES) }
    }
    /// Writes `LANES` elements, rounded to the nearest, halves to the even one.
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16) {
        // SAFETY: as the caller promises.
        unsafe { self.store_some_bf16(to, Self::LANES) }
    }
    /// Reads `n <= LANES` elements; the others are zero.
    #[inline(always)]
    unsafe fn load_some_bf16(from: *const bf16, n: usize) -> Self {
        let mut wide = [0f32; LANES_MAX];
        for (i, wide) in wide.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's pointer is valid for `n` elements.
            *wide = unsafe { *from.add(i) }.to_f32();
        }
        // SAFETY: no register is longer.
        unsafe { Self::load(wide.as_ptr()) }
    }
    /// Writes the first `n <= LANES` elements.
    #[inline(always)]
    unsafe fn store_some_bf16(self, to: *mut bf16, n: usize) {
        let mut wide = [0f32; LANES_MAX];
        // SAFETY: no register is longer; the caller's pointer is valid for `n` elements.
        unsafe {
            self.store(wide.as_mut_ptr());
            for (i, &wide) in wide.iter().enumerate().take(n) {
                *to.add(i) = bf16::from_f32(wide);
            }
        }
    }

    /// Reads `min(n, LANES)` elements.
    #[inline(always)]
    unsafe fn load_up_to(from: *const f32, n: usize) -> Self {
        // SAFETY: as the caller promises.
        unsafe { if n >= Self::LANES { Self::load(from) } else { Self::load_some(from, n) } }
    }

    /// Writes `min(n, LANES)` elements.
    #[inline(always)]
    unsafe fn store_up_to(self, to: *mut f32, n: usize) {
        // SAFETY: as the caller promises.
        unsafe { if n >= Self::LANES { self.store(to) } else { self.store_some(to, n) } }
    }
}

/// Four floats in plain Rust, for every machine.
#[derive(Clone, Copy)]
pub(crate) struct Four([f32; 4]);

impl Vector for Four {
    const LANES: usize = 4;
    const FUSED: bool = false;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; 4])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's pointer is valid for four elements.
        Self(unsafe { from.cast::<[f32; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's pointer is valid for four elements.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn load_some(from: *const f32, n: usize) -> Self {
        // SAFETY: the caller's pointer is valid for `n` elements.
        Self(std::array::from_fn(|i| if i < n { unsafe { *from.add(i) } } else { 0. }))
    }
    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, n: usize) {
        for (i, x) in self.0.into_iter().enumerate().take(n) {
            // SAFETY: the caller's pointer is valid for `n` elements.
            unsafe { *to.add(i) = x };
        }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + b.0[i]))
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] - b.0[i]))
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] * b.0[i] + c.0[i]))
    }
    #[inline(always)]
    unsafe fn spread(self, group: usize, i: usize) -> Self {
        Self(std::array::from_fn(|lane| self.0[(lane & !(group - 1)) + i]))
    }
    #[inline(always)]
    unsafe fn clamp(self, low: Self, high: Self) -> Self {
        Self(std::array::from_fn(|i| {
            let x = if self.0[i] < low.0[i] { low.0[i] } else { self.0[i] };
            if x > high.0[i] { high.0[i] } else { x }
        }))
    }
}

#[cfg(target_arch = "x86_64")]
impl Vector for __m256 {
    const LANES: usize = 8;
    const FUSED: bool = true;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller has AVX.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has AVX and a pointer to eight elements.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has AVX and a pointer to eight elements.
        unsafe { _mm256_storeu_ps(to, self) }
    }
    #[inline(always)]
    unsafe fn load_some(from: *const f32, n: usize) -> Self {
        // SAFETY: the caller has AVX2; masked elements are not touched.
        unsafe { _mm256_maskload_ps(from, mask256(n)) }
    }
    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, n: usize) {
        // SAFETY: the caller has AVX2; masked elements are not touched.
        unsafe { _mm256_maskstore_ps(to, mask256(n), self) }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        // SAFETY: the caller has AVX.
        unsafe { _mm256_add_ps(self, b) }
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        // SAFETY: the caller has AVX.
        unsafe { _mm256_sub_ps(self, b) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller has FMA.
        unsafe { _mm256_fmadd_ps(self, b, c) }
    }
    #[inline(always)]
    unsafe fn spread(self, group: usize, i: usize) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let first = _mm256_andnot_si256(word256(group - 1), lanes);
            _mm256_permutevar8x32_ps(self, _mm256_add_epi32(first, word256(i)))
        }
    }
    #[inline(always)]
    unsafe fn clamp(self, low: Self, high: Self) -> Self {
        // SAFETY: the caller has AVX. The second operand wins over a NaN.
        unsafe { _mm256_min_ps(high, _mm256_max_ps(low, self)) }
    }
}

/// The first `n` of eight lanes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn mask256(n: usize) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_cmpgt_epi32(word256(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}

/// A number of lanes in each of eight.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "n is at most 8")]
unsafe fn word256(n: usize) -> __m256i {
    // SAFETY: the caller has AVX.
    unsafe { _mm256_set1_epi32(n as i32) }
}

#[cfg(target_arch = "x86_64")]
impl Vector for __m512 {
    const LANES: usize = 16;
    const FUSED: bool = true;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller has AVX-512.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has AVX-512 and a pointer to sixteen elements.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has AVX-512 and a pointer to sixteen elements.
        unsafe { _mm512_storeu_ps(to, self) }
    }
    #[inline(always)]
    unsafe fn load_some(from: *const f32, n: usize) -> Self {
        // SAFETY: the caller has AVX-512; masked elements are not touched.
        unsafe { _mm512_maskz_loadu_ps((1 << n) - 1, from) }
    }
    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, n: usize) {
        // SAFETY: the caller has AVX-512; masked elements are not touched.
        unsafe { _mm512_mask_storeu_ps(to, (1 << n) - 1, self) }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        unsafe { _mm512_add_ps(self, b) }
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        unsafe { _mm512_sub_ps(self, b) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        unsafe { _mm512_fmadd_ps(self, b, c) }
    }
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "below 16")]
    unsafe fn spread(self, group: usize, i: usize) -> Self {
        // SAFETY: the caller has AVX-512.
        unsafe {
            let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let first = _mm512_andnot_si512(_mm512_set1_epi32(group as i32 - 1), lanes);
            let lane = _mm512_add_epi32(first, _mm512_set1_epi32(i as i32));
            _mm512_permutexvar_ps(lane, self)
        }
    }
    #[inline(always)]
    unsafe fn clamp(self, low: Self, high: Self) -> Self {
        // SAFETY: the caller has AVX-512. The second operand wins over a NaN.
        unsafe { _mm512_min_ps(high, _mm512_max_ps(low, self)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: the caller has AVX-512 and a pointer to sixteen elements.
        unsafe { widened(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16) {
        // SAFETY: the caller has AVX-512 and a pointer to sixteen elements.
        unsafe { _mm256_storeu_si256(to.cast(), rounded(self)) }
    }
    #[inline(always)]
    unsafe fn load_some_bf16(from: *const bf16, n: usize) -> Self {
        // SAFETY: the caller has AVX-512; masked elements are not touched.
        unsafe { widened(_mm256_maskz_loadu_epi16((1 << n) - 1, from.cast())) }
    }
    #[inline(always)]
    unsafe fn store_some_bf16(self, to: *mut bf16, n: usize) {
        // SAFETY: the caller has AVX-512; masked elements are not touched.
        unsafe { _mm256_mask_storeu_epi16(to.cast(), (1 << n) - 1, rounded(self)) }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn widened(halves: __m256i) -> __m512 {
    // SAFETY: the caller has AVX-512.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves))) }
}

/// To the nearest bf16, halves to the even one; NaN stays NaN.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn rounded(x: __m512) -> __m256i {
    // SAFETY: the caller has AVX-512.
    unsafe {
        let bits = _mm512_castps_si512(x);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let near = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
        let kept = _mm512_mask_or_epi32(near, nan, bits, _mm512_set1_epi32(0x40_0000));
        _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(kept))
    }
}
