//! The laws of a log, checked for each kind.

use super::embedded::{Embedded, opened};
use super::journal::Journal;
use super::log::{Change, Draft, Each, Log, Opened, Opener, Outcome, Place};
use super::memory::Memory;
use super::migrate::Format;
use super::record::{Key, Record};
use super::tests::disk::{Disk, Plan};
use super::tests::new_disk;
use crate::error::JournalError;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A place whose free space a test controls.
pub(super) trait Bounded: Place {
    /// Limits the space to about `more_bytes` more; `None` lifts the limit.
    fn limit(&self, more_bytes: Option<usize>);
}

impl Bounded for Memory {
    fn limit(&self, more_bytes: Option<usize>) {
        let used: usize = self.keys().len() * 100;
        Memory::limit(self, more_bytes.map(|more| used + more));
    }
}

/// The embedded log on an in-memory disk without locks.
struct OnDisk(Arc<Disk>);

impl Place for OnDisk {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        let path = Path::new("journal");
        let found = Journal::start(path, self.0.file(), opener.epoch, Format::CURRENT, each)?;
        Ok(opened(found, 50_000))
    }
}

impl Bounded for OnDisk {
    fn limit(&self, more_bytes: Option<usize>) {
        self.0.plan(match more_bytes {
            Some(more) => Plan::Blocks(self.0.blocks() + more / 4096),
            None => Plan::Nothing,
        });
    }
}

/// An open log, its contents at opening, and its outcomes.
pub(super) struct Running {
    pub(super) epoch: u64,
    pub(super) epochs: Vec<u64>,
    pub(super) found: BTreeMap<Key, Vec<u8>>,
    pub(super) log: Arc<dyn Log>,
    pub(super) outcomes: Receiver<Outcome>,
}

/// Opens a log as the coordinator with the latest lead.
pub(super) fn open(place: &dyn Place, epoch: u64) -> Result<Running, JournalError> {
    static LEADS: AtomicU64 = AtomicU64::new(0);
    let lead = 1_000_000 + LEADS.fetch_add(1, Ordering::Relaxed);
    open_as(place, Opener { lead, epoch })
}

fn open_as(place: &dyn Place, opener: Opener) -> Result<Running, JournalError> {
    let mut found = BTreeMap::new();
    let opened = place.open(opener, &mut |key, bytes| {
        let last = found.last_key_value().map(|(key, _)| *key);
        assert!(last.is_none_or(|last| last < key), "in the order of their keys");
        found.insert(key, bytes.to_vec());
        Ok(())
    })?;
    let (told, outcomes) = channel();
    let log = (opened.start)(Box::new(move |outcome| drop(told.send(outcome))))?;
    Ok(Running { epoch: opened.epoch, epochs: opened.epochs, found, log, outcomes })
}

impl Running {
    /// Waits for the outcome of tickets that were not reported yet: whether each is durable.
    pub(super) fn fates(&self, tickets: RangeInclusive<u64>) -> BTreeMap<u64, bool> {
        let mut fates = BTreeMap::new();
        while fates.last_key_value().is_none_or(|(last, _)| last < tickets.end()) {
            match self.outcomes.recv_timeout(Duration::from_secs(60)).expect("it is told") {
                Outcome::Durable(last) => {
                    for ticket in *tickets.start()..=last {
                        fates.entry(ticket).or_insert(true);
                    }
                }
                Outcome::Failed { tickets, error } => {
                    assert!(matches!(error, JournalError::Full { .. }), "{error}");
                    for ticket in tickets {
                        assert!(fates.insert(ticket, false).is_none(), "{ticket}: told before");
                    }
                }
            }
        }
        fates
    }
}

pub(super) fn put(seq: u64, bytes: usize) -> Change {
    Change::Put(Record {
        epoch: 7,
        seq,
        bytes: vec![u8::try_from(seq % 251).expect("small"); bytes],
    })
}

fn epochs_rise_and_are_known(place: &dyn Place) {
    let mut epochs = Vec::new();
    for (now_ms, expected) in [(100, 100), (90, 101), (101, 102), (500, 500)] {
        let running = open(place, now_ms).expect("free");
        assert_eq!(running.epoch, expected);
        epochs.push(expected);
        assert_eq!(running.epochs, epochs);
        assert!(running.found.is_empty(), "what notes an epoch is no record of a task");
    }
}

