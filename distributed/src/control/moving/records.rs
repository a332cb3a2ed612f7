//! The records and documents of a place: reading them with their digests, copying and comparing.

use super::held::Held;
use super::marker::MARKER;
use super::{Side, Step, Watch};
use crate::control::log::{Change, Log, Opened, Opener, Outcome};
use crate::control::record::{Key, Record};
use crate::error::{Error, JournalError, Result};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// The limits of one commit, in bytes and in records.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_RECORDS: usize = 256;

/// A digest of one value.
type Sum = [u8; 32];

fn sum(bytes: &[u8]) -> Sum {
    Sha256::digest(bytes).into()
}

pub(super) fn refused(reason: String) -> Error {
    Error::Migration { reason }
}

/// The contents of a place: a digest of each record, and the documents.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) records: BTreeMap<Key, Sum>,
    pub(super) bytes: u64,
    pub(super) documents: BTreeMap<String, Vec<u8>>,
}

impl Contents {
    pub(super) fn take(&mut self, key: Key, value: &[u8]) {
        self.records.insert(key, sum(value));
        self.bytes = self.bytes.saturating_add(u64::try_from(value.len()).unwrap_or(u64::MAX));
    }

    /// A digest over everything, in hex.
    pub(super) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for ((epoch, seq), sum) in &self.records {
            hash.update(epoch.to_le_bytes());
            hash.update(seq.to_le_bytes());
            hash.update(sum);
        }
        for (name, bytes) in &self.documents {
            // Digests have one length, so a name cannot be confused with the data after it.
            hash.update(sum(name.as_bytes()));
            hash.update(sum(bytes));
        }
        hex::encode(hash.finalize())
    }
}

/// Opens a log. The log's own error does not hide an error of `each`.
pub(super) fn open(
    side: &Side,
    opener: Opener,
    each: &mut dyn FnMut(Key, &[u8]) -> Result<()>,
) -> Result<Opened> {
    let mut trouble = None;
    let opened = side.log.open(opener, &mut |key, bytes| {
        each(key, bytes).map_err(|error| {
            let text = error.to_string();
            trouble = Some(error);
            text
        })
    });
    match trouble {
        Some(error) => Err(error),
        None => Ok(opened?),
    }
}

/// The documents of a place, except the migration marker.
pub(super) fn documents(side: &Side) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut names = side.authority.documents()?;
    names.retain(|name| name != MARKER);
    let mut found = BTreeMap::new();
    for name in names {
        if let Some(bytes) = side.authority.read(&name)? {
            found.insert(name, bytes);
        }
    }
    Ok(found)
}

/// A source that is held, with its contents.
pub(super) struct Original {
    pub(super) contents: Contents,
    log: Arc<dyn Log>,
    /// The epochs of all openers of its log.
    pub(super) epochs: BTreeSet<u64>,
    /// The epochs of this migration among them.
    pub(super) own: [u64; 2],
}

impl Original {
    /// Reads everything, and verifies it as a coordinator would.
    pub(super) fn read(source: &Held<'_>, watch: &mut Watch<'_>) -> Result<Self> {
        let side = source.side;
        let mut contents = Contents { documents: documents(side)?, ..Contents::default() };
        let mut apart = (0_u64, 0_u64);
        let opened = open(side, source.epoch.into(), &mut |key, value| {
            let bytes_apart = (side.inspect)(key, value).map_err(|what| {
                Error::from(JournalError::Damaged { path: side.label.clone().into(), what })
            })?;
            if bytes_apart > 0 {
                apart = (apart.0 + 1, apart.1.saturating_add(bytes_apart));
            }
            contents.take(key, value);
            watch(Step::Read(contents.records.len()))
        })?;
        if apart.0 > 0 && !side.shares_apart {
            return Err(refused(format!(
                "{} durable tasks have {} bytes of tensors in files, which a migration does not take \
                 along: wait until these tasks have ended, and let go of their results. Those in a store \
                 that both places name stay there",
                apart.0, apart.1
            )));
        }
        let Opened { epoch, epochs, start } = opened;
        // Nothing is written to the source, so no outcome is reported.
        let log = start(Box::new(drop))?;
        let epochs = epochs.into_iter().collect();
        Ok(Self { contents, log, epochs, own: [source.epoch, epoch] })
    }

    fn value(&self, side: &Side, key: Key, expected: &Sum) -> Result<Vec<u8>> {
        let found = self.log.read(key)?;
        found.filter(|value| sum(value) == *expected).ok_or_else(|| {
            let (epoch, seq) = key;
            refused(format!(
                "record {epoch:x}-{seq:x} of {} was changed meanwhile: another writes to it",
                side.label
            ))
        })
    }
}

