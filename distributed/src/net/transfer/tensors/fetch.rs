//! Asks for tensors, collects and checks them: a worker inputs, a coordinator outputs.

use super::{Answer, CHUNK_BYTES};
use crate::error::{Error, Result};
use crate::net::transport::rpc::{self, Ask};
use crate::net::transport::wire;
use crate::proto::message::{Kind, TensorBlob, TensorRange};
use crate::proto::tensors::Planned;
use lgp_memory::{Buffer, NamedTensor};
use quinn::{Connection, RecvStream};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Time without a byte after which a transfer is given up.
const STALLED: Duration = Duration::from_secs(10);
/// Attempts on one connection, and the wait between them.
const ATTEMPTS: u32 = 3;
const WAIT: Duration = Duration::from_millis(200);
/// How long the beginning of a broken transfer is kept for the next attempt.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The unit of room, in bytes.
const UNIT_BYTES: u64 = 1 << 20;

/// The large tensors that are held here, and the beginnings of broken transfers. It outlives
/// connections.
pub(crate) struct TensorCache {
    bytes_max: u64,
    /// Room for the tensors of tasks that are held, in units.
    room: Arc<Semaphore>,
    partial: Mutex<Vec<Partial>>,
    /// Permits for transfers: more transfers would only share the same links, and memory.
    places: Semaphore,
}

/// The side that has the bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer<'a> {
    /// Has a task's inputs.
    Coordinator(&'a Connection),
    /// Has an attempt's outputs.
    Worker(&'a Connection),
}

impl Peer<'_> {
    fn connection(&self) -> &Connection {
        let (Self::Coordinator(connection) | Self::Worker(connection)) = self;
        connection
    }

    fn what(self) -> &'static str {
        match self {
            Self::Coordinator(_) => "inputs",
            Self::Worker(_) => "outputs",
        }
    }

    /// Asks for bytes; the answer comes with them.
    async fn ask(self, range: TensorRange) -> Result<RecvStream> {
        let (mut send, recv) = self.connection().open_bi().await.map_err(wire::lost)?;
        match self {
            Self::Coordinator(_) => rpc::write(&mut send, &Ask::Tensors(range)).await?,
            Self::Worker(_) => wire::write_report(&mut send, Kind::Fetch, &range).await?,
        }
        send.finish().map_err(wire::lost)?;
        Ok(recv)
    }
}

/// The beginning of a run.
struct Partial {
    blob: TensorBlob,
    buffer: Buffer,
    filled: usize,
    since: Instant,
}

/// The tensors of a task, and their room, which must be kept as long as they are.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) tensors: Vec<NamedTensor>,
    pub(crate) room: OwnedSemaphorePermit,
}

/// A run that is being collected. Unless it is taken, dropping this keeps its beginning.
struct Held<'a> {
    input_cache: &'a TensorCache,
    partial: Option<Partial>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let partial = self.partial.take().filter(|partial| partial.filled > 0);
        if let Some(partial) = partial {
            self.input_cache.put(Partial { since: Instant::now(), ..partial });
        }
    }
}

impl TensorCache {
    /// The tensors of one task may take at most `bytes_max`, and so may those of all held tasks,
    /// and the kept beginnings. At most `transfers` transfers go on at a time.
    pub(crate) fn new(bytes_max: u64, transfers: usize) -> Self {
        let units = usize::try_from(units(bytes_max)).unwrap_or(usize::MAX);
        let room = Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS)));
        Self { bytes_max, room, partial: Mutex::default(), places: Semaphore::new(transfers) }
    }

    /// Drops beginnings that no attempt continued in time.
    pub(crate) fn tidy(&self) {
        self.lock().retain(|old| old.since.elapsed() < KEPT_FOR);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Partial>> {
        self.partial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, partial: Partial) {
        let mut kept = self.lock();
        kept.retain(|old| old.since.elapsed() < KEPT_FOR);
        kept.push(partial);
        let bytes = |kept: &[Partial]| kept.iter().map(|old| old.blob.bytes).sum::<u64>();
        while bytes(&kept) > self.bytes_max {
            // The oldest beginnings go first.
            kept.remove(0);
        }
    }

    /// The kept beginning of a run, or an empty one.
    fn hold(&self, blob: TensorBlob) -> Result<Held<'_>> {
        let mut kept = self.lock();
        kept.retain(|old| old.since.elapsed() < KEPT_FOR);
        let found = kept.iter().position(|old| old.blob == blob);
        let partial = match found {
            Some(at) => kept.swap_remove(at),
            None => {
                // The system backs it with memory only as it is filled.
                let buffer = Buffer::zeroed(usize::try_from(blob.bytes).map_err(wire::lost)?)?;
                Partial { blob, buffer, filled: 0, since: Instant::now() }
            }
        };
        Ok(Held { input_cache: self, partial: Some(partial) })
    }

    /// Fetches the tensors of a task, which take as many bytes as `planned` has, once there is room
    /// for them. If dropped early, keeps the received bytes for the next attempt.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::Connection`] where the peer lacks them or the transfer broke.
    pub(crate) async fn fetch(
        &self,
        peer: Peer<'_>,
        blob: TensorBlob,
        planned: Vec<Planned>,
    ) -> Result<Fetched> {
        if blob.bytes > self.bytes_max {
            let limit = usize::try_from(self.bytes_max).unwrap_or(usize::MAX);
            let given = usize::try_from(blob.bytes).unwrap_or(usize::MAX);
            return Err(Error::TooLarge { what: peer.what(), given, limit });
        }
        let needed = u32::try_from(units(blob.bytes)).map_err(wire::lost)?;
        let room = Arc::clone(&self.room).acquire_many_owned(needed).await.map_err(wire::lost)?;
        let _place = self.places.acquire().await.map_err(wire::lost)?;
        let mut held = self.hold(blob)?;
        let mut attempt = 1;
        loop {
            let fetched = match collect(peer, &mut held).await {
                Ok(()) => check(&mut held).await,
                Err(error) => Err(error),
            };
            match fetched {
                Ok(buffer) => {
                    let tensors = split(buffer, planned).await?;
                    return Ok(Fetched { tensors, room });
                }
                Err(error) if attempt == ATTEMPTS || peer.connection().close_reason().is_some() => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(%error, "a transfer of tensors broke; going on with it");
                }
            }
            attempt += 1;
            tokio::time::sleep(WAIT).await;
        }
    }
}

