//! Writes a blob: whole or not at all.

use super::{BlobStore, Place, names};
use crate::error::{Error, Result};
use crate::proto::message::TensorBlob;
use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::task::JoinSet;

/// Bytes that are sent to a shared store in one request, so that requests have bounded times; 5 MiB
/// are the least that S3 takes as a part of several.
pub(super) const PIECE_BYTES: usize = 8 << 20;
/// Pieces of one blob that are on their way at the same time.
const PIECES_AT_ONCE: usize = 4;

impl BlobStore {
    /// Writes a blob under a name of its own.
    ///
    /// # Errors
    /// [`Error::NotSaved`]. A file that is left is removed when no task needs the digest.
    pub(super) async fn write(&self, blob: TensorBlob, parts: Vec<Bytes>) -> Result<()> {
        let name = match &self.place {
            Place::Folder(_) => names::of(blob.sha256),
            Place::Shared { names, .. } => names.fresh(blob.sha256),
        };
        let note = |whole| {
            let mut state = self.lock();
            state.users.entry(blob.sha256).or_default().copies.add(name.clone(), whole);
        };
        // Noted before anything is sent: a lost answer leaves a file that must be removed.
        note(false);
        let written = match &self.place {
            Place::Folder(_) => {
                let payload: PutPayload = parts.into_iter().collect();
                self.store.put(&name, payload).await.map(drop)
            }
            Place::Shared { .. } => upload(&*self.store, &name, parts, &self.keeps_all).await,
        };
        match written {
            Ok(()) => {
                note(true);
                Ok(())
            }
            Err(error) => Err(Error::NotSaved { reason: self.explain(&error) }),
        }
    }
}

/// Writes to a shared store; `ended` stops it between two pieces.
async fn upload(
    store: &dyn ObjectStore,
    name: &Key,
    parts: Vec<Bytes>,
    ended: &AtomicBool,
) -> object_store::Result<()> {
    let mut pieces = pieces(parts);
    if pieces.len() <= 1 {
        return store.put(name, pieces.pop().unwrap_or_default()).await.map(drop);
    }
    let mut upload = store.put_multipart(name).await?;
    let complete = match send(&mut *upload, pieces, ended).await {
        Ok(()) => upload.complete().await.map(drop),
        Err(error) => Err(error),
    };
    if complete.is_err()
        && let Err(error) = upload.abort().await
    {
        tracing::debug!(%error, "parts of an upload that failed may be left");
    }
    complete
}

async fn send(
    upload: &mut dyn MultipartUpload,
    pieces: Vec<PutPayload>,
    ended: &AtomicBool,
) -> object_store::Result<()> {
    let failed = |source| object_store::Error::Generic { store: "upload", source };
    let mut under_way = JoinSet::new();
    for piece in pieces {
        if ended.load(Relaxed) {
            return Err(failed("the coordinator stops".into()));
        }
        if under_way.len() >= PIECES_AT_ONCE
            && let Some(sent) = under_way.join_next().await
        {
            sent.map_err(|error| failed(error.into()))??;
        }
        under_way.spawn(upload.put_part(piece));
    }
    while let Some(sent) = under_way.join_next().await {
        sent.map_err(|error| failed(error.into()))??;
    }
    Ok(())
}

/// The bytes in pieces of [`PIECE_BYTES`], the last one with the rest. None are copied.
fn pieces(parts: Vec<Bytes>) -> Vec<PutPayload> {
    let (mut pieces, mut piece, mut room) = (Vec::new(), Vec::new(), PIECE_BYTES);
    for mut part in parts {
        while !part.is_empty() {
            let taken = part.split_to(part.len().min(room));
            room -= taken.len();
            piece.push(taken);
            if room == 0 {
                pieces.push(std::mem::take(&mut piece).into_iter().collect());
                room = PIECE_BYTES;
            }
        }
    }
    if !piece.is_empty() {
        pieces.push(piece.into_iter().collect());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_full_but_for_the_last() {
        let whole = Bytes::from((0..PIECE_BYTES * 2 + 5).map(|at| at as u8).collect::<Vec<_>>());
        for cuts in [vec![], vec![3], vec![PIECE_BYTES], vec![1, PIECE_BYTES + 7, PIECE_BYTES * 2]]
        {
            let (mut parts, mut from) = (Vec::new(), 0);
            for cut in cuts.into_iter().chain([whole.len()]) {
                parts.push(whole.slice(from..cut));
                from = cut;
            }
            let pieces = pieces(parts);
            let lengths: Vec<usize> = pieces.iter().map(PutPayload::content_length).collect();
            assert_eq!(lengths, [PIECE_BYTES, PIECE_BYTES, 5]);
            let together: Vec<u8> = pieces.into_iter().flatten().flatten().collect();
            assert!(together == whole);
        }
        assert!(pieces(vec![Bytes::new()]).is_empty());
    }
}
