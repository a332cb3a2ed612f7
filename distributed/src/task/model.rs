//! The name of a model, as tasks give it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One version of one registered model. The digest detects a swapped file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModelRef {
    /// Name in the model repository.
    pub name: String,
    /// Version, from 1.
    pub version: u64,
    /// SHA-256 of the model file in lowercase hexadecimal.
    pub sha256: String,
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.version)
    }
}
