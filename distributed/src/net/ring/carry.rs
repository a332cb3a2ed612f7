//! Carries the frames of a pass: sends, receives and computes at the same time.

use super::error::RingError;
use super::links::Links;
use crate::proto::ring::{HEADER_BYTES, Round, Word};
use bytes::Bytes;
use quinn::{ReadError, RecvStream, SendStream, WriteError};
use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A rank's streams, to the next rank and from the one before.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) links: Arc<Links>,
    pub(super) send: SendStream,
    pub(super) recv: RecvStream,
    /// The frame that is being received.
    coming: Vec<u8>,
}

impl Wire {
    pub(super) fn new(links: Arc<Links>, send: SendStream, recv: RecvStream) -> Self {
        Self { links, send, recv, coming: Vec::new() }
    }

    /// Carries out a pass. Fails when nothing moves for `patience`.
    pub(super) async fn carry<W: Word, F: Fn(&[u8], &mut [W])>(
        &mut self,
        mut round: Round<'_, W, F>,
        patience: Duration,
    ) -> Result<(), RingError> {
        let Self { links, send, recv, coming } = self;
        coming.resize(coming.len().max(round.longest()), 0);
        let (mut leaving, mut filled) = (Bytes::new(), 0);
        let mut moved = Instant::now();
        let mut alarm = pin!(sleep_until(moved + patience));
        loop {
            if leaving.is_empty() {
                leaving = round.frame().map(Bytes::from).unwrap_or_default();
            }
            // The header first: a frame of another call may be shorter than the one expected.
            let wanted = round.expected().map(|body| match filled < HEADER_BYTES {
                true => HEADER_BYTES,
                false => HEADER_BYTES + body,
            });
            if leaving.is_empty() && wanted.is_none() {
                return Ok(());
            }
            let room = coming.get_mut(filled..wanted.unwrap_or(filled)).unwrap_or_default();
            tokio::select! {
                written = send.write_chunks(slice::from_mut(&mut leaving)), if !leaving.is_empty() => {
                    written.map_err(|error| unsent(links, &error))?;
                    moved = Instant::now();
                }
                read = recv.read(room), if wanted.is_some() => {
                    filled += read.map_err(|error| unread(links, &error))?.ok_or_else(|| {
                        links.fail(RingError::Left { rank: links.before.0 })
                    })?;
                    moved = Instant::now();
                    taken(links, &mut round, coming, &mut filled)?;
                }
                () = &mut alarm => {
                    let waited = moved.elapsed();
                    if waited >= patience {
                        // With nothing expected, it is the next rank that takes nothing.
                        let rank = if wanted.is_some() { links.before.0 } else { links.next.0 };
                        return Err(links.fail(RingError::Stalled { rank, waited }));
                    }
                    alarm.as_mut().reset(moved + patience);
                }
            }
        }
    }
}

/// Checks the header once it is there, and takes the frame once it is whole.
fn taken<W: Word, F: Fn(&[u8], &mut [W])>(
    links: &Links,
    round: &mut Round<'_, W, F>,
    coming: &[u8],
    filled: &mut usize,
) -> Result<(), RingError> {
    let Some((header, body)) = coming.get(..*filled).and_then(<[u8]>::split_first_chunk) else {
        return Ok(());
    };
    if body.is_empty() {
        round.check(header).map_err(|(given, expected)| {
            links.fail(RingError::Mismatch { rank: links.before.0, given, expected })
        })?;
    }
    if round.expected() == Some(body.len()) {
        round.take(body);
        *filled = 0;
    }
    Ok(())
}

fn unsent(links: &Links, error: &WriteError) -> RingError {
    match error {
        WriteError::ConnectionLost(error) => links.lost(links.next.0, error),
        other => links.fail(RingError::Lost { rank: links.next.0, reason: other.to_string() }),
    }
}

fn unread(links: &Links, error: &ReadError) -> RingError {
    match error {
        ReadError::ConnectionLost(error) => links.lost(links.before.0, error),
        other => links.fail(RingError::Lost { rank: links.before.0, reason: other.to_string() }),
    }
}
