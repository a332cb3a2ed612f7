//! What is known of a stored model without reading it again: `entry.json` in its folder.

use super::{MODEL_FILE, files};
use crate::error::{Error, Result};
use crate::model::{Model, ValueSpec};
use crate::session::{Session, SessionOptions};
use lgp_memory::{DType, Dim, SymShape, TensorType, ValueKind};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

pub(super) const ENTRY_FILE: &str = "entry.json";

/// A version of a model in a [`Repository`](super::Repository).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// The model's name.
    pub name: String,
    /// Its version, counted from 1.
    pub version: u64,
    /// The ONNX file.
    pub path: PathBuf,
    /// SHA-256 in lowercase hex: of the ONNX file, followed by the files that hold its weights in
    /// the order of their names.
    pub sha256: String,
    /// What a run must be given.
    pub inputs: Vec<ValueSpec>,
    /// What a run returns.
    pub outputs: Vec<ValueSpec>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    sha256: String,
    inputs: Vec<StoredValue>,
    outputs: Vec<StoredValue>,
}

#[derive(Serialize, Deserialize)]
struct StoredValue {
    name: String,
    dtype: DType,
    shape: Option<Vec<StoredDim>>,
    #[serde(default)]
    kind: ValueKind,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredDim {
    Known(usize),
    Symbol(String),
    Unknown,
}

impl From<&ValueSpec> for StoredValue {
    fn from(spec: &ValueSpec) -> Self {
        let dim = |dim: &Dim| match dim {
            Dim::Known(n) => StoredDim::Known(*n),
            Dim::Symbol(s) => StoredDim::Symbol(s.to_string()),
            Dim::Unknown => StoredDim::Unknown,
        };
        let shape = spec.ty.shape.as_ref().map(|s| s.0.iter().map(dim).collect());
        Self { name: spec.name.clone(), dtype: spec.ty.dtype, shape, kind: spec.kind }
    }
}

impl From<StoredValue> for ValueSpec {
    fn from(stored: StoredValue) -> Self {
        let dim = |dim| match dim {
            StoredDim::Known(n) => Dim::Known(n),
            StoredDim::Symbol(s) => Dim::Symbol(s.into()),
            StoredDim::Unknown => Dim::Unknown,
        };
        let shape = stored.shape.map(|dims| SymShape(dims.into_iter().map(dim).collect()));
        let ty = TensorType { dtype: stored.dtype, shape };
        Self { name: stored.name, ty, kind: stored.kind }
    }
}

/// Writes what is known of a model into its folder.
pub(super) fn save(folder: &Path, entry: &Entry) -> Result<()> {
    let stored = Stored {
        sha256: entry.sha256.clone(),
        inputs: entry.inputs.iter().map(Into::into).collect(),
        outputs: entry.outputs.iter().map(Into::into).collect(),
    };
    let path = folder.join(ENTRY_FILE);
    let text =
        serde_json::to_vec_pretty(&stored).map_err(|e| Error::io("write", &path)(e.into()))?;
    files::write(&path, &text)
}

/// Reads what is known of a model. One that was put there by hand is read itself, once where its
/// folder can be written: from then on it must not change.
pub(super) fn load(root: &Path, name: &str, version: u64) -> Result<Entry> {
    let folder = root.join(name).join(version.to_string());
    let path = folder.join(MODEL_FILE);
    let stored = std::fs::read(folder.join(ENTRY_FILE))
        .ok()
        .and_then(|text| serde_json::from_slice::<Stored>(&text).ok());
    let name = name.to_owned();
    if let Some(Stored { sha256, inputs, outputs }) = stored {
        let inputs = inputs.into_iter().map(Into::into).collect();
        let outputs = outputs.into_iter().map(Into::into).collect();
        return Ok(Entry { name, version, path, sha256, inputs, outputs });
    }
    let bytes = std::fs::read(&path).map_err(Error::io("read", &path))?;
    let model = Model::from_bytes(&bytes, Some(&folder))?;
    let session = Session::new(model, SessionOptions::with_threads(1))?;
    let external = crate::onnx::external_files(&bytes, Some(&folder))?;
    let sha256 = files::digest(&bytes, &external)?;
    let (inputs, outputs) = (session.inputs().to_vec(), session.outputs().to_vec());
    let entry = Entry { name, version, path, sha256, inputs, outputs };
    if let Err(error) = save(&folder, &entry) {
        // A folder that only others may write is read again the next time.
        tracing::debug!(%error, "what is known of a model is not kept");
    }
    Ok(entry)
}
