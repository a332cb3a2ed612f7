//! Workers that take no tasks, and workers of another program version.

use super::{Facts, field, long};
use lgp_hal::{Finding, Status as FindingStatus};
use std::time::Duration;

/// A worker reports about every second; after this time the connection is disturbed.
const SILENT: Duration = Duration::from_secs(15);

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let own = env!("CARGO_PKG_VERSION");
    let mut all = Vec::new();
    let coordinator = field(&facts.coordinator, "version");
    if !coordinator.is_empty() && coordinator != own {
        let message = format!("the coordinator has version {coordinator}, and this program {own}");
        all.push(
            Finding::new("version", FindingStatus::Warn, message)
                .fix("install the same version on every machine"),
        );
    }
    if facts.stats["workers"]["ready"] == 0 {
        let message = "no worker takes tasks";
        all.push(Finding::new("workers", FindingStatus::Fail, message).fix(
            "radeon-cluster scale --workers 1, or let a machine join: radeon-cluster token create",
        ));
    }
    for worker in &facts.workers {
        let id = field(worker, "id");
        let subject = format!("worker {id}");
        let say = |status, message: String| Finding::new(&subject, status, message);
        let seen = Duration::from_millis(worker["last_seen_ms"].as_u64().unwrap_or(0));
        match field(worker, "state") {
            "lost" => {
                let message =
                    format!("lost, not heard of for {}; its tasks went to others", long(seen));
                all.push(say(FindingStatus::Warn, message).fix(
                    "look at the machine and its network; it comes back by itself, or with radeon-cluster join",
                ));
            }
            "draining" => {
                all.push(say(FindingStatus::Info, "leaves once it has finished".to_owned()))
            }
            "ready" if seen >= SILENT => {
                let message = format!("not heard of for {}", long(seen));
                all.push(
                    say(FindingStatus::Warn, message).fix("look at the machine and its network"),
                );
            }
            _ => {}
        }
        let version = field(worker, "version");
        if !version.is_empty() && version != coordinator {
            let message = format!("has version {version}, and the coordinator {coordinator}");
            all.push(
                say(FindingStatus::Warn, message).fix("install the same version on every machine"),
            );
        }
    }
    all
}
