//! Reads records while other records are written.

use super::Trouble;
use super::client::Client;
use super::frame::{self, Body, Message};
use super::index::Index;
use crate::control::keeper::Reader;
use crate::control::log::{Change, Complete};
use crate::control::record::Key;
use crate::error::JournalError;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often a record that is being moved is looked up.
const TRIES: usize = 5;
const AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct StreamReader {
    pub(super) client: Arc<Client>,
    pub(super) index: Arc<Mutex<Index>>,
}

pub(super) fn lock(index: &Mutex<Index>) -> MutexGuard<'_, Index> {
    // Every step leaves the index consistent.
    index.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A commit by its first message: its changes, and the number of its messages.
pub(super) struct Found {
    pub(super) changes: Vec<Change>,
    pub(super) messages: u64,
}

/// Reads the commit that begins with message `seq`; `None` if no complete commit begins there.
pub(super) fn commit(client: &Client, seq: u64) -> Result<Option<Found>, Trouble> {
    let first = client.get(seq, seq)?;
    let first = Message::decode(first.first().map(Vec::as_slice).unwrap_or_default())?;
    let Body::Part { at: 0, of, mut bytes } = first.body else { return Ok(None) };
    if first.after.checked_add(1) != Some(seq) {
        return Ok(None);
    }
    for at in 1..of {
        let found = match client.get(seq + u64::from(at), seq + u64::from(at)) {
            // The last messages may be an incomplete commit.
            Err(Trouble::Absent) => return Ok(None),
            found => found?,
        };
        let next = Message::decode(found.first().map(Vec::as_slice).unwrap_or_default())?;
        match next.body {
            Body::Part { at: found, bytes: more, .. }
                if (found, next.writer, &next.link) == (at, first.writer, &first.link) =>
            {
                bytes.extend(more);
            }
            _ => return Ok(None),
        }
    }
    let odd = || Trouble::Damaged(format!("message {seq} says nothing"));
    let (_, changes) = frame::parse(&bytes).ok_or_else(odd)?;
    Ok(Some(Found { changes, messages: u64::from(of.max(1)) }))
}

/// The values that a commit leaves, by key.
pub(super) fn values(client: &Client, seq: u64) -> Result<BTreeMap<Key, Vec<u8>>, Trouble> {
    let mut values = BTreeMap::new();
    for change in commit(client, seq)?.map(|found| found.changes).unwrap_or_default() {
        match change {
            Change::Put(record) => values.insert((record.epoch, record.seq), record.bytes),
            Change::Remove { epoch, seq } => values.remove(&(epoch, seq)),
        };
    }
    Ok(values)
}

/// The error that a record is not in the commit that should have written it.
pub(super) fn missing(key: Key, seq: u64) -> Trouble {
    Trouble::Damaged(format!("record {:x}-{:x} is not in message {seq}", key.0, key.1))
}

impl Reader for StreamReader {
    fn get(&self, key: Key) -> Result<Option<Vec<u8>>, JournalError> {
        let mut trouble = Trouble::Absent;
        for _ in 0..TRIES {
            let place = lock(&self.index).place(key);
            let Some(seq) = place else { return Ok(None) };
            trouble = match values(&self.client, seq).map(|mut values| values.remove(&key)) {
                Ok(Some(value)) => return Ok(Some(value)),
                Ok(None) => missing(key, seq),
                Err(trouble) => trouble,
            };
            // The record was moved and its old place purged.
            if !matches!(trouble, Trouble::Absent | Trouble::Away(_)) {
                break;
            }
            thread::sleep(AGAIN);
        }
        Err(trouble.on_log(&self.client.stream))
    }

    fn backup(&self, _to: &Path, _complete: Complete<'_>) -> Result<(), JournalError> {
        let text = "back the stream up with its own tools, such as nats stream backup".to_owned();
        Err(Trouble::Refused(text).on_log(&self.client.stream))
    }

    fn size_bytes(&self) -> Result<u64, JournalError> {
        let info = self.client.info().map_err(|trouble| trouble.on_log(&self.client.stream))?;
        Ok(info.state.bytes)
    }
}