fn two_exclude_each_other(place: &dyn Place) {
    let first = open(place, 1).expect("free");
    let refused = open(place, 1).err().expect("in use");
    assert!(matches!(refused, JournalError::InUse { .. }), "{refused}");
    drop(first);
    drop(open(place, 1).expect("free again"));
    // A log that was opened but never started is released too.
    drop(place.open(1.into(), &mut |_, _| Ok(())).expect("free"));
    drop(open(place, 1).expect("free again"));
}

fn the_latest_lead_has_it(place: &dyn Place) {
    let first = open_as(place, Opener { lead: 10, epoch: 7 }).expect("nobody has it");
    first.log.submit(1, put(1, 10).into()).expect("taken");
    assert_eq!(first.fates(1..=1), [(1, true)].into());
    let second = open_as(place, Opener { lead: 20, epoch: 3 }).expect("a later lead");
    assert_eq!((second.epoch, second.epochs.clone()), (3, vec![3, 7, 10, 20]), "each as it is");
    assert_eq!(second.found.keys().copied().collect::<Vec<_>>(), [(7, 1)]);
    // A late ticket with more than one change.
    let late = vec![put(2, 10), Change::Remove { epoch: 7, seq: 1 }];
    first.log.submit(2, late.into()).expect("taken");
    let told = first.outcomes.recv_timeout(Duration::from_secs(60)).expect("it is told");
    let told = format!("{told:?}");
    assert!(told.contains("Broken") && told.contains("another coordinator leads"), "{told}");
    for lead in [10, 15, 20] {
        let refused = open_as(place, Opener { lead, epoch: 9 }).err().expect("no later lead");
        assert!(matches!(refused, JournalError::InUse { .. }), "{lead}: {refused}");
    }
    second.log.submit(1, put(4, 10).into()).expect("taken");
    assert_eq!(second.fates(1..=1), [(1, true)].into());
    drop(first);
    drop(second);
    for lead in [15, 20] {
        let refused = open_as(place, Opener { lead, epoch: 9 }).err().expect("no later lead");
        assert!(matches!(refused, JournalError::InUse { .. }), "{lead}: {refused}");
    }
    let third = open_as(place, Opener { lead: 21, epoch: 5 }).expect("a later lead");
    assert_eq!(third.found.keys().map(|key| key.1).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(third.epochs, [3, 5, 7, 10, 20, 21]);
}

fn what_was_told_durable_is_read_again(place: &dyn Place) {
    let running = open(place, 1).expect("free");
    let mut expected = BTreeMap::new();
    for ticket in 1..=200 {
        let changes = match ticket % 4 {
            0 => vec![Change::Remove { epoch: 7, seq: ticket - 1 }],
            1 => vec![put(ticket, 10), put(ticket + 1_000, 3_000), put(ticket, 30)],
            _ => vec![put(ticket, 100)],
        };
        for change in &changes {
            match change.clone() {
                Change::Put(record) => expected.insert((7, record.seq), record.bytes),
                Change::Remove { seq, .. } => expected.remove(&(7, seq)),
            };
        }
        running.log.submit(ticket, changes.into()).expect("taken");
    }
    assert!(running.fates(1..=200).values().all(|durable| *durable));
    for key in (0..1_300).map(|seq| (7, seq)) {
        assert_eq!(running.log.read(key).expect("open"), expected.get(&key).cloned(), "{key:?}");
    }
    // A change that no test waits for is written too.
    running.log.submit(201, put(5_000, 5).into()).expect("taken");
    expected.insert((7, 5_000), vec![u8::try_from(5_000 % 251).expect("small"); 5]);
    drop(running);
    assert_eq!(open(place, 1).expect("free").found, expected);
}

fn tickets_rise(place: &dyn Place) {
    let running = open(place, 1).expect("free");
    running.log.submit(5, put(1, 1).into()).expect("taken");
    for ticket in [5, 4] {
        let refused = running.log.submit(ticket, put(2, 1).into()).expect_err("not in order");
        assert!(matches!(refused, JournalError::Ticket { last: 5, .. }), "{refused}");
    }
    drop(running);
    assert_eq!(open(place, 1).expect("free").found.len(), 1);
}

pub(super) fn changes_of_a_ticket_are_there_whole_or_not_at_all(place: &dyn Bounded) {
    let running = open(place, 1).expect("free");
    let log = &running.log;
    log.submit(1, vec![put(1, 100), put(2, 100)].into()).expect("taken");
    assert_eq!(running.fates(1..=1), [(1, true)].into());
    place.limit(Some(200_000));
    // Parts of the next two tickets would fit.
    log.submit(2, (100..200).map(|seq| put(seq, 9_000)).collect::<Vec<_>>().into()).expect("taken");
    log.submit(3, vec![Change::Remove { epoch: 7, seq: 1 }, put(9, 900_000)].into())
        .expect("taken");
    assert_eq!(running.fates(2..=3), [(2, false), (3, false)].into());
    assert_eq!(log.read((7, 1)).expect("open"), Some(vec![1; 100]), "not removed");
    place.limit(None);
    log.submit(4, Change::Remove { epoch: 7, seq: 2 }.into()).expect("taken");
    log.submit(5, vec![put(150, 10), put(9, 10)].into()).expect("taken");
    assert_eq!(running.fates(4..=5), [(4, true), (5, true)].into());
    drop(running);
    let found: Vec<Key> = open(place, 1).expect("free").found.into_keys().collect();
    assert_eq!(found, [(7, 1), (7, 9), (7, 150)]);
}

fn drafts_are_written_down_in_order_and_may_fail_alone(place: &dyn Place) {
    let running = open(place, 1).expect("free");
    let odd = || Err(JournalError::Record { what: "planted".into() });
    running.log.submit(1, put(1, 1).into()).expect("taken");
    running.log.submit(2, Draft { bytes: 1, write: Box::new(odd) }).expect("taken");
    running.log.submit(3, put(1, 3).into()).expect("taken");
    let (mut failed, mut durable) = (Vec::new(), 0);
    while durable < 3 {
        match running.outcomes.recv_timeout(Duration::from_secs(60)).expect("it is told") {
            Outcome::Durable(upto) => durable = upto,
            Outcome::Failed { tickets, .. } => {
                assert!(durable < 2, "it is said before it would count as durable");
                failed.extend(tickets);
            }
        }
    }
    assert_eq!(failed, [2]);
    assert_eq!(running.log.read((7, 1)).expect("open"), Some(vec![1; 3]), "the later one counts");
}

fn what_a_reader_refuses_is_not_opened(place: &dyn Place) {
    let running = open(place, 1).expect("free");
    running.log.submit(1, put(1, 1).into()).expect("taken");
    assert_eq!(running.fates(1..=1), [(1, true)].into());
    drop(running);
    let opener = Opener { lead: 5_000_000, epoch: 2 };
    let refused = place.open(opener, &mut |_, _| Err("planted".into())).err().expect("refused");
    assert!(matches!(refused, JournalError::Damaged { .. }), "{refused}");
    let running = open_as(place, opener).expect("as it was");
    assert_eq!(running.found.len(), 1);
    let noted = running.epochs.iter().filter(|epoch| [1, 2, 5_000_000].contains(epoch)).count();
    assert!((2..=3).contains(&noted), "{:?}", running.epochs);
}

/// Laws of every log.
const LAWS: [fn(&dyn Place); 4] = [
    what_was_told_durable_is_read_again,
    tickets_rise,
    drafts_are_written_down_in_order_and_may_fail_alone,
    what_a_reader_refuses_is_not_opened,
];

/// Laws of a log that one coordinator owns.
const ALONE: [fn(&dyn Place); 2] = [epochs_rise_and_are_known, two_exclude_each_other];

/// Laws of a log that coordinators share.
const SHARED: [fn(&dyn Place); 1] = [the_latest_lead_has_it];

/// Checks every law of a shared log, each in its own place.
pub(super) fn check_shared(place: &dyn Fn(usize) -> Box<dyn Place>) {
    for (at, law) in LAWS.into_iter().chain(SHARED).enumerate() {
        law(&*place(at));
    }
}

#[test]
fn a_log_in_memory_obeys_them() {
    LAWS.into_iter().chain(ALONE).for_each(|law| law(&Memory::default()));
    changes_of_a_ticket_are_there_whole_or_not_at_all(&Memory::default());
    check_shared(&|_| Box::new(Memory::shared()));
    changes_of_a_ticket_are_there_whole_or_not_at_all(&Memory::shared());
}

#[test]
fn the_embedded_log_obeys_them() {
    for law in LAWS.into_iter().chain(ALONE) {
        let folder = tempfile::tempdir().expect("a folder");
        law(&Embedded(folder.path().join("journal")));
    }
    changes_of_a_ticket_are_there_whole_or_not_at_all(&OnDisk(new_disk()));
}
