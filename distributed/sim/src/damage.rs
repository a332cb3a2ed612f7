//! Checks that a damaged journal is either refused or recovered exactly: images of a small journal,
//! with one flipped bit or a cut end, are opened in memory.

mod overlay;

use lgp_distributed::JournalError;
use lgp_distributed::inside::journal::{self, Opened};
use lgp_distributed::inside::log::Change;
use lgp_distributed::inside::record::Record;
use overlay::{Overlay, PAGE_BYTES};
use redb::StorageBackend;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

const NAME: &str = "journal";
/// The coordinators that wrote the images had smaller epochs.
const EPOCH_MAX: u64 = 1_000;

/// The results of opening damaged images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamageReport {
    /// Refused with a typed error.
    pub refused: u64,
    /// Opened with every acknowledged record and no other.
    pub recovered: u64,
    /// Any other result: the damage, and what happened. Must be empty.
    pub wrong: Vec<String>,
}

/// The bytes of a journal's file, for damaging.
#[derive(Debug, Clone)]
pub struct DamagedImage {
    bytes: Arc<Vec<u8>>,
    expected: Vec<Record>,
    read: BTreeSet<usize>,
}

impl DamagedImage {
    /// A small journal after several appends: closed properly, or as it is in use if `crashed`.
    ///
    /// # Errors
    /// Those of a journal in memory; none are expected.
    pub fn new(crashed: bool) -> Result<Self, JournalError> {
        let file = Arc::new(Overlay::new(Arc::default()));
        let shared: Arc<dyn StorageBackend> = Arc::clone(&file) as _;
        journal::fill(Path::new(NAME), &shared)?;
        let mut expected = BTreeMap::new();
        let (opened, _) = start(shared, EPOCH_MAX - 2)?;
        let mut journal = opened.journal;
        // Each commit differs from the one before it, so that an older state is detected.
        for round in 0..6_u64 {
            let byte = u8::try_from(round).unwrap_or_default();
            let records = (0..3).map(|i| Record {
                epoch: opened.epoch,
                seq: 1 + round + i,
                bytes: vec![byte; 300 + usize::from(byte)],
            });
            let mut changes: Vec<_> = records.map(Change::Put).collect();
            changes.push(Change::Remove { epoch: opened.epoch, seq: 1 + round / 2 });
            journal.append(&changes)?;
            for change in changes {
                match change {
                    Change::Put(record) => expected.insert((record.epoch, record.seq), record),
                    Change::Remove { epoch, seq } => expected.remove(&(epoch, seq)),
                };
            }
        }
        let in_use = file.to_bytes();
        drop(journal);
        let bytes = Arc::new(if crashed { in_use } else { file.to_bytes() });
        let expected = expected.into_values().collect();
        let mut image = Self { bytes, expected, read: BTreeSet::new() };
        let whole = Arc::new(Overlay::new(Arc::clone(&image.bytes)));
        image.open(&whole, &image.expected)?;
        image.read = whole.pages_read();
        Ok(image)
    }

    /// Whether any byte of this byte's page is read when the undamaged file is opened, appended to
    /// and opened again. Nothing can depend on other pages.
    #[must_use]
    pub fn reads(&self, position: usize) -> bool {
        self.read.contains(&(position / PAGE_BYTES))
    }

    /// Bytes of the file.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Opens the file with one bit flipped.
    pub fn flip(&self, position: usize, bit: u32, report: &mut DamageReport) {
        let file = Overlay::new(Arc::clone(&self.bytes));
        let Some(byte) = self.bytes.get(position) else { return };
        let at = u64::try_from(position).unwrap_or(u64::MAX);
        let done = file.write(at, &[byte ^ 1_u8.rotate_left(bit)]);
        self.judge(done.map(|()| file), || format!("bit {bit} of byte {position} flipped"), report);
    }

    /// Opens the file without its last bytes.
    pub fn cut(&self, length: usize, report: &mut DamageReport) {
        let file = Overlay::new(Arc::clone(&self.bytes));
        let done = file.set_len(u64::try_from(length).unwrap_or(u64::MAX));
        self.judge(done.map(|()| file), || format!("cut to {length} bytes"), report);
    }

    fn judge(
        &self,
        file: io::Result<Overlay>,
        damage: impl Fn() -> String,
        report: &mut DamageReport,
    ) {
        let file = match file {
            Ok(file) => Arc::new(file),
            Err(error) => return report.wrong.push(format!("{}: {error}", damage())),
        };
        let before = file.writes();
        match self.open(&file, &self.expected) {
            Ok(true) => report.recovered += 1,
            Err(JournalError::Damaged { .. }) if file.writes() == before => report.refused += 1,
            Ok(false) => report.wrong.push(format!("{}: other records", damage())),
            Err(error) => report.wrong.push(format!("{}: {error}", damage())),
        }
    }

    /// Whether it opens with exactly the `expected` records, also after one was appended.
    fn open(&self, file: &Arc<Overlay>, expected: &[Record]) -> Result<bool, JournalError> {
        let (mut first, records) = start(Arc::clone(file) as _, 0)?;
        if records != expected || first.epochs != [EPOCH_MAX - 2, EPOCH_MAX - 1] {
            return Ok(false);
        }
        let added = Record { epoch: first.epoch, seq: 1, bytes: b"added".to_vec() };
        first.journal.append(&[Change::Put(added.clone())])?;
        drop(first);
        let (second, records) = start(Arc::clone(file) as _, 0)?;
        let (last, others) = records.split_last().unzip();
        Ok(last == Some(&added) && others == Some(expected) && second.epoch == EPOCH_MAX)
    }
}

/// Opens a journal in memory; returns it with its records.
fn start(
    file: Arc<dyn StorageBackend>,
    now_ms: u64,
) -> Result<(Opened, Vec<Record>), JournalError> {
    let mut records = Vec::new();
    let opened = journal::start(Path::new(NAME), file, now_ms, &mut |key, bytes| {
        records.push(Record { epoch: key.0, seq: key.1, bytes: bytes.to_vec() });
        Ok(())
    })?;
    Ok((opened, records))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_journal_is_refused_or_recovered_exactly() {
        for crashed in [false, true] {
            let image = DamagedImage::new(crashed).expect("in memory");
            let mut report = DamageReport::default();
            // Every bit of the pages with the journal's structure, and a sample of the rest.
            for position in [0..64, 4096..4160, 8192..8192 + 320].into_iter().flatten() {
                (0..8).for_each(|bit| image.flip(position, bit, &mut report));
            }
            for position in (0..image.len()).step_by(97) {
                for bit in [position % 8, (position / 97) % 8] {
                    image.flip(position, u32::try_from(bit).expect("small"), &mut report);
                }
            }
            let flips = (report.refused, report.recovered);
            for length in (0..image.len()).step_by(509).chain([4096, 8192, image.len() - 1]) {
                image.cut(length, &mut report);
            }
            assert_eq!(report.wrong, [""; 0], "crashed: {crashed}");
            assert!(flips.0 > 100 && flips.1 > 100, "{flips:?}");
            assert!(report.refused > flips.0 + 100, "{report:?} of {} bytes", image.len());
        }
    }
}
