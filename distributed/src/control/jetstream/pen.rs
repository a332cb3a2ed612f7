//! Publishes messages one after the other, and retries each until its outcome is known.

use super::Trouble;
use super::client::Client;
use super::frame::{Body, HEAD_BYTES, Message};
use crate::control::chain::Link;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const AGAIN: Duration = Duration::from_millis(200);
/// How long a new leader of a stream may not know the stream's last messages.
pub(super) const SETTLING: Duration = Duration::from_secs(5);
/// Bytes of a published message's headers.
const HEADER_BYTES: usize = 512;
/// The largest part of a commit: larger messages would save little.
const PART_BYTES_MAX: usize = 8 << 20;

/// The position of the next message.
#[derive(Debug)]
pub(super) struct Pen {
    pub(super) client: Arc<Client>,
    writer: u64,
    /// The sequence of the last message.
    pub(super) tail: u64,
    /// How long a message is retried while the servers do not answer.
    pub(super) patience: Duration,
}

impl Pen {
    pub(super) fn new(client: &Arc<Client>, patience: Duration) -> Self {
        Self { client: Arc::clone(client), writer: rand::random(), tail: 0, patience }
    }

    /// Bytes of a commit that fit one message.
    pub(super) fn part_bytes(&self) -> usize {
        let room = self.client.payload_bytes().saturating_sub(HEADER_BYTES + HEAD_BYTES);
        room.clamp(1, PART_BYTES_MAX)
    }

    /// Publishes a commit; returns the bytes that its messages take.
    ///
    /// # Errors
    /// [`Trouble::Full`]: the commit does not count, although parts of it may be stored.
    /// [`Trouble::Taken`] and [`Trouble::Older`]: it is not the next commit. After other errors the
    /// outcome is unknown.
    pub(super) fn commit(&mut self, link: &Link, bytes: &[u8]) -> Result<u64, Trouble> {
        let parts: Vec<&[u8]> = bytes.chunks(self.part_bytes()).collect();
        let of = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let mut taken = 0;
        for (at, part) in (0..).zip(parts) {
            taken += self.write(link, Body::Part { at, of, bytes: part.to_vec() })?;
        }
        Ok(taken)
    }

    /// Publishes a message; returns the bytes that it takes.
    pub(super) fn write(&mut self, link: &Link, body: Body) -> Result<u64, Trouble> {
        let (after, writer) = (self.tail, self.writer);
        let payload = Message { after, writer, link: link.clone(), body }.encode();
        let end = Instant::now() + self.patience;
        let mut in_doubt = false;
        let mut older_since = None;
        loop {
            let asked = match self.client.publish(after, payload.clone()) {
                Ok(seq) if seq == after + 1 => Ok(true),
                // The server ignored the expected last sequence, so this message does not count.
                Ok(_) => Err(Trouble::Taken),
                Err(Trouble::Behind) => self.is_there(after, &payload),
                Err(trouble) => Err(trouble),
            };
            let why = match asked {
                Ok(true) => {
                    self.tail = after + 1;
                    return Ok(u64::try_from(payload.len() + HEADER_BYTES / 2).unwrap_or(u64::MAX));
                }
                Ok(false) => "the servers do not agree on the last message".to_owned(),
                Err(Trouble::Away(text)) => text,
                Err(Trouble::Older(text)) if is_settling(&mut older_since) => text,
                // An earlier try may still be in flight.
                Err(Trouble::Full(text) | Trouble::Refused(text)) if in_doubt => text,
                Err(trouble) => return Err(trouble),
            };
            if Instant::now() >= end {
                return Err(Trouble::Away(why));
            }
            tracing::warn!(why, "a message is published again");
            in_doubt = true;
            thread::sleep(AGAIN);
        }
    }

    /// Whether the message is stored although it could not be published as the next one; an error
    /// if another one has its place for good.
    fn is_there(&self, after: u64, payload: &[u8]) -> Result<bool, Trouble> {
        match self.client.get(after + 1, after + 1) {
            Ok(found) if found.iter().all(|found| found == payload) => Ok(true),
            Ok(_) => Err(Trouble::Taken),
            Err(Trouble::Absent) => {
                let found = self.client.info()?.state;
                if found.last_seq < after {
                    return Err(Trouble::Older(format!(
                        "its last message is {}, expected {after}: it was restored from a backup",
                        found.last_seq
                    )));
                }
                // A later leader, which has written much since, purged it.
                if found.first_seq > after + 1 { Err(Trouble::Taken) } else { Ok(false) }
            }
            Err(trouble) => Err(trouble),
        }
    }
}

/// Whether the condition has lasted only a short time.
pub(super) fn is_settling(since: &mut Option<Instant>) -> bool {
    since.get_or_insert_with(Instant::now).elapsed() < SETTLING
}
