//! Exponential waits with full jitter: peers that failed together don't come back together.

use rand::RngExt;
use std::time::Duration;

/// A wait before try number `failures` + 1, uniform between zero and
/// `min(max, base · 2^(failures − 1))`.
pub(crate) fn full_jitter(
    failures: u32,
    base: Duration,
    max: Duration,
    rng: &mut impl RngExt,
) -> Duration {
    let doublings = failures.saturating_sub(1).min(30);
    let ceiling = base.saturating_mul(1 << doublings).min(max);
    ceiling.mul_f64(rng.random_range(0.0..1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    #[test]
    fn waits_grow_up_to_the_ceiling_and_spread_over_the_whole_range() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let base = Duration::from_millis(50);
        let max = Duration::from_secs(1);
        for (failures, ceiling_ms) in [(0, 50), (1, 50), (2, 100), (5, 800), (6, 1000), (90, 1000)]
        {
            let ceiling = Duration::from_millis(ceiling_ms);
            let waits: Vec<_> =
                (0..1000).map(|_| full_jitter(failures, base, max, &mut rng)).collect();
            let longest = *waits.iter().max().expect("not empty");
            let shortest = *waits.iter().min().expect("not empty");
            assert!(longest <= ceiling && longest > ceiling.mul_f64(0.95), "{failures}");
            assert!(shortest < ceiling.mul_f64(0.05), "{failures}");
        }
    }
}
