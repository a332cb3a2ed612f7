//! The ranges of numeric settings, with reasons.

use super::Settings;
use crate::cluster::driver::WORKERS_MAX;
use crate::failure::{Failure, Result};
use std::ops::RangeInclusive;

/// A shorter life would mean constant renewal; a longer one is as good as unlimited.
const CERTIFICATE_LIFE_S: RangeInclusive<u64> = 3..=365 * 24 * 3600;
/// A revocation must be remembered for this time; with 0 no expired certificate is renewed.
const ABSENCE_MAX_S: RangeInclusive<u64> = 0..=365 * 24 * 3600;
/// A worker holds this many tasks for each of its threads.
const BATCH_MAX: RangeInclusive<u64> = 1..=256;
/// Longer delays only slow callers down.
const BATCH_DELAY_MS: RangeInclusive<u64> = 0..=1_000;
/// Beyond this a waiting camera sees nothing.
const FRIGATE_TIMEOUT_MS: RangeInclusive<u64> = 1..=60_000;
/// No run takes more than a month.
const RUN_LIMIT_S: RangeInclusive<u64> = 0..=31 * 24 * 3600;
/// A day is as good as never.
const MODELS_POLL_MS: RangeInclusive<u64> = 0..=24 * 3600 * 1000;
/// The queue of all models takes no more.
const PENDING_MAX: RangeInclusive<u64> = 1..=10_000;
/// Each takes memory besides its states.
const SEQUENCES_MAX: RangeInclusive<u64> = 1..=1_000_000;
/// Sizes of requests and inputs: below this the cluster's own commands would be refused, and no machine has more.
const BYTES_MAX: RangeInclusive<u64> = 64 << 10..=1 << 40;

/// How long results and keys are kept.
const KEPT_FOR_S: RangeInclusive<u64> = 1..=10 * 365 * 24 * 3600;

impl Settings {
    /// Checks values that the type allows but that make no sense.
    ///
    /// # Errors
    /// `settings_invalid`, naming the key, the value and what was expected.
    pub(super) fn check(&self) -> Result<()> {
        for (key, count) in [("workers", self.workers), ("workers_max", self.workers_max)] {
            if count > WORKERS_MAX {
                let message = format!("settings: {key} is {count}, expected 0 to {WORKERS_MAX}");
                return Err(Failure::new("settings_invalid", message));
            }
        }
        let bytes = |given: usize| u64::try_from(given).unwrap_or(u64::MAX);
        for (key, given, allowed) in [
            ("batch_max", u64::from(self.batch_max), BATCH_MAX),
            ("batch_delay_ms", self.batch_delay_ms, BATCH_DELAY_MS),
            ("input_bytes_max", bytes(self.input_bytes_max), BYTES_MAX),
            ("run_limit_s", self.run_limit_s, RUN_LIMIT_S),
            ("models_poll_ms", self.models_poll_ms, MODELS_POLL_MS),
            ("pending_max", self.pending_max, PENDING_MAX),
            ("sequences_max", self.sequences_max, SEQUENCES_MAX),
            ("sequences_bytes_max", bytes(self.sequences_bytes_max), BYTES_MAX),
            ("results_kept_for_s", self.results_kept_for_s, KEPT_FOR_S),
            ("keys_kept_for_s", self.keys_kept_for_s, KEPT_FOR_S),
            ("http.body_bytes_max", bytes(self.http.body_bytes_max), BYTES_MAX),
            ("http.bodies_bytes_max", bytes(self.http.bodies_bytes_max), BYTES_MAX),
            ("quic.certificate_life_s", self.quic.certificate_life_s, CERTIFICATE_LIFE_S),
            ("quic.absence_max_s", self.quic.absence_max_s, ABSENCE_MAX_S),
            ("frigate.timeout_ms", self.frigate.timeout_ms, FRIGATE_TIMEOUT_MS),
        ] {
            if !allowed.contains(&given) {
                let (least, most) = (allowed.start(), allowed.end());
                let message = format!("settings: {key} is {given}, expected {least} to {most}");
                return Err(Failure::new("settings_invalid", message));
            }
        }
        let share = self.results_disk_share;
        // NaN is in no range, so it is refused too.
        if !(share > 0.0 && share <= 1.0) {
            let message =
                format!("settings: results_disk_share is {share}, expected above 0 up to 1");
            return Err(Failure::new("settings_invalid", message));
        }
        self.otlp.check()
    }
}
