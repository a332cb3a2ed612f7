//! Files by digest are read, in parts or whole, and compared with what they should be.

use super::{BlobStore, key, reason};
use crate::error::Result;
use crate::proto::image::Apart;
use crate::proto::message::TensorBlob;
use crate::proto::tensors::plan;
use bytes::Bytes;
use lgp_memory::NamedTensor;
use object_store::ObjectStoreExt;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a file was not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is not there, or not what it was: nobody can have its bytes any more.
    Lost(String),
    /// The system could not, which may pass.
    Failed(String),
}

impl BlobStore {
    /// Reads so many bytes from an offset on, of a run that should have them.
    ///
    /// # Errors
    /// [`Unread`], with a text that says what is wrong with the file.
    pub(crate) async fn read(
        &self,
        blob: TensorBlob,
        at: u64,
        count: u64,
    ) -> Result<Bytes, Unread> {
        if at == 0 {
            self.measure(blob).await?;
        }
        let key = key(blob.sha256);
        let what = match self.store.get_range(&key, at..at.saturating_add(count)).await {
            Ok(bytes) if u64::try_from(bytes.len()) == Ok(count) => return Ok(bytes),
            Ok(bytes) => format!("{} of {count} bytes were read", bytes.len()),
            Err(error) => reason(&error),
        };
        // A file that went or shrank in the meantime is lost, whatever the error says.
        self.measure(blob).await?;
        Err(Unread::Failed(self.blame(blob, &what)))
    }

    /// Reads all of a run, as the tensors that it is.
    ///
    /// # Errors
    /// As [`BlobStore::read`].
    pub(crate) async fn load(self: &Arc<Self>, apart: Apart) -> Result<Vec<NamedTensor>, Unread> {
        // Before memory is taken for it.
        self.measure(apart.blob).await?;
        let (blob, path) = (apart.blob, self.path(apart.blob));
        let reading = self.runtime.spawn_blocking(move || read_tensors(&path, &apart));
        let failed = |what: &str| Unread::Failed(self.blame(blob, what));
        match reading.await.map_err(|_| failed("nothing reads any more"))? {
            Ok(Ok(tensors)) => Ok(tensors),
            Ok(Err(what)) => Err(Unread::Lost(self.blame(blob, &what))),
            Err(error) => {
                self.measure(blob).await?;
                Err(failed(&error.to_string()))
            }
        }
    }

    fn path(&self, blob: TensorBlob) -> PathBuf {
        self.folder.join(hex::encode(blob.sha256))
    }

    /// Looks whether the file is there and has its length.
    async fn measure(&self, blob: TensorBlob) -> Result<(), Unread> {
        match self.store.head(&key(blob.sha256)).await {
            Ok(found) if found.size == blob.bytes => Ok(()),
            Ok(found) => {
                let what = format!("it has {} bytes, expected {}", found.size, blob.bytes);
                Err(Unread::Lost(self.blame(blob, &what)))
            }
            Err(error @ object_store::Error::NotFound { .. }) => {
                Err(Unread::Lost(self.blame(blob, &reason(&error))))
            }
            Err(error) => Err(Unread::Failed(self.blame(blob, &reason(&error)))),
        }
    }

    /// What is wrong with the file of a run.
    pub(crate) fn blame(&self, blob: TensorBlob, what: &str) -> String {
        let path = self.path(blob);
        format!("the task's tensors in {} cannot be used: {what}", path.display())
    }
}

/// Reads a run of bytes as tensors, or says what is wrong with it. Its length is known to be right.
fn read_tensors(path: &Path, apart: &Apart) -> io::Result<Result<Vec<NamedTensor>, String>> {
    let mut file = File::open(path)?;
    let length = usize::try_from(apart.blob.bytes).map_err(io::Error::other)?;
    let planned = plan(apart.tensors.clone(), length).map_err(io::Error::other)?;
    let mut hash = Sha256::new();
    let mut tensors = Vec::with_capacity(planned.len());
    for planned in planned {
        let mut buffer = planned.buffer().map_err(io::Error::other)?;
        file.read_exact(&mut buffer)?;
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
