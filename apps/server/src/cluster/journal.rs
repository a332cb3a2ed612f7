//! Routes for the journal of durable tasks: its size, backups and compaction.

use crate::fault::{ClusterError, Fault};
use crate::faults;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use lgp_sdk::cluster::Error as Cause;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The folder of backups, beside the journal.
const FOLDER: &str = "backups";

/// `GET journal`.
pub(crate) async fn show(State(state): State<ServerState>) -> Result<Json<Value>, ClusterError> {
    let bytes = state.coordinator().journal_bytes().map_err(faults::cluster)?;
    Ok(Json(json!({ "bytes": bytes })))
}

/// `POST journal/backup`: writes a consistent copy to the folder `backups` beside the journal while tasks continue.
/// Large inputs and outputs go to a folder with the copy's name and `.inputs`. A coordinator that gets both as its
/// own continues from there.
pub(crate) async fn back_up(State(state): State<ServerState>) -> Result<Json<Value>, ClusterError> {
    let coordinator = state.coordinator();
    let journal = coordinator.config().journal.clone();
    let journal = journal.ok_or(Cause::NoJournal).map_err(faults::cluster)?;
    let folder = journal.with_file_name(FOLDER);
    tokio::fs::create_dir_all(&folder).await.map_err(|e| not_written("make", &folder, e))?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let path = folder.join(format!("tasks-{}.journal", since.as_millis()));
    coordinator.back_up(path.clone()).await.map_err(faults::backup)?;
    let written = tokio::fs::metadata(&path).await.map_err(|e| not_written("read", &path, e))?;
    Ok(Json(json!({ "path": path, "bytes": written.len() })))
}

fn not_written(what: &'static str, path: &Path, source: std::io::Error) -> Fault {
    faults::backup(Cause::File { what, path: path.to_owned(), source })
}

/// `POST journal/compact`: frees disk space that the journal no longer needs.
pub(crate) async fn compact(State(state): State<ServerState>) -> Result<Json<Value>, ClusterError> {
    let coordinator = state.coordinator();
    let before = coordinator.journal_bytes().map_err(faults::cluster)?;
    coordinator.compact().await.map_err(faults::cluster)?;
    let after = coordinator.journal_bytes().map_err(faults::cluster)?;
    Ok(Json(json!({ "before_bytes": before, "after_bytes": after })))
}
