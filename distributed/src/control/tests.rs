//! The journal as a whole: on files, and on a disk that dies, fills up or loses its cache.

pub(super) mod disk;
mod faults;
mod files;
mod format;
mod full;
mod oracle;
mod writing;

use super::create;
use super::journal::Journal;
use super::log::{Change, Each};
use super::migrate::Format;
use super::record::Record;
use super::tables::Totals;
use crate::error::JournalError;
use disk::Disk;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The expected contents of a journal.
type State = BTreeMap<(u64, u64), Vec<u8>>;

/// The contents of an opened journal.
#[derive(Debug)]
struct Opened {
    journal: Journal,
    epoch: u64,
    epochs: Vec<u64>,
    records: Vec<Record>,
}

/// Collects the records that are handed on.
fn gather(
    open: impl FnOnce(&mut Each<'_>) -> Result<super::journal::Opened, JournalError>,
) -> Result<Opened, JournalError> {
    let mut records = Vec::new();
    let super::journal::Opened { journal, epoch, epochs } = open(&mut |(epoch, seq), bytes| {
        records.push(Record { epoch, seq, bytes: bytes.to_vec() });
        Ok(())
    })?;
    Ok(Opened { journal, epoch, epochs, records })
}

// Number 0 of an epoch is its marker, so `seq` is offset by one. No coordinator has epoch 0.
fn put(seq: u64, bytes: impl Into<Vec<u8>>) -> Change {
    Change::Put(Record { epoch: 0, seq: seq + 1, bytes: bytes.into() })
}

fn remove(seq: u64) -> Change {
    Change::Remove { epoch: 0, seq: seq + 1 }
}

/// The numbers that were passed to [`put`].
fn seqs(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.seq - 1).collect()
}

fn changed(mut state: State, changes: &[Change]) -> State {
    for change in changes {
        match change.clone() {
            Change::Put(record) => state.insert((record.epoch, record.seq), record.bytes),
            Change::Remove { epoch, seq } => state.remove(&(epoch, seq)),
        };
    }
    state
}

fn state(records: &[Record]) -> State {
    records.iter().map(|r| ((r.epoch, r.seq), r.bytes.clone())).collect()
}

/// A disk with an empty journal.
pub(super) fn new_disk() -> Arc<Disk> {
    new_disk_as(Format::CURRENT.version)
}

fn new_disk_as(version: u32) -> Arc<Disk> {
    let disk = Arc::new(Disk::default());
    let filled = create::fill(&disk.file(), Totals::new(version), None);
    assert!(filled.is_ok(), "{filled:?}");
    disk
}

fn start(disk: &Arc<Disk>) -> Result<Opened, JournalError> {
    start_as(disk, Format::CURRENT)
}

fn start_as(disk: &Arc<Disk>, format: Format) -> Result<Opened, JournalError> {
    gather(|each| Journal::start(Path::new("journal"), disk.file(), 1, format, each))
}

/// Batches of each kind: new records small and large, replaced ones, removed ones.
fn script() -> Vec<Vec<Change>> {
    vec![
        vec![put(1, "one"), put(2, "two"), put(3, vec![3; 5_000])],
        vec![put(2, "two again"), remove(1)],
        (10..30).map(|seq| put(seq, vec![7; 700])).collect(),
        vec![remove(99), put(3, "")],
        (10..25).map(remove).chain([put(40, vec![4; 100_000])]).collect(),
        vec![put(41, "last")],
    ]
}
