//! Inputs that are too long for a frame: their header names a digest, and the worker asks for the
//! bytes, from any offset on.
//!
//! The bytes of all inputs of a task follow one another as one run, whose SHA-256 is its name. The
//! coordinator serves it from the task's own tensors, while an attempt is under way. The worker
//! collects it in memory; what a broken connection left is gone on with by the next attempt.

mod fetch;
mod offer;
#[cfg(test)]
mod tests;

pub(super) use fetch::Larder;
pub(super) use offer::{Offers, send};

use serde::{Deserialize, Serialize};

/// Bytes that are sent at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// The answer to a question for inputs.
#[derive(Serialize, Deserialize)]
enum Answer {
    /// The run has so many bytes; those from the offset on follow.
    Found(u64),
    /// No attempt under way has such inputs.
    Unknown,
}
