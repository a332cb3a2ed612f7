//! The Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998), seeded and read as numpy does.

const N: usize = 624;
const M: usize = 397;

/// A stream of random numbers.
pub(super) struct Twister {
    state: Box<[u32; N]>,
    next: usize,
}

impl Twister {
    pub(super) fn new(seed: u32) -> Self {
        let mut state = Box::new([seed; N]);
        let mut last = seed;
        for (i, s) in (1u32..).zip(state.iter_mut().skip(1)) {
            last = 1_812_433_253u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(i);
            *s = last;
        }
        Self { state, next: N }
    }

    fn next_u32(&mut self) -> u32 {
        if self.next == N {
            for i in 0..N {
                let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
                let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ odd;
            }
            self.next = 0;
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// Evenly distributed in 0..1, with all 53 bits.
    pub(super) fn next_f64(&mut self) -> f64 {
        let (high, low) = (self.next_u32() >> 5, self.next_u32() >> 6);
        (f64::from(high) * 67_108_864. + f64::from(low)) / 9_007_199_254_740_992.
    }
}
