//! Deterministic pseudo-random numbers for test inputs.

/// The SplitMix64 generator (Steele, Lea and Flood, 2014), with a fixed default seed.
#[derive(Debug, Clone, Default)]
pub struct Random(u64);

impl Random {
    /// A generator with a seed of its own.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Uniform in [0, 1).
    ///
    /// ```
    /// let mut random = lgp_measure::Random::default();
    /// assert!((0.0..1.0).contains(&random.uniform()));
    /// ```
    pub fn uniform(&mut self) -> f32 {
        // An f32 holds 24 bits exactly.
        (self.bits() >> 40) as f32 / 16_777_216.0
    }

    /// Uniform below `end`, which is not 0; the bias of the remainder is below 2⁻³² for lengths that fit into
    /// memory.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.bits() % end).unwrap_or(0)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
