//! Publishes messages one after the other, each until it is known whether it is there.

use super::Trouble;
use super::client::Client;
use super::frame::{Body, HEAD_BYTES, Message};
use crate::control::chain::Link;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const AGAIN: Duration = Duration::from_millis(200);
/// How long a server that has just begun to lead a stream may not know its last messages.
pub(super) const SETTLING: Duration = Duration::from_secs(5);
/// Bytes of the headers that a message is published with.
const HEADER_BYTES: usize = 512;
/// The largest part of a commit: what larger messages would save is little.
const PART_BYTES_MAX: usize = 8 << 20;

/// Where the next message goes.
#[derive(Debug)]
pub(super) struct Pen {
    pub(super) client: Arc<Client>,
    writer: u64,
    /// The sequence of the last message.
    pub(super) tail: u64,
    /// How long a message is tried of which the servers say nothing.
    pub(super) patience: Duration,
}

impl Pen {
    pub(super) fn new(client: &Arc<Client>, patience: Duration) -> Self {
        Self { client: Arc::clone(client), writer: rand::random(), tail: 0, patience }
    }

    /// Bytes of a commit that one message has room for.
    pub(super) fn part_bytes(&self) -> usize {
        let room = self.client.payload_bytes().saturating_sub(HEADER_BYTES + HEAD_BYTES);
        room.clamp(1, PART_BYTES_MAX)
    }

    /// Publishes a commit; bytes that its messages take.
    ///
    /// # Errors
    /// [`Trouble::Full`]: it is surely not there, though parts of it may be, which count for nothing.
    /// [`Trouble::Taken`] and [`Trouble::Older`]: it is not the next one. Others leave it in doubt.
    pub(super) fn commit(&mut self, link: &Link, bytes: &[u8]) -> Result<u64, Trouble> {
        let parts: Vec<&[u8]> = bytes.chunks(self.part_bytes()).collect();
        let of = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let mut taken = 0;
        for (at, part) in (0..).zip(parts) {
            taken += self.write(link, Body::Part { at, of, bytes: part.to_vec() })?;
        }
        Ok(taken)
    }

    /// Publishes a message; the bytes that it takes.
    pub(super) fn write(&mut self, link: &Link, body: Body) -> Result<u64, Trouble> {
        let (after, writer) = (self.tail, self.writer);
        let payload = Message { after, writer, link: link.clone(), body }.encode();
        let end = Instant::now() + self.patience;
        let mut in_doubt = false;
        let mut older_since = None;
        loop {
            let asked = match self.client.publish(after, payload.clone()) {
                Ok(seq) if seq == after + 1 => Ok(true),
                // A server that did not ask what the last one is: this one counts for nothing.
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
                // What was asked for before may still be under way.
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

    /// Whether a message is there that could not be published as the next one; who is in its place, if
    /// it never can be.
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
                // Purged by one that has written much since.
                if found.first_seq > after + 1 { Err(Trouble::Taken) } else { Ok(false) }
            }
            Err(trouble) => Err(trouble),
        }
    }
}

/// Whether something has been so for a short time only.
pub(super) fn is_settling(since: &mut Option<Instant>) -> bool {
    since.get_or_insert_with(Instant::now).elapsed() < SETTLING
}
