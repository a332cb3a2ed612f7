//! The microkernels of matrix products: a tile of the result stays in registers over all steps of
//! the inner dimension.
//!
//! All vectors share one body. They differ in width; a bf16 word is a pair of numbers, and its step
//! is a dot product of two pairs.

use crate::simd::prefetch;

/// Columns of a panel of the packed right side, for vectors of any width.
pub(crate) const PANEL: usize = 32;

/// Vector instructions on words of 32 bits.
///
/// # Safety
/// Of every method: the machine has the instructions; pointers lead to as many words as a vector
/// has (`splat`: to one).
pub(crate) trait Vector: Copy {
    /// Words of a vector.
    const LANES: usize;
    /// Whether the machine's instructions include multiply-adds of one instruction.
    const FUSED: bool;
    unsafe fn zero() -> Self;
    unsafe fn load(p: *const f32) -> Self;
    unsafe fn store(self, p: *mut f32);
    /// The sum in f32, for words of either kind.
    unsafe fn plus(self, other: Self) -> Self;
    unsafe fn splat(p: *const f32) -> Self;
    /// `self + a · b`.
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
}

/// `c = a · b` or `c += a · b` for `MR` rows and `NV` vectors of columns. Rows of `a` and `c` are
/// `a_row` and `c_row` words apart, rows of `b` one panel. At each step the kernel prefetches so many
/// words into the cache, from `next` on, of which it reads nothing: at most two lines.
///
/// # Safety
/// The machine has the vectors' instructions, and the operands reach as far as the sizes say.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "the indices are also those of the packed panels")]
pub(super) unsafe fn tile<V: Vector, const MR: usize, const NV: usize>(
    k: usize,
    (a, a_row): (*const f32, usize),
    b: *const f32,
    (c, c_row): (*mut f32, usize),
    add: bool,
    (next, ahead): (*const f32, usize),
) {
    // SAFETY: as the caller promises; `next` is only a hint and may lead anywhere.
    unsafe {
        let mut sums = [[V::zero(); NV]; MR];
        let (mut a, mut b, mut next) = (a, b, next);
        // One step an iteration: with several steps, the compiler would load all operands first and
        // run out of registers.
        for _ in 0..k {
            prefetch(next);
            prefetch(next.wrapping_add(ahead / 2));
            next = next.wrapping_add(ahead);
            let mut right = [V::zero(); NV];
            for j in 0..NV {
                right[j] = V::load(b.add(j * V::LANES));
            }
            for i in 0..MR {
                let left = V::splat(a.add(i * a_row));
                for j in 0..NV {
                    sums[i][j] = sums[i][j].add_product(left, right[j]);
                }
            }
            a = a.wrapping_add(1);
            b = b.wrapping_add(PANEL);
        }
        for i in 0..MR {
            for j in 0..NV {
                store::<V>(sums[i][j], c.add(i * c_row + j * V::LANES), add);
            }
        }
    }
}

/// `c = a · b` or `c += a · b` for one row and `N` groups of `NV` vectors of columns. Each group
/// has its own pointers. One group alone would wait for its own sums at each step. The words `next`
/// words after `b` are mostly read by the following call, so their first steps are fetched too.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "the indices are also those of the packed panels")]
pub(super) unsafe fn row<V: Vector, const NV: usize, const N: usize>(
    k: usize,
    a: *const f32,
    b: [*const f32; N],
    c: [*mut f32; N],
    add: bool,
    next: usize,
) {
    /// Steps from a word that is fetched to its use. The words come from memory, and the processor
    /// itself begins late at each panel.
    const AHEAD: usize = 12;
    let turn = k.saturating_sub(AHEAD);
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = [[V::zero(); NV]; N];
        for (steps, ahead) in [(0..turn, AHEAD * PANEL), (turn..k, next - turn * PANEL)] {
            for step in steps {
                let left = V::splat(a.add(step));
                for i in 0..N {
                    for line in (0..NV * V::LANES).step_by(16) {
                        prefetch(b[i].wrapping_add(step * PANEL + ahead + line));
                    }
                    for j in 0..NV {
                        let right = V::load(b[i].add(step * PANEL + j * V::LANES));
                        sums[i][j] = sums[i][j].add_product(left, right);
                    }
                }
            }
        }
        for i in 0..N {
            for j in 0..NV {
                store::<V>(sums[i][j], c[i].add(j * V::LANES), add);
            }
        }
    }
}

