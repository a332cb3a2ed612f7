//! The side that is asked: the tensors that it offers now.

use super::{Answer, CHUNK_BYTES, Large, Source, hashed, total};
use crate::error::{Error, Result};
use crate::net::transfer::blobs::{BlobStore, Unread};
use crate::net::transport::rpc;
use crate::net::transport::wire;
use crate::proto::message::{TensorBlob, TensorRange};
use bytes::Bytes;
use quinn::SendStream;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are read from the disk at a time.
const READ_BYTES: u64 = 1 << 20;

/// The runs of bytes that attempts under way need, by digest. Tasks with equal inputs have each
/// their own: one of them may end, and its file go, while another needs the bytes.
#[derive(Default)]
pub(crate) struct Offers(Mutex<HashMap<[u8; 32], Vec<Arc<Large>>>>);

/// An offer of tensors, which ends when this is dropped.
pub(crate) struct Offer {
    offers: Arc<Offers>,
    large: Arc<Large>,
    pub(crate) blob: TensorBlob,
}

impl Drop for Offer {
    fn drop(&mut self) {
        let mut offers = self.offers.lock();
        let Some(offered) = offers.get_mut(&self.blob.sha256) else { return };
        // Offers for several attempts at one task are alike.
        if let Some(at) = offered.iter().position(|large| Arc::ptr_eq(large, &self.large)) {
            offered.swap_remove(at);
        }
        if offered.is_empty() {
            offers.remove(&self.blob.sha256);
        }
    }
}

impl Offers {
    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Vec<Arc<Large>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers tensors for as long as the result lives.
    pub(crate) async fn offer(self: &Arc<Self>, large: &Arc<Large>) -> Result<Offer> {
        let blob = large.blob().await?;
        self.lock().entry(blob.sha256).or_default().push(Arc::clone(large));
        Ok(Offer { offers: Arc::clone(self), large: Arc::clone(large), blob })
    }

    /// All tensors that are offered under a digest.
    fn find(&self, sha256: [u8; 32]) -> Vec<Arc<Large>> {
        self.lock().get(&sha256).cloned().unwrap_or_default()
    }
}

/// Responds to a request for tensors.
pub(crate) async fn send(
    offers: &Offers,
    TensorRange { sha256, offset }: TensorRange,
    send: &mut SendStream,
) -> Result<()> {
    // Tasks and their answers go first.
    let _ = send.set_priority(-1);
    let offered = offers.find(sha256);
    let in_memory = offered.iter().find_map(|large| match &large.source {
        Source::Memory(parts) => Some(parts),
        Source::Disk(_) => None,
    });
    let on_disk = offered.iter().find_map(|large| match &large.source {
        Source::Memory(_) => None,
        Source::Disk(blob_store) => Some((blob_store, large)),
    });
    match (in_memory, on_disk) {
        // Tensors in memory cannot be lost.
        (Some(parts), _) => send_parts(parts, offset, send).await?,
        (None, Some((blob_store, large))) => {
            let blob = large.blob().await?;
            if let Err(unread) = send_file(blob_store, blob, offset, send).await? {
                return Err(broken(unread, &offered));
            }
        }
        (None, None) => wire::taken(rpc::write(send, &Answer::Unknown)).await?,
    }
    send.finish().map_err(wire::lost)
}

/// The error for a file that cannot be read. A missing or changed file ends the tasks that need it,
/// because its bytes are nowhere else. After any other failure the worker asks again.
fn broken(unread: Unread, offered: &[Arc<Large>]) -> Error {
    match unread {
        Unread::Lost(what) => {
            offered.iter().for_each(|large| large.lose(&what));
            wire::lost(what)
        }
        Unread::Failed(what) => {
            tracing::warn!(%what, "a transfer of inputs broke");
            wire::lost(what)
        }
    }
}

async fn send_parts(parts: &[Bytes], offset: u64, send: &mut SendStream) -> Result<()> {
    wire::taken(rpc::write(send, &Answer::Found(total(parts)))).await?;
    let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
    for part in parts {
        let skipped = skip.min(part.len());
        skip -= skipped;
        send_chunks(part.slice(skipped..), send).await?;
    }
    Ok(())
}

async fn send_chunks(mut bytes: Bytes, send: &mut SendStream) -> Result<()> {
    while !bytes.is_empty() {
        let chunk = bytes.split_to(bytes.len().min(CHUNK_BYTES));
        wire::taken(send.write_chunk(chunk)).await?;
    }
    Ok(())
}

/// Sends a run from the disk, or says why it cannot be read. Damage shows when a run is sent from
/// its beginning; a worker whose transfer was pieced together asks for that when the digest is
/// wrong.
async fn send_file(
    blob_store: &BlobStore,
    blob: TensorBlob,
    offset: u64,
    send: &mut SendStream,
) -> Result<Result<(), Unread>> {
    wire::taken(rpc::write(send, &Answer::Found(blob.bytes))).await?;
    let mut at = offset;
    let mut hash = (offset == 0).then(Sha256::new);
    while at < blob.bytes {
        let count = READ_BYTES.min(blob.bytes.saturating_sub(at));
        let chunk = match blob_store.read(blob, at, count).await {
            Ok(chunk) => chunk,
            Err(unread) => return Ok(Err(unread)),
        };
        at = at.saturating_add(count);
        if let Some(so_far) = hash.take() {
            hash = Some(hashed(so_far, chunk.clone()).await?);
        }
        if at == blob.bytes
            && let Some(whole) = hash.take()
            && <[u8; 32]>::from(whole.finalize()) != blob.sha256
        {
            let what = blob_store.blame(blob, "its bytes have another digest than its name");
            return Ok(Err(Unread::Lost(what)));
        }
        send_chunks(chunk, send).await?;
    }
    Ok(Ok(()))
}
