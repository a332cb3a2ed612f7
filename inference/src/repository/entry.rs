//! The entry of a stored model, kept in `entry.json` so that the model is not read again.

use super::MODEL_FILE;
use super::files::{self, ENTRY_FILE};
use crate::error::{Error, Result};
use crate::model::{Model, ValueSpec};
use crate::options::SessionOptions;
use crate::session::Session;
use lgp_memory::{DType, Dim, SymShape, TensorType, ValueKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// An entry has some hundred bytes for each input and output.
const ENTRY_BYTES_MAX: u64 = 16 << 20;
/// Most bytes of a model's notes that are kept.
const METADATA_BYTES_MAX: usize = 1 << 20;

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
    /// The inputs that a run must be given.
    pub inputs: Vec<ValueSpec>,
    /// The outputs that a run returns.
    pub outputs: Vec<ValueSpec>,
    /// Free-form notes that the ONNX file carries, up to 1 MiB of them.
    pub metadata: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    sha256: String,
    /// The files that were hashed: while they are unchanged, the model is not read again.
    #[serde(default)]
    files: Vec<Seen>,
    inputs: Vec<StoredValue>,
    outputs: Vec<StoredValue>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// A file of a model as it was when the model was read.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Its path in the version's folder.
    name: PathBuf,
    bytes: u64,
    /// The time of its last change, since 1970.
    modified_ns: Option<u64>,
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

/// The present state of a model's files: the ONNX file, and those that hold its weights.
pub(super) fn seen<'a>(
    folder: &Path,
    external: impl Iterator<Item = &'a PathBuf>,
) -> Result<Vec<Seen>> {
    let model = Seen::of(folder, Path::new(MODEL_FILE));
    std::iter::once(model).chain(external.map(|name| Seen::of(folder, name))).collect()
}

impl Seen {
    fn of(folder: &Path, name: &Path) -> Result<Self> {
        let path = folder.join(name);
        let about = std::fs::metadata(&path).map_err(Error::io("read", &path))?;
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok();
        let modified = about.modified().ok().and_then(since);
        let modified_ns = modified.and_then(|since| u64::try_from(since.as_nanos()).ok());
        Ok(Self { name: name.to_owned(), bytes: about.len(), modified_ns })
    }
}

/// A model's notes, in the order of their names. A note that exceeds the room left is left out.
pub(super) fn metadata_of(model: &Model) -> BTreeMap<String, String> {
    let mut left = METADATA_BYTES_MAX;
    let fits = |(key, value): &(&String, &String)| {
        let rest = left.checked_sub(key.len() + value.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    model.metadata().iter().filter(fits).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Writes a model's entry into its folder. A reader meanwhile sees the entry that was there before.
pub(super) fn save(folder: &Path, entry: &Entry, files: Vec<Seen>) -> Result<()> {
    let stored = Stored {
        sha256: entry.sha256.clone(),
        files,
        inputs: entry.inputs.iter().map(Into::into).collect(),
        outputs: entry.outputs.iter().map(Into::into).collect(),
        metadata: entry.metadata.clone(),
    };
    let path = folder.join(ENTRY_FILE);
    let text =
        serde_json::to_vec_pretty(&stored).map_err(|e| Error::io("write", &path)(e.into()))?;
    let staged = tempfile::Builder::new().prefix(".entry-").tempdir_in(folder);
    let staged = staged.map_err(Error::io("write", folder))?;
    let whole = staged.path().join(ENTRY_FILE);
    files::write(&whole, &text)?;
    std::fs::rename(&whole, &path).map_err(Error::io("write", path))
}

/// The stored entry, if the model's files are those that were hashed.
fn stored(folder: &Path) -> Option<Stored> {
    let path = folder.join(ENTRY_FILE);
    // Opening a pipe would wait for its writer.
    if !std::fs::metadata(&path).is_ok_and(|found| found.is_file()) {
        return None;
    }
    let mut text = Vec::new();
    let file = std::fs::File::open(&path).ok()?;
    file.take(ENTRY_BYTES_MAX).read_to_end(&mut text).ok()?;
    let stored: Stored = serde_json::from_slice(&text).ok()?;
    let is_same = |seen: &Seen| Seen::of(folder, &seen.name).is_ok_and(|now| now == *seen);
    (!stored.files.is_empty() && stored.files.iter().all(is_same)).then_some(stored)
}

/// Reads a model's entry. A model that was put there by hand, or whose files have changed, is read
/// itself: once, if its folder can be written.
pub(super) fn load(root: &Path, name: &str, version: u64) -> Result<Entry> {
    let folder = root.join(name).join(version.to_string());
    let path = folder.join(MODEL_FILE);
    let name = name.to_owned();
    if let Some(Stored { sha256, inputs, outputs, metadata, .. }) = stored(&folder) {
        let inputs = inputs.into_iter().map(Into::into).collect();
        let outputs = outputs.into_iter().map(Into::into).collect();
        return Ok(Entry { name, version, path, sha256, inputs, outputs, metadata });
    }
    // Noted before the files are hashed: a file that changes meanwhile is read again the next time.
    let mut files = seen(&folder, std::iter::empty())?;
    let bytes = crate::onnx::read_file(&path)?;
    let model = Model::from_bytes(&bytes, Some(&folder))?;
    let metadata = metadata_of(&model);
    let session = Session::new(model, SessionOptions::with_threads(1))?;
    let external = crate::onnx::external_files(&bytes, Some(&folder))?;
    for file in external.keys() {
        files.push(Seen::of(&folder, file)?);
    }
    let sha256 = files::digest(&bytes, &external)?;
    let (inputs, outputs) = (session.inputs().to_vec(), session.outputs().to_vec());
    let entry = Entry { name, version, path, sha256, inputs, outputs, metadata };
    if let Err(error) = save(&folder, &entry, files) {
        // A model in a folder without permission to write is read again the next time.
        tracing::debug!(%error, "what is known of a model is not kept");
    }
    Ok(entry)
}
