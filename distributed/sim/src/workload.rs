//! The callers' actions during a run: submissions of each kind, cancellations, repetitions.

use lgp_distributed::inside::core::{Core, Order};
use lgp_distributed::inside::state::Digest;
use lgp_distributed::{ModelNeeds, ModelRef, Priority, TaskSpec};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::sync::Arc;
use std::time::Duration;

/// Models that every worker is told to load; some workers cannot load the second.
pub(super) const MODELS: [&str; 2] = ["a", "b"];
/// The memory that each of them takes on a device.
pub(super) const MODEL_BYTES: u64 = 1_000;
/// A model that rejects every input.
pub(super) const BAD_MODEL: &str = "bad";

/// One task of a submission.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) spec: TaskSpec,
    pub(super) digest: Digest,
    /// Tasks of the same submission that it depends on, by position.
    pub(super) within: Vec<usize>,
    /// Earlier submissions whose first tasks it depends on, if they were accepted.
    pub(super) after: Vec<usize>,
}

/// One submission: a task, or several as one graph.
#[derive(Debug, Clone)]
pub(super) struct Submission {
    pub(super) at: Duration,
    pub(super) wishes: Vec<Wish>,
    pub(super) cancel_at: Option<Duration>,
}

impl Wish {
    pub(super) fn order(&self, depends_on: Vec<lgp_distributed::TaskId>) -> Order {
        let spec = TaskSpec { depends_on, ..self.spec.clone() };
        let (digest, within) = (self.digest, self.within.clone());
        Order { spec: Arc::new(spec), input_bytes: 100, queued_bytes: 100, digest, within }
    }
}

pub(super) fn model(name: &str) -> ModelRef {
    ModelRef { name: name.into(), version: 1, sha256: String::new() }
}

/// Tells a coordinator to load the models. The second one is a variant of the first.
pub(super) fn load_models(core: &mut Core, now: Duration) {
    for name in MODELS {
        let variants = if name == MODELS[0] { vec![model(MODELS[1])] } else { Vec::new() };
        let needs =
            ModelNeeds { memory_bytes: Some(MODEL_BYTES), variants, ..ModelNeeds::default() };
        core.load(now, &model(name), needs);
    }
}

/// The submissions during the chaos, in order.
pub(super) fn submissions(rng: &mut Xoshiro256PlusPlus, chaos: Duration) -> Vec<Submission> {
    let tasks: usize = rng.random_range(200..260);
    let mut made: Vec<Submission> = Vec::new();
    let mut count = 0;
    let mut keys = 0;
    while count < tasks {
        let number = made.len();
        let earlier = rng.random_range(0..number.max(1));
        let mut submission = match made.get(earlier) {
            Some(earlier) if rng.random_bool(0.04) => repeated(rng, earlier),
            _ => fresh(rng, number, &mut keys),
        };
        submission.at = chaos.mul_f64(rng.random_range(0.0..1.0));
        let cancel = rng.random_bool(0.08);
        submission.cancel_at = cancel.then(|| submission.at + millis(rng, 3_000));
        count += submission.wishes.len();
        made.push(submission);
    }
    made
}

/// The same request again, sometimes with a changed body under its key.
fn repeated(rng: &mut Xoshiro256PlusPlus, earlier: &Submission) -> Submission {
    let mut again = earlier.clone();
    if rng.random_bool(0.3) {
        for wish in &mut again.wishes {
            wish.digest[0] ^= 1;
        }
    }
    again
}

fn fresh(rng: &mut Xoshiro256PlusPlus, number: usize, keys: &mut u32) -> Submission {
    let size = if rng.random_bool(0.05) { rng.random_range(2..5) } else { 1 };
    // A graph is durable as a whole, so that no durable task depends on a volatile one.
    let durable = rng.random_bool(0.4);
    let wishes = (0..size)
        .map(|at: usize| {
            let spec = TaskSpec { durable, ..spec(rng, keys) };
            let within = (0..at).filter(|_| rng.random_bool(0.6)).collect();
            let depends = number > 0 && rng.random_bool(0.12);
            let count = if depends { rng.random_range(1..4) } else { 0 };
            let after = (0..count).map(|_| rng.random_range(0..number)).collect();
            Wish { spec, digest: Digest::default(), within, after }
        })
        .collect();
    Submission { at: Duration::ZERO, wishes, cancel_at: None }
}

fn spec(rng: &mut Xoshiro256PlusPlus, keys: &mut u32) -> TaskSpec {
    let name = match rng.random_range(0..20) {
        0 => BAD_MODEL,
        1..=6 => MODELS[1],
        _ => MODELS[0],
    };
    let mut spec = TaskSpec::new(model(name), Vec::new());
    spec.priority = Priority::ALL[rng.random_range(0..Priority::ALL.len())];
    spec.deadline = rng.random_bool(0.15).then(|| millis(rng, 8_000));
    *keys += 1;
    spec.idempotency_key = rng.random_bool(0.5).then(|| keys.to_string());
    spec.max_attempts = if rng.random_bool(0.2) { rng.random_range(1..4) } else { 1_000 };
    spec.affinity = rng.random_bool(0.15).then(|| rng.random_range(0..5).to_string());
    spec.hedge_after = rng.random_bool(0.1).then(|| millis(rng, 500));
    spec
}

pub(super) fn millis(rng: &mut Xoshiro256PlusPlus, max: u64) -> Duration {
    Duration::from_millis(rng.random_range(0..max))
}
