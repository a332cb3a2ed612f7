//! Inputs and outputs that are too long for a frame: the header names a digest, and the other side
//! asks for the bytes, from any offset on.
//!
//! The bytes of all tensors follow one another as one run, named by its SHA-256. The coordinator
//! serves inputs while an attempt is under way: from the task's own tensors, or, for a durable
//! task, from its disk. The worker serves outputs until they were taken. The receiver collects a
//! run in memory; after a broken connection, the transfer continues over the next one.

mod fetch;
mod offer;
#[cfg(test)]
mod tests;

pub(crate) use fetch::{Fetched, Peer, TensorCache};
pub(crate) use offer::{Offer, Offers, send};

use crate::error::{Error, Result};
use crate::net::transfer::blobs::{BlobStore, Claim};
use crate::net::transport::wire;
use crate::proto::frame::BODY_BYTES_MAX;
use crate::proto::image::Apart;
use crate::proto::message::{TensorBlob, TensorMeta};
use crate::proto::tensors::{describe_any, share};
use bytes::Bytes;
use lgp_memory::NamedTensor;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Notify, OnceCell};

/// Bytes that are sent at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// The response to a request for tensors.
#[derive(Serialize, Deserialize)]
enum Answer {
    /// The number of bytes of the run; those from the offset on follow.
    Found(u64),
    /// No attempt under way has such tensors.
    Unknown,
}

/// Whether tensors are too long to follow their header.
pub(crate) fn is_large(tensors: &[NamedTensor]) -> bool {
    bytes_of(tensors) > BODY_BYTES_MAX
}

/// Bytes of tensors.
pub(crate) fn bytes_of(tensors: &[NamedTensor]) -> usize {
    let bytes = tensors.iter().map(|tensor| tensor.tensor.packed_len());
    bytes.fold(0, usize::saturating_add)
}

/// Large tensors: the inputs of a task, for as long as it is not terminal, or the outputs of an attempt.
pub(crate) struct Large {
    pub(crate) tensors: Vec<TensorMeta>,
    source: Source,
    blob: OnceCell<TensorBlob>,
    /// Why the tensors are lost, once that was noticed.
    lost: OnceLock<String>,
    noticed: Notify,
}

enum Source {
    /// One part per tensor, shared with it.
    Memory(Vec<Bytes>),
    Disk(Arc<BlobStore>),
}

impl Large {
    /// Inputs that stay in memory.
    ///
    /// # Errors
    /// [`Error::Frame`] for tensors without a form on the wire.
    pub(crate) fn in_memory(inputs: &[NamedTensor]) -> Result<Self> {
        let (tensors, _) = describe_any(inputs)?;
        let parts = inputs.iter().map(|input| share(&input.tensor)).collect();
        Ok(Self::new(tensors, Source::Memory(parts), OnceCell::new()))
    }

    /// Inputs that lie on the disk.
    pub(crate) fn on_disk(apart: Apart, blob_store: Arc<BlobStore>) -> Self {
        let blob = OnceCell::new_with(Some(apart.blob));
        Self::new(apart.tensors, Source::Disk(blob_store), blob)
    }

    fn new(tensors: Vec<TensorMeta>, source: Source, blob: OnceCell<TensorBlob>) -> Self {
        Self { tensors, source, blob, lost: OnceLock::new(), noticed: Notify::new() }
    }

    /// The tensors' digest, which is computed once, on a blocking thread.
    ///
    /// # Errors
    /// [`Error::Stopped`] where there are no threads any more.
    pub(crate) async fn blob(&self) -> Result<TensorBlob> {
        let reckon = async || {
            let parts = self.parts().to_vec();
            let hashing = tokio::task::spawn_blocking(move || {
                let mut hash = Sha256::new();
                parts.iter().for_each(|part| hash.update(part));
                TensorBlob { sha256: hash.finalize().into(), bytes: total(&parts) }
            });
            hashing.await.map_err(|_| Error::Stopped)
        };
        self.blob.get_or_try_init(reckon).await.copied()
    }

    /// Moves the tensors from memory to the disk. They are durable once this returns, for as long
    /// as the claim says.
    ///
    /// # Errors
    /// [`Error::NotSaved`] where there is no room.
    pub(crate) async fn store(self, blob_store: &Arc<BlobStore>) -> Result<(Self, Claim)> {
        let blob = self.blob().await?;
        let claim = blob_store.put(blob, self.parts().to_vec()).await?;
        let apart = Apart { blob, tensors: self.tensors };
        Ok((Self::on_disk(apart, Arc::clone(blob_store)), claim))
    }

    /// The reference that the journal keeps in their place, if they lie on the disk.
    pub(crate) fn apart(&self) -> Option<Apart> {
        match (&self.source, self.blob.get()) {
            (Source::Disk(_), Some(blob)) => {
                Some(Apart { blob: *blob, tensors: self.tensors.clone() })
            }
            _ => None,
        }
    }

    /// Releases the file of tensors on the disk: no task needs them any more.
    pub(crate) fn release(&self) {
        if let (Source::Disk(blob_store), Some(blob)) = (&self.source, self.blob.get()) {
            blob_store.release(blob.sha256);
        }
    }

    /// Resolves when the tensors turn out to be missing or damaged, with the reason.
    pub(crate) async fn lost(&self) -> String {
        loop {
            let noticed = self.noticed.notified();
            if let Some(reason) = self.lost.get() {
                return reason.clone();
            }
            noticed.await;
        }
    }

    /// Notes that tensors on the disk are lost. Tensors in memory cannot be lost.
    fn lose(&self, reason: &str) {
        if let Source::Disk(_) = self.source {
            tracing::error!(%reason, "the inputs of a durable task are lost");
            let _ = self.lost.set(reason.to_owned());
            self.noticed.notify_waiters();
        }
    }

    fn parts(&self) -> &[Bytes] {
        match &self.source {
            Source::Memory(parts) => parts,
            Source::Disk(_) => &[],
        }
    }
}

fn total(parts: &[Bytes]) -> u64 {
    parts.iter().map(|part| u64::try_from(part.len()).unwrap_or(u64::MAX)).sum()
}

/// Hashes a chunk away from the threads that serve connections.
async fn hashed(mut hash: Sha256, chunk: Bytes) -> Result<Sha256> {
    let hashing = tokio::task::spawn_blocking(move || {
        hash.update(&chunk);
        hash
    });
    hashing.await.map_err(wire::lost)
}
