//! Compares this machine's clock with the coordinator's: certificates need clocks that agree.

use super::{Facts, long};
use lgp_hal::{Finding, Status as FindingStatus};
use std::time::{Duration, SystemTime};

/// The coordinator's clock comes in whole seconds, so a smaller difference means little.
const APART: Duration = Duration::from_secs(5);
/// From this difference on no machine can join.
const TOO_FAR: Duration = Duration::from_secs(300);

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some((before, told, after)) = facts.clock else { return Vec::new() };
    let apart = apart(before, told, after);
    let status = match apart {
        apart if apart >= TOO_FAR => FindingStatus::Fail,
        apart if apart >= APART => FindingStatus::Warn,
        _ => return Vec::new(),
    };
    let which = if told < before { "behind" } else { "ahead of" };
    let message = format!(
        "the coordinator's clock is {} {which} this machine's; from 5m on no machine can join",
        long(apart)
    );
    vec![
        Finding::new("clock", status, message)
            .fix("sudo timedatectl set-ntp true, on both machines"),
    ]
}

/// The smallest possible difference of the clocks, where one was read between two readings of the other.
fn apart(before: SystemTime, told: SystemTime, after: SystemTime) -> Duration {
    // The true time is anywhere within the reported second.
    let end = told + Duration::from_secs(1);
    let behind = before.duration_since(end).unwrap_or_default();
    behind.max(told.duration_since(after).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_certain_counts() {
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        for (before, told, after, expected) in [
            (10_900, 10_000, 10_950, 0),
            (11_900, 10_000, 11_950, 900),
            (10_000, 20_000, 12_000, 8_000),
            // The answer took eight seconds: the clock may have been right at any of them.
            (10_000, 15_000, 18_000, 0),
        ] {
            let apart = apart(at(before), at(told), at(after));
            assert_eq!(apart, Duration::from_millis(expected), "{before} {told} {after}");
        }
        for (ahead, status) in
            [(4, None), (6, Some(FindingStatus::Warn)), (301, Some(FindingStatus::Fail))]
        {
            let clock = Some((at(0), at(ahead * 1000), at(0)));
            let findings = check(&Facts { clock, ..Facts::default() });
            assert_eq!(findings.first().map(|finding| finding.status), status, "{ahead}");
        }
    }
}
