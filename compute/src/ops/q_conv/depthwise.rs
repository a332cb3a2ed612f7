//! Depthwise convolution of bytes: each channel has its own weights.

use super::rows::Window;
use crate::error::Result;
use crate::isa::Simd;
use crate::qgemm::{Epilogue, PANEL, Rows, ToBytes, positions};
use crate::simd::dispatch;

/// Output pixels computed at once.
const BLOCK: usize = 64;

/// Weights of a depthwise convolution.
pub(super) struct DepthwiseWeights {
    channels: usize,
    taps: usize,
    /// 16 weights for each tap of each panel of 16 channels.
    weights: Vec<[i32; PANEL]>,
    seeds: Vec<i32>,
    epilogue: ToBytes,
}

impl std::fmt::Debug for DepthwiseWeights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{} depthwise", self.taps, self.channels)
    }
}

impl DepthwiseWeights {
    /// `at` gives the weight of a channel and a tap.
    pub(super) fn new(
        channels: usize,
        taps: usize,
        at: impl Fn(usize, usize) -> i8,
        epilogue: ToBytes,
    ) -> Self {
        let panels = channels.div_ceil(PANEL);
        let mut weights = Vec::with_capacity(panels * taps);
        for panel in 0..panels {
            for tap in 0..taps {
                weights.push(std::array::from_fn(|i| {
                    let c = panel * PANEL + i;
                    if c < channels { at(c, tap).into() } else { 0 }
                }));
            }
        }
        Self { channels, taps, weights, seeds: vec![0; panels * PANEL], epilogue }
    }

    /// Bytes of the weights and of the seeds of the sums.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.weights) + size_of_val(&*self.seeds)
    }

    /// These weights with seeds of the sums: the bias minus the part of the input's zero point.
    pub(super) fn seeded(mut self, bias: Option<&[i32]>, zero: i32) -> Self {
        for (panel, weights) in self.weights.chunks_exact(self.taps.max(1)).enumerate() {
            for i in 0..PANEL {
                let c = panel * PANEL + i;
                let sum = weights.iter().fold(0i32, |sum, w| sum.wrapping_add(w[i]));
                let bias = bias.and_then(|b| b.get(c)).copied().unwrap_or(0);
                self.seeds[c] = bias.wrapping_sub(sum.wrapping_mul(zero));
            }
        }
        self
    }

    /// Computes the output pixels from `first` on.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn run(
        &self,
        simd: Simd,
        window: &Window<'_>,
        first: usize,
        out: &mut [u8],
    ) -> Result<()> {
        let (mut at, step) = positions(self.taps, BLOCK.min(out.len() / self.channels))?;
        for (block, out) in out.chunks_mut(step * self.channels).enumerate() {
            let count = out.len() / self.channels;
            window.fill(first + block * step, count, step, &mut at);
            #[cfg(target_arch = "x86_64")]
            if simd.vnni() {
                // SAFETY: the `Simd` proves that the machine has the instructions; every pointer
                // is of a pixel or border of all channels, and `out` has `count` pixels.
                unsafe { self.vnni(&at, step, count, out) };
                continue;
            }
            dispatch(
                simd,
                #[inline(always)]
                || self.plain(&at, step, count, out),
            );
        }
        Ok(())
    }

    #[inline(always)]
    fn plain(&self, at: &[*const u8], step: usize, count: usize, out: &mut [u8]) {
        for (panel, weights) in self.weights.chunks_exact(self.taps.max(1)).enumerate() {
            let from = panel * PANEL;
            let n = PANEL.min(self.channels - from);
            for pixel in 0..count {
                let mut sums: [i32; PANEL] = std::array::from_fn(|i| self.seeds[from + i]);
                for (tap, w) in weights.iter().enumerate() {
                    // SAFETY: the pointer is of a pixel or border of all channels.
                    let x =
                        unsafe { std::slice::from_raw_parts(at[tap * step + pixel].add(from), n) };
                    for ((sum, x), w) in sums.iter_mut().zip(x).zip(w) {
                        *sum = sum.wrapping_add(i32::from(*x) * *w);
                    }
                }
                let out = &mut out[pixel * self.channels + from..][..n];
                for (i, (out, sum)) in out.iter_mut().zip(sums).enumerate() {
                    *out = self.epilogue.element(sum, from + i);
                }
            }
        }
    }

    /// # Safety
    /// The machine must have the instructions. For each tap, `at` must have `count` pointers to
    /// pixels of all channels, `step` apart from those of the next tap; `out` has room for `count`.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")]
    unsafe fn vnni(&self, at: &[*const u8], step: usize, count: usize, out: &mut [u8]) {
        for panel in 0..self.channels.div_ceil(PANEL) {
            let mut pixel = 0;
            while pixel < count {
                let at = &at[pixel..];
                let out = &mut out[pixel * self.channels + panel * PANEL..];
                // SAFETY: by this function's contract; no tile takes more pixels than are left.
                pixel += unsafe {
                    match count - pixel {
                        8.. => self.tile::<8>(at, step, panel, out),
                        4.. => self.tile::<4>(at, step, panel, out),
                        _ => self.tile::<1>(at, step, panel, out),
                    }
                };
            }
        }
    }

    /// 16 channels of `P` pixels.
    ///
    /// # Safety
    /// As [`Self::vnni`], for `P` pixels.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")]
    unsafe fn tile<const P: usize>(
        &self,
        at: &[*const u8],
        step: usize,
        panel: usize,
        out: &mut [u8],
    ) -> usize {
        use std::arch::x86_64::*;
        let from = panel * PANEL;
        let n = PANEL.min(self.channels - from);
        #[allow(clippy::cast_possible_truncation, reason = "as many bits as there are lanes")]
        let mask = ((1u32 << n) - 1) as u16;
        assert!(out.len() >= (P - 1) * self.channels + n && at.len() >= (self.taps - 1) * step + P);
        // SAFETY: loads are masked to the channels that exist, which the pointers and the output
        // have; weights, seeds and scales fill whole panels.
        unsafe {
            let seeds = _mm512_loadu_si512(self.seeds.as_ptr().add(from).cast());
            let mut acc = [seeds; P];
            let weights = self.weights.as_ptr().add(panel * self.taps);
            let at = at.as_ptr();
            for tap in 0..self.taps {
                let w = _mm512_loadu_si512(weights.add(tap).cast());
                for (p, acc) in acc.iter_mut().enumerate() {
                    let x = (*at.add(tap * step + p)).add(from);
                    let x = if n == PANEL {
                        _mm_loadu_si128(x.cast())
                    } else {
                        _mm_maskz_loadu_epi8(mask, x.cast())
                    };
                    // The upper half of each lane is 0 on this side: one product remains.
                    *acc = _mm512_dpwssd_epi32(*acc, _mm512_cvtepu8_epi32(x), w);
                }
            }
            for (p, acc) in acc.into_iter().enumerate() {
                let out = out.as_mut_ptr().add(p * self.channels);
                self.epilogue.store(&[acc], from, out, n);
            }
        }
        P
    }
}
