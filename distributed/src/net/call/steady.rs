//! Long inputs and answers, in pieces that must each arrive in time: a peer that makes progress has
//! all the time that it needs, and one that makes none is dropped.

use crate::error::Result;
use crate::net::transport::wire;
use bytes::Bytes;
use quinn::{RecvStream, SendStream};
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of a piece, and the time for one to come: 6.4 KiB/s are enough.
const PIECE_BYTES: usize = 64 << 10;
const STALLED: Duration = Duration::from_secs(10);

/// Fills a buffer.
pub(super) async fn fill(recv: &mut RecvStream, buffer: &mut [u8]) -> Result<()> {
    for piece in buffer.chunks_mut(PIECE_BYTES) {
        let filled = timeout(STALLED, wire::fill(recv, piece)).await;
        filled.map_err(|_| wire::lost(format!("too little came for {STALLED:?}")))??;
    }
    Ok(())
}

/// Writes bytes.
pub(super) async fn write(send: &mut SendStream, mut bytes: Bytes) -> Result<()> {
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
        wire::taken(send.write_chunk(piece)).await?;
    }
    Ok(())
}
