//! The retry budget: failures must not multiply the load that causes them.

use std::time::Duration;

/// Retries that each task's first attempt allows.
const PER_TASK: f64 = 0.2;
/// Retries that are allowed in any case, at once and per second.
const RESERVE: f64 = 20.0;
const PER_SECOND: f64 = 2.0;

/// A bucket of tokens, one a retry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Budget {
    tokens: f64,
    filled: Duration,
}

impl Budget {
    /// A full budget.
    pub(crate) fn new(now: Duration) -> Self {
        Self { tokens: RESERVE, filled: now }
    }

    /// A task's first attempt began.
    pub(crate) fn deposit(&mut self) {
        self.tokens = (self.tokens + PER_TASK).min(RESERVE);
    }

    /// Takes a token for a retry, if there is one.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        self.fill(now);
        let there = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(there));
        there
    }

    /// How long until there is a token, if no task brings one before.
    pub(crate) fn next(&mut self, now: Duration) -> Duration {
        self.fill(now);
        let missing = (1.0 - self.tokens).max(0.0);
        // Never zero, or the clock might not move at all.
        Duration::from_secs_f64(missing / PER_SECOND).max(Duration::from_millis(1))
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled).as_secs_f64();
        self.filled = now.max(self.filled);
        self.tokens = PER_SECOND.mul_add(passed, self.tokens).min(RESERVE);
    }

    /// Retries that may begin at once.
    pub(crate) fn left(&self) -> f64 {
        self.tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_begin_no_faster_than_the_budget_allows() {
        let mut budget = Budget::new(Duration::ZERO);
        let mut taken = 0u32;
        for step in 0..1000u32 {
            let now = Duration::from_millis(u64::from(10 * step));
            if step % 5 == 0 {
                budget.deposit();
            }
            taken += u32::from(budget.take(now));
            let tasks = f64::from(step / 5 + 1);
            let most = RESERVE + PER_TASK * tasks + PER_SECOND * now.as_secs_f64();
            assert!(f64::from(taken) <= most, "{taken} at {now:?}");
        }
        assert!(taken > 75, "{taken}");
    }

    #[test]
    fn a_quiet_time_fills_it_up_to_the_reserve() {
        let mut budget = Budget::new(Duration::ZERO);
        for _ in 0..20 {
            assert!(budget.take(Duration::ZERO));
        }
        assert!(!budget.take(Duration::ZERO));
        assert_eq!(budget.next(Duration::ZERO), Duration::from_millis(500));
        assert!(budget.take(Duration::from_millis(500)));
        assert!(budget.take(Duration::from_secs(1000)));
        assert!((budget.left() - 19.0).abs() < 1e-9, "{budget:?}");
    }
}
