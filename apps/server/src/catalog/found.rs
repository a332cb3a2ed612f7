//! The results of a look at the repository's folder.

use super::ModelEntry;
use crate::deployment::{DeployError, ModelConfig};
use crate::fault::Fault;
use crate::faults;
use axum::http::StatusCode;
use lgp_sdk::model::{Error as ModelError, Repository};

/// A model and a version of it.
pub(super) type Version = (String, u64);

/// A model and a version of it, with the entry or the reason why it cannot be used.
pub(super) type Found = (String, u64, Result<ModelEntry, Fault>);

/// The parsed config file of a model, or why it is invalid.
pub(super) type Said = Result<ModelConfig, String>;

/// The present config file of a model.
///
/// # Errors
/// If the file cannot be read now.
pub(super) fn said(repository: &Repository, name: &str) -> Result<Said, ModelError> {
    match ModelConfig::of(repository, name) {
        Err(DeployError::Model(error)) => Err(error),
        read => Ok(read.map_err(|error| error.to_string())),
    }
}

/// The error for unreadable model files. Paths go to the log only.
pub(super) fn unusable(error: &ModelError) -> Fault {
    let ModelError::Io { action, source, .. } = error else { return faults::model(error) };
    let what = format!("cannot {action} the model's files: {source}");
    Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "model_files", what)
}
