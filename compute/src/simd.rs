//! Loops compiled for each level of vector instructions, and the choice at run time.

use crate::isa::{Isa, Simd};

/// Calls `body`, compiled for AVX-512, AVX2 or the baseline, as the context allows
/// ([`Context::simd`](crate::Context::simd)). `body` must be a closure marked `#[inline(always)]`,
/// and the functions that it calls must be marked so too: a function that is not inlined is
/// compiled for the baseline.
///
/// A hot loop belongs into a function of its own, also marked so. The function's parameters tell
/// the compiler that written and read memory do not overlap. References that a closure captures do
/// not, and the loop would not vectorise.
#[inline]
pub(crate) fn dispatch<R>(simd: Simd, body: impl FnOnce() -> R) -> R {
    match simd.isa() {
        // SAFETY: a `Simd` of this level proves that the machine has the features.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512(body) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2(body) },
        _ => body(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn avx512<R>(body: impl FnOnce() -> R) -> R {
    body()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<R>(body: impl FnOnce() -> R) -> R {
    body()
}

/// Prefetches the line at `p` into the second-level cache. Nothing is read, so `p` may be any
/// address.
#[inline(always)]
pub(crate) fn prefetch(p: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// `out[i] = f(x[i])`. Callers are inside [`dispatch`].
#[inline(always)]
pub(crate) fn map<T: Copy, U>(out: &mut [U], x: &[T], f: impl Fn(T) -> U) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = f(*x);
    }
}

/// Elements that are copied before they are written over, few enough for the first-level cache.
const BLOCK: usize = 1024;

/// Calls `work` for blocks of `out`, with the position of each block and a copy of its elements. A
/// loop whose input and output must not overlap so works in place.
pub(crate) fn over<T: Copy + Default>(out: &mut [T], mut work: impl FnMut(usize, &mut [T], &[T])) {
    let mut copy = [T::default(); BLOCK];
    for (i, block) in out.chunks_mut(BLOCK).enumerate() {
        let copy = &mut copy[..block.len()];
        copy.copy_from_slice(block);
        work(i * BLOCK, block, copy);
    }
}

/// `out[i] = f(a[i], b[i])`. Callers are inside [`dispatch`].
#[inline(always)]
pub(crate) fn zip<T: Copy, U>(out: &mut [U], a: &[T], b: &[T], f: impl Fn(T, T) -> U) {
    for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
        *out = f(*a, *b);
    }
}

/// `f(&mut out[i], x[2 · i])`, where `x` has an element for the last `i`. Callers are inside
/// [`dispatch`].
///
/// The loop loads whole pairs and shuffles them, where a step of two would load single elements.
#[inline(always)]
pub(crate) fn every_second<T: Copy>(out: &mut [T], x: &[T], f: impl Fn(&mut T, T)) {
    let (pairs, rest) = x.as_chunks::<2>();
    let n = out.len().min(pairs.len());
    for (out, [x, _]) in out[..n].iter_mut().zip(&pairs[..n]) {
        f(out, *x);
    }
    if let (Some(out), Some(x)) = (out.get_mut(n), rest.first()) {
        f(out, *x);
    }
}
