//! The coordinator's side: what workers may ask for now.

use super::{Answer, CHUNK_BYTES, Large, Source, hashed, total};
use crate::error::Result;
use crate::net::{ask, wire};
use crate::proto::message::InputBlob;
use bytes::Bytes;
use quinn::SendStream;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are read from the disk at a time.
const READ_BYTES: u64 = 1 << 20;

/// The runs of bytes that attempts under way need, by digest.
#[derive(Default)]
pub(in crate::net) struct Offers(Mutex<HashMap<[u8; 32], Offered>>);

struct Offered {
    large: Arc<Large>,
    /// Attempts that need it.
    wanted: usize,
}

/// Holds as long as its attempt.
pub(in crate::net) struct Offer {
    offers: Arc<Offers>,
    pub(in crate::net) blob: InputBlob,
}

impl Drop for Offer {
    fn drop(&mut self) {
        let mut offers = self.offers.lock();
        if let Some(offered) = offers.get_mut(&self.blob.sha256) {
            offered.wanted -= 1;
            if offered.wanted == 0 {
                offers.remove(&self.blob.sha256);
            }
        }
    }
}

impl Offers {
    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Offered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers a task's inputs for as long as the answer lives.
    pub(in crate::net) async fn offer(self: &Arc<Self>, large: &Arc<Large>) -> Result<Offer> {
        let blob = large.blob().await?;
        let offered = || Offered { large: Arc::clone(large), wanted: 0 };
        self.lock().entry(blob.sha256).or_insert_with(offered).wanted += 1;
        Ok(Offer { offers: Arc::clone(self), blob })
    }
}

/// Answers a question for inputs.
pub(in crate::net) async fn send(
    offers: &Offers,
    sha256: [u8; 32],
    offset: u64,
    mut send: SendStream,
) -> Result<()> {
    // Tasks and their answers go first.
    let _ = send.set_priority(-1);
    let large = offers.lock().get(&sha256).map(|offered| Arc::clone(&offered.large));
    let Some(large) = large else {
        wire::taken(ask::write(&mut send, &Answer::Unknown)).await?;
        return send.finish().map_err(wire::lost);
    };
    match &large.source {
        Source::Memory(parts) => send_parts(parts, offset, &mut send).await?,
        Source::Disk(_) => send_file(&large, offset, &mut send).await?,
    }
    send.finish().map_err(wire::lost)
}

async fn send_parts(parts: &[Bytes], offset: u64, send: &mut SendStream) -> Result<()> {
    wire::taken(ask::write(send, &Answer::Found(total(parts)))).await?;
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

/// Sends a run from the disk. A file that is not what it was ends its tasks: nobody else has the
/// bytes. Damage shows where a run was sent from its beginning; a worker whose transfer was pieced
/// together asks for that when the digest is not right.
async fn send_file(large: &Large, offset: u64, send: &mut SendStream) -> Result<()> {
    let (Source::Disk(vault), blob) = (&large.source, large.blob().await?) else { return Ok(()) };
    let lose = |what: String| {
        large.lose(&what);
        wire::lost(what)
    };
    wire::taken(ask::write(send, &Answer::Found(blob.bytes))).await?;
    let mut at = offset;
    let mut hash = (offset == 0).then(Sha256::new);
    while at < blob.bytes {
        let count = READ_BYTES.min(blob.bytes.saturating_sub(at));
        let chunk = vault.read(blob, at, count).await.map_err(lose)?;
        at = at.saturating_add(count);
        if let Some(so_far) = hash.take() {
            hash = Some(hashed(so_far, chunk.clone()).await?);
        }
        if at == blob.bytes
            && let Some(whole) = hash.take()
            && <[u8; 32]>::from(whole.finalize()) != blob.sha256
        {
            return Err(lose(vault.blame(blob, "its bytes have another digest than its name")));
        }
        send_chunks(chunk, send).await?;
    }
    Ok(())
}
