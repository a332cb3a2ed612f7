//! API keys that expire soon.

use super::{Facts, field, long};
use lgp_hal::{Finding, Status as FindingStatus};
use std::time::{Duration, UNIX_EPOCH};

/// How long before its end a key is reported.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(now) = facts.now else { return Vec::new() };
    let finding = |key: &serde_json::Value| {
        let ends = UNIX_EPOCH.checked_add(Duration::from_secs(key["expires_s"].as_u64()?))?;
        let (id, note) = (field(key, "id"), field(key, "note"));
        let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
        let subject = format!("key {id}");
        match ends.duration_since(now) {
            Ok(left) if left > SOON => None,
            Ok(left) => {
                let message = format!("expires in {}{note}", long(left));
                let line = "radeon-cluster keys create --role ROLE --ttl 90d, and give it to who uses this one";
                Some(Finding::new(subject, FindingStatus::Warn, message).fix(line))
            }
            Err(_) => {
                let line = format!("radeon-cluster keys revoke {id}");
                let message = format!("has expired{note}");
                Some(Finding::new(subject, FindingStatus::Info, message).fix(line))
            }
        }
    };
    facts.keys.iter().filter_map(finding).collect()
}
