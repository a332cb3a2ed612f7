//! The writer: what it commits together, what it refuses, and whom it tells.

use super::super::writer::{Outcome, Writer, WriterLimits};
use super::disk::Plan;
use super::*;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

const LIMITS: WriterLimits = WriterLimits { pending_bytes_max: 100_000, batch_bytes_max: 50_000 };

/// A writer whose callback waits to be let go on, so that a test decides what waits meanwhile.
struct Held {
    disk: Arc<Disk>,
    writer: Option<Writer>,
    outcomes: Receiver<Outcome>,
    go: Sender<()>,
}

impl Held {
    fn new() -> Self {
        let disk = new_disk();
        let journal = start(&disk).expect("sound").journal;
        let ((told, outcomes), (go, going)) = (mpsc::channel(), mpsc::channel());
        let on_commit = move |outcome| {
            let _ = told.send(outcome);
            // Without the test there is nothing to wait for.
            let _ = going.recv();
        };
        let writer = Some(Writer::start(journal, LIMITS, on_commit).expect("a thread"));
        Self { disk, writer, outcomes, go }
    }

    fn submit(&self, ticket: u64, change: Change) -> Result<(), JournalError> {
        self.writer.as_ref().expect("there").submit(ticket, change)
    }

    fn heard(&self) -> Outcome {
        self.outcomes.recv_timeout(Duration::from_secs(60)).expect("told")
    }

    fn durable(&self) -> u64 {
        match self.heard() {
            Outcome::Durable(ticket) => ticket,
            failed => panic!("{failed:?}"),
        }
    }

    fn failed(&self) -> (Vec<u64>, JournalError) {
        match self.heard() {
            Outcome::Failed { tickets, error } => (tickets, error),
            durable => panic!("{durable:?}"),
        }
    }

    fn go(&self) {
        self.go.send(()).expect("it waits");
    }

    /// Lets everything go on and ends; answers what is on the disk.
    fn end(mut self) -> State {
        drop(self.go);
        drop(self.writer.take());
        state(&start(&self.disk).expect("sound").records)
    }
}

#[test]
fn what_waits_becomes_one_commit_up_to_a_limit() {
    let held = Held::new();
    held.submit(1, put(1, "a")).expect("room");
    assert_eq!(held.durable(), 1);
    // These wait behind the first, whose callback is not done: two commits by size.
    for ticket in 2..=10 {
        held.submit(ticket, put(ticket, vec![0; 9_000])).expect("room");
    }
    held.go();
    assert_eq!(held.durable(), 7);
    held.go();
    assert_eq!(held.durable(), 10);
    assert_eq!(held.end().len(), 10);
}

#[test]
fn too_much_at_once_is_refused_and_tickets_rise() {
    let held = Held::new();
    held.submit(5, put(0, vec![0; 500_000])).expect("nothing waits, so it is taken");
    assert_eq!(held.durable(), 5);
    for ticket in [5, 4] {
        let refused = held.submit(ticket, remove(1)).expect_err("not in order");
        assert!(matches!(refused, JournalError::Ticket { last: 5, .. }), "{refused}");
    }
    let taken =
        (6..).take_while(|ticket| held.submit(*ticket, put(*ticket, vec![0; 9_000])).is_ok());
    assert_eq!(taken.count(), 10);
    let refused = held.submit(99, put(99, vec![0; 9_000])).expect_err("full");
    assert!(matches!(refused, JournalError::Backlog { limit: 100_000, .. }), "{refused}");
    held.submit(100, remove(0)).expect("small enough");
    let large = vec![0; super::super::record::VALUE_BYTES_MAX + 1];
    let refused = held.submit(101, put(1, large)).expect_err("too large");
    assert!(matches!(refused, JournalError::TooLarge { .. }), "{refused}");
    assert_eq!(
        held.end().into_keys().map(|(_, seq)| seq).collect::<Vec<_>>(),
        (6..16).collect::<Vec<_>>()
    );
}

#[test]
fn a_full_disk_fails_the_tickets_that_need_room() {
    let held = Held::new();
    for ticket in 1..=5 {
        held.submit(ticket, put(ticket, vec![0; 9_000])).expect("room");
        assert_eq!(held.durable(), ticket);
        held.go();
    }
    held.submit(6, put(6, "x")).expect("room");
    assert_eq!(held.durable(), 6);
    held.disk.plan(Plan::Blocks(held.disk.blocks() + 3));
    held.submit(7, put(7, vec![0; 40_000])).expect("accepted");
    held.submit(8, remove(1)).expect("accepted");
    held.submit(9, put(9, "beside")).expect("accepted");
    held.go();
    let (tickets, error) = held.failed();
    assert_eq!(tickets, [7, 9]);
    assert!(matches!(error, JournalError::Full { .. }), "{error}");
    held.go();
    assert_eq!(held.durable(), 8, "what makes room went through");
    held.disk.plan(Plan::Nothing);
    held.submit(10, put(10, vec![0; 40_000])).expect("accepted");
    held.go();
    assert_eq!(held.durable(), 10);
    let seqs: Vec<_> = held.end().into_keys().map(|(_, seq)| seq).collect();
    assert_eq!(seqs, [2, 3, 4, 5, 6, 10]);
}

#[test]
fn a_broken_journal_fails_everything_from_then_on() {
    let held = Held::new();
    held.submit(1, put(1, "a")).expect("accepted");
    assert_eq!(held.durable(), 1);
    held.disk.plan(Plan::DieAt(0));
    for ticket in 2..=8 {
        held.submit(ticket, put(ticket, vec![0; 9_000])).expect("accepted");
    }
    held.go();
    let (mut tickets, error) = held.failed();
    assert!(matches!(error, JournalError::Broken { .. }), "{error}");
    held.go();
    let (more, error) = held.failed();
    assert!(matches!(error, JournalError::Broken { .. }), "{error}");
    tickets.extend(more);
    assert_eq!(tickets, (2..=8).collect::<Vec<_>>());
    let refused = held.submit(20, remove(1)).expect_err("broken");
    assert!(matches!(refused, JournalError::Broken { .. }), "{refused}");
    let refused = held.writer.as_ref().expect("there").compact().expect_err("broken");
    assert!(matches!(refused, JournalError::Broken { .. }), "{refused}");
    held.disk.plan(Plan::Nothing);
    assert_eq!(held.end().len(), 1);
}

#[test]
fn a_writer_compacts_and_copies_between_commits() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = new_disk();
    let journal = start(&disk).expect("sound").journal;
    let writer = Writer::start(journal, LIMITS, |_| {}).expect("a thread");
    let mut ticket = 0;
    for round in 0..3 {
        for seq in 0..50 {
            ticket += 1;
            while writer.submit(ticket, put(seq, vec![round; 3_000])).is_err() {
                std::thread::yield_now();
            }
        }
        writer.compact().expect("sound");
        let copy = folder.path().join(format!("{round}"));
        writer.upkeep().backup(&copy, || Ok(())).expect("copied");
        assert!(writer.upkeep().size_bytes().expect("a size") > 150_000);
        let copied = Journal::open(&copy, 1, Format::CURRENT).expect("sound");
        assert!(copied.records.len() >= 20, "{}", copied.records.len());
    }
    drop(writer);
    let expected = (0..50).map(|seq| ((1, seq), vec![2; 3_000])).collect::<State>();
    assert_eq!(state(&start(&disk).expect("sound").records), expected);
}
