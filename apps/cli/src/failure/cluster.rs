//! Failures from errors of the cluster: their codes and hints.

use super::Failure;
use lgp_distributed::{JoinRefusal, JournalError};
use lgp_sdk::cluster::Error as ClusterError;
use std::io::ErrorKind;

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        match &error {
            ClusterError::Bind { addr, source } if source.kind() == ErrorKind::AddrInUse => {
                Self::address_in_use("quic", *addr, "udp")
            }
            _ => {
                let failure = Self::from_error(code(&error), &error);
                Self { hint: hint(&error).map(str::to_owned), ..failure }
            }
        }
    }
}

fn code(error: &ClusterError) -> &'static str {
    match error {
        ClusterError::Bind { .. } => "address_unusable",
        ClusterError::Overloaded { .. } => "overloaded",
        ClusterError::InvalidTask { .. } | ClusterError::TooLarge { .. } => "bad_input",
        ClusterError::UnknownTask { .. } => "task_unknown",
        ClusterError::Expired { .. } => "expired",
        ClusterError::ResultLost { .. } => "result_lost",
        ClusterError::ResultUnread { .. } => "result_unread",
        ClusterError::UnknownWorker { .. } => "worker_unknown",
        ClusterError::Journal(error) => match error {
            JournalError::Damaged { .. } => "journal_damaged",
            JournalError::TooNew { .. } => "journal_too_new",
            JournalError::InUse { .. } => "already_running",
            JournalError::Full { .. } => "disk_full",
            _ => "journal_failed",
        },
        ClusterError::Draining | ClusterError::Stopped => "stopping",
        ClusterError::Refused { .. } => "refused",
        ClusterError::JoinRefused { refusal, .. } => join_refused(refusal),
        ClusterError::UnknownHost { .. } => "host_unknown",
        ClusterError::Led { .. } => "already_running",
        ClusterError::Control { .. } => "control_unusable",
        ClusterError::Migration { .. } => "migration_refused",
        ClusterError::Incomplete { .. } => "migration_incomplete",
        ClusterError::Moved { .. } => "moved",
        ClusterError::NoLeader { .. } | ClusterError::HandedOver => "no_leader",
        ClusterError::WrongCluster { .. } => "wrong_cluster",
        ClusterError::Unreachable { .. } => "coordinator_unreachable",
        ClusterError::Damaged { .. } => "file_damaged",
        ClusterError::File { .. } => "io",
        ClusterError::Discovery { .. } => "discovery_failed",
        _ => "cluster_failed",
    }
}

fn join_refused(refusal: &JoinRefusal) -> &'static str {
    match refusal {
        JoinRefusal::TokenUnknown => "token_unknown",
        JoinRefusal::TokenExpired => "token_expired",
        JoinRefusal::TokenUsedUp => "token_used_up",
        JoinRefusal::TokenRole { .. } => "token_role",
        JoinRefusal::NameTaken { .. } => "name_taken",
        JoinRefusal::NameInvalid { .. } => "name_invalid",
        JoinRefusal::Clock { .. } | JoinRefusal::ClocksDiffer => "clock",
        JoinRefusal::CertificateExpired | JoinRefusal::CertificateLapsed => "certificate_expired",
        JoinRefusal::CertificateRevoked => "certificate_revoked",
        JoinRefusal::Busy => "busy",
        _ => "refused",
    }
}

/// The hint where an identity is missing or useless.
pub(crate) const NEW_TOKEN: &str = "make a token with radeon-cluster token create, and join with it: \
     radeon-cluster join HOST TOKEN";

/// The hint, where the message does not contain it.
fn hint(error: &ClusterError) -> Option<&'static str> {
    Some(match error {
        ClusterError::JoinRefused { refusal, .. } => match refusal {
            JoinRefusal::TokenUnknown
            | JoinRefusal::TokenExpired
            | JoinRefusal::TokenUsedUp
            | JoinRefusal::CertificateLapsed
            | JoinRefusal::CertificateRevoked => NEW_TOKEN,
            JoinRefusal::TokenRole { .. } => {
                "join makes workers: make a token for one with radeon-cluster token create; programs \
                 exchange others with lgp_sdk::cluster::enrol"
            }
            JoinRefusal::NameTaken { .. } => "choose another with --name NAME",
            _ => return None,
        },
        ClusterError::UnknownHost { .. } => {
            "check how it is written, or give the machine's IP address instead"
        }
        ClusterError::Incomplete { .. } => {
            "run radeon-cluster control migrate again, with the same --to, which goes on with it; or \
             choose another --data folder or --control-name"
        }
        ClusterError::Moved { .. } => {
            "start where it is now; or go back to what was here, without what was done since: \
             radeon-cluster control migrate --undo, with the same --data and --control"
        }
        ClusterError::WrongCluster { .. } => {
            "check that HOST is the coordinator that made the token; the one that answered was not \
             sent its secret"
        }
        ClusterError::Unreachable { .. } => {
            "check the address and its UDP port, firewalls on the way, and that the coordinator runs \
             and was started with an address that this machine reaches: radeon-cluster start --quic \
             IP:8443"
        }
        ClusterError::Discovery { .. } => "name the coordinator: radeon-cluster join HOST TOKEN",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_not_let_in_is_told_what_would_help() {
        for (refusal, code, part) in [
            (JoinRefusal::TokenUsedUp, "token_used_up", "token create"),
            (JoinRefusal::CertificateLapsed, "certificate_expired", "token create"),
            (JoinRefusal::NameTaken { name: "a".to_owned() }, "name_taken", "--name"),
        ] {
            let addr = std::net::SocketAddr::from(([127, 0, 0, 1], 8443));
            let failure = Failure::from(ClusterError::JoinRefused { addr, refusal });
            assert_eq!(failure.code, code);
            assert!(failure.hint.is_some_and(|hint| hint.contains(part)), "{code}");
        }
    }
}
