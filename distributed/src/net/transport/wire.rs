//! Frames on QUIC streams.

mod lost;

pub use lost::lost;

use crate::error::{Error, Result};
use crate::net::transport::shared_memory::SharedMemory;
use crate::proto::frame::{self, FrameError, PREFIX_BYTES, Prefix};
use crate::proto::message::{AttemptId, Kind, SharedBody, TensorMeta};
use crate::proto::tensors::{plan, share};
use bytes::Bytes;
use lgp_memory::NamedTensor;
use quinn::{ReadExactError, RecvStream, SendStream};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Bodies up to this size are copied behind their header: cheaper than sharing them.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// Most bytes that the first read of a task's or an answer's stream takes.
const FIRST_READ_BYTES: usize = 64 << 10;

fn truncated(given: usize, expected: usize) -> Error {
    FrameError::Truncated { given, expected }.into()
}

pub(crate) async fn fill(recv: &mut RecvStream, buffer: &mut [u8]) -> Result<()> {
    let expected = buffer.len();
    recv.read_exact(buffer).await.map_err(|error| match error {
        ReadExactError::FinishedEarly(given) => truncated(given, expected),
        ReadExactError::ReadError(error) => lost(error),
    })
}

/// The next frame of a long-lived stream. Such frames have no body.
pub(crate) async fn read_report(recv: &mut RecvStream) -> Result<(Kind, Vec<u8>)> {
    let mut start = [0; PREFIX_BYTES];
    match fill(recv, &mut start).await {
        // An end between two frames is no truncation.
        Err(Error::Frame(FrameError::Truncated { given: 0, .. })) => {
            return Err(lost("the peer ended its stream"));
        }
        filled => filled?,
    }
    let prefix = Prefix::decode(&start)?;
    if prefix.body_bytes > 0 {
        let given = prefix.body_bytes;
        return Err(FrameError::TooLong { what: "body of a report", given, limit: 0 }.into());
    }
    let mut header = vec![0; prefix.header_bytes];
    fill(recv, &mut header).await?;
    Ok((prefix.kind, header))
}

/// The next frame of a long-lived stream, which must be of one kind.
pub(crate) async fn expect_report<T: DeserializeOwned>(
    recv: &mut RecvStream,
    kind: Kind,
    expected: &'static str,
) -> Result<T> {
    let (given, header) = read_report(recv).await?;
    if given != kind {
        let given = format!("{given:?}").to_lowercase();
        return Err(FrameError::Unexpected { expected, given }.into());
    }
    Ok(frame::decode(kind, &header)?)
}

/// The start of the one frame of a stream: its header, and the part of the body that came along.
pub(crate) struct Start {
    prefix: Prefix,
    header: Bytes,
    body: Bytes,
}

impl Start {
    /// Reads up to the end of the header. Most frames come whole with the first read.
    pub(crate) async fn read(recv: &mut RecvStream) -> Result<Self> {
        let chunk = recv.read_chunk(FIRST_READ_BYTES, true).await.map_err(lost)?;
        let mut bytes = chunk.map(|c| c.bytes).unwrap_or_default();
        if bytes.len() < PREFIX_BYTES {
            bytes = Self::extend(recv, bytes, PREFIX_BYTES).await?;
        }
        let start = bytes.first_chunk().ok_or_else(|| truncated(bytes.len(), PREFIX_BYTES))?;
        let prefix = Prefix::decode(start)?;
        let end = PREFIX_BYTES + prefix.header_bytes;
        if bytes.len() < end {
            bytes = Self::extend(recv, bytes, end).await?;
        }
        let header = bytes.slice(PREFIX_BYTES..end);
        Ok(Self { prefix, header, body: bytes.slice(end..) })
    }

    async fn extend(recv: &mut RecvStream, bytes: Bytes, to: usize) -> Result<Bytes> {
        let mut longer = Vec::from(bytes);
        let from = longer.len();
        longer.resize(to, 0);
        fill(recv, &mut longer[from..]).await?;
        Ok(longer.into())
    }

    /// The type of the frame.
    pub(crate) fn kind(&self) -> Kind {
        self.prefix.kind
    }

    /// The header, which must be of one kind.
    pub(crate) fn header<T: DeserializeOwned>(
        &self,
        kind: Kind,
        expected: &'static str,
    ) -> Result<T> {
        if self.prefix.kind != kind {
            let given = format!("{:?}", self.prefix.kind).to_lowercase();
            return Err(FrameError::Unexpected { expected, given }.into());
        }
        Ok(frame::decode(kind, &self.header)?)
    }

