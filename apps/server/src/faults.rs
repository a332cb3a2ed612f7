//! Converts errors of the layers below into answers: a caller's mistake is reported to the caller, an internal
//! cause goes to the log.

mod cluster;

use crate::access::Caller;
use crate::deployment::DeployError;
use crate::driver::DriverError;
use crate::fault::Fault;
use crate::place::Place;
use axum::http::StatusCode;
use lgp_distributed::{JournalError, TaskErrorKind};
use lgp_sdk::cluster::{Error as ClusterError, TaskRecord};
use lgp_sdk::model::Error as ModelError;
use std::io::ErrorKind;

pub(crate) use cluster::cluster;

/// The error code for a model that is registered but cannot be used now.
pub(crate) const NOT_READY: &str = "model_not_ready";

/// The code of a run that its model failed, with or without the cause in the message.
pub(crate) const MODEL_FAILED: &str = "model_failed";

/// 404 for a task that never existed or no longer exists.
pub(crate) fn unknown_task(message: impl Into<String>) -> Fault {
    Fault::not_found("unknown_task", message).hint("radeon-cluster tasks")
}

/// The error if a member's certificates could not be revoked, or not permanently.
pub(crate) fn revocation(error: ClusterError) -> Fault {
    match error {
        ClusterError::TokenLimit { .. } => Fault::conflict(error.to_string())
            .hint("those that are listed as revoked go once their certificates would have expired"),
        ClusterError::File { ref source, .. } => {
            tracing::error!(%error, "a revocation is not kept");
            let (status, code) = match is_full(source) {
                true => (StatusCode::INSUFFICIENT_STORAGE, "disk_full"),
                false => (StatusCode::INTERNAL_SERVER_ERROR, "not_kept"),
            };
            let message = "the member is revoked and sent away, but that could not be written down: \
                           it holds until the coordinator restarts";
            Fault::new(status, code, message)
                .hint("mend the server's data folder, then revoke again")
        }
        other => cluster(other),
    }
}

/// The error of a backup of the journal of durable tasks. Paths go to the log only.
pub(crate) fn backup(error: ClusterError) -> Fault {
    if let ClusterError::Journal(JournalError::Io { source, .. }) = &error
        && source.kind() == ErrorKind::InvalidData
    {
        tracing::error!(%error, "a backup was not written");
        let message = "a file with tensors that a task needs is missing or damaged";
        return Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "tensors_damaged", message)
            .hint("the server's log names it: put it back, or let the task's result go");
    }
    let full = match &error {
        ClusterError::Journal(JournalError::Full { .. }) => true,
        ClusterError::File { source, .. } => is_full(source),
        ClusterError::Journal(_) => false,
        _ => return cluster(error),
    };
    tracing::error!(%error, "a backup was not written");
    if full {
        return disk_full();
    }
    let message = "the backup could not be written; the server's log has the cause";
    Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "backup_failed", message)
        .hint("mend the folder backups beside the journal, then try again")
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// The fault of a task that did not succeed; `None` if it did.
pub(crate) fn task(record: &TaskRecord) -> Option<Fault> {
    let (error, place) = (record.error.as_ref()?, Place::of(record));
    let message = error.message.clone();
    let fault = match error.code {
        TaskErrorKind::BadInput => Fault::bad_input(message),
        TaskErrorKind::TooLarge => {
            Fault::new(StatusCode::PAYLOAD_TOO_LARGE, error.code.name(), message)
        }
        TaskErrorKind::ModelNotFound => Fault::unavailable(NOT_READY, message),
        kind @ (TaskErrorKind::ModelFailed | TaskErrorKind::OperatorFailed) => {
            let (task, model) = (record.task_id, &record.model);
            let at = place.as_ref().map(ToString::to_string).unwrap_or_default();
            tracing::error!(%task, %model, at, cause = %message, "the model failed");
            let message = match kind {
                TaskErrorKind::OperatorFailed => format!("the model failed: {message}"),
                _ => error.told().to_owned(),
            };
            Fault::new(StatusCode::INTERNAL_SERVER_ERROR, MODEL_FAILED, message)
        }
        kind @ (TaskErrorKind::Unavailable
        | TaskErrorKind::WorkerLost
        | TaskErrorKind::DependencyFailed
        | TaskErrorKind::DeadlineExceeded
        | TaskErrorKind::RunLimit
        | TaskErrorKind::Cancelled
        | TaskErrorKind::Stopped
        | TaskErrorKind::InputsLost) => Fault::unavailable(kind.name(), message),
        _ => Fault::internal(message),
    };
    Some(fault.at(place))
}

/// A record as its caller may see it. Only administrators see why a model failed; else the log has it.
pub(crate) fn for_caller(caller: &Caller, mut record: TaskRecord) -> TaskRecord {
    let (task, model) = (record.task_id, &record.model);
    if let Some(error) = record.error.as_mut().filter(|_| !caller.is_admin())
        && error.told() != error.message
    {
        tracing::info!(%task, %model, cause = %error.message, "a cause is not told");
        error.message = error.told().to_owned();
    }
    record
}

