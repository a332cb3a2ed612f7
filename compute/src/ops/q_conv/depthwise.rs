//! Depthwise convolution of bytes: each channel has its own weights.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod vnni;

use super::rows::Window;
use crate::error::Result;
use crate::isa::{Isa, Simd};
use crate::qgemm::{Epilogue, PANEL, Rows, ToBytes, positions};

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
            match simd.isa() {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 if simd.vnni() => {
                    self.tiles(&at, count, out, |left, at, panel, out| {
                        // SAFETY: the `Simd` proves that the machine has the instructions; every pointer
                        // is of a pixel or border of all channels, and `out` has the pixels that are left.
                        unsafe { self.vnni(left, (at, step), panel, out) }
                    })
                }
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Avx2 => self.tiles(&at, count, out, |left, at, panel, out| {
                    // SAFETY: as above.
                    unsafe { self.avx2(left, (at, step), panel, out) }
                }),
                _ => self.plain(&at, step, count, out),
            }
        }
        Ok(())
    }

    /// All panels of `count` pixels. `tile` computes some of the pixels that are left and tells how
    /// many; it gets pointers and output from the first of them and from the panel on.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn tiles(
        &self,
        at: &[*const u8],
        count: usize,
        out: &mut [u8],
        tile: impl Fn(usize, &[*const u8], usize, &mut [u8]) -> usize,
    ) {
        for panel in 0..self.channels.div_ceil(PANEL) {
            let mut pixel = 0;
            while pixel < count {
                let out = &mut out[pixel * self.channels + panel * PANEL..];
                pixel += tile(count - pixel, &at[pixel..], panel, out);
            }
        }
    }

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
}
