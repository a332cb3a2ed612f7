//! How long a model takes on a device: measured, smoothed, and forgotten slowly.

use crate::proto::histogram::ms;
use std::num::NonZeroU64;
use std::time::Duration;

/// Weight of the newest measurement.
const NEWEST: f64 = 0.2;
/// Age from which on a measurement is believed less and less: a card that was hot is cool again.
const BELIEVED_NS: u64 = 30_000_000_000;

/// A time in nanoseconds, which `u64` holds for 584 years. Thousands of them are compared for one
/// choice, and a [`Duration`] takes two comparisons.
pub(crate) fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}

/// An exponentially weighted mean of service times.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Service {
    mean_ms: f64,
    /// When it was last measured, in nanoseconds; `None` before the first time.
    measured_ns: Option<NonZeroU64>,
}

impl Service {
    /// Counts one measurement.
    pub(crate) fn measure(&mut self, now: Duration, took: Duration) {
        let ms = ms(took);
        self.mean_ms = match self.measured_ns {
            Some(_) => NEWEST.mul_add(ms - self.mean_ms, self.mean_ms),
            None => ms,
        };
        self.measured_ns = NonZeroU64::new(nanos(now).max(1));
    }

    /// The mean in milliseconds, however old.
    pub(crate) fn mean_ms(&self) -> f64 {
        self.mean_ms
    }

    /// Milliseconds that a task is expected to take; `None` where nothing was measured.
    ///
    /// Halved with each further half minute without a measurement: a device that was slow long ago
    /// looks better and better, until it is tried again.
    pub(crate) fn expected_ms(&self, now: Duration) -> Option<f64> {
        let age = nanos(now).saturating_sub(self.measured_ns?.get());
        if age <= BELIEVED_NS {
            return Some(self.mean_ms);
        }
        Some(self.mean_ms * faded(age - BELIEVED_NS))
    }
}

/// What is left of a measurement after so many nanoseconds: halved with each [`BELIEVED_NS`], along a
/// straight line in between, which costs a fraction of an exponential and decides no worse.
fn faded(unbelieved_ns: u64) -> f64 {
    let whole = (unbelieved_ns / BELIEVED_NS).min(1000);
    let rest = unbelieved_ns % BELIEVED_NS;
    // As a signed number, which processors convert in one instruction.
    let share = rest.cast_signed() as f64 * (0.5 / BELIEVED_NS as f64);
    let halved = f64::from_bits((1023 - whole) << 52);
    halved * (1.0 - share)
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
        let fades = |at| service.expected_ms(Duration::from_millis(at)).expect("measured");
        assert!((fades(77_000) - settled * 0.375).abs() < 1e-6, "{}", fades(77_000));
        assert!((fades(92_000) - settled / 4.0).abs() < 1e-9, "{}", fades(92_000));
        let ages = (30_000..200_000).step_by(250).map(fades);
        assert!(ages.is_sorted_by(|before, after| before >= after), "it only ever fades");
        assert!((0.0..1e-200).contains(&fades(u64::MAX)), "{}", fades(u64::MAX));
    }
}
