//! The files beside a model, and the errors for those, and for models, that cannot be used.

use crate::catalog::ModelEntry;
use crate::fault::Fault;
use serde::de::DeserializeOwned;

/// The largest file of settings beside a model, in bytes.
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// The settings in a file beside a model.
///
/// # Errors
/// 500 that names the file if it is not usable.
pub(super) fn settings<T: DeserializeOwned>(
    entry: &ModelEntry,
    file: &str,
) -> Result<Option<T>, Fault> {
    let text =
        entry.beside(file, SETTINGS_BYTES_MAX).map_err(|error| unusable(entry, file, error))?;
    let parsed = text.map(|text| serde_json::from_str(&text)).transpose();
    parsed.map_err(|error| unusable(entry, file, error))
}

/// The error for an unusable file beside a model. The server's owner must fix it, not the client.
pub(super) fn unusable(entry: &ModelEntry, file: &str, why: impl std::fmt::Display) -> Fault {
    let what = format!("the file {file} of the model '{}' is not usable: {why}", entry.name());
    Fault::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "model_files", what)
}

/// The error for a model of another kind than the request needs.
pub(super) fn wrong_model(entry: &ModelEntry, why: impl std::fmt::Display) -> Fault {
    Fault::bad_input(format!("the model '{}' does not fit: {why}", entry.name()))
}