/// An error of the process driver.
pub(crate) fn driver(error: &DriverError) -> Fault {
    let message = error.to_string();
    match error {
        DriverError::TooMany { .. } => Fault::bad_input(message),
        DriverError::Stopping => Fault::unavailable("stopping", message),
        DriverError::Start(_) => Fault::internal(message),
        DriverError::Plan(why) => Fault::unavailable("not_planned", message).hint(why.hint()),
        DriverError::Unloadable { .. } => {
            let hint = "the server's log has the cause; take the model away with radeon-cluster \
                        models rm, or add it anew, then restart again";
            Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "model_unloadable", message).hint(hint)
        }
    }
}

/// An error of the disk for uploads and models. A full disk is reported to the caller.
pub(crate) fn disk(error: &std::io::Error) -> Fault {
    if is_full(error) { disk_full() } else { Fault::internal(error) }
}

fn disk_full() -> Fault {
    let message = "the disk of the server's data folder is full; nothing was written";
    Fault::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", message)
        .hint("free space there, then try again")
}

/// The error of a refused deployment.
pub(crate) fn deploy(error: &DeployError) -> Fault {
    match error {
        DeployError::Model(error) => model(error),
        _ => Fault::bad_input(error.to_string()),
    }
}

/// An error of the model repository, or of a file that was to be registered.
pub(crate) fn model(error: &ModelError) -> Fault {
    let message = error.to_string();
    match error {
        ModelError::UnknownModel { .. } | ModelError::UnknownVersion { .. } => {
            Fault::not_found("unknown_model", message).hint("radeon-cluster models ls")
        }
        ModelError::ExternalData { .. } => Fault::bad_input(message).hint(
            "send the data files along, by the names that the model uses: \
             curl -F model=@m.onnx -F data=@m.onnx.data …/api/v1/cluster/models/NAME",
        ),
        ModelError::Malformed { .. } => Fault::bad_input(message)
            .hint("send a whole ONNX file, exported as ONNX by the program that made the model"),
        ModelError::Io { source, .. } => disk(source),
        _ => Fault::bad_input(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_distributed::TaskError;
    use lgp_sdk::cluster::{ModelRef, Priority, TaskState};

    fn failed(code: TaskErrorKind) -> TaskRecord {
        let (name, sha256) = ("m".to_owned(), String::new());
        TaskRecord {
            task_id: "1-1".parse().expect("an id"),
            model: ModelRef { name, version: 1, sha256 },
            priority: Priority::Normal,
            durable: false,
            depends_on: Vec::new(),
            state: TaskState::Failed,
            attempts: 1,
            worker: None,
            device: None,
            tries: Vec::new(),
            variant: None,
            outputs: None,
            error: Some(TaskError { code, message: "node 'pick' (Gather): /home".to_owned() }),
            queued_ms: 0.0,
            model_ms: None,
            overhead_ms: None,
        }
    }

    #[test]
    fn what_an_operator_refused_is_told_and_other_failures_are_not() {
        for (code, part) in [
            (TaskErrorKind::OperatorFailed, "the model failed: node 'pick' (Gather): /home"),
            (TaskErrorKind::ModelFailed, "the model failed; the server's log has the cause"),
        ] {
            let fault = task(&failed(code)).expect("it failed");
            assert_eq!((fault.status.as_u16(), fault.code), (500, MODEL_FAILED), "{code:?}");
            assert_eq!(fault.message, part);
        }
    }

    #[test]
    fn a_revocation_that_is_not_kept_says_whether_room_would_help() {
        for (kind, status, code) in [
            (ErrorKind::StorageFull, 507, "disk_full"),
            (ErrorKind::QuotaExceeded, 507, "disk_full"),
            (ErrorKind::IsADirectory, 500, "not_kept"),
            (ErrorKind::PermissionDenied, 500, "not_kept"),
        ] {
            let (what, path, source) = ("keep", "revoked.json".into(), kind.into());
            let fault = revocation(ClusterError::File { what, path, source });
            assert_eq!((fault.status.as_u16(), fault.code), (status, code), "{kind:?}");
            assert!(fault.message.contains("until the coordinator restarts"), "{}", fault.message);
        }
    }

    #[test]
    fn a_backup_that_is_not_written_says_whether_room_would_help() {
        for (kind, status, code) in [
            (ErrorKind::StorageFull, 507, "disk_full"),
            (ErrorKind::QuotaExceeded, 507, "disk_full"),
            (ErrorKind::AlreadyExists, 500, "backup_failed"),
            (ErrorKind::PermissionDenied, 500, "backup_failed"),
        ] {
            let (what, path, source) = ("make", "backups".into(), kind.into());
            let fault = backup(ClusterError::File { what, path, source });
            assert_eq!((fault.status.as_u16(), fault.code), (status, code), "{kind:?}");
            assert!(fault.hint.is_some(), "{kind:?}");
        }
        let source = std::sync::Arc::new(ErrorKind::StorageFull.into());
        let full = JournalError::Full { path: "backups/tasks.journal".into(), source };
        let fault = backup(full.into());
        assert_eq!((fault.status.as_u16(), fault.code), (507, "disk_full"));
        assert!(!fault.message.contains("backups/"), "paths are for the log: {}", fault.message);
        assert_eq!(backup(ClusterError::NoJournal).code, "unsupported");
    }
}
