//! The writer: its commits, its refusals, and its reports.

use super::super::log::{Draft, Log, Outcome};
use super::super::upkeep::Upkeep;
use super::super::writer::Writer;
use super::disk::Plan;
use super::*;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

const BATCH_BYTES: usize = 50_000;

/// A writer whose callback blocks until the test continues it, so that the test decides what waits.
struct Held {
    /// Declared first, because dropping it lets the writer end after a failed test.
    go: Sender<()>,
    disk: Arc<Disk>,
    writer: Option<Writer<Upkeep>>,
    outcomes: Receiver<Outcome>,
}

impl Held {
    fn new() -> Self {
        let disk = new_disk();
        let journal = start(&disk).expect("sound").journal;
        let ((told, outcomes), (go, going)) = (mpsc::channel(), mpsc::channel());
        let told = Box::new(move |outcome| {
            let _ = told.send(outcome);
            // An error means that the test has ended.
            let _ = going.recv();
        });
        let writer = Some(Writer::start(journal, BATCH_BYTES, told).expect("a thread"));
        Self { go, disk, writer, outcomes }
    }

    fn submit(&self, ticket: u64, change: impl Into<Draft>) -> Result<(), JournalError> {
        self.writer.as_ref().expect("there").submit(ticket, change.into())
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

    /// Continues and ends everything; returns the contents of the disk.
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
    // These wait behind the first, whose callback still blocks: two commits by size.
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
fn tickets_rise() {
    let held = Held::new();
    held.submit(5, put(0, "a")).expect("taken");
    assert_eq!(held.durable(), 5);
    for ticket in [5, 4] {
        let refused = held.submit(ticket, remove(1)).expect_err("not in order");
        assert!(matches!(refused, JournalError::Ticket { last: 5, .. }), "{refused}");
    }
    held.submit(7, remove(0)).expect("taken");
    assert_eq!(held.end(), State::new());
}

#[test]
fn a_large_ticket_has_a_commit_of_its_own_and_is_there_whole_or_not_at_all() {
    let held = Held::new();
    held.submit(1, put(1, "a")).expect("taken");
    assert_eq!(held.durable(), 1);
    let many =
        |from: u64| (from..from + 100).map(|seq| put(seq, vec![0; 3_000])).collect::<Vec<_>>();
    held.submit(2, put(2, "small")).expect("taken");
    held.submit(3, many(100)).expect("taken");
    held.submit(4, put(4, "small")).expect("taken");
    for ticket in 2..=4 {
        held.go();
        assert_eq!(held.durable(), ticket, "each alone");
    }
    // There is room for half of it.
    held.disk.plan(Plan::Blocks(held.disk.blocks() + 40));
    held.submit(5, many(300)).expect("taken");
    held.go();
    let (tickets, error) = held.failed();
    assert_eq!(tickets, [5]);
    assert!(matches!(error, JournalError::Full { .. }), "{error}");
    held.disk.plan(Plan::Nothing);
    held.submit(6, vec![put(1, "b"), remove(2), put(6, "c")]).expect("taken");
    held.go();
    assert_eq!(held.durable(), 6);
    let expected = [put(1, "b"), put(4, "small"), put(6, "c")].into_iter().chain(many(100));
    let expected = changed(State::new(), &expected.collect::<Vec<_>>());
    assert_eq!(held.end(), expected);
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
    let seqs: Vec<_> = held.end().into_keys().map(|(_, seq)| seq - 1).collect();
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
    let writer = Writer::start(journal, BATCH_BYTES, Box::new(|_| {})).expect("a thread");
    let mut ticket = 0;
    for round in 0..3 {
        for seq in 0..50 {
            ticket += 1;
            writer.submit(ticket, put(seq, vec![round; 3_000]).into()).expect("taken");
        }
        writer.compact().expect("sound");
        let copy = folder.path().join(format!("{round}"));
        writer.back_up(&copy, Box::new(|| Ok(()))).expect("copied");
        assert!(writer.size_bytes().expect("a size") > 100_000);
        let copied = gather(|each| Journal::open(&copy, 1, Format::CURRENT, each)).expect("sound");
        assert!(copied.records.len() >= 10, "{}", copied.records.len());
    }
    drop(writer);
    let expected = (1..=50).map(|seq| ((0, seq), vec![2; 3_000])).collect::<State>();
    assert!(state(&start(&disk).expect("sound").records) == expected);
}

#[test]
fn what_a_full_disk_has_closed_is_read_again_once_there_is_room() {
    let held = Held::new();
    held.submit(1, put(1, "a")).expect("open");
    assert_eq!(held.durable(), 1);
    held.disk.plan(Plan::FullFrom(0));
    held.go();
    held.submit(2, put(2, vec![0; 9_000])).expect("open");
    let (tickets, error) = held.failed();
    assert!(tickets == [2] && matches!(error, JournalError::Full { .. }), "{error}");
    held.go();
    let read = || held.writer.as_ref().expect("there").read((0, 2));
    assert!(
        matches!(read(), Err(JournalError::Closed { .. })),
        "not even what is there is replaced"
    );
    // No change comes meanwhile.
    held.disk.plan(Plan::Nothing);
    let began = std::time::Instant::now();
    while read().is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "it is not opened again");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read().expect("open").as_deref(), Some(&b"a"[..]));
    assert_eq!(held.end().len(), 1);
}
