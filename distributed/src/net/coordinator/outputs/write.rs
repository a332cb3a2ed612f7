//! Writes outputs, and tells the core.

use super::Outputs;
use crate::error::{Error, Result};
use crate::net::coordinator::core_handle::CoreHandle;
use crate::net::transfer::blobs::{BlobStore, Claim};
use crate::net::transfer::tensors::Large;
use crate::proto::image::Apart;
use lgp_memory::NamedTensor;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Outputs {
    /// Begins to write outputs; the core hears the result.
    pub(in crate::net::coordinator) fn begin(
        &mut self,
        shared: &Arc<CoreHandle>,
        seq: u64,
        outputs: Vec<NamedTensor>,
    ) {
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
}

async fn write(
    blob_store: Option<Arc<BlobStore>>,
    outputs: &[NamedTensor],
) -> Result<(Apart, Claim)> {
    let blob_store = blob_store.ok_or(Error::NoJournal)?;
    let (large, claim) = Large::in_memory(outputs)?.store(&blob_store).await?;
    Ok((large.apart().ok_or(Error::Stopped)?, claim))
}