    /// The tensors of an attempt that the header describes, which lie in shared memory or follow.
    pub(crate) async fn tensors_from(
        self,
        shared_memory: &SharedMemory,
        recv: &mut RecvStream,
        id: AttemptId,
        metas: Vec<TensorMeta>,
        shared: Option<SharedBody>,
    ) -> Result<Vec<NamedTensor>> {
        match shared {
            // Boxed, to keep an attempt's future small.
            None => Box::pin(self.tensors(recv, metas)).await,
            Some(body) => {
                self.end()?;
                shared_memory.take(id, body, metas).await
            }
        }
    }

    /// Checks that no body is announced, and that none came with the header.
    pub(crate) fn end(self) -> Result<()> {
        plan(Vec::new(), self.prefix.body_bytes)?;
        nothing_follows(&self.body)
    }

    /// The tensors that the header describes, which follow.
    pub(crate) async fn tensors(
        self,
        recv: &mut RecvStream,
        metas: Vec<TensorMeta>,
    ) -> Result<Vec<NamedTensor>> {
        let mut early = self.body;
        let planned = plan(metas, self.prefix.body_bytes)?;
        let mut tensors = Vec::with_capacity(planned.len());
        for planned in planned {
            let mut buffer = planned.buffer()?;
            let here = early.split_to(early.len().min(buffer.len()));
            buffer[..here.len()].copy_from_slice(&here);
            if here.len() < buffer.len() {
                fill(recv, &mut buffer[here.len()..]).await?;
            }
            tensors.push(planned.finish(buffer)?);
        }
        nothing_follows(&early)?;
        Ok(tensors)
    }
}

fn nothing_follows(rest: &[u8]) -> Result<()> {
    if rest.is_empty() {
        return Ok(());
    }
    let reason = format!("{} bytes follow the frame", rest.len());
    Err(FrameError::Tensors { reason }.into())
}

/// Time in which a peer must take the next piece of what it is sent.
const STALLED: Duration = Duration::from_secs(10);

/// Waits for a write, but not for ever: a peer that does not read must not hold the data back.
pub(crate) async fn taken<T, E: std::fmt::Display>(
    write: impl Future<Output = Result<T, E>>,
) -> Result<T> {
    let written = tokio::time::timeout(STALLED, write).await;
    written.map_err(|_| lost(format!("the peer took nothing for {STALLED:?}")))?.map_err(lost)
}

/// Writes the bytes of tensors whose descriptions went before, without copying them.
pub(crate) async fn write_tensors(send: &mut SendStream, tensors: &[NamedTensor]) -> Result<()> {
    for tensor in tensors {
        send.write_chunk(share(&tensor.tensor)).await.map_err(lost)?;
    }
    Ok(())
}

/// Reads the end of a stream whose frame is complete, so that it closes without a signal.
pub(crate) async fn read_end(recv: &mut RecvStream) {
    let _ = recv.read_chunk(1, true).await;
}

/// Gives a stream priority over the tasks': a heartbeat must not wait behind a long answer.
pub(crate) fn put_first(stream: &SendStream) {
    // Only a stream that has ended refuses.
    let _ = stream.set_priority(1);
}

/// Chunks of a frame: prefix and header, then the tensors' bytes.
pub(crate) fn chunks(
    kind: Kind,
    header: &impl serde::Serialize,
    tensors: &[NamedTensor],
    body_bytes: usize,
) -> Result<Vec<Bytes>, FrameError> {
    let copied = body_bytes <= COPIED_BYTES_MAX;
    let spare = if copied { body_bytes } else { 0 };
    let mut start = frame::encode(kind, header, body_bytes, spare)?;
    if copied {
        for tensor in tensors {
            start.extend_from_slice(&tensor.tensor.packed());
        }
        return Ok(vec![start.into()]);
    }
    let mut chunks = Vec::with_capacity(1 + tensors.len());
    chunks.push(start.into());
    chunks.extend(tensors.iter().map(|t| share(&t.tensor)).filter(|b| !b.is_empty()));
    Ok(chunks)
}

/// Writes a frame without a body.
pub(crate) async fn write_report(
    send: &mut SendStream,
    kind: Kind,
    header: &impl serde::Serialize,
) -> Result<()> {
    let bytes = frame::encode(kind, header, 0, 0)?;
    send.write_all(&bytes).await.map_err(lost)
}
