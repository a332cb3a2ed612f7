//! Tiles in AVX2.

use super::DepthwiseWeights;
use crate::qgemm::{Epilogue, PANEL};
use std::arch::x86_64::*;

impl DepthwiseWeights {
    /// 16 channels of some of the `left` pixels: how many these are.
    ///
    /// # Safety
    /// The machine must have the instructions. For each tap, `at` must have `left` pointers to
    /// pixels of all channels, `step` apart from those of the next tap; `out` has room for these
    /// pixels from the panel on.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2(
        &self,
        left: usize,
        (at, step): (&[*const u8], usize),
        panel: usize,
        out: &mut [u8],
    ) -> usize {
        // SAFETY: by this function's contract; no tile takes more pixels than are left.
        unsafe {
            match left {
                4.. => self.half_tile::<4>(at, step, panel, out),
                _ => self.half_tile::<1>(at, step, panel, out),
            }
        }
    }

    /// 16 channels of `P` pixels, in halves.
    ///
    /// # Safety
    /// As [`Self::avx2`], for `P` pixels.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn half_tile<const P: usize>(
        &self,
        at: &[*const u8],
        step: usize,
        panel: usize,
        out: &mut [u8],
    ) -> usize {
        let from = panel * PANEL;
        let n = PANEL.min(self.channels - from);
        assert!(out.len() >= (P - 1) * self.channels + n && at.len() >= (self.taps - 1) * step + P);
        // SAFETY: only channels that exist are read, which the pointers and the output have;
        // weights, seeds and scales fill whole panels.
        unsafe {
            let seeds = self.seeds.as_ptr().add(from).cast::<__m256i>();
            let mut acc = [[_mm256_loadu_si256(seeds), _mm256_loadu_si256(seeds.add(1))]; P];
            let weights = self.weights.as_ptr().add(panel * self.taps);
            let last = LastBytes::new(n);
            let low = _mm256_set1_epi32(0xffff);
            // Two taps at once: each lane has a byte of both, and the weights of both.
            for tap in (0..self.taps).step_by(2) {
                let next = (tap + 1).min(self.taps - 1);
                let mut w = [low; 2];
                for (i, w) in w.iter_mut().enumerate() {
                    let [first, second] = [tap, next]
                        .map(|tap| _mm256_loadu_si256(weights.add(tap).cast::<__m256i>().add(i)));
                    *w = _mm256_and_si256(first, low);
                    if next != tap {
                        *w = _mm256_or_si256(*w, _mm256_slli_epi32::<16>(second));
                    }
                }
                for (p, acc) in acc.iter_mut().enumerate() {
                    let [a, b] = [tap, next].map(|tap| {
                        let x = at.as_ptr().add(tap * step + p).read();
                        if n == PANEL {
                            _mm_loadu_si128(x.add(from).cast())
                        } else {
                            last.load(x, self.channels)
                        }
                    });
                    let pairs = [_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)];
                    for i in 0..2 {
                        let product = _mm256_madd_epi16(_mm256_cvtepu8_epi16(pairs[i]), w[i]);
                        acc[i] = _mm256_add_epi32(acc[i], product);
                    }
                }
            }
            for (p, acc) in std::hint::black_box(acc).iter().enumerate() {
                let out = out.as_mut_ptr().add(p * self.channels);
                self.epilogue.store_panel(acc, from, out, n);
            }
        }
        P
    }
}

/// Reads the last bytes of a pixel, fewer than a panel.
struct LastBytes {
    n: usize,
    /// Moves the last `n` of 16 bytes to the front.
    order: __m128i,
}

impl LastBytes {
    #[target_feature(enable = "avx2")]
    fn new(n: usize) -> Self {
        // A position with its highest bit set gives a zero.
        let order: [u8; PANEL] = std::array::from_fn(|i| {
            if i < n { u8::try_from(i + PANEL - n).unwrap_or(0x80) } else { 0x80 }
        });
        // SAFETY: 16 bytes are loaded of 16.
        Self { n, order: unsafe { _mm_loadu_si128(order.as_ptr().cast()) } }
    }

    /// # Safety
    /// `pixel` points to so many channels, at least as many as are read.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load(&self, pixel: *const u8, channels: usize) -> __m128i {
        // SAFETY: by this function's contract.
        unsafe {
            if channels >= PANEL {
                let x = _mm_loadu_si128(pixel.add(channels - PANEL).cast());
                return _mm_shuffle_epi8(x, self.order);
            }
            let mut all = [0u8; PANEL];
            std::ptr::copy_nonoverlapping(pixel, all.as_mut_ptr(), self.n);
            _mm_loadu_si128(all.as_ptr().cast())
        }
    }
}
