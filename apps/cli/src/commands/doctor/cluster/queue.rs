//! Tasks that have waited long.

use super::{Facts, field, long};
use lgp_hal::{Finding, Status as FindingStatus};
use std::time::Duration;

/// The waiting time from which a user would complain.
const LONG_S: f64 = 60.0;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let waited = |task: &serde_json::Value| task["queued_ms"].as_f64().unwrap_or(0.0) / 1000.0;
    let oldest = facts.waiting.iter().max_by(|a, b| waited(a).total_cmp(&waited(b)));
    let Some(task) = oldest.filter(|task| waited(task) >= LONG_S) else { return Vec::new() };
    let (id, model) = (field(task, "task_id"), field(task, "model"));
    let count = facts.waiting.iter().filter(|task| waited(task) >= LONG_S).count();
    let count = crate::output::counted(count, "task");
    let time = long(Duration::from_secs_f64(waited(task).min(1e9)));
    let message = format!(
        "waiting for a minute or more: {count} of the latest 1000 in the queue; the longest, {id} of {model}, for {time}"
    );
    let line = format!("radeon-cluster tasks show {id} --why");
    vec![Finding::new("queue", FindingStatus::Warn, message).fix(line)]
}
