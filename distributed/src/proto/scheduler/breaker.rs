//! Circuit breakers: a worker that keeps failing at a model is left alone for a while.

use crate::proto::message::AttemptId;
use std::time::Duration;

/// Failures in a row that open a breaker.
const FAILURES: u32 = 5;
/// How long it stays open: twice as long each time that the probe fails, up to the maximum.
const OPEN_MIN: Duration = Duration::from_secs(1);
const OPEN_MAX: Duration = Duration::from_secs(60);

/// The breaker of one model at one worker, from its first failure to its next success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breaker {
    /// Tasks pass; so many failed in a row.
    Closed { failures: u32 },
    /// No task passes before that time.
    Open { until: Duration, wait: Duration },
    /// One task may pass; `probe` is its attempt, once that is under way.
    HalfOpen { probe: Option<AttemptId>, wait: Duration },
}

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl Breaker {
    /// Whether a task may pass.
    pub(crate) fn passes(self) -> bool {
        matches!(self, Self::Closed { .. } | Self::HalfOpen { probe: None, .. })
    }

    /// An attempt was let through. True when no other may follow it for now.
    pub(crate) fn passed(&mut self, id: AttemptId) -> bool {
        if let Self::HalfOpen { probe, .. } = self {
            *probe = Some(id);
            return true;
        }
        false
    }

    /// A task failed for a reason of the worker's. If that opens the breaker, returns until when.
    pub(crate) fn fail(&mut self, now: Duration) -> Option<Duration> {
        let wait = match *self {
            Self::Closed { failures } if failures + 1 < FAILURES => {
                *self = Self::Closed { failures: failures + 1 };
                return None;
            }
            // Attempts that were under way when it opened say nothing new.
            Self::Open { .. } => return None,
            Self::Closed { .. } => OPEN_MIN,
            Self::HalfOpen { wait, .. } => (wait * 2).min(OPEN_MAX),
        };
        let until = now + wait;
        *self = Self::Open { until, wait };
        Some(until)
    }

    /// Time passed. True when a probe may pass from now on.
    pub(crate) fn wake(&mut self, now: Duration) -> bool {
        match *self {
            Self::Open { until, wait } if until <= now => {
                *self = Self::HalfOpen { probe: None, wait };
                true
            }
            _ => false,
        }
    }

    /// An attempt ended without a verdict. True when it was the probe: another may be sent.
    pub(crate) fn abandon(&mut self, id: AttemptId) -> bool {
        if let Self::HalfOpen { probe, .. } = self
            && *probe == Some(id)
        {
            *probe = None;
            return true;
        }
        false
    }

    /// The name of its state.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Closed { .. } => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen { .. } => "half_open",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn five_failures_open_and_one_probe_decides() {
        let mut breaker = Breaker::default();
        for _ in 0..4 {
            assert_eq!(breaker.fail(s(0)), None);
        }
        assert!(breaker.passes());
        assert_eq!(breaker.fail(s(0)), Some(s(1)));
        assert!(!breaker.passes() && !breaker.wake(Duration::from_millis(999)));
        assert_eq!(breaker.fail(s(0)), None, "a straggler");
        assert!(breaker.wake(s(1)) && breaker.passes());
        let [first, second, stale] = [1, 2, 3].map(|seq| AttemptId { epoch: 1, seq, attempt: 1 });
        assert!(breaker.passed(first) && !breaker.passes(), "one probe at a time");
        assert_eq!(breaker.fail(s(2)), Some(s(4)), "twice as long");
        assert!(breaker.wake(s(4)) && breaker.passed(second));
        assert!(!breaker.abandon(stale) && !breaker.passes(), "it was sent before");
        assert!(breaker.abandon(second) && breaker.passes(), "no verdict");
    }

    #[test]
    fn waits_end_at_a_minute() {
        let mut breaker = Breaker::HalfOpen { probe: None, wait: s(50) };
        assert_eq!(breaker.fail(s(0)), Some(s(60)));
    }
}
