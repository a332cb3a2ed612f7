//! The models that detectors ask for and send. Their names begin with `frigate.`, so that a sender without
//! credentials cannot replace other models.

use crate::catalog::ModelEntry;
use crate::fault::Fault;
use crate::faults::disk;
use crate::state::ServerState;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// The prefix of these models' names.
const PREFIX: &str = "frigate.";
/// Longest name of a file, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// The most models that detectors may send, so that they cannot fill the disk.
const MODELS_MAX: usize = 16;

/// The longest load before an answer; the client waits for 30 seconds.
const LOAD_WAIT: Duration = Duration::from_secs(25);

/// Sent models are received one by one: detectors of one machine send the same model at once, and each must be
/// checked before the next one takes disk space.
pub(super) type Turns = Arc<Mutex<()>>;

/// A model that is being received.
pub(super) struct Incoming {
    folder: TempDir,
    _turn: OwnedMutexGuard<()>,
}

impl Incoming {
    /// A folder for the model beside the others; the repository removes it after a crash.
    pub(super) async fn new(state: &ServerState, turns: &Turns, file: &str) -> Result<Self, Fault> {
        if file.len() > NAME_BYTES_MAX {
            let bytes = file.len();
            let what =
                format!("the model's name has {bytes} bytes, expected {NAME_BYTES_MAX} at most");
            return Err(Fault::bad_input(what));
        }
        let turn = Arc::clone(turns).lock_owned().await;
        let folder = tempfile::Builder::new().prefix(".adding-").tempdir_in(state.catalog().root());
        Ok(Self { folder: folder.map_err(|e| disk(&e))?, _turn: turn })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("model.onnx")
    }
}

/// The repository's name for a file of Frigate.
pub(super) fn registered(file: &str) -> String {
    format!("{PREFIX}{}", file.strip_suffix(".onnx").unwrap_or(file))
}

/// Whether a model of this name exists, as an answer; loads it if need be.
pub(super) async fn asked(state: &ServerState, file: &str) -> (Option<ModelEntry>, Value) {
    let found = state.catalog().get(&registered(file), None).await;
    let is_there = found.is_ok();
    let ready = match found {
        Ok(entry) => loaded(state, entry).await,
        Err(fault) => Err(fault),
    };
    told(("model_available", is_there), file, ready)
}

/// Registers a model that was sent; returns the answer.
pub(super) async fn sent(
    state: &ServerState,
    (file, incoming): (&str, Result<Incoming, Fault>),
) -> (Option<ModelEntry>, Value) {
    let added = match incoming {
        Ok(incoming) => add(state, &registered(file), &incoming).await,
        Err(fault) => Err(fault),
    };
    let is_saved = added.is_ok();
    told(("model_saved", is_saved), file, added)
}

async fn add(state: &ServerState, name: &str, incoming: &Incoming) -> Result<ModelEntry, Fault> {
    let catalog = state.catalog();
    match catalog.get(name, None).await {
        Ok(entry) => {
            let path = incoming.path();
            let given = tokio::task::spawn_blocking(move || digest(&path)).await;
            if given.map_err(Fault::internal)?? != entry.model().sha256 {
                let what = format!("there is another model '{name}' already");
                return Err(Fault::conflict(what).hint(format!("radeon-cluster models rm {name}")));
            }
            loaded(state, entry).await
        }
        Err(fault) if fault.code == "unknown_model" => {
            let listed = catalog.list().await?;
            let count = listed.iter().filter(|entry| entry.name().starts_with(PREFIX)).count();
            if count >= MODELS_MAX {
                let what = format!(
                    "{count} models of detectors are registered, expected fewer than {MODELS_MAX}"
                );
                return Err(Fault::conflict(what).hint("radeon-cluster models rm NAME"));
            }
            Ok(catalog.add(name, incoming.path()).await?.entry)
        }
        Err(fault) => Err(fault),
    }
}

async fn loaded(state: &ServerState, entry: ModelEntry) -> Result<ModelEntry, Fault> {
    state.catalog().demand(&entry, LOAD_WAIT).await
}

fn told(
    (what, holds): (&str, bool),
    file: &str,
    ready: Result<ModelEntry, Fault>,
) -> (Option<ModelEntry>, Value) {
    let message = match &ready {
        Ok(entry) => format!("model {} is loaded", entry.model()),
        Err(fault) => {
            // A model that does not exist yet is about to be sent.
            if fault.code != "unknown_model" {
                tracing::warn!(file, error = fault.message, "a detector's model is not ready");
            }
            match &fault.hint {
                Some(hint) => format!("{}; {hint}", fault.message),
                None => fault.message.clone(),
            }
        }
    };
    let mut answer =
        json!({ "model_loaded": ready.is_ok(), "model_name": file, "message": message });
    answer[what] = holds.into();
    (ready.ok(), answer)
}

fn digest(path: &Path) -> Result<String, Fault> {
    let mut hash = Sha256::new();
    let copied = File::open(path).and_then(|mut file| std::io::copy(&mut file, &mut hash));
    copied.map_err(|e| disk(&e))?;
    Ok(hex::encode(hash.finalize()))
}
