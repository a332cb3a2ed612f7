//! The free space of the data folder's disk, and the journal's size.

use super::Facts;
use crate::output::bytes;
use lgp_hal::{Finding, Status as FindingStatus};

/// With less free space, durable tasks will soon be refused.
const LITTLE: u64 = 1 << 30;
/// With less free space, durable tasks are refused.
const NONE: u64 = 64 << 20;
/// A journal compacts itself where that pays, so one of this size means that tasks pile up.
const LARGE: u64 = 1 << 30;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    if let Some(data) = &facts.data
        && let Ok(disk) = rustix::fs::statvfs(data)
    {
        all.extend(room(disk.f_bavail.saturating_mul(disk.f_frsize), &data.display().to_string()));
    }
    if let Some(size) = facts.journal["bytes"].as_u64().filter(|size| *size >= LARGE) {
        let message = format!("the journal of durable tasks has {}", bytes(size));
        let line =
            "radeon-cluster tasks compact; results that are read may go sooner: results_kept_for_s";
        all.push(Finding::new("journal", FindingStatus::Warn, message).fix(line));
    }
    all
}

fn room(free: u64, data: &str) -> Option<Finding> {
    let status = match free {
        free if free < NONE => FindingStatus::Fail,
        free if free < LITTLE => FindingStatus::Warn,
        _ => return None,
    };
    let message = format!("{} are free where the data folder {data} lies", bytes(free));
    let line = "make room, or remove models with radeon-cluster models rm";
    Some(Finding::new("disk", status, message).fix(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_fails_before_tasks_do() {
        for (free, expected) in [
            (10 << 30, None),
            (LITTLE, None),
            (LITTLE - 1, Some(FindingStatus::Warn)),
            (NONE - 1, Some(FindingStatus::Fail)),
        ] {
            assert_eq!(room(free, "/data").map(|finding| finding.status), expected, "{free}");
        }
    }
}
