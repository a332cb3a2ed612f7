//! Converts errors of the coordinator into answers: statuses, codes, and hints.

use super::{disk, is_full, unknown_task};
use crate::fault::Fault;
use axum::http::StatusCode;
use lgp_sdk::cluster::Error as ClusterError;

/// An error of the coordinator.
pub(crate) fn cluster(error: ClusterError) -> Fault {
    let fault = answer(&error);
    match hint(&error) {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}

/// The answer, with what the caller may know; the log has the rest.
fn answer(error: &ClusterError) -> Fault {
    let message = error.to_string();
    match error {
        ClusterError::Overloaded { retry_after, .. } => {
            Fault::unavailable("overloaded", message).retry_after(*retry_after)
        }
        ClusterError::Backlog { retry_after, .. } => {
            Fault::unavailable("backlog", message).retry_after(*retry_after)
        }
        ClusterError::Conflict { .. } | ClusterError::NotEnded { .. } => Fault::conflict(message),
        ClusterError::TooLarge { .. } => {
            Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
        }
        ClusterError::InvalidTask { .. }
        | ClusterError::Parse { .. }
        | ClusterError::UnknownBalancing { .. }
        | ClusterError::TokenLimit { .. } => Fault::bad_input(message),
        ClusterError::UnknownToken { .. } => Fault::not_found("unknown_token", message),
        ClusterError::UnknownTask { .. } => unknown_task(message),
        ClusterError::UnknownWorker { .. } => Fault::not_found("unknown_worker", message),
        ClusterError::Expired { .. } => Fault::new(StatusCode::GONE, "expired", message),
        ClusterError::InputsGone { .. } => Fault::new(StatusCode::GONE, "inputs_gone", message),
        ClusterError::ResultLost { .. } => {
            tracing::error!(cause = %message, "a result is lost");
            let message = "the file with the task's outputs is missing or damaged";
            Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "result_lost", message)
        }
        ClusterError::ResultUnread { .. } => {
            tracing::error!(cause = %message, "a result was not read");
            let message = "the file with the task's outputs could not be read";
            Fault::unavailable("result_unread", message)
        }
        ClusterError::NoJournal => Fault::unsupported(message),
        ClusterError::NotSaved { .. } => {
            tracing::error!(cause = %message, "a durable task was not accepted");
            let message = "the task was not accepted: the journal of durable tasks has no room";
            Fault::new(StatusCode::INSUFFICIENT_STORAGE, "not_saved", message)
        }
        ClusterError::Led { .. } | ClusterError::Deposed { .. } => {
            tracing::error!(cause = %message, "nothing was changed");
            let message = "this coordinator does not lead its cluster; nothing was changed";
            Fault::unavailable("not_leading", message)
        }
        ClusterError::HandedOver => Fault::unavailable("handed_over", message),
        ClusterError::NoLeader { .. } => {
            tracing::warn!(cause = %message, "a coordinator is not reached");
            let message = "no coordinator of the cluster leads at present, or the one that can answer is \
                           not reached";
            Fault::unavailable("no_leader", message)
        }
        ClusterError::Draining | ClusterError::Stopped => Fault::unavailable("stopping", message),
        ClusterError::File { source, .. } if is_full(source) => {
            tracing::error!(cause = %message, "the disk is full");
            disk(source)
        }
        _ => Fault::internal(message),
    }
}

/// A hint for the caller, if neither the message nor the answer gives one.
fn hint(error: &ClusterError) -> Option<&'static str> {
    Some(match error {
        ClusterError::Conflict { .. } => "use another idempotency key for another request",
        ClusterError::TooLarge { .. } => "input_bytes_max sets the limit of a task's inputs",
        ClusterError::UnknownToken { .. } => "radeon-cluster token ls",
        ClusterError::Expired { .. } => {
            "it was let go, or its time or room was over, which the settings results_kept_for_s and \
             results_disk_share limit"
        }
        ClusterError::ResultLost { .. } => {
            "the server's log names the file: put it back from the .inputs folder of a backup, or give \
             the result up with DELETE /api/v1/cluster/tasks/ID/result"
        }
        ClusterError::ResultUnread { .. } => "try again; the server's log has the cause",
        ClusterError::NotEnded { .. } => {
            "wait for its end, or end it with: radeon-cluster cancel ID"
        }
        ClusterError::InputsGone { .. } => {
            "the inputs of the last 256 tasks that failed or were cancelled are kept, up to 16 MiB of \
             them; submit this one anew"
        }
        ClusterError::UnknownWorker { .. } => "radeon-cluster workers",
        ClusterError::NoJournal => {
            "leave \"durable\" out; tasks then live in the coordinator's memory"
        }
        ClusterError::NotSaved { .. } => {
            "free space in the server's data folder; its log has the cause"
        }
        ClusterError::Led { .. } | ClusterError::Deposed { .. } => {
            "radeon-cluster status says which one leads: ask that one"
        }
        ClusterError::HandedOver => {
            "submit it again with its idempotency key; without one look for it in the list of tasks first"
        }
        ClusterError::NoLeader { .. } => {
            "try again in a few seconds; inference without durable or a key goes on"
        }
        ClusterError::Draining | ClusterError::Stopped => {
            "send it again once the coordinator runs again"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_not_has_a_hint_at_what_there_is() {
        let id = "a".to_owned();
        for (error, code) in [
            (ClusterError::UnknownTask { id: id.clone() }, "unknown_task"),
            (ClusterError::UnknownWorker { id: id.clone() }, "unknown_worker"),
            (ClusterError::UnknownToken { id }, "unknown_token"),
        ] {
            let fault = cluster(error);
            assert_eq!(fault.code, code);
            assert!(fault.hint.is_some(), "{code}");
        }
    }

    #[test]
    fn only_a_full_disk_is_answered_as_one() {
        let retry_after = std::time::Duration::from_secs(3);
        let fault = cluster(ClusterError::Backlog { pending_bytes: 1 << 20, retry_after });
        assert_eq!((fault.status.as_u16(), fault.code), (503, "backlog"));
        assert_eq!(fault.retry_after, Some(retry_after));
        let fault = cluster(ClusterError::NotSaved { reason: "no space left".into() });
        assert_eq!((fault.status.as_u16(), fault.code), (507, "not_saved"));
    }

    #[test]
    fn what_the_answer_says_itself_is_not_replaced() {
        let (what, path) = ("keep", "revoked.json".into());
        let source = std::io::ErrorKind::StorageFull.into();
        for (error, part) in [
            (ClusterError::File { what, path, source }, "free space there"),
            (ClusterError::Pki { message: "no key".to_owned() }, "radeon-cluster logs"),
            (ClusterError::UnknownTask { id: "a".to_owned() }, "radeon-cluster tasks"),
        ] {
            let hint = cluster(error).hint.expect("a hint");
            assert!(hint.contains(part), "{hint}");
        }
    }
}