fn units(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT_BYTES)
}

/// Receives the missing bytes.
async fn collect(peer: Peer<'_>, held: &mut Held<'_>) -> Result<()> {
    let blob = match &held.partial {
        Some(partial) => partial.blob,
        None => return Err(wire::lost("nothing is held")),
    };
    let Some(Partial { buffer, filled, .. }) = &mut held.partial else {
        return Err(wire::lost("nothing is held"));
    };
    let offset = u64::try_from(*filled).map_err(wire::lost)?;
    let mut recv = peer.ask(TensorRange { sha256: blob.sha256, offset }).await?;
    let answer = tokio::time::timeout(STALLED, rpc::read(&mut recv)).await;
    match answer.map_err(|_| wire::lost("no answer came"))?? {
        Answer::Found(bytes) if bytes == blob.bytes => {}
        Answer::Found(bytes) => {
            let what = format!("tensors of {bytes} bytes were offered, expected {}", blob.bytes);
            return Err(wire::lost(what));
        }
        Answer::Unknown => {
            return Err(wire::lost(format!("the other side has no such {} any more", peer.what())));
        }
    }
    while let Some(missing) = buffer.get_mut(*filled..).filter(|missing| !missing.is_empty()) {
        let limit = missing.len().min(CHUNK_BYTES);
        let chunk = tokio::time::timeout(STALLED, recv.read_chunk(limit, true)).await;
        let chunk = chunk.map_err(|_| wire::lost(format!("no byte came for {STALLED:?}")))?;
        let early = || wire::lost(format!("the stream ended {} bytes early", missing.len()));
        let bytes = chunk.map_err(wire::lost)?.ok_or_else(early)?.bytes;
        // No chunk is longer than the limit.
        let (here, _) = missing.split_at_mut(bytes.len().min(limit));
        here.copy_from_slice(&bytes);
        *filled += bytes.len();
    }
    Ok(())
}

/// Takes the run if it has its digest; otherwise it is begun anew.
async fn check(held: &mut Held<'_>) -> Result<Buffer> {
    let Some(partial) = held.partial.take() else { return Err(wire::lost("nothing is held")) };
    let hashing = tokio::task::spawn_blocking(move || {
        let digest: [u8; 32] = Sha256::digest(&*partial.buffer).into();
        (digest, partial)
    });
    let (digest, partial) = hashing.await.map_err(wire::lost)?;
    if digest == partial.blob.sha256 {
        return Ok(partial.buffer);
    }
    held.partial = Some(Partial { filled: 0, ..partial });
    Err(wire::lost("tensors came with another digest than was announced"))
}

/// Makes tensors of a run.
async fn split(run: Buffer, planned: Vec<Planned>) -> Result<Vec<NamedTensor>> {
    let splitting = tokio::task::spawn_blocking(move || {
        let planned = match <[Planned; 1]>::try_from(planned) {
            // The run is the only tensor.
            Ok([only]) => return Ok(vec![only.finish(run)?]),
            Err(several) => several,
        };
        let mut rest: &[u8] = &run;
        let mut tensors = Vec::with_capacity(planned.len());
        for planned in planned {
            let short = || wire::lost("tensors are shorter than their descriptions");
            let (mine, others) = rest.split_at_checked(planned.bytes).ok_or_else(short)?;
            let mut buffer = planned.buffer()?;
            buffer.copy_from_slice(mine);
            tensors.push(planned.finish(buffer)?);
            rest = others;
        }
        Ok(tensors)
    });
    splitting.await.map_err(wire::lost)?
}
