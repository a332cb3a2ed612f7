//! What callers do during a run: submissions of every kind, cancellations, repetitions.

use crate::proto::state::Digest;
use crate::task::{ModelRef, Priority, TaskSpec};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::time::Duration;

/// Models that every worker is told to load; some fail at the second.
pub(super) const MODELS: [&str; 2] = ["a", "b"];
/// A model whose every input is bad.
pub(super) const BAD_MODEL: &str = "bad";

/// One submission.
#[derive(Debug, Clone)]
pub(super) struct Submission {
    pub(super) at: Duration,
    pub(super) spec: TaskSpec,
    pub(super) digest: Digest,
    pub(super) cancel_at: Option<Duration>,
}

pub(super) fn model(name: &str) -> ModelRef {
    ModelRef { name: name.into(), version: 1, sha256: String::new() }
}

/// Submissions over the time of the chaos.
pub(super) fn submissions(rng: &mut Xoshiro256PlusPlus, chaos: Duration) -> Vec<Submission> {
    let count: u32 = rng.random_range(30..150);
    let mut made: Vec<Submission> = Vec::new();
    for _ in 0..count {
        let at = chaos.mul_f64(rng.random_range(0.0..1.0));
        let repeated = !made.is_empty() && rng.random_bool(0.05);
        let mut submission = match made.get(rng.random_range(0..made.len().max(1))) {
            Some(earlier) if repeated => earlier.clone(),
            _ => fresh(rng, made.len()),
        };
        submission.at = at;
        submission.cancel_at = rng.random_bool(0.1).then(|| at + millis(rng, 3_000));
        if repeated && rng.random_bool(0.3) {
            submission.digest[0] ^= 1;
        }
        made.push(submission);
    }
    made
}

fn fresh(rng: &mut Xoshiro256PlusPlus, number: usize) -> Submission {
    let name = match rng.random_range(0..10) {
        0 => BAD_MODEL,
        1..=3 => MODELS[1],
        _ => MODELS[0],
    };
    let mut spec = TaskSpec::new(model(name), Vec::new());
    spec.priority = Priority::ALL[rng.random_range(0..Priority::ALL.len())];
    spec.deadline = rng.random_bool(0.2).then(|| millis(rng, 8_000));
    spec.idempotency_key = rng.random_bool(0.5).then(|| number.to_string());
    spec.max_attempts = if rng.random_bool(0.2) { rng.random_range(1..4) } else { 1_000 };
    Submission { at: Duration::ZERO, spec, digest: Digest::default(), cancel_at: None }
}

pub(super) fn millis(rng: &mut Xoshiro256PlusPlus, max: u64) -> Duration {
    Duration::from_millis(rng.random_range(0..max))
}
