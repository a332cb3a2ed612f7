//! Tiles in AVX-512 with VNNI.

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
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")]
    pub(super) unsafe fn vnni(
        &self,
        left: usize,
        (at, step): (&[*const u8], usize),
        panel: usize,
        out: &mut [u8],
    ) -> usize {
        // SAFETY: by this function's contract; no tile takes more pixels than are left.
        unsafe {
            match left {
                8.. => self.tile::<8>(at, step, panel, out),
                4.. => self.tile::<4>(at, step, panel, out),
                _ => self.tile::<1>(at, step, panel, out),
            }
        }
    }

    /// 16 channels of `P` pixels.
    ///
    /// # Safety
    /// As [`Self::vnni`], for `P` pixels.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")]
    unsafe fn tile<const P: usize>(
        &self,
        at: &[*const u8],
        step: usize,
        panel: usize,
        out: &mut [u8],
    ) -> usize {
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
