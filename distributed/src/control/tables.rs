//! A journal's tables in redb: the records, and one row of totals that must match them.

use super::log::Change;
use super::record::{self, Key, Record};
use super::trouble::Trouble;
use redb::{ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction};

pub(super) const RECORDS: TableDefinition<'_, Key, &[u8]> = TableDefinition::new("records");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const TOTALS: &str = "totals";
const TOTALS_BYTES: usize = 40;

/// Totals of a journal, written in the same transaction as the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Totals {
    /// The version of the format. It comes first in every format, so that any program can read it.
    pub(super) version: u32,
    /// The epoch of the last coordinator.
    pub(super) epoch: u64,
    /// Number of the last commit.
    pub(super) commits: u64,
    /// The number of records.
    pub(super) records: u64,
    /// The wrapping sum of the records' fingerprints.
    pub(super) sum: u64,
}

impl Totals {
    /// The totals of a journal without records.
    pub(super) const fn new(version: u32) -> Self {
        Self { version, epoch: 0, commits: 1, records: 0, sum: 0 }
    }

    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.version.to_le_bytes().to_vec();
        for field in [self.epoch, self.commits, self.records, self.sum] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes the row of a format up to `supported`.
    fn from_bytes(bytes: &[u8], supported: u32) -> Result<Self, Trouble> {
        let damaged = || Trouble::Damaged("the row of totals does not verify".into());
        let (version, fields) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
        let version = u32::from_le_bytes(*version);
        if version > supported {
            return Err(Trouble::TooNew { found: version, supported });
        }
        let (fields, _) = fields.as_chunks::<8>();
        let [epoch, commits, records, sum] = *fields else { return Err(damaged()) };
        let [epoch, commits, records, sum] = [epoch, commits, records, sum].map(u64::from_le_bytes);
        let totals = Self { version, epoch, commits, records, sum };
        (bytes.len() == TOTALS_BYTES && totals.to_bytes() == bytes)
            .then_some(totals)
            .ok_or_else(damaged)
    }

    fn count(&mut self, key: Key, stored: &[u8]) {
        self.records = self.records.wrapping_add(1);
        self.sum = self.sum.wrapping_add(record::fingerprint(key, stored));
    }

    fn discount(&mut self, key: Key, stored: &[u8]) {
        self.records = self.records.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(record::fingerprint(key, stored));
    }
}

/// Writes `totals` into the transaction.
pub(super) fn set_totals(txn: &WriteTransaction, totals: Totals) -> Result<(), Trouble> {
    // This creates the table of records with the first commit, even without records.
    txn.open_table(RECORDS)?;
    txn.open_table(META)?.insert(TOTALS, totals.to_bytes().as_slice())?;
    Ok(())
}

/// Applies `changes` in the transaction, and returns the new totals.
pub(super) fn apply<'a>(
    txn: &WriteTransaction,
    mut totals: Totals,
    changes: impl IntoIterator<Item = &'a Change>,
) -> Result<Totals, Trouble> {
    let mut table = txn.open_table(RECORDS)?;
    let mut stored = Vec::new();
    for change in changes {
        match change {
            Change::Put(Record { epoch, seq, bytes }) => {
                let key = (*epoch, *seq);
                record::encode(key, bytes, &mut stored);
                if let Some(old) = table.insert(key, stored.as_slice())? {
                    totals.discount(key, old.value());
                }
                totals.count(key, &stored);
            }
            Change::Remove { epoch, seq } => {
                let key = (*epoch, *seq);
                if let Some(old) = table.remove(key)? {
                    totals.discount(key, old.value());
                }
            }
        }
    }
    Ok(totals)
}

/// Recounts the contents of the transaction after an upgrade.
pub(super) fn recount(txn: &WriteTransaction, mut totals: Totals) -> Result<Totals, Trouble> {
    (totals.records, totals.sum) = (0, 0);
    let table: Table<'_, Key, &[u8]> = txn.open_table(RECORDS)?;
    for row in table.iter()? {
        let (key, stored) = row?;
        record::decode(key.value(), stored.value()).map_err(Trouble::Damaged)?;
        totals.count(key.value(), stored.value());
    }
    Ok(totals)
}

/// The record that marks an epoch as used. No task has its number.
pub(super) fn marker(epoch: u64) -> Change {
    Change::Put(Record { epoch, seq: MARKER, bytes: Vec::new() })
}

/// The number of the records that mark epochs.
pub(super) const MARKER: u64 = 0;

/// The value of one record.
pub(super) fn get(txn: &ReadTransaction, key: Key) -> Result<Option<Vec<u8>>, Trouble> {
    let Some(stored) = txn.open_table(RECORDS)?.get(key)? else { return Ok(None) };
    let value = record::decode(key, stored.value()).map_err(Trouble::Damaged)?;
    Ok(Some(value.to_vec()))
}

/// Reads and verifies everything, and hands each record with its format to `each`.
pub(super) fn read(
    txn: &ReadTransaction,
    supported: u32,
    mut each: impl FnMut(u32, Key, &[u8]) -> Result<(), Trouble>,
) -> Result<Totals, Trouble> {
    let row = txn.open_table(META)?.get(TOTALS)?;
    let row = row.ok_or_else(|| Trouble::Damaged("the row of totals is missing".into()))?;
    let totals = Totals::from_bytes(row.value(), supported)?;
    let mut found = Totals { records: 0, sum: 0, ..totals };
    for row in txn.open_table(RECORDS)?.iter()? {
        let (key, stored) = row?;
        let value = record::decode(key.value(), stored.value()).map_err(Trouble::Damaged)?;
        found.count(key.value(), stored.value());
        each(totals.version, key.value(), value)?;
    }
    if found != totals {
        return Err(Trouble::Damaged(format!(
            "{} records with sum {:016x}, expected {} with {:016x}",
            found.records, found.sum, totals.records, totals.sum
        )));
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_as_written_and_no_bit_may_differ() {
        let totals = Totals { version: 3, epoch: 1 << 40, commits: 7, records: 5, sum: u64::MAX };
        let bytes = totals.to_bytes();
        assert_eq!(Totals::from_bytes(&bytes, 3).expect("valid"), totals);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Totals::from_bytes(&flipped, u32::MAX).is_err(), "{bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Totals::from_bytes(&bytes[..cut], 3).is_err(), "{cut}");
        }
        // A newer format may differ after its version.
        let newer = [4, 0, 0, 0, 1, 2, 3];
        let refused = Totals::from_bytes(&newer, 3);
        assert!(matches!(refused, Err(Trouble::TooNew { found: 4, supported: 3 })), "{refused:?}");
    }
}
