//! The models that detectors ask for and send. They are named `frigate.` and the file's name, so that
//! nothing that came without a credential takes the place of another model.

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

/// What the names of these models begin with.
const PREFIX: &str = "frigate.";
/// Longest name of a file.
const NAME_BYTES_MAX: usize = 128;
/// Models that may have come this way; more would be a way to fill the disk.
const MODELS_MAX: usize = 16;

/// How long a client hears nothing while its model loads; it waits for 30 seconds itself.
const LOAD_WAIT: Duration = Duration::from_secs(25);

/// Sent models are taken one after another: detectors of one machine send the same one at once, and no
/// two lie on the disk before one was looked at.
pub(super) type Turns = Arc<Mutex<()>>;

/// A model on its way.
pub(super) struct Incoming {
    folder: TempDir,
    _turn: OwnedMutexGuard<()>,
}

impl Incoming {
    /// A place for it beside the models, which a crash leaves to the repository to sweep.
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

/// The name in the repository of the file that Frigate names.
pub(super) fn registered(file: &str) -> String {
    format!("{PREFIX}{}", file.strip_suffix(".onnx").unwrap_or(file))
}

/// Whether there is a model of this name, and what to tell who asked; it is loaded if need be.
pub(super) async fn asked(state: &ServerState, file: &str) -> (Option<ModelEntry>, Value) {
    let found = state.catalog().get(&registered(file), None).await;
    let is_there = found.is_ok();
    let ready = match found {
        Ok(entry) => loaded(state, entry).await,
        Err(fault) => Err(fault),
    };
    told(("model_available", is_there), file, ready)
}

/// Registers a model that was sent, and what to tell who sent it.
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
            // One that is not there yet is about to be sent.
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
