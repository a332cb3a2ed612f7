//! Large outputs of durable tasks: written beside the journal before it is told how their task
//! ended, and removed once the journal has no result of the task any more.
//!
//! The answer has counted by then: its slot is free, and its worker may go.

mod write;

use crate::net::transfer::blobs::{BlobStore, Claim};
use crate::proto::image::Apart;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Tasks whose outputs are written at a time: more would only share the same disk.
const WRITING_MAX: usize = 8;

/// Room for large outputs, which must be kept as long as they are on their way.
pub(crate) type Room = OwnedSemaphorePermit;

/// The outputs outside the journal, and those that are being written.
pub(super) struct Outputs {
    /// Their digests, by task.
    files: HashMap<u64, [u8; 32]>,
    /// Tasks whose outputs are being written, or wait for that, with the room of large ones.
    writing: HashMap<u64, Option<Room>>,
    places: Arc<Semaphore>,
    /// Whether the last outputs could not be written: logged once, not for every task.
    failing: Arc<AtomicBool>,
}

impl Default for Outputs {
    fn default() -> Self {
        Self::of(HashMap::new())
    }
}

impl Outputs {
    /// The outputs that were there when the journal was opened.
    pub(super) fn of(files: HashMap<u64, [u8; 32]>) -> Self {
        let places = Arc::new(Semaphore::new(WRITING_MAX));
        Self { files, writing: HashMap::new(), places, failing: Arc::default() }
    }

    /// Whether outputs are on their way to the disk.
    pub(super) fn are_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Keeps the room of a task's outputs until they are written.
    pub(super) fn keep_room(&mut self, seq: u64, room: Option<Room>) {
        if let Some(kept) = self.writing.get_mut(&seq) {
            *kept = room;
        }
    }

    /// Outputs are written, or could not be. Written outputs stay until they are released.
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
