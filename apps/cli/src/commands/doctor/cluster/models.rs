//! Unusable models, and models at which workers fail.

use super::{Facts, field};
use lgp_hal::{Finding, Status as FindingStatus};

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for model in &facts.models {
        let (name, version) = (field(model, "name"), &model["version"]);
        // A model that was unloaded on purpose is no fault.
        let is_failed =
            field(model, "state") == "unavailable" && field(model, "reason") != "unloaded";
        if is_failed {
            let message = format!("cannot be used: {}", field(model, "reason"));
            let line = format!("radeon-cluster models ls; radeon-cluster models load {name}");
            let subject = format!("model {name}/{version}");
            all.push(Finding::new(subject, FindingStatus::Warn, message).fix(line));
        }
    }
    for worker in &facts.workers {
        let id = field(worker, "id");
        for (model, state) in worker["breakers"].as_object().into_iter().flatten() {
            let state = state.as_str().unwrap_or_default();
            let message = format!(
                "worker {id} failed at it too often and gets none of its tasks for now (breaker {state})"
            );
            let line = format!(
                "radeon-cluster tasks --state failed --model {model}; radeon-cluster logs --level warn"
            );
            let subject = format!("model {model}");
            all.push(Finding::new(subject, FindingStatus::Warn, message).fix(line));
        }
    }
    all
}
