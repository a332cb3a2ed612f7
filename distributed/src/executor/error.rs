//! The error of an executor that did not load or run a model.

use serde::{Deserialize, Serialize};

/// The reason why an executor did not load or run a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ExecError {
    /// The class, which decides whether the task is tried again.
    pub kind: ExecErrorKind,
    /// The details, for people.
    pub message: String,
}

impl ExecError {
    /// The inputs do not fit the model.
    pub fn bad_input(message: impl Into<String>) -> Self {
        Self { kind: ExecErrorKind::BadInput, message: message.into() }
    }

    /// The model does not exist.
    pub fn model_not_found(message: impl Into<String>) -> Self {
        Self { kind: ExecErrorKind::ModelNotFound, message: message.into() }
    }

    /// One of the model's operators refused its inputs. The message is shown to the submitter: it
    /// names the operator, the wrong value and what was expected, but nothing of the machine.
    pub fn operator(message: impl Into<String>) -> Self {
        Self { kind: ExecErrorKind::Operator, message: message.into() }
    }

    /// The model failed while it ran or loaded. The message is for the cluster's operator.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { kind: ExecErrorKind::Failed, message: message.into() }
    }

    /// The worker cannot run the model for now; another worker may.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { kind: ExecErrorKind::Unavailable, message: message.into() }
    }

    /// The run ended because it was asked to.
    pub fn stopped(message: impl Into<String>) -> Self {
        Self { kind: ExecErrorKind::Stopped, message: message.into() }
    }
}

impl ExecError {
    /// Shortens the message to fit a frame's header.
    pub(crate) fn shortened(mut self) -> Self {
        const MESSAGE_BYTES_MAX: usize = 8 << 10;
        self.message.truncate(self.message.floor_char_boundary(MESSAGE_BYTES_MAX));
        self
    }
}

/// Classes of [`ExecError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecErrorKind {
    /// Final: the inputs do not fit the model.
    BadInput,
    /// Final: the model does not exist.
    ModelNotFound,
    /// Final: the model failed.
    Failed,
    /// Retried: out of memory, device gone.
    Unavailable,
    /// Final for the attempt: the run ended because it was asked to.
    Stopped,
    /// Final: one of the model's operators refused its inputs.
    Operator,
}
