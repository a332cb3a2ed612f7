//! What can go wrong between an ONNX file and its outputs.

use crate::onnx::Unsupported;
use lgp_memory::{DType, TensorType};
use std::path::PathBuf;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of models, sessions and repositories.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: `read`, `write`, `list` ….
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The bytes are no ONNX model.
    #[error("not a readable ONNX model: {message}")]
    Malformed {
        /// What the parser could not read.
        message: String,
    },
    /// The file's format version is not one that this reader knows.
    #[error("ONNX IR version {given} is not supported, expected {} to {}", expected.0, expected.1)]
    IrVersion {
        /// The file's version.
        given: i64,
        /// Oldest and newest version that is read.
        expected: (i64, i64),
    },
    /// The operator set's version is not one that this reader knows.
    #[error("opset {given} is not supported, expected {} to {}", expected.0, expected.1)]
    Opset {
        /// The file's version of the default operator set.
        given: i64,
        /// Oldest and newest version that is read.
        expected: (i64, i64),
    },
    /// A device or its driver fails outside a node.
    #[error(transparent)]
    Compute(#[from] lgp_compute::Error),
    /// The graph breaks a rule of ONNX.
    #[error("invalid graph: {message}")]
    Graph {
        /// The rule, and the part of the graph that breaks it.
        message: String,
    },
    /// Nodes depend on their own outputs.
    #[error("the graph has a cycle through {}", list(nodes))]
    Cycle {
        /// Nodes that can never run.
        nodes: Vec<String>,
    },
    /// A stored tensor is damaged.
    #[error("tensor '{tensor}': {message}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// What was wrong and what was expected.
        message: String,
    },
    /// A tensor's bytes in another file cannot be used.
    #[error("external data '{location}' of tensor '{tensor}': {message}")]
    ExternalData {
        /// The tensor's name.
        tensor: String,
        /// The file that the model names.
        location: String,
        /// What was wrong and what was expected.
        message: String,
    },
    /// Operators or attributes without an implementation, all in one error.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A node's inputs or attributes do not fit its operator.
    #[error("node '{node}' ({op}): {source}")]
    Node {
        /// The node's name.
        node: String,
        /// Its operator.
        op: String,
        /// What the operator says.
        source: lgp_compute::Error,
    },
    /// An input was given that the model does not have.
    #[error("unknown input '{given}', expected {}", list(expected))]
    UnknownInput {
        /// The name that was given.
        given: String,
        /// The model's inputs.
        expected: Vec<String>,
    },
    /// An input of the model was not given.
    #[error("missing input '{name}', expected {ty}")]
    MissingInput {
        /// The input's name.
        name: String,
        /// What the model expects for it.
        ty: TensorType,
    },
    /// An input was given twice.
    #[error("input '{name}' was given more than once")]
    DuplicateInput {
        /// The input's name.
        name: String,
    },
    /// An input has the wrong element type.
    #[error("input '{name}' has dtype {given}, expected {expected}")]
    InputDType {
        /// The input's name.
        name: String,
        /// The model's dtype.
        expected: DType,
        /// The dtype that was given.
        given: DType,
    },
    /// An input has the wrong rank or dimensions.
    #[error("input '{name}' has shape {given:?}, expected {expected}{}", because(.reason))]
    InputShape {
        /// The input's name.
        name: String,
        /// The model's shape.
        expected: String,
        /// The shape that was given.
        given: Vec<usize>,
        /// Why the shape does not fit, if the shapes alone do not tell.
        reason: Option<String>,
    },
    /// A value is no tensor where only tensors are allowed.
    #[error("{what} '{name}' is {kind}, expected a tensor; run the session on values of any kind")]
    NotATensor {
        /// `input` or `output`.
        what: &'static str,
        /// The value's name.
        name: String,
        /// The kind of the value.
        kind: &'static str,
    },
    /// An input is of another kind than the model declares.
    #[error("input '{name}' is {given}, expected {expected}")]
    InputKind {
        /// The input's name.
        name: String,
        /// What was given.
        given: &'static str,
        /// What the model declares.
        expected: String,
    },
    /// An output that the last run of a binding did not return.
    #[error("no output '{name}' is there, a run makes {}", list(.known))]
    NoOutput {
        /// The name that was asked for.
        name: String,
        /// The model's outputs.
        known: Vec<String>,
    },
    /// The run was asked to end, or reached its deadline.
    #[error(transparent)]
    Stopped(#[from] lgp_compute::Stopped),
    /// A task has no result.
    #[error("the task has no result: {message}")]
    Task {
        /// Why the result is missing.
        message: &'static str,
    },
    /// Requests cannot run as one batch.
    #[error("the requests cannot run as one batch: {message}")]
    Batch {
        /// What does not fit.
        message: String,
    },
    /// A model was built wrongly.
    #[error("cannot build the model: {message}")]
    Build {
        /// What was wrong and what was expected.
        message: String,
    },
    /// A model cannot be written as ONNX.
    #[error("cannot write the model: {message}")]
    Export {
        /// The content that the file cannot hold.
        message: String,
    },
    /// A file of weights is damaged, or has content that is not supported.
    #[error("not a readable {format}: {message}")]
    Weights {
        /// The format that the file's first bytes tell.
        format: &'static str,
        /// What was wrong and what was expected.
        message: String,
    },
    /// A PyTorch file holds more than tensors. None of the functions that it names is called.
    #[error("the file wants to call '{global}', expected tensors and dictionaries of them only")]
    WeightsGlobal {
        /// Module and name of the function.
        global: String,
    },
    /// The limit on a device's memory is below what the model needs.
    #[error(
        "{device} may take {limit_bytes} bytes for the model, expected {smallest_bytes} at least; \
         there it needs {}",
        table(.needs)
    )]
    DeviceTooSmall {
        /// The device.
        device: lgp_hal::DeviceId,
        /// The limit.
        limit_bytes: usize,
        /// The smallest limit with which the model can run.
        smallest_bytes: usize,
        /// The needs at the node that needs most, by owner.
        needs: Vec<lgp_memory::Holder>,
    },
    /// No cut of the model fits the memory of the devices.
    #[error(
        "no cut of the model fits devices of {limits:?} bytes: it has {weights_bytes} bytes of weights, \
         and {values_bytes} bytes of values at most"
    )]
    NoCut {
        /// The limit on each device.
        limits: Vec<usize>,
        /// Bytes of all weights.
        weights_bytes: usize,
        /// The most bytes of values and scratch at one node.
        values_bytes: usize,
    },
    /// The session's threads cannot be started.
    #[error("cannot start {threads} threads: {message}")]
    Threads {
        /// How many were wanted.
        threads: usize,
        /// The system's answer.
        message: String,
    },
    /// A name that a repository cannot hold.
    #[error(
        "model name '{given}' is not valid, expected a letter or digit and then up to 63 of \
         letters, digits, '.', '_' and '-'"
    )]
    ModelName {
        /// The name that was given.
        given: String,
    },
    /// The repository has no such model.
    #[error("no model '{name}' in the repository, it has {}", list(.known))]
    UnknownModel {
        /// The name that was asked for.
        name: String,
        /// The names it has.
        known: Vec<String>,
    },
    /// The repository has the model, but not this version of it.
    #[error("model '{name}' has no version {version}, it has {}", list(.known))]
    UnknownVersion {
        /// The model's name.
        name: String,
        /// The version that was asked for.
        version: u64,
        /// The versions it has.
        known: Vec<String>,
    },
    /// The files of a stored model have changed.
    #[error(
        "{} has changed: with its weights it has digest {given}, expected {expected}; register \
         it as a new version",
        path.display()
    )]
    Digest {
        /// The ONNX file.
        path: PathBuf,
        /// The digest of the files as they are.
        given: String,
        /// The digest when they were stored.
        expected: String,
    },
    /// A shape, dtype or allocation error.
    #[error(transparent)]
    Memory(#[from] lgp_memory::Error),
}

