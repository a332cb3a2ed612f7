//! The worker's side: asks for a model that it lacks, collects and checks it, and hands it over.

use super::collect::Collector;
use super::{Answer, BlobPart, FILES_MAX, ModelCache, NAME_BYTES_MAX, is_digest, total};
use crate::error::Error;
use crate::executor::{ExecError, Executor};
use crate::net::transport::rpc::{self, Ask};
use crate::net::transport::wire;
use crate::task::ModelRef;
use bytes::Bytes;
use quinn::{Connection, RecvStream};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

/// Time without a byte after which a transfer is given up.
const STALLED: Duration = Duration::from_secs(10);
/// Attempts on one connection, and the wait between them. A new connection tries anew.
const ATTEMPTS: u32 = 3;
const WAIT: Duration = Duration::from_millis(500);
/// Most chunks that were received and are not written yet.
const UNWRITTEN_MAX: usize = 16;

/// Fetches models over one connection, one at a time.
pub(crate) struct Fetcher {
    connection: Connection,
    executor: Arc<dyn Executor>,
    turn: Mutex<()>,
}

/// Why a model was not fetched.
enum Failed {
    /// The transfer broke; the received bytes are kept.
    Broken(Error),
    /// Trying again is no use.
    Final(ExecError),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

fn disk(error: &io::Error) -> Failed {
    Failed::Final(ExecError::unavailable(format!("the model's files cannot be kept: {error}")))
}

impl Fetcher {
    pub(crate) fn new(connection: Connection, executor: Arc<dyn Executor>) -> Self {
        Self { connection, executor, turn: Mutex::new(()) }
    }

    /// The connection that it asks on.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Makes sure that the executor has the model's files, if the executor fetches models.
    pub(crate) async fn ensure(&self, model: &ModelRef) -> Result<(), ExecError> {
        match self.lacks(model) {
            None => Ok(()),
            // Boxed, to keep an attempt's future small.
            Some(_) => Box::pin(self.fetch_in_turn(model)).await,
        }
    }

    /// Where to collect the files of a model, if the executor lacks them.
    fn lacks(&self, model: &ModelRef) -> Option<PathBuf> {
        self.executor.cache().and_then(|cache| cache.lacks(model))
    }

    async fn fetch_in_turn(&self, model: &ModelRef) -> Result<(), ExecError> {
        let _turn = self.turn.lock().await;
        let mut attempt = 1;
        loop {
            // The fetch that had the turn before may have brought it.
            let Some(path) = self.lacks(model) else { return Ok(()) };
            match self.fetch(model, path).await {
                Ok(()) => return Ok(()),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Broken(error)) if attempt == ATTEMPTS => {
                    return Err(ExecError::unavailable(format!("model {model}: {error}")));
                }
                Err(Failed::Broken(error)) => {
                    tracing::warn!(%model, %error, "a model's transfer broke; going on with it");
                }
            }
            attempt += 1;
            tokio::time::sleep(WAIT).await;
        }
    }

    async fn fetch(&self, model: &ModelRef, path: PathBuf) -> Result<(), Failed> {
        if !is_digest(&model.sha256) {
            let message = format!("model {model} has no digest to fetch it by");
            return Err(Failed::Final(ExecError::model_not_found(message)));
        }
        let collector = blocking(move || Collector::open(&path)).await?;
        let mut collector = collector.map_err(|error| disk(&error))?;
        let (mut send, mut recv) = self.connection.open_bi().await.map_err(wire::lost)?;
        let offset = collector.bytes();
        let request = Ask::Blob { sha256: model.sha256.clone(), offset };
        rpc::write(&mut send, &request).await?;
        send.finish().map_err(wire::lost)?;
        let answer = tokio::time::timeout(STALLED, rpc::read(&mut recv)).await;
        let parts = match answer.map_err(|_| wire::lost("no answer came"))?? {
            Answer::Found(parts) => parts,
            Answer::Unknown => {
                let message = format!("the coordinator has no files of model {model}");
                return Err(Failed::Final(ExecError::model_not_found(message)));
            }
            Answer::Failed => return Err(wire::lost("the coordinator cannot read them").into()),
        };
        let bytes = total(&parts).filter(|_| are_plain(&parts)).ok_or_else(|| {
            let message = format!("the coordinator describes the files of model {model} oddly");
            Failed::Final(ExecError::failed(message))
        })?;
        if offset > bytes {
            // The bytes are not of this model: the next attempt begins anew.
            blocking(move || collector.clear()).await?.map_err(|error| disk(&error))?;
            return Err(wire::lost("what was collected is longer than the model").into());
        }
        tracing::info!(%model, bytes, offset, "fetching a model");
        self.make_room(model, bytes - offset).await?;
        collector = receive(&mut recv, collector, bytes).await?;
        self.hand_over(model, collector, parts).await
    }