/// Writes a vector of sums, or adds it to the sums at `c`. Sums are f32 for either kind of word.
#[inline(always)]
unsafe fn store<V: Vector>(sums: V, c: *mut f32, add: bool) {
    // SAFETY: as the callers promise.
    unsafe {
        if add {
            V::load(c).plus(sums).store(c);
        } else {
            sums.store(c);
        }
    }
}

/// Four words in registers of the compiler's choice.
#[derive(Clone, Copy)]
pub(crate) struct Four(pub(crate) [f32; 4]);

impl Vector for Four {
    const LANES: usize = 4;
    const FUSED: bool = false;
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.; 4])
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: as the trait's callers promise.
        Self(unsafe { p.cast::<[f32; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: as the trait's callers promise.
        unsafe { p.cast::<[f32; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }
    #[inline(always)]
    unsafe fn splat(p: *const f32) -> Self {
        // SAFETY: as the trait's callers promise.
        Self([unsafe { p.read_unaligned() }; 4])
    }
    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + a.0[i] * b.0[i]))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Bf16, Eight, Sixteen};

#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports, reason = "the intrinsics are named by their instructions")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    macro_rules! vector {
        ($(#[$doc:meta])* $name:ident($t:ty), $lanes:literal, $zero:ident, $load:ident, $store:ident, $splat:ident,
            $plus:ident, |$s:ident, $a:ident, $b:ident| $fma:expr) => {
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub(crate) struct $name(pub(crate) $t);
            impl Vector for $name {
                const LANES: usize = $lanes;
                const FUSED: bool = true;
                #[inline(always)]
                unsafe fn zero() -> Self {
                    // SAFETY: as the trait's callers promise.
                    Self(unsafe { $zero() })
                }
                #[inline(always)]
                unsafe fn load(p: *const f32) -> Self {
                    // SAFETY: as the trait's callers promise.
                    Self(unsafe { $load(p) })
                }
                #[inline(always)]
                unsafe fn store(self, p: *mut f32) {
                    // SAFETY: as the trait's callers promise.
                    unsafe { $store(p, self.0) }
                }
                #[inline(always)]
                unsafe fn plus(self, other: Self) -> Self {
                    // SAFETY: as the trait's callers promise.
                    Self(unsafe { $plus(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn splat(p: *const f32) -> Self {
                    // SAFETY: as the trait's callers promise.
                    Self(unsafe { $splat(*p) })
                }
                #[inline(always)]
                unsafe fn add_product(self, a: Self, b: Self) -> Self {
                    let ($s, $a, $b) = (self.0, a.0, b.0);
                    // SAFETY: as the trait's callers promise.
                    Self(unsafe { $fma })
                }
            }
        };
    }

    vector!(
        /// AVX2 and FMA.
        Eight(__m256), 8, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps,
        _mm256_add_ps, |s, a, b| _mm256_fmadd_ps(a, b, s)
    );
    vector!(
        /// AVX-512.
        Sixteen(__m512), 16, _mm512_setzero_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps,
        _mm512_add_ps, |s, a, b| _mm512_fmadd_ps(a, b, s)
    );
    vector!(
        /// AVX-512 with pairs of bf16 as words and sums in f32.
        Bf16(__m512), 16, _mm512_setzero_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps,
        _mm512_add_ps, |s, a, b| _mm512_dpbf16_ps(
            s,
            std::mem::transmute::<__m512, __m512bh>(a),
            std::mem::transmute::<__m512, __m512bh>(b),
        )
    );
}
