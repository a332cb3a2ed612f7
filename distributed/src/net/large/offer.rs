//! The coordinator's side: what workers may ask for now.

use super::{Answer, CHUNK_BYTES};
use crate::error::Result;
use crate::net::{ask, wire};
use crate::proto::message::InputBlob;
use crate::proto::tensors::share;
use crate::task::TaskSpec;
use bytes::Bytes;
use quinn::SendStream;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The runs of bytes that attempts under way need, by digest.
#[derive(Default)]
pub(in crate::net) struct Offers(Mutex<HashMap<[u8; 32], Offered>>);

struct Offered {
    /// One part per tensor, shared with it.
    parts: Vec<Bytes>,
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
    pub(in crate::net) async fn offer(self: &Arc<Self>, spec: &Arc<TaskSpec>) -> Result<Offer> {
        let parts: Vec<Bytes> = spec.inputs.iter().map(|input| share(&input.tensor)).collect();
        let hashing = tokio::task::spawn_blocking(move || {
            let mut hash = Sha256::new();
            parts.iter().for_each(|part| hash.update(part));
            (<[u8; 32]>::from(hash.finalize()), parts)
        });
        let (sha256, parts) = hashing.await.map_err(wire::lost)?;
        let blob = InputBlob { sha256, bytes: total(&parts) };
        let offered = || Offered { parts, wanted: 0 };
        self.lock().entry(sha256).or_insert_with(offered).wanted += 1;
        Ok(Offer { offers: Arc::clone(self), blob })
    }
}

fn total(parts: &[Bytes]) -> u64 {
    parts.iter().map(|part| u64::try_from(part.len()).unwrap_or(u64::MAX)).sum()
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
    let parts = offers.lock().get(&sha256).map(|offered| offered.parts.clone());
    let Some(parts) = parts else {
        wire::taken(ask::write(&mut send, &Answer::Unknown)).await?;
        return send.finish().map_err(wire::lost);
    };
    wire::taken(ask::write(&mut send, &Answer::Found(total(&parts)))).await?;
    let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
    for mut part in parts {
        let skipped = skip.min(part.len());
        skip -= skipped;
        drop(part.split_to(skipped));
        while !part.is_empty() {
            let chunk = part.split_to(part.len().min(CHUNK_BYTES));
            wire::taken(send.write_chunk(chunk)).await?;
        }
    }
    send.finish().map_err(wire::lost)
}
