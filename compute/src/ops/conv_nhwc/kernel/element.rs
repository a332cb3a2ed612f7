//! What numbers of images are in memory: f32, or bf16 that are widened when they are loaded and
//! rounded when they are stored.

use super::vector::Vector;
use crate::epilogue::Activation;
use half::bf16;

/// A number in memory; registers hold f32.
///
/// # Safety
/// Of every function: as those of [`Vector`].
pub(crate) trait Element: Copy {
    /// Reads `V::LANES` elements.
    unsafe fn load<V: Vector>(from: *const Self) -> V;
    /// Writes `V::LANES` elements.
    unsafe fn store<V: Vector>(v: V, to: *mut Self);
    /// Reads `n < V::LANES` elements; the others are zero.
    unsafe fn load_some<V: Vector>(from: *const Self, n: usize) -> V;
    /// Writes the first `n < V::LANES` elements.
    unsafe fn store_some<V: Vector>(v: V, to: *mut Self, n: usize);

    /// Applies an activation to each element.
    fn activate<V: Vector>(activation: Activation, x: &mut [Self]);

    /// Reads `min(n, V::LANES)` elements.
    #[inline(always)]
    unsafe fn load_up_to<V: Vector>(from: *const Self, n: usize) -> V {
        // SAFETY: as the caller promises.
        unsafe { if n >= V::LANES { Self::load(from) } else { Self::load_some(from, n) } }
    }

    /// Writes `min(n, V::LANES)` elements.
    #[inline(always)]
    unsafe fn store_up_to<V: Vector>(v: V, to: *mut Self, n: usize) {
        // SAFETY: as the caller promises.
        unsafe { if n >= V::LANES { Self::store(v, to) } else { Self::store_some(v, to, n) } }
    }
}

impl Element for f32 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const Self) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load(from) }
    }
    #[inline(always)]
    unsafe fn store<V: Vector>(v: V, to: *mut Self) {
        // SAFETY: as the caller promises.
        unsafe { v.store(to) }
    }
    #[inline(always)]
    unsafe fn load_some<V: Vector>(from: *const Self, n: usize) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load_some(from, n) }
    }
    #[inline(always)]
    unsafe fn store_some<V: Vector>(v: V, to: *mut Self, n: usize) {
        // SAFETY: as the caller promises.
        unsafe { v.store_some(to, n) }
    }
    #[inline(always)]
    fn activate<V: Vector>(activation: Activation, x: &mut [Self]) {
        activation.apply(V::FUSED, x);
    }
}

impl Element for bf16 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const Self) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load_bf16(from) }
    }
    #[inline(always)]
    unsafe fn store<V: Vector>(v: V, to: *mut Self) {
        // SAFETY: as the caller promises.
        unsafe { v.store_bf16(to) }
    }
    #[inline(always)]
    unsafe fn load_some<V: Vector>(from: *const Self, n: usize) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load_some_bf16(from, n) }
    }
    #[inline(always)]
    unsafe fn store_some<V: Vector>(v: V, to: *mut Self, n: usize) {
        // SAFETY: as the caller promises.
        unsafe { v.store_some_bf16(to, n) }
    }
    #[inline(always)]
    fn activate<V: Vector>(activation: Activation, x: &mut [Self]) {
        const BLOCK: usize = 64;
        for x in x.chunks_mut(BLOCK) {
            let mut wide = [0f32; BLOCK];
            for (wide, x) in wide.iter_mut().zip(&*x) {
                *wide = f32::from_bits(u32::from(x.to_bits()) << 16);
            }
            activation.apply(V::FUSED, &mut wide);
            for (x, &wide) in x.iter_mut().zip(&wide) {
                *x = rounded(wide);
            }
        }
    }
}

/// To the nearest, halves to the even one; NaN stays NaN. A loop over it becomes one of vectors.
#[inline(always)]
pub(crate) fn rounded(x: f32) -> bf16 {
    let bits = x.to_bits();
    let near = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let kept = if x.is_nan() { bits | 0x0040_0000 } else { near };
    let [_, _, low, high] = kept.to_le_bytes();
    bf16::from_le_bytes([low, high])
}
