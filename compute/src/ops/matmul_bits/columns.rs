//! Vectors over the columns of a panel, and the values of few bits in their words.
//!
//! A value is not shifted to the lowest bits of its word: the other bits are cleared, and the number
//! that is left is the value times a power of two, which the left side makes up for. That saves a
//! shift for each value. Words are halved first, so that the powers of two stay small.

use super::layout::{Layout, Zeros};
use crate::gemm::{Four, PANEL, Vector};
use crate::isa::{Isa, Simd};

/// Vector instructions on words of few bits, one word for each column.
///
/// # Safety
/// As of [`Vector`]: the machine has the instructions, and pointers lead to as many elements as a
/// vector has.
pub(super) trait Columns: Vector {
    /// As many words as the vector has numbers.
    type Words: Copy;
    unsafe fn words(p: *const u32) -> Self::Words;
    /// The upper halves of words, in the lower halves.
    unsafe fn upper(words: Self::Words) -> Self::Words;
    /// Words of which only the bits of a mask are left, as numbers. The mask is below 2³¹.
    unsafe fn masked(words: Self::Words, mask: u32) -> Self;
    /// Numbers from bytes.
    unsafe fn bytes(p: *const u8) -> Self;
    unsafe fn times(self, other: Self) -> Self;
}

/// How values of few bits become numbers.
///
/// # Safety
/// As of [`Columns`].
pub(super) trait Code<V: Columns>: Copy {
    const BITS: usize;
    /// Value `i` of the lower half of each word, times the inverse of [`factor`].
    unsafe fn value(self, words: V::Words, i: usize) -> V;
}

/// A value is the number that its bits are.
#[derive(Clone, Copy)]
pub(super) struct Uniform<const BITS: usize>;

impl<V: Columns, const BITS: usize> Code<V> for Uniform<BITS> {
    const BITS: usize = BITS;
    #[inline(always)]
    unsafe fn value(self, words: V::Words, i: usize) -> V {
        // SAFETY: as the trait's callers promise.
        unsafe { V::masked(words, ((1 << BITS) - 1) << (i * BITS)) }
    }
}

/// The factor by which value `i` of a word is multiplied to undo its place in its half of the word.
pub(super) fn factor(bits: usize, i: usize) -> f32 {
    1. / (1u32 << (i % (16 / bits) * bits)) as f32
}

/// The zero points of a block, `NV` vectors of them from column `first` of the panel on.
///
/// # Safety
/// As of [`Columns`]; the block's words begin at `block`.
#[inline(always)]
pub(super) unsafe fn zeros<V: Columns, const NV: usize>(
    layout: &Layout,
    block: *const u32,
    first: usize,
) -> [V; NV] {
    let middle = layout.middle();
    // SAFETY: as the caller promises.
    unsafe {
        let mut zeros = [V::splat(&raw const middle); NV];
        let at = block.add(PANEL);
        for (v, zero) in zeros.iter_mut().enumerate() {
            let column = first + v * V::LANES;
            match layout.zeros {
                Zeros::Middle => {}
                Zeros::Bytes => *zero = V::bytes(at.cast::<u8>().add(column)),
                Zeros::Floats => *zero = V::load(at.cast::<f32>().add(column)),
            }
        }
        zeros
    }
}

/// Work that is compiled for each kind of vector and of values.
///
/// # Safety
/// Of the method: the machine has the vector's instructions, and whatever the work relies on.
pub(super) trait Work {
    unsafe fn run<V: Columns, C: Code<V>>(&self, code: C);
}

/// Does the work with the context's vectors.
///
/// # Safety
/// Whatever the work relies on.
pub(super) unsafe fn dispatch(simd: Simd, layout: &Layout, work: &impl Work) {
    // SAFETY: a `Simd` proves the machine's instructions; the caller vouches for the work.
    unsafe {
        match simd.isa() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => x86::avx512(layout, work),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => x86::avx2(layout, work),
            _ => by_code::<Four>(layout, work),
        }
    }
}

/// # Safety
/// As [`dispatch`], and the machine has the vector's instructions.
#[inline(always)]
unsafe fn by_code<V: Columns>(layout: &Layout, work: &impl Work) {
    // SAFETY: as the caller promises.
    unsafe {
        match layout.bits {
            2 => work.run::<V, _>(Uniform::<2>),
            4 => work.run::<V, _>(Uniform::<4>),
            _ => work.run::<V, _>(Uniform::<8>),
        }
    }
}

impl Columns for Four {
    type Words = [u32; 4];
    #[inline(always)]
    unsafe fn words(p: *const u32) -> Self::Words {
        // SAFETY: as the trait's callers promise.
        unsafe { p.cast::<[u32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn upper(words: Self::Words) -> Self::Words {
        words.map(|word| word >> 16)
    }
    #[inline(always)]
    unsafe fn masked(words: Self::Words, mask: u32) -> Self {
        Self(words.map(|word| (word & mask) as f32))
    }
    #[inline(always)]
    unsafe fn bytes(p: *const u8) -> Self {
        // SAFETY: as the trait's callers promise.
        Self(unsafe { p.cast::<[u8; 4]>().read_unaligned() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] * other.0[i]))
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports, reason = "the intrinsics are named by their instructions")]
mod x86 {
    use super::{Columns, Layout, Work, by_code};
    use crate::gemm::{Eight, Sixteen};
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`super::dispatch`], and the machine has the instructions.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2(layout: &Layout, work: &impl Work) {
        // SAFETY: as the caller promises.
        unsafe { by_code::<Eight>(layout, work) }
    }

    /// # Safety
    /// As [`super::dispatch`], and the machine has the instructions.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    pub(super) unsafe fn avx512(layout: &Layout, work: &impl Work) {
        // SAFETY: as the caller promises.
        unsafe { by_code::<Sixteen>(layout, work) }
    }

    macro_rules! columns {
        ($name:ident($words:ty), $load:ident, $shift:ident, $splat:ident, $and:ident, $number:ident,
            $times:ident, |$p:ident| $bytes:expr) => {
            impl Columns for $name {
                type Words = $words;
                #[inline(always)]
                unsafe fn words(p: *const u32) -> $words {
                    // SAFETY: as the trait's callers promise.
                    unsafe { $load(p.cast()) }
                }
                #[inline(always)]
                unsafe fn upper(words: $words) -> $words {
                    // SAFETY: as the trait's callers promise.
                    unsafe { $shift::<16>(words) }
                }
                #[inline(always)]
                unsafe fn masked(words: $words, mask: u32) -> Self {
                    // SAFETY: as the trait's callers promise.
                    Self(unsafe { $number($and(words, $splat(mask.cast_signed()))) })
                }
                #[inline(always)]
                unsafe fn bytes($p: *const u8) -> Self {
                    // SAFETY: as the trait's callers promise.
                    Self(unsafe { $number($bytes) })
                }
                #[inline(always)]
                unsafe fn times(self, other: Self) -> Self {
                    // SAFETY: as the trait's callers promise.
                    Self(unsafe { $times(self.0, other.0) })
                }
            }
        };
    }

    columns!(
        Eight(__m256i),
        _mm256_loadu_si256,
        _mm256_srli_epi32,
        _mm256_set1_epi32,
        _mm256_and_si256,
        _mm256_cvtepi32_ps,
        _mm256_mul_ps,
        |p| _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()))
    );
    columns!(
        Sixteen(__m512i),
        _mm512_loadu_si512,
        _mm512_srli_epi32,
        _mm512_set1_epi32,
        _mm512_and_si512,
        _mm512_cvtepi32_ps,
        _mm512_mul_ps,
        |p| _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()))
    );
}
