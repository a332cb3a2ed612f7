//! The required pace of a body.

use crate::config::ServerConfig;
use crate::fault::Fault;
use axum::http::StatusCode;
use std::time::{Duration, Instant};

/// 408 for a body that stalls.
fn too_slow(limit: Duration) -> Fault {
    Fault::new(
        StatusCode::REQUEST_TIMEOUT,
        "too_slow",
        format!("nothing of the request body arrived for {} ms", limit.as_millis()),
    )
}

/// A large body may take long, but it must not stall.
async fn in_time<T>(stall: Duration, step: impl Future<Output = T>) -> Result<T, Fault> {
    tokio::time::timeout(stall, step).await.map_err(|_| too_slow(stall))
}

/// The pace of a body: it must not stall, nor be too slow for long. The body has a time budget to which each byte
/// adds. Fast bytes never save up more than the stall limit.
pub(crate) struct Pace {
    began: Instant,
    /// When the budget ends, counted from the start.
    ends: Duration,
    got: usize,
    stall: Duration,
    bytes_per_s_min: u32,
}

impl Pace {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        Self {
            began: Instant::now(),
            ends: Duration::from_millis(config.body_grace_ms),
            got: 0,
            stall: config.body_timeout(),
            bytes_per_s_min: u32::try_from(config.body_bytes_per_s_min).unwrap_or(u32::MAX).max(1),
        }
    }

    /// The budget left for a body of which `got` bytes have arrived.
    fn left(&mut self, got: usize, elapsed: Duration) -> Duration {
        let more = got.saturating_sub(self.got);
        if more > 0 {
            self.got = got;
            let earned = Duration::from_secs_f64(more as f64 / f64::from(self.bytes_per_s_min));
            // The rest of the initial grace may be larger.
            let most = elapsed.saturating_add(self.stall).max(self.ends);
            self.ends = self.ends.saturating_add(earned).min(most);
        }
        self.ends.saturating_sub(elapsed)
    }

    /// Waits for the next piece of a body of which `got` bytes have arrived.
    pub(crate) async fn next<T>(
        &mut self,
        got: usize,
        piece: impl Future<Output = T>,
    ) -> Result<T, Fault> {
        let left = self.left(got, self.began.elapsed());
        if left >= self.stall {
            return in_time(self.stall, piece).await;
        }
        tokio::time::timeout(left, piece).await.map_err(|_| {
            let (ms, least) = (self.began.elapsed().as_millis(), self.bytes_per_s_min);
            let message = format!(
                "{got} bytes of the request body arrived in {ms} ms, and the last of them too slowly: \
                 expected {least} a second"
            );
            Fault::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
        })
    }

    /// Excludes time that the server itself took.
    pub(crate) fn waited(&mut self, time: Duration) {
        self.began += time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(body_grace_ms: u64) -> Pace {
        let config = ServerConfig {
            body_grace_ms,
            body_timeout_ms: 60_000,
            body_bytes_per_s_min: 1_000,
            ..ServerConfig::default()
        };
        Pace::new(&config)
    }

    #[test]
    fn a_body_that_was_fast_may_not_be_slow_for_long() {
        let s = Duration::from_secs;
        let mut burst = pace(10_000);
        assert_eq!(burst.left(0, s(0)), s(10));
        // Enough bytes for eleven days, then one a minute.
        assert_eq!(burst.left(1_000_000_000, s(1)), s(60));
        assert_eq!(burst.left(1_000_000_001, s(60)), Duration::from_millis(1_001));
        assert_eq!(burst.left(1_000_000_001, s(62)), s(0));

        let mut steady = pace(10_000);
        for at in 1..10_000 {
            assert!(
                steady.left(usize::try_from(at * 1_000).expect("small"), s(at)) >= s(10),
                "{at}"
            );
        }
        let mut slow = pace(10_000);
        let left = (1..100)
            .find(|at| slow.left(usize::try_from(at * 500).expect("small"), s(*at)).is_zero());
        assert_eq!(left, Some(20), "half of what it must");
    }
}
