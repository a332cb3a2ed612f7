//! What numbers settings may have, and why no others.

use super::Settings;
use crate::cluster::driver::WORKERS_MAX;
use crate::failure::{Failure, Result};
use std::ops::RangeInclusive;

/// Shorter ones would be renewed all the time, longer ones are as good as none.
const CERTIFICATE_LIFE_S: RangeInclusive<u64> = 3..=365 * 24 * 3600;
/// So long a revocation has to be remembered; 0 lets nobody renew what has expired.
const ABSENCE_MAX_S: RangeInclusive<u64> = 0..=365 * 24 * 3600;
/// A worker holds as many tasks for each of its threads.
const BATCH_MAX: RangeInclusive<u64> = 1..=256;
/// Longer waits would be noticed by callers, and by nobody else.
const BATCH_DELAY_MS: RangeInclusive<u64> = 0..=1_000;
/// A camera that waits for longer sees nothing.
const FRIGATE_TIMEOUT_MS: RangeInclusive<u64> = 1..=60_000;
/// Runs of more than a month are no runs.
const RUN_LIMIT_S: RangeInclusive<u64> = 0..=31 * 24 * 3600;
/// A day is as good as never.
const MODELS_POLL_MS: RangeInclusive<u64> = 0..=24 * 3600 * 1000;
/// The queue of all models takes no more.
const PENDING_MAX: RangeInclusive<u64> = 1..=10_000;
/// Each takes memory besides its states.
const SEQUENCES_MAX: RangeInclusive<u64> = 1..=1_000_000;
/// What requests and inputs may have: with less the cluster's own commands would be refused, and more
/// no machine has.
const BYTES_MAX: RangeInclusive<u64> = 64 << 10..=1 << 40;

/// How long results and keys are kept.
const KEPT_FOR_S: RangeInclusive<u64> = 1..=10 * 365 * 24 * 3600;

impl Settings {
    /// Looks at what its type alone allows and nobody can mean.
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
        // What is not a number is in no range.
        if !(share > 0.0 && share <= 1.0) {
            let message =
                format!("settings: results_disk_share is {share}, expected above 0 up to 1");
            return Err(Failure::new("settings_invalid", message));
        }
        self.otlp.check()
    }
}
