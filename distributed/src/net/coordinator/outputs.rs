//! Large outputs of durable tasks: written beside the journal before it is told how their task ended,
//! and removed once it has no result of the task any more.
//!
//! The answer has counted by then: its slot is free, and it does not matter what becomes of the worker.

use super::core_handle::CoreHandle;
use super::exchange::Room;
use crate::error::{Error, Result};
use crate::net::transfer::blobs::{BlobStore, Claim};
use crate::net::transfer::tensors::Large;
use crate::proto::image::Apart;
use lgp_memory::NamedTensor;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::sync::Semaphore;

/// Tasks whose outputs are written at a time: more would only share the same disk.
const WRITING_MAX: usize = 8;

/// The outputs that lie apart, and those that are being written.
pub(super) struct Outputs {
    /// By their task.
    files: HashMap<u64, [u8; 32]>,
    /// Tasks whose outputs are being written, or wait for that, with the room of large ones.
    writing: HashMap<u64, Option<Room>>,
    places: Arc<Semaphore>,
    /// Whether the last ones could not be written: told once, not for every task.
    failing: Arc<AtomicBool>,
}

impl Default for Outputs {
    fn default() -> Self {
        Self::of(HashMap::new())
    }
}

impl Outputs {
    /// Those that lay there when the journal was opened.
    pub(super) fn of(files: HashMap<u64, [u8; 32]>) -> Self {
        let places = Arc::new(Semaphore::new(WRITING_MAX));
        Self { files, writing: HashMap::new(), places, failing: Arc::default() }
    }

    /// Whether some are on their way to the disk.
    pub(super) fn are_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Has outputs written; the core hears of it.
    pub(super) fn begin(&mut self, shared: &Arc<CoreHandle>, seq: u64, outputs: Vec<NamedTensor>) {
        self.writing.insert(seq, None);
        let (places, core) = (Arc::clone(&self.places), Arc::clone(shared));
        let failing = Arc::clone(&self.failing);
        shared.runtime().spawn(async move {
            let place = places.acquire_owned().await;
            let stored = write(core.blob_store(), &outputs).await;
            drop(place);
            let failed_before = failing.swap(stored.is_err(), Relaxed);
            if let (Err(error), false) = (&stored, failed_before) {
                tracing::warn!(%error, "outputs of tasks go into the journal");
            }
            core.stored(seq, stored.ok());
        });
    }

    /// The room that the outputs of a task have is theirs until they are written.
    pub(super) fn keep_room(&mut self, seq: u64, room: Option<Room>) {
        if let Some(kept) = self.writing.get_mut(&seq) {
            *kept = room;
        }
    }

    /// They are written, or could not be. What was written stays until it is released.
    pub(super) fn end(&mut self, seq: u64, written: Option<(Apart, Claim)>) {
        self.writing.remove(&seq);
        if let Some((apart, claim)) = written {
            claim.keep();
            self.files.insert(seq, apart.blob.sha256);
        }
    }

    /// The journal has no result of a task any more.
    pub(super) fn release(&mut self, seq: u64, blob_store: Option<&Arc<BlobStore>>) {
        if let (Some(sha256), Some(blob_store)) = (self.files.remove(&seq), blob_store) {
            blob_store.release(sha256);
        }
    }
}

async fn write(
    blob_store: Option<Arc<BlobStore>>,
    outputs: &[NamedTensor],
) -> Result<(Apart, Claim)> {
    let blob_store = blob_store.ok_or(Error::NoJournal)?;
    let (large, claim) = Large::in_memory(outputs)?.store(&blob_store).await?;
    Ok((large.apart().ok_or(Error::Stopped)?, claim))
}