    async fn make_room(&self, model: &ModelRef, bytes: u64) -> Result<(), Failed> {
        let model = model.clone();
        self.with_cache(move |cache| cache.make_room(&model, bytes)).await
    }

    async fn hand_over(
        &self,
        model: &ModelRef,
        mut collector: Collector,
        parts: Vec<BlobPart>,
    ) -> Result<(), Failed> {
        let model = model.clone();
        let checked = blocking(move || {
            let given = collector.digest()?;
            if given != model.sha256 {
                collector.clear()?;
                return Ok(Err(format!("its digest is {given}, expected {}", model.sha256)));
            }
            Ok(Ok((model, collector)))
        });
        let (model, collector) =
            checked.await?.map_err(|error: io::Error| disk(&error))?.map_err(wire::lost)?;
        self.with_cache(move |cache| cache.keep(&model, collector.path(), &parts)).await
    }

    async fn with_cache(
        &self,
        call: impl FnOnce(&dyn ModelCache) -> Result<(), ExecError> + Send + 'static,
    ) -> Result<(), Failed> {
        let executor = Arc::clone(&self.executor);
        let called = blocking(move || executor.cache().map_or(Ok(()), call));
        called.await?.map_err(Failed::Final)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(wire::lost)
}

/// Receives the rest of a run of `bytes`. A separate thread writes and hashes. When this is
/// dropped, that thread writes the received bytes, and the next attempt continues there.
async fn receive(
    recv: &mut RecvStream,
    mut collector: Collector,
    bytes: u64,
) -> Result<Collector, Failed> {
    let mut left = bytes.saturating_sub(collector.bytes());
    let (chunks, mut queue) = mpsc::channel::<Bytes>(UNWRITTEN_MAX);
    let writer = tokio::task::spawn_blocking(move || -> io::Result<Collector> {
        while let Some(chunk) = queue.blocking_recv() {
            if let Err(error) = collector.add(&chunk) {
                // Free the disk, which may be full.
                let _ = collector.clear();
                return Err(error);
            }
        }
        Ok(collector)
    });
    let mut broken = None;
    while left > 0 {
        let limit = usize::try_from(left).unwrap_or(usize::MAX).min(super::CHUNK_BYTES);
        let chunk = tokio::time::timeout(STALLED, recv.read_chunk(limit, true)).await;
        let chunk = match chunk {
            Ok(Ok(Some(chunk))) => chunk.bytes,
            Ok(Ok(None)) => {
                broken = Some(wire::lost(format!("the stream ended {left} bytes early")));
                break;
            }
            Ok(Err(error)) => {
                broken = Some(wire::lost(error));
                break;
            }
            Err(_) => {
                broken = Some(wire::lost(format!("no byte came for {STALLED:?}")));
                break;
            }
        };
        left -= u64::try_from(chunk.len()).unwrap_or(u64::MAX).min(left);
        if chunks.send(chunk).await.is_err() {
            // The writer has failed, and reports why.
            break;
        }
    }
    drop(chunks);
    let collector = writer.await.map_err(wire::lost)?.map_err(|error| disk(&error))?;
    broken.map_or(Ok(collector), |error| Err(error.into()))
}

/// Whether the parts' names stay beneath a folder, and differ.
fn are_plain(parts: &[BlobPart]) -> bool {
    let plain = |part: &BlobPart| {
        (1..=NAME_BYTES_MAX).contains(&part.name.len())
            // A backslash separates folders elsewhere, and a colon names drives.
            && !part.name.contains(['\\', ':', '\0'])
            && part.name.split('/').all(|name| !matches!(name, "" | "." | ".."))
    };
    let names: BTreeSet<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    (1..=FILES_MAX).contains(&parts.len()) && names.len() == parts.len() && parts.iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let parts = |names: &[&str]| -> Vec<BlobPart> {
            let part = |name: &&str| BlobPart { name: (*name).to_owned(), bytes: 1 };
            names.iter().map(part).collect()
        };
        for good in [&["model.onnx"][..], &["model.onnx", "weights/w.bin"], &["..a", ".b"]] {
            assert!(are_plain(&parts(good)), "{good:?}");
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for bad in [
            &[][..],
            &[""],
            &["/etc/passwd"],
            &[".."],
            &["a/../b"],
            &["./a"],
            &["a/./b"],
            &["a//b"],
            &["a/"],
            &["a\\b"],
            &["C:a"],
            &["a\0b"],
            &["a", "a"],
            &[long.as_str()],
        ] {
            assert!(!are_plain(&parts(bad)), "{bad:?}");
        }
        let many: Vec<String> = (0..=FILES_MAX).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(!are_plain(&parts(&many)));
        let huge = [u64::MAX, 1].map(|bytes| BlobPart { name: "a".into(), bytes });
        assert_eq!(total(&huge), None);
    }
}
