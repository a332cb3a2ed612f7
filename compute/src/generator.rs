//! Pseudo-random numbers that are the same for the same seed.

/// Steele, Lea and Flood's SplitMix64.
#[derive(Debug)]
pub(crate) struct Generator(u64);

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number evenly distributed in 0..1.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A normally distributed number, by Box and Muller's transform. Its second number is not used.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2. * (1. - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap_or(0)
    }

    /// `0..length` in another order, where there is another.
    pub(crate) fn shuffled(&mut self, length: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..length).collect();
        for i in (1..length).rev() {
            order.swap(i, self.below(i + 1));
        }
        if order.iter().copied().eq(0..length) {
            order.reverse();
        }
        order
    }
}