impl Error {
    /// Whether a device was lost. It must be opened again before anything runs on it.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        match self {
            Self::Memory(source) => source.is_device_lost(),
            Self::Compute(source) | Self::Node { source, .. } => source.is_device_lost(),
            _ => false,
        }
    }

    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// Whether a device lacks room that other runs may give back.
    pub(crate) fn is_shortage(&self) -> bool {
        use lgp_memory::Error::Shortage;
        let source = match self {
            Self::Memory(source) | Self::Compute(lgp_compute::Error::Memory(source)) => source,
            _ => return false,
        };
        matches!(source, Shortage { .. })
    }

    pub(crate) fn graph(message: impl Into<String>) -> Self {
        Self::Graph { message: message.into() }
    }
}

/// Names for a message; a long list is cut.
pub(crate) fn list(names: &[String]) -> String {
    const MOST: usize = 12;
    if names.is_empty() {
        return "none".to_owned();
    }
    let mut out = names.iter().take(MOST).map(|n| format!("'{n}'")).collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        out.push_str(&format!(" and {} more", names.len() - MOST));
    }
    out
}

fn table(needs: &[lgp_memory::Holder]) -> String {
    let row = |h: &lgp_memory::Holder| format!("{} bytes for {}", h.bytes, h.owner);
    needs.iter().map(row).collect::<Vec<_>>().join(", ")
}

fn because(reason: &Option<String>) -> String {
    reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default()
}