/// Records the epochs of another log in an empty one. If an interrupted migration began that, the
/// recorded epochs stay.
pub(super) fn note_epochs(target: &Held<'_>, epochs: &BTreeSet<u64>, is_new: bool) -> Result<()> {
    let mut known = BTreeSet::new();
    let label = &target.side.label;
    for &epoch in epochs {
        if known.contains(&epoch) {
            continue;
        }
        let opened = open(target.side, epoch.into(), &mut |(epoch, seq), _| match is_new {
            true => Err(refused(format!(
                "{label} is not empty: it has record {epoch:x}-{seq:x}; choose another name or folder"
            ))),
            false => Ok(()),
        });
        match opened {
            Ok(opened) => known.extend(opened.epochs),
            // An earlier run recorded this epoch. If another coordinator has the log open, a later
            // step fails too.
            Err(Error::Journal(JournalError::InUse { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies the records of a source to a target. Records that are there already stay.
pub(super) fn copy(
    (source, original): (&Side, &Original),
    (target, epochs): (&Held<'_>, &BTreeSet<u64>),
    watch: &mut Watch<'_>,
) -> Result<()> {
    let mut there = Contents::default();
    let opened = open(target.side, target.epoch.into(), &mut |key, value| {
        there.take(key, value);
        Ok(())
    })?;
    let known: BTreeSet<u64> = opened.epochs.iter().copied().collect();
    if !epochs.is_subset(&known) {
        return Err(refused(format!(
            "coordinators have used {} since a migration to {} began: begin with another name or an \
             empty folder",
            source.label, target.side.label
        )));
    }
    let (told, outcomes) = channel();
    let log = (opened.start)(Box::new(move |outcome| drop(told.send(outcome))))?;
    let mut pen = Pen { log, outcomes, ticket: 0, waiting: Vec::new(), bytes: 0 };
    let (total, mut done) = (original.contents.records.len(), 0);
    for (key, expected) in &original.contents.records {
        if there.records.remove(key).as_ref() != Some(expected) {
            let (epoch, seq) = *key;
            let bytes = original.value(source, *key, expected)?;
            pen.write(Change::Put(Record { epoch, seq, bytes }))?;
        }
        done += 1;
        watch(Step::Copied { done, total })?;
    }
    for (epoch, seq) in there.records.into_keys() {
        pen.write(Change::Remove { epoch, seq })?;
    }
    pen.flush()
}

/// Writes to a log, and waits until the writes are durable.
struct Pen {
    log: Arc<dyn Log>,
    outcomes: Receiver<Outcome>,
    ticket: u64,
    waiting: Vec<Change>,
    bytes: usize,
}

impl Pen {
    fn write(&mut self, change: Change) -> Result<()> {
        self.bytes += change.value_bytes();
        self.waiting.push(change);
        match self.bytes >= BATCH_BYTES || self.waiting.len() >= BATCH_RECORDS {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.ticket += 1;
        self.bytes = 0;
        self.log.submit(self.ticket, std::mem::take(&mut self.waiting).into())?;
        loop {
            match self.outcomes.recv() {
                Ok(Outcome::Durable(ticket)) if ticket >= self.ticket => return Ok(()),
                Ok(Outcome::Durable(_)) => {}
                Ok(Outcome::Failed { error, .. }) => return Err(error.into()),
                Err(_) => return Err(refused("the thread of the log has ended".to_owned())),
            }
        }
    }
}

/// Reads a target back, and reports differences.
pub(super) fn verify(
    expected: &Contents,
    target: &Held<'_>,
    watch: &mut Watch<'_>,
) -> Result<String> {
    let label = &target.side.label;
    let differs =
        |what: String| refused(format!("{label} was read back, and {what}: run it again"));
    let mut found = Contents { documents: documents(target.side)?, ..Contents::default() };
    let opened = open(target.side, target.epoch.into(), &mut |key, value| {
        found.take(key, value);
        if expected.records.get(&key) != found.records.get(&key) {
            return Err(differs(format!("record {:x}-{:x} is another", key.0, key.1)));
        }
        watch(Step::Verified { done: found.records.len(), total: expected.records.len() })
    })?;
    drop(opened);
    if let Some((epoch, seq)) = expected.records.keys().find(|key| !found.records.contains_key(key))
    {
        return Err(differs(format!("record {epoch:x}-{seq:x} is missing")));
    }
    let names = expected.documents.keys().chain(found.documents.keys());
    for name in names {
        if expected.documents.get(name) != found.documents.get(name) {
            return Err(differs(format!("document {name} is another or does not belong there")));
        }
    }
    match found.digest() {
        digest if digest == expected.digest() => Ok(digest),
        digest => Err(differs(format!("its digest is {digest}, expected {}", expected.digest()))),
    }
}
