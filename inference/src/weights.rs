//! Tensors by name from the weight files of other programs: safetensors, PyTorch, GGUF.
//!
//! The bytes are not trusted: every size is checked against the file before anything is allocated,
//! nothing in a file is executed, and no number changes its type unchecked.
#![deny(clippy::as_conversions)]

mod bind;
mod bytes;
mod entry;
mod gguf;
mod pickle;
mod quants;
mod safetensors;
mod store;
#[cfg(test)]
mod tests;
mod torch;
mod torch_legacy;
mod torch_zip;

pub use bind::{BoundWeight, BoundWeights};
pub use store::{KeptFloats, StoredFloats};

use crate::error::{Error, Result, list};
use entry::Entry;
use lgp_memory::{DType, Tensor};
use std::collections::BTreeMap;
use std::path::Path;

/// How a format is recognised and read.
struct Format {
    name: &'static str,
    /// Whether these bytes can be the beginning of a file in this format.
    detect: fn(&[u8]) -> bool,
    read: fn(&[u8]) -> Result<Contents, Fail>,
}

/// Every format, in the order in which they are tried: safetensors, which has no magic, is last.
const FORMATS: [Format; 4] =
    [gguf::FORMAT, torch_zip::FORMAT, torch_legacy::FORMAT, safetensors::FORMAT];

/// The result of a reader: the places of the tensors, without their elements.
#[derive(Debug, Default)]
struct Contents {
    entries: BTreeMap<String, Entry>,
    metadata: BTreeMap<String, String>,
}

/// Why a reader failed.
#[derive(Debug, PartialEq)]
enum Fail {
    /// The file is damaged, or has content that is not supported.
    Bad(String),
    /// A pickle asks for a call that no weights need.
    Global(String),
}

impl From<String> for Fail {
    fn from(message: String) -> Self {
        Self::Bad(message)
    }
}

impl From<&str> for Fail {
    fn from(message: &str) -> Self {
        Self::Bad(message.to_owned())
    }
}

impl Fail {
    fn in_format(self, format: &'static str) -> Error {
        match self {
            Self::Bad(message) => Error::Weights { format, message },
            Self::Global(global) => Error::WeightsGlobal { global },
        }
    }
}

/// The tensors of a file by name. The file is held in memory; a tensor is made when asked for.
#[derive(Debug)]
pub struct Weights {
    format: &'static str,
    bytes: Vec<u8>,
    contents: Contents,
}

impl Weights {
    /// Reads a file. Its content, not its name, tells its format.
    ///
    /// # Errors
    /// [`Error::Io`]; otherwise as [`Weights::from_bytes`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_bytes(crate::onnx::read_file(path.as_ref())?)
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// [`Error::Weights`] for a file that is damaged, or of an unknown format;
    /// [`Error::WeightsGlobal`] for a PyTorch file that holds more than tensors.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        let Some(format) = FORMATS.iter().find(|format| (format.detect)(&bytes)) else {
            let names = FORMATS.map(|format| format.name).join(", ");
            let message = format!("it begins like none of {names}");
            return Err(Error::Weights { format: "file of weights", message });
        };
        let contents = (format.read)(&bytes).and_then(|contents| {
            let checked = |(name, entry): (&String, &Entry)| entry.check(name, bytes.len());
            contents.entries.iter().try_for_each(checked)?;
            Ok(contents)
        });
        let contents = contents.map_err(|fail| fail.in_format(format.name))?;
        Ok(Self { format: format.name, bytes, contents })
    }

    /// The format's name.
    #[must_use]
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// The tensors' names, sorted. Where the file nests them, the levels are joined by dots.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.contents.entries.keys().map(String::as_str)
    }

    /// Element type and dimensions of a tensor as [`Weights::get`] returns it.
    #[must_use]
    pub fn describe(&self, name: &str) -> Option<(DType, &[usize])> {
        self.contents.entries.get(name).map(|entry| (entry.dtype, entry.shape.as_slice()))
    }

    /// The other content of the file as text: notes, hyperparameters, counters.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.contents.metadata
    }

    /// A tensor, row-major; quantised blocks come as `f32`.
    ///
    /// # Errors
    /// [`Error::Weights`] for a name that the file does not have and for bytes that are no
    /// elements, [`Error::Memory`] if the host refuses the memory.
    pub fn get(&self, name: &str) -> Result<Tensor> {
        let Some(entry) = self.contents.entries.get(name) else {
            let names: Vec<String> = self.names().map(str::to_owned).collect();
            let message = format!("no tensor '{name}', it has {}", list(&names));
            return Err(Error::Weights { format: self.format, message });
        };
        entry.read(&self.bytes).map_err(|source| Error::Tensor {
            tensor: name.to_owned(),
            message: source.to_string(),
        })
    }
}
