//! Random changes, crashes, full disks and compactions against a map in memory.

use super::disk::Plan;
use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Event {
    Append(Vec<Change>),
    /// The process dies at this later operation.
    Kill(u64),
    /// The power fails at this later operation; a seed chooses the surviving sectors.
    PowerLoss(u64, u64),
    /// This many more blocks fit, until the next `Empty`.
    Fill(usize),
    Empty,
    Compact,
    Reopen,
}

fn change() -> impl Strategy<Value = Change> {
    let value =
        (any::<u8>(), prop_oneof![4 => 0..50_usize, 2 => 0..3_000_usize, 1 => 0..40_000_usize]);
    prop_oneof![
        3 => (0..40_u64, value).prop_map(|(seq, (byte, length))| put(seq, vec![byte; length])),
        1 => (0..40_u64).prop_map(remove),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => prop::collection::vec(change(), 1..8).prop_map(Event::Append),
        2 => (0..40_u64).prop_map(Event::Kill),
        2 => (0..40_u64, any::<u64>()).prop_map(|(at, seed)| Event::PowerLoss(at, seed)),
        1 => (0..12_usize).prop_map(Event::Fill),
        2 => Just(Event::Empty),
        1 => Just(Event::Compact),
        1 => Just(Event::Reopen),
    ]
}

struct World {
    disk: Arc<Disk>,
    journal: Option<Journal>,
    /// The possible contents of the disk: the acknowledged state, and the one with the failed
    /// change.
    expected: State,
    in_doubt: Option<State>,
    /// The seed of the disk's state after a power failure.
    seed: Option<u64>,
    epoch: u64,
}

impl World {
    fn new() -> Self {
        let disk = new_disk();
        let (expected, in_doubt, seed) = (State::new(), None, None);
        Self { disk, journal: None, expected, in_doubt, seed, epoch: 0 }
    }

    /// Restarts with the contents of the disk.
    fn restart(&mut self) {
        drop(self.journal.take());
        self.disk = match self.seed.take() {
            Some(seed) => self.disk.after_power_loss(seed),
            None => self.disk.after_kill(),
        };
        self.open();
    }

    fn open(&mut self) {
        let opened = start(&self.disk).expect("whatever happened, it opens");
        let found = state(&opened.records);
        let known = found == self.expected || Some(&found) == self.in_doubt.as_ref();
        assert!(known, "{} records, expected {}", found.len(), self.expected.len());
        assert!(opened.epoch > self.epoch);
        (self.expected, self.in_doubt, self.epoch) = (found, None, opened.epoch);
        self.journal = Some(opened.journal);
    }

    fn failed(&mut self, error: &JournalError, after: Option<State>) {
        match error {
            JournalError::Full { .. } => {}
            JournalError::Broken { .. } => {
                self.in_doubt = after;
                self.restart();
            }
            other => panic!("{other}"),
        }
    }

    fn meet(&mut self, event: &Event) {
        let Some(journal) = &mut self.journal else { return };
        match event {
            Event::Append(changes) => {
                let after = changed(self.expected.clone(), changes);
                match journal.append(changes) {
                    Ok(()) => self.expected = after,
                    Err(error) => self.failed(&error, Some(after)),
                }
            }
            Event::Compact => {
                if let Err(error) = journal.compact() {
                    self.failed(&error, None);
                }
            }
            Event::Kill(at) => {
                self.seed = None;
                self.disk.plan(Plan::DieAt(*at));
            }
            Event::PowerLoss(at, seed) => {
                self.seed = Some(*seed);
                self.disk.plan(Plan::DieAt(*at));
            }
            Event::Fill(blocks) => self.disk.plan(Plan::Blocks(self.disk.blocks() + blocks)),
            Event::Empty => self.disk.plan(Plan::Nothing),
            Event::Reopen => self.restart(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_journal_holds_what_it_acknowledged(events in prop::collection::vec(event(), 1..60)) {
        let mut world = World::new();
        world.open();
        for event in &events {
            world.meet(event);
        }
        world.restart();
    }
}
