//! Sends models' files to workers that lack them, by digest, from any offset on.
//!
//! The files of a model follow one another as one run of bytes, whose SHA-256 is the model's
//! digest. The application knows the files of a digest.

mod cache;
mod collect;
mod fetch;

pub use cache::ModelCache;
pub(crate) use fetch::Fetcher;

use crate::error::Result;
use crate::net::transport::rpc;
use crate::net::transport::wire;
use bytes::Bytes;
use quinn::SendStream;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that are read and sent at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Most files of a model, and most bytes of a file's name: their list must fit an answer.
const FILES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 200;

/// The coordinator's side: knows the models that workers may fetch.
pub trait BlobSource: Send + Sync + 'static {
    /// The files of a registered model by its digest (64 lowercase hexadecimal digits), in the order
    /// in which they are hashed; `None` where nothing registered has it.
    ///
    /// # Errors
    /// When the registry cannot be read.
    fn find(&self, sha256: &str) -> io::Result<Option<Vec<BlobFile>>>;
}

/// A file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobFile {
    /// Its place beneath the model's folder, with `/` between folders.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
}

/// One file within a fetched run of bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobPart {
    /// The file's place beneath the model's folder: plain names with `/` between them, none of
    /// which leads elsewhere.
    pub name: String,
    /// Bytes of the file, which follow those of the parts before it.
    pub bytes: u64,
}

/// The response to a request for a blob; on `Found`, the bytes follow.
#[derive(Serialize, Deserialize)]
enum Answer {
    Found(Vec<BlobPart>),
    /// No registered model has the digest.
    Unknown,
    /// The coordinator's log has the reason.
    Failed,
}

/// Whether a text is a digest in the form used here; such a text is no path.
fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn total(parts: &[BlobPart]) -> Option<u64> {
    parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.bytes))
}

/// Responds to a request for a blob.
pub(crate) async fn send(
    source: Option<Arc<dyn BlobSource>>,
    sha256: String,
    offset: u64,
    mut send: SendStream,
) -> Result<()> {
    // Tasks and their answers go first.
    let _ = send.set_priority(-1);
    let opened = tokio::task::spawn_blocking(move || match source {
        Some(source) if is_digest(&sha256) => open(&*source, &sha256),
        _ => Ok(None),
    });
    let (parts, files) = match opened.await.map_err(wire::lost)? {
        Ok(Some(found)) => found,
        Ok(None) => return rpc::respond(&mut send, &Answer::Unknown).await,
        Err(error) => {
            tracing::error!(%error, "a model's files cannot be read");
            return rpc::respond(&mut send, &Answer::Failed).await;
        }
    };
    wire::taken(rpc::write(&mut send, &Answer::Found(parts.clone()))).await?;
    let mut skip = offset;
    for (part, file) in parts.iter().zip(files) {
        let skipped = skip.min(part.bytes);
        skip -= skipped;
        send_file(&mut send, file, skipped, part.bytes - skipped).await?;
    }
    send.finish().map_err(wire::lost)
}

type Opened = (Vec<BlobPart>, Vec<File>);

fn open(source: &dyn BlobSource, sha256: &str) -> io::Result<Option<Opened>> {
    let Some(found) = source.find(sha256)? else { return Ok(None) };
    if found.len() > FILES_MAX || found.iter().any(|file| file.name.len() > NAME_BYTES_MAX) {
        let what = format!(
            "{} files, expected at most {FILES_MAX} with names of up to {NAME_BYTES_MAX} bytes",
            found.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut opened = (Vec::new(), Vec::new());
    for BlobFile { name, path } in found {
        let file = File::open(path)?;
        opened.0.push(BlobPart { name, bytes: file.metadata()?.len() });
        opened.1.push(file);
    }
    Ok(Some(opened))
}

/// Sends so many bytes of a file from an offset on. Files are read on blocking threads.
async fn send_file(send: &mut SendStream, mut file: File, from: u64, bytes: u64) -> Result<()> {
    let mut left = bytes;
    let mut at = Some(from);
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let seek = at.take();
        let read = tokio::task::spawn_blocking(move || -> io::Result<(File, Vec<u8>)> {
            if let Some(at) = seek {
                file.seek(SeekFrom::Start(at))?;
            }
            let mut chunk = vec![0; want];
            // A file that got shorter ends the stream early, which the worker notices.
            file.read_exact(&mut chunk)?;
            Ok((file, chunk))
        });
        let (same, chunk) = read.await.map_err(wire::lost)?.map_err(wire::lost)?;
        file = same;
        left -= u64::try_from(chunk.len()).unwrap_or(u64::MAX).min(left);
        wire::taken(send.write_chunk(Bytes::from(chunk))).await?;
    }
    Ok(())
}
