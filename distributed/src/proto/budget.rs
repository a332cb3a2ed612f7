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
    /// A full one.
    pub(crate) fn new(now: Duration) -> Self {
        Self { tokens: RESERVE, filled: now }
    }

    /// A task's first attempt began.
    pub(crate) fn deposit(&mut self) {
        self.tokens = (self.tokens + PER_TASK).min(RESERVE);
    }

    /// Takes a token for a retry. Answers how long the retry has to wait for it: a bucket that
    /// is overdrawn makes the next ones wait longer, so that they come one by one.
    pub(crate) fn withdraw(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.filled).as_secs_f64();
        self.filled = now.max(self.filled);
        self.tokens = PER_SECOND.mul_add(passed, self.tokens).min(RESERVE) - 1.0;
        // More than an hour of debts is as good as an hour.
        Duration::from_secs_f64((-self.tokens / PER_SECOND).clamp(0.0, 3600.0))
    }

    /// Retries that may begin at once.
    pub(crate) fn left(&self) -> f64 {
        self.tokens.max(0.0)
    }

    /// The most retries that `tasks` tasks may have caused after a time.
    #[cfg(test)]
    pub(crate) fn most(tasks: u64, time: Duration) -> f64 {
        let tasks = f64::from(u32::try_from(tasks).unwrap_or(u32::MAX));
        RESERVE + PER_TASK * tasks + PER_SECOND * time.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_begin_no_faster_than_the_budget_allows() {
        let mut budget = Budget::new(Duration::ZERO);
        let mut begun = Vec::new();
        for task in 0..200u64 {
            let now = Duration::from_millis(10 * task);
            budget.deposit();
            begun.push(now + budget.withdraw(now));
        }
        for (count, at) in (1u32..).zip(&begun) {
            let tasks = u64::try_from(at.as_millis() / 10 + 1).expect("small").min(200);
            assert!(f64::from(count) <= Budget::most(tasks, *at) + 1.0, "{count} at {at:?}");
        }
        assert!(begun.last() > Some(&Duration::from_secs(50)), "{:?}", begun.last());
    }

    #[test]
    fn a_quiet_time_fills_it_up_to_the_reserve() {
        let mut budget = Budget::new(Duration::ZERO);
        for _ in 0..20 {
            assert_eq!(budget.withdraw(Duration::ZERO), Duration::ZERO);
        }
        assert!(budget.withdraw(Duration::ZERO) > Duration::ZERO);
        budget.withdraw(Duration::from_secs(1000));
        assert!((budget.left() - 19.0).abs() < 1e-9, "{budget:?}");
    }
}
