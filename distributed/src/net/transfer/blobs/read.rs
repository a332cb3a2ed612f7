//! Reads files by digest, in parts or whole, and compares them with what they should be.

use super::{BlobStore, Place};
use crate::error::Result;
use crate::proto::image::Apart;
use crate::proto::message::TensorBlob;
use crate::proto::tensors::plan;
use bytes::{Buf, Bytes};
use lgp_memory::NamedTensor;
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Bytes that one request asks of a shared store.
const LOAD_BYTES: u64 = 4 << 20;

/// Why a file was not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// The file is missing, or has changed: its bytes are lost.
    Lost(String),
    /// The system could not read the file, which may pass.
    Failed(String),
}

impl BlobStore {
    /// Reads `count` bytes of a blob, from the offset `at` on.
    ///
    /// # Errors
    /// [`Unread`], with a text that says what is wrong with the file.
    pub(crate) async fn read(
        &self,
        blob: TensorBlob,
        at: u64,
        count: u64,
    ) -> Result<Bytes, Unread> {
        let name = match (at, &self.place) {
            (1.., Place::Folder(_)) => super::names::of(blob.sha256),
            (1.., Place::Shared { .. }) => {
                match self.whole_copies(blob.sha256).into_iter().next() {
                    Some(name) => name,
                    None => self.locate(blob).await?,
                }
            }
            (0, _) => self.locate(blob).await?,
        };
        let what = match self.range(&name, at, count).await {
            Ok(bytes) => return Ok(bytes),
            Err(what) => what,
        };
        // A file that went or shrank meanwhile is lost, whatever the error says.
        self.locate(blob).await?;
        Err(Unread::Failed(self.blame(blob, &what)))
    }

    async fn range(&self, name: &Key, at: u64, count: u64) -> Result<Bytes, String> {
        match self.store.get_range(name, at..at.saturating_add(count)).await {
            Ok(bytes) if u64::try_from(bytes.len()) == Ok(count) => Ok(bytes),
            Ok(bytes) => Err(format!("{} of {count} bytes were read", bytes.len())),
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// Reads a whole blob, as the tensors that it holds.
    ///
    /// # Errors
    /// As [`BlobStore::read`].
    pub(crate) async fn load(self: &Arc<Self>, apart: Apart) -> Result<Vec<NamedTensor>, Unread> {
        let blob = apart.blob;
        // Located before memory is taken for it.
        let name = self.locate(blob).await?;
        let (read, broke) = match &self.place {
            Place::Folder(folder) => {
                let path = folder.join(hex::encode(blob.sha256));
                let open = move || read_tensors(&mut File::open(path)?, &apart);
                (self.runtime.spawn_blocking(open).await, None)
            }
            Place::Shared { .. } => {
                let (sender, receiver) = mpsc::channel(1);
                let mut pieces = Pieces { receiver, rest: Bytes::new() };
                let reading =
                    self.runtime.spawn_blocking(move || read_tensors(&mut pieces, &apart));
                let broke = self.fetch(&name, blob.bytes, sender).await.err();
                (reading.await, broke)
            }
        };
        let failed = |what: &str| Unread::Failed(self.blame(blob, what));
        match read.map_err(|_| failed("nothing reads any more"))? {
            Ok(Ok(tensors)) => Ok(tensors),
            Ok(Err(what)) => Err(Unread::Lost(self.blame(blob, &what))),
            Err(error) => {
                self.locate(blob).await?;
                Err(failed(&broke.unwrap_or_else(|| error.to_string())))
            }
        }
    }

    /// Sends a whole file on in pieces, until the receiver is gone, or says why it cannot.
    async fn fetch(
        &self,
        name: &Key,
        bytes: u64,
        sender: mpsc::Sender<Bytes>,
    ) -> Result<(), String> {
        let mut at = 0;
        while at < bytes {
            let count = LOAD_BYTES.min(bytes - at);
            if sender.send(self.range(name, at, count).await?).await.is_err() {
                return Ok(());
            }
            at += count;
        }
        Ok(())
    }

    /// Says what is wrong with the file of a blob.
    pub(crate) fn blame(&self, blob: TensorBlob, what: &str) -> String {
        let path = PathBuf::from(self.label()).join(hex::encode(blob.sha256));
        format!("the task's tensors in {} cannot be used: {what}", path.display())
    }
}

/// Pieces as they arrive, read by a thread that may wait.
struct Pieces {
    receiver: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.rest = piece,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.rest.len());
        let (Some(to), Some(from)) = (buffer.get_mut(..count), self.rest.get(..count)) else {
            return Ok(0);
        };
        to.copy_from_slice(from);
        self.rest.advance(count);
        Ok(count)
    }
}

/// Reads a run of bytes as tensors, or says what is wrong with it. Its length was checked.
fn read_tensors(
    source: &mut impl Read,
    apart: &Apart,
) -> io::Result<Result<Vec<NamedTensor>, String>> {
    let length = usize::try_from(apart.blob.bytes).map_err(io::Error::other)?;
    let planned = plan(apart.tensors.clone(), length).map_err(io::Error::other)?;
    let mut hash = Sha256::new();
    let mut tensors = Vec::with_capacity(planned.len());
    for planned in planned {
        let mut buffer = planned.buffer().map_err(io::Error::other)?;
        source.read_exact(&mut buffer)?;
        hash.update(&*buffer);
        match planned.finish(buffer) {
            Ok(tensor) => tensors.push(tensor),
            Err(error) => return Ok(Err(error.to_string())),
        }
    }
    match <[u8; 32]>::from(hash.finalize()) == apart.blob.sha256 {
        true => Ok(Ok(tensors)),
        false => Ok(Err("its bytes have another digest than its name".into())),
    }
}
