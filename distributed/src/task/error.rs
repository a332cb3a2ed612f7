//! The error of a task that did not succeed.

use serde::{Deserialize, Serialize};

/// Why a task did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct TaskError {
    /// The class, for programs.
    pub code: TaskErrorKind,
    /// The details, for people.
    pub message: String,
}

impl TaskError {
    pub(crate) fn new(code: TaskErrorKind, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The message for the submitter, without details of the cluster's machines.
    #[must_use]
    pub fn told(&self) -> &str {
        match self.code {
            TaskErrorKind::ModelFailed => "the model failed; the server's log has the cause",
            _ => &self.message,
        }
    }
}

/// Classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskErrorKind {
    /// The inputs do not fit the model; sending them again cannot help.
    BadInput,
    /// No worker has the model.
    ModelNotFound,
    /// The model ran and failed. The message is for the cluster's operator: it may name files.
    ModelFailed,
    /// Workers could not run the task (out of memory, device gone) in as many attempts as allowed.
    Unavailable,
    /// Workers were lost while they ran the task, in as many attempts as allowed.
    WorkerLost,
    /// The task's runs exceeded their time limit, in as many attempts as allowed.
    RunLimit,
    /// A task that it depends on did not succeed.
    DependencyFailed,
    /// The deadline passed first.
    DeadlineExceeded,
    /// A caller cancelled it.
    Cancelled,
    /// The coordinator stopped first.
    Stopped,
    /// Its inputs have more bytes than any worker takes.
    TooLarge,
    /// The task's inputs on the coordinator's disk are missing or damaged.
    InputsLost,
    /// One of the model's operators refused its inputs. The message names the operator and the
    /// reason, and may be shown to the submitter.
    OperatorFailed,
}

impl TaskErrorKind {
    /// The name as it is written in answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadInput => "bad_input",
            Self::ModelNotFound => "model_not_found",
            Self::ModelFailed => "model_failed",
            Self::Unavailable => "unavailable",
            Self::WorkerLost => "worker_lost",
            Self::RunLimit => "run_limit",
            Self::DependencyFailed => "dependency_failed",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Cancelled => "cancelled",
            Self::Stopped => "stopped",
            Self::TooLarge => "too_large",
            Self::InputsLost => "inputs_lost",
            Self::OperatorFailed => "operator_failed",
        }
    }
}
