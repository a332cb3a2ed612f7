//! The interface to the models that a worker fetched.

use super::BlobPart;
use crate::executor::ExecError;
use crate::task::ModelRef;
use std::path::{Path, PathBuf};

/// The worker's side: where fetched models are kept. Called on blocking threads, except for
/// [`ModelCache::lacks`].
pub trait ModelCache: Send + Sync {
    /// Where to collect the bytes of a model whose files are not here; `None` where they are. A
    /// fetch continues after the bytes that are there already. Must answer within milliseconds.
    fn lacks(&self, model: &ModelRef) -> Option<PathBuf>;

    /// Makes room for `bytes` more bytes.
    ///
    /// # Errors
    /// [`ExecError`] when no room can be made.
    fn make_room(&self, model: &ModelRef, bytes: u64) -> Result<(), ExecError>;

    /// Takes over a whole run of bytes that has the model's digest.
    ///
    /// # Errors
    /// [`ExecError`] when the bytes are no model, or cannot be kept.
    fn keep(&self, model: &ModelRef, collected: &Path, parts: &[BlobPart])
    -> Result<(), ExecError>;
}
