//! How the stream stays short: what still counts of its oldest messages is published again, in a commit
//! like any other, and then they are purged. A crash between the two leaves some records twice, which
//! say the same. Whoever was deposed between the two may purge late: what it purges was published again
//! before anybody else opened the log.

use super::Trouble;
use super::frame::Carried;
use super::log::JetStreamKeeper;
use super::reader::{self, lock};
use crate::control::log::Change;
use std::collections::BTreeMap;

/// How much is published again between two commits that somebody waits for.
const MOVED_BYTES: usize = 256 << 10;
const COMMITS: usize = 64;

impl JetStreamKeeper {
    /// Whether there is much that does not count: then some of the oldest is swept after each commit.
    pub(super) fn is_due(&self) -> bool {
        self.bytes > lock(&self.index).bytes() * 2 + self.slack
    }

    /// Sweeps the oldest messages. What goes wrong is tried again after a later commit.
    pub(super) fn sweep(&mut self) {
        let end = self.pen.tail;
        if let Err(trouble) = self.sweep_up_to(end) {
            tracing::warn!(why = trouble.text(), "the log's stream does not become shorter");
        }
    }

    /// Sweeps everything that is there; whether that made it shorter.
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

    /// Makes room in a stream that is full, if there is what does not count.
    pub(super) fn make_room(&mut self) -> bool {
        let counts = lock(&self.index).bytes();
        self.bytes > counts + counts / 4 + (64 << 10) && self.sweep_all()
    }

    fn sweep_up_to(&mut self, end: u64) -> Result<(), Trouble> {
        let (next, moved) = self.oldest(end)?;
        let carried: Carried = self.carried.clone();
        // Who leads and the epochs go with it, as what says so may be purged.
        self.commit(Some(&carried), &moved).map_err(|error| Trouble::Refused(error.to_string()))?;
        self.pen.client.purge(next)?;
        self.first = next;
        self.bytes = self.pen.client.info()?.state.bytes;
        Ok(())
    }

    /// What counts of the oldest messages, and the message after them.
    fn oldest(&self, end: u64) -> Result<(u64, Vec<Change>), Trouble> {
        let (mut at, mut bytes, mut moved) = (self.first, 0, BTreeMap::new());
        for _ in 0..COMMITS {
            if at > end || bytes >= MOVED_BYTES {
                break;
            }
            let found = match reader::commit(&self.pen.client, at) {
                // It was purged by an earlier try that was not answered.
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
                    // The last of a commit's counts.
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
