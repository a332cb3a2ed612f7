//! An in-memory index of the records in the stream: about 50 bytes per record, without values.

use crate::control::log::Change;
use crate::control::record::Key;
use std::collections::BTreeMap;

/// Bytes that a record takes in a message besides its value.
const AROUND_BYTES: u64 = 25;

#[derive(Debug, Default)]
pub(super) struct Index {
    /// The sequence of the first message of its commit, and the length of its value.
    places: BTreeMap<Key, (u64, u32)>,
    bytes: u64,
}

impl Index {
    /// The first message of the commit that wrote the record last.
    pub(super) fn place(&self, key: Key) -> Option<u64> {
        self.places.get(&key).map(|(seq, _)| *seq)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.places.keys().copied()
    }

    /// Bytes that all records take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Applies the changes of the commit whose first message is `seq`.
    pub(super) fn apply<'a>(&mut self, seq: u64, changes: impl IntoIterator<Item = &'a Change>) {
        for change in changes {
            let (key, new) = match change {
                Change::Put(record) => {
                    // Longer values are refused earlier.
                    let length = u32::try_from(record.bytes.len()).unwrap_or(u32::MAX);
                    ((record.epoch, record.seq), Some((seq, length)))
                }
                Change::Remove { epoch, seq } => ((*epoch, *seq), None),
            };
            let old = match new {
                Some(new) => self.places.insert(key, new),
                None => self.places.remove(&key),
            };
            let size = |(_, length): (u64, u32)| u64::from(length) + AROUND_BYTES;
            self.bytes += new.map_or(0, size);
            self.bytes = self.bytes.saturating_sub(old.map_or(0, size));
        }
    }
}
