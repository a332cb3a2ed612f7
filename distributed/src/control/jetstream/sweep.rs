//! Keeps the stream short: the live records of the oldest messages are republished in an ordinary
//! commit, and then those messages are purged. A crash in between leaves identical copies of some
//! records. A deposed leader may purge late; it had republished the purged records before anybody
//! else opened the log.

use super::Trouble;
use super::frame::Carried;
use super::log::JetStreamKeeper;
use super::reader::{self, lock};
use crate::control::log::Change;
use std::collections::BTreeMap;

/// How many bytes are republished between two commits that callers wait for.
const MOVED_BYTES: usize = 256 << 10;
const COMMITS: usize = 64;

impl JetStreamKeeper {
    /// Whether the stream has many dead bytes. Then each commit is followed by a sweep of the
    /// oldest messages.
    pub(super) fn is_due(&self) -> bool {
        self.bytes > lock(&self.index).bytes() * 2 + self.slack
    }

    /// Sweeps the oldest messages. A failed sweep is tried again after a later commit.
    pub(super) fn sweep(&mut self) {
        let end = self.pen.tail;
        if let Err(trouble) = self.sweep_up_to(end) {
            tracing::warn!(why = trouble.text(), "the log's stream does not become shorter");
        }
    }

    /// Sweeps all messages; returns whether that made the stream shorter.
    pub(super) fn sweep_all(&mut self) -> bool {
        let (end, before) = (self.pen.tail, self.bytes);
        while self.first <= end && lock(&self.index).bytes() < self.bytes {
            if let Err(trouble) = self.sweep_up_to(end) {
                tracing::warn!(why = trouble.text(), "the log's stream does not become shorter");
                break;
            }
        }
        self.bytes < before
    }

    /// Makes room in a full stream, if it has enough dead bytes.
    pub(super) fn make_room(&mut self) -> bool {
        let counts = lock(&self.index).bytes();
        self.bytes > counts + counts / 4 + (64 << 10) && self.sweep_all()
    }

    fn sweep_up_to(&mut self, end: u64) -> Result<(), Trouble> {
        let (next, moved) = self.oldest(end)?;
        let carried: Carried = self.carried.clone();
        // The commit carries the leads and epochs, as the messages with them may be purged.
        self.commit(Some(&carried), &moved).map_err(|error| Trouble::Refused(error.to_string()))?;
        self.pen.client.purge(next)?;
        self.first = next;
        self.bytes = self.pen.client.info()?.state.bytes;
        Ok(())
    }

    /// The live records of the oldest messages, and the sequence after those messages.
    fn oldest(&self, end: u64) -> Result<(u64, Vec<Change>), Trouble> {
        let (mut at, mut bytes, mut moved) = (self.first, 0, BTreeMap::new());
        for _ in 0..COMMITS {
            if at > end || bytes >= MOVED_BYTES {
                break;
            }
            let found = match reader::commit(&self.pen.client, at) {
                // An earlier sweep purged this message, but its answer was lost.
                Err(Trouble::Absent) => None,
                found => found?,
            };
            let Some(found) = found else {
                at += 1;
                continue;
            };
            for change in found.changes {
                if let Change::Put(record) = change {
                    let key = (record.epoch, record.seq);
                    // Only the last change of a record in a commit counts.
                    if lock(&self.index).place(key) == Some(at) {
                        bytes += record.bytes.len();
                        moved.insert(key, Change::Put(record));
                    }
                }
            }
            at += found.messages;
        }
        Ok((at, moved.into_values().collect()))
    }
}
