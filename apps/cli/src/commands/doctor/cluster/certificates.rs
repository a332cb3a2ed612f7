//! Certificates of this machine that end soon: its own in a cluster that it joined, and the one that its
//! coordinator shows.

use super::long;
use crate::files;
use crate::settings::Settings;
use crate::tls::{Certificate, FILE_BYTES_MAX};
use lgp_hal::{Finding, Status as FindingStatus};
use lgp_sdk::cluster::Identity;
use std::time::{Duration, SystemTime};

/// How long before its end a certificate from a file is reported: renewing it may take days.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

pub(super) fn check(settings: &Settings, now: SystemTime) -> Vec<Finding> {
    let mut all = Vec::new();
    // It is renewed after two thirds of its life, so less than a quarter left is a reason to warn.
    let joined = Identity::load(&settings.data.join("joined/identity")).ok().flatten();
    if let Some((since, until)) = joined.and_then(|identity| identity.validity().ok()) {
        let soon = until.duration_since(since).unwrap_or_default() / 4;
        let line =
            "radeon-cluster join HOST, which renews it; after a long absence with a new token";
        all.extend(judge("own certificate", (since, until), soon, now).map(|it| it.fix(line)));
    }
    if let Certificate::Files(path, _) = &settings.http.tls {
        let read = files::read_bounded(path, FILE_BYTES_MAX).ok();
        let text = read.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let subject = path.display().to_string();
        match Identity::validity_of(&text) {
            Ok(validity) => {
                let line = "put a renewed certificate into its place";
                all.extend(judge(&subject, validity, SOON, now).map(|it| it.fix(line)));
            }
            Err(error) => {
                let message = format!("http.tls names it, and it cannot be read: {error}");
                all.push(Finding::new(subject, FindingStatus::Fail, message));
            }
        }
    }
    all
}

fn judge(
    subject: &str,
    (since, until): (SystemTime, SystemTime),
    soon: Duration,
    now: SystemTime,
) -> Option<Finding> {
    let say = |status, message: String| Some(Finding::new(subject, status, message));
    if let Ok(early) = since.duration_since(now)
        && !early.is_zero()
    {
        return say(
            FindingStatus::Fail,
            format!("is valid from {} on only: this clock may be wrong", long(early)),
        );
    }
    match until.duration_since(now) {
        Err(over) => say(FindingStatus::Fail, format!("expired {} ago", long(over.duration()))),
        Ok(left) if left < soon => say(FindingStatus::Warn, format!("expires in {}", long(left))),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_named_before_it_ends() {
        let at = |days: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400);
        for (now, expected) in [
            (5, Some(FindingStatus::Fail)),
            (10, None),
            (85, None),
            (87, Some(FindingStatus::Warn)),
            (101, Some(FindingStatus::Fail)),
        ] {
            let found = judge("x", (at(10), at(100)), SOON, at(now));
            assert_eq!(found.map(|finding| finding.status), expected, "{now}");
        }
    }
}
