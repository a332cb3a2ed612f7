//! The ends that a task may have, and when.

use super::{Breach, Entry, Excuse};
use crate::chaos::outputs::Output;
use crate::chaos::picture::Pictures;
use crate::chaos::rest::Told;
use serde_json::Value;
use std::time::Duration;

/// How late a deadline may end a task on a busy machine.
const GRACE: Duration = Duration::from_secs(10);
/// How early, as clocks of processes are read one after another.
const EARLY: Duration = Duration::from_millis(50);
/// Attempts from which on a task may fail because its workers were lost.
const ATTEMPTS_MAX: u64 = 5;

/// A recorded end.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    pub(super) state: String,
    outputs: Option<Vec<Output>>,
    error: Value,
}

impl End {
    pub(super) fn of(told: &Told) -> Self {
        let Told { state, outputs, error, .. } = told.clone();
        Self { state, outputs, error }
    }

    /// The state, with the code of a failure.
    pub(super) fn name(&self) -> String {
        match self.state.as_str() {
            "failed" => format!("failed: {}", self.error["code"].as_str().unwrap_or("?")),
            state => state.to_owned(),
        }
    }

    pub(super) fn succeeded(&self) -> bool {
        self.state == "succeeded"
    }
}

/// How long an open task is past its deadline and all excuses.
pub(super) fn overdue(entry: &Entry, excuse: &Excuse) -> Option<Duration> {
    let deadline = entry.spec()?.deadline?;
    let excused = excuse.since(entry.excused);
    let most = deadline + GRACE + excused.away + excused.set;
    entry.acknowledged.elapsed().checked_sub(most).map(|by| by + GRACE)
}

/// The law that an end breaks, if any.
pub(super) fn breach(
    entry: &Entry,
    end: &End,
    told: &Told,
    attempts: u64,
    excuse: &Excuse,
    pictures: &Pictures,
) -> Option<(Breach, String)> {
    let spec = entry.spec()?;
    let name = end.name();
    let allowed = match name.as_str() {
        "succeeded" => {
            let outputs = end.outputs.as_deref().unwrap_or_default();
            if !spec.job.right(pictures, outputs) {
                let what = format!("has the wrong result for {:?}: {outputs:?}", spec.job);
                return Some((Breach::Wrong, what));
            }
            return late(entry, told, excuse);
        }
        "cancelled" => entry.cancelled,
        "failed: deadline_exceeded" => {
            let set = excuse.since(entry.excused).set;
            let passed = entry.begun.elapsed() + set + EARLY;
            spec.deadline.is_some_and(|deadline| passed >= deadline)
        }
        "failed: worker_lost" | "failed: unavailable" => attempts >= ATTEMPTS_MAX,
        // Whether a dependency failed is checked once all tasks have ended.
        "failed: dependency_failed" => !entry.depends_on.is_empty(),
        _ => false,
    };
    let cancelled = if entry.cancelled { ", to be cancelled" } else { "" };
    (!allowed).then(|| {
        let asked = format!("{:?} of deadline {:?}{cancelled}", spec.job, spec.deadline);
        (Breach::Wrong, format!("ended after {attempts} attempts as {end:?}, {asked}"))
    })
}

/// The breach of a result that came long after its deadline.
fn late(entry: &Entry, told: &Told, excuse: &Excuse) -> Option<(Breach, String)> {
    let deadline = entry.spec()?.deadline?;
    let took = Duration::from_secs_f64(told.latency_ms()?.clamp(0.0, 1e9) / 1e3);
    let excused = excuse.since(entry.excused);
    let most = deadline + GRACE + excused.away + excused.set;
    (took > most).then(|| (Breach::Late, format!("took {took:?}, with a deadline of {deadline:?}")))
}
