//! How long a model takes on a device: measured, smoothed, and forgotten slowly.

use std::time::Duration;

/// Weight of the newest measurement.
const NEWEST: f64 = 0.2;
/// Age from which on a measurement is believed less and less: a card that was hot is cool again.
const BELIEVED: Duration = Duration::from_secs(30);

/// An exponentially weighted mean of service times.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Service {
    mean_ms: f64,
    /// When it was last measured; `None` before the first time.
    measured: Option<Duration>,
}

impl Service {
    /// Counts one measurement.
    pub(crate) fn measure(&mut self, now: Duration, took: Duration) {
        let ms = took.as_secs_f64() * 1e3;
        self.mean_ms = match self.measured {
            Some(_) => NEWEST.mul_add(ms - self.mean_ms, self.mean_ms),
            None => ms,
        };
        self.measured = Some(now);
    }

    /// The mean in milliseconds, however old.
    pub(crate) fn mean_ms(&self) -> f64 {
        self.mean_ms
    }

    /// Milliseconds that a task is expected to take; `None` where nothing was measured.
    ///
    /// Halved with each further half minute without a measurement: what was slow long ago looks
    /// better and better, until it is tried again.
    pub(crate) fn expected_ms(&self, now: Duration) -> Option<f64> {
        let age = now.saturating_sub(self.measured?);
        let halvings = age.saturating_sub(BELIEVED).as_secs_f64() / BELIEVED.as_secs_f64();
        Some(self.mean_ms * (-halvings).exp2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_and_fades() {
        let s = Duration::from_secs;
        let ms = Duration::from_millis;
        let mut service = Service::default();
        assert_eq!(service.expected_ms(s(0)), None);
        service.measure(s(1), ms(10));
        assert_eq!(service.expected_ms(s(1)), Some(10.0));
        for _ in 0..40 {
            service.measure(s(2), ms(20));
        }
        let settled = service.expected_ms(s(2)).expect("measured");
        assert!((19.9..=20.0).contains(&settled), "{settled}");
        // Believed for half a minute, half of it after one more.
        assert_eq!(service.expected_ms(s(32)), Some(settled));
        let faded = service.expected_ms(s(62)).expect("measured");
        assert!((faded - settled / 2.0).abs() < 1e-9, "{faded}");
    }
}
