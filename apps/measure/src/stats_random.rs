//! Pseudo-random numbers for tests of intervals, the same on every machine.

/// Uniform numbers in (0, 1) from the SplitMix64 generator (Steele, Lea and Flood, 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
}
