//! Journals as files: one user, private, never half written; copies and compaction.

use super::*;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.journal");
    (folder, path)
}

fn open(path: &Path, now_ms: u64) -> Result<Opened, JournalError> {
    gather(|each| Journal::open(path, now_ms, Format::CURRENT, each))
}

#[test]
fn records_are_found_again_and_epochs_never_repeat() {
    let (_folder, path) = folder();
    let mut expected = State::new();
    let mut batches = script().into_iter();
    // (clock, epoch): the clock jumps back, stands still and continues.
    for (now_ms, epoch) in [(5_000, 5_000), (4_000, 5_001), (5_001, 5_002), (9_000, 9_000)] {
        let mut opened = open(&path, now_ms).expect("sound");
        assert_eq!(opened.epoch, epoch);
        assert_eq!(state(&opened.records), expected);
        let changes = batches.next().expect("enough");
        opened.journal.append(&changes).expect("room");
        opened.journal.append(&[]).expect("nothing to do");
        expected = changed(expected, &changes);
    }
}

#[test]
fn a_second_user_is_refused_and_the_file_is_private() {
    let (folder, path) = folder();
    let first = open(&path, 1).expect("new");
    let refused = open(&path, 1).expect_err("in use");
    assert!(matches!(refused, JournalError::InUse { .. }), "{refused}");
    drop(first);
    open(&path, 1).expect("free again");
    #[cfg(unix)]
    {
        let metadata = path.metadata().expect("there");
        let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn a_file_that_is_no_journal_is_refused_and_left_alone() {
    let (_folder, path) = folder();
    let text = b"something else\n".repeat(2_000);
    for contents in [b"".as_slice(), b"x", &[0; 8192], &[0; 100_000], &text] {
        fs::write(&path, contents).expect("a file");
        let refused = open(&path, 1).expect_err("not a journal");
        assert!(matches!(refused, JournalError::Damaged { .. }), "{refused}");
        assert_eq!(fs::read(&path).expect("a file"), contents);
    }
    // The rest of a journal that a crash kept from getting its name is no obstacle.
    fs::remove_file(&path).expect("there");
    fs::write(path.with_file_name("tasks.journal.new"), "half a journal").expect("a file");
    assert_eq!(open(&path, 1).expect("new").records, []);
    let refused = open(Path::new("/nonexistent/folder/journal"), 1).expect_err("no folder");
    assert!(matches!(refused, JournalError::Io { .. }), "{refused}");
}

#[test]
fn a_copy_made_while_appends_go_on_holds_one_moment() {
    let (folder, path) = folder();
    let mut journal = open(&path, 7).expect("new").journal;
    let upkeep = journal.upkeep();
    let to = |i: usize| folder.path().join(format!("copy-{i}"));
    std::thread::scope(|scope| {
        let copies =
            scope.spawn(|| (0..5).map(|i| upkeep.backup(&to(i), || Ok(()))).collect::<Vec<_>>());
        // A copy has both records of a pair, or neither.
        let mut seq = 0;
        while !copies.is_finished() {
            let value = vec![1; 2_000];
            journal.append(&[put(seq, value.clone()), put(seq + 1, value)]).expect("room");
            seq += 2;
        }
        for made in copies.join().expect("no panic") {
            made.expect("copied");
        }
    });
    let mut last = 0;
    for i in 0..5 {
        let copy = open(&to(i), 1).expect("sound");
        let seqs = seqs(&copy.records);
        let count = u64::try_from(seqs.len()).expect("few");
        assert_eq!(seqs, (0..count).collect::<Vec<_>>());
        assert!(count % 2 == 0 && count >= last, "{count} after {last}");
        assert_eq!(copy.epoch, 8, "greater than that of the source");
        last = count;
    }
    let refused = upkeep.backup(&to(0), || Ok(())).expect_err("it exists");
    assert!(matches!(refused, JournalError::Exists { .. }), "{refused}");
    let refused = upkeep.backup(&path, || Ok(())).expect_err("it exists");
    assert!(matches!(refused, JournalError::Exists { .. }), "{refused}");
    drop(journal);
    let refused = upkeep.backup(&to(9), || Ok(())).expect_err("closed");
    assert!(matches!(refused, JournalError::Closed { .. }), "{refused}");
    let names = fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(names, 6, "nothing half-made is left");
}

#[cfg(unix)]
#[test]
fn what_a_crash_left_of_a_copy_is_replaced_and_nothing_else() {
    let (folder, path) = folder();
    let mut journal = open(&path, 7).expect("new").journal;
    let upkeep = journal.upkeep();
    let [copy, left, moved] = ["copy", "copy.new", "moved"].map(|name| folder.path().join(name));
    journal.append(&[put(1, "one")]).expect("room");
    fs::write(&left, b"half a copy\n".repeat(1_000_000)).expect("a file");
    upkeep.backup(&copy, || Ok(())).expect("no obstacle");
    assert!(!left.exists());
    // A copy with its final and its staging name, whose final name was moved since.
    fs::rename(&copy, &moved).expect("there");
    fs::hard_link(&moved, &left).expect("a link");
    let whole = fs::read(&moved).expect("there");
    journal.append(&[put(2, "two")]).expect("room");
    upkeep.backup(&copy, || Ok(())).expect("no obstacle");
    assert!(fs::read(&moved).expect("there") == whole, "it is as it was");
    assert!(!left.exists());
    for (copy, expected) in [(moved, vec![1]), (copy, vec![1, 2])] {
        let found = open(&copy, 1).expect("sound").records;
        assert_eq!(seqs(&found), expected);
    }
    // A folder in the way is not removed.
    let [copy, other] = ["other", "other.new"].map(|name| folder.path().join(name));
    fs::create_dir(&other).expect("ours");
    let refused = upkeep.backup(&copy, || Ok(())).expect_err("a folder is in the way");
    assert!(refused.to_string().contains("other.new"), "{refused}");
    assert!(other.is_dir() && !copy.exists());
}

#[test]
fn compaction_gives_space_back_and_keeps_what_is_in_use() {
    let (_folder, path) = folder();
    let mut journal = open(&path, 1).expect("new").journal;
    let all: Vec<_> = (0..2_000).map(|seq| put(seq, vec![9; 4_000])).collect();
    journal.append(&all).expect("room");
    let most: Vec<_> = (0..1_990).map(remove).collect();
    journal.append(&most).expect("room");
    let before = journal.upkeep().size_bytes().expect("a size");
    assert!(journal.compact().expect("sound"));
    let after = journal.upkeep().size_bytes().expect("a size");
    assert!(before > 8_000_000 && after < 2_500_000, "{before} {after}");
    assert_eq!(path.metadata().expect("there").len(), after);
    journal.append(&[put(1, "after")]).expect("room");
    drop(journal);
    let expected = changed(changed(changed(State::new(), &all), &most), &[put(1, "after")]);
    assert_eq!(state(&open(&path, 1).expect("sound").records), expected);
}

#[test]
fn a_record_too_large_is_refused_with_its_batch() {
    let (_folder, path) = folder();
    let mut journal = open(&path, 1).expect("new").journal;
    let large = vec![0; super::super::record::VALUE_BYTES_MAX + 1];
    let refused = journal.append(&[put(1, "a"), put(2, large)]).expect_err("too large");
    assert!(matches!(refused, JournalError::TooLarge { .. }), "{refused}");
    journal.append(&[put(3, "b")]).expect("room");
    drop(journal);
    let found = open(&path, 1).expect("sound").records;
    assert_eq!(seqs(&found), [3]);
}

#[test]
fn what_cannot_be_written_down_fails_alone() {
    use super::super::log::{Draft, Log, Outcome};
    use super::super::record::VALUE_BYTES_MAX;
    use super::super::writer::{BATCH_BYTES, Writer};
    let (_folder, path) = folder();
    let journal = open(&path, 1).expect("new").journal;
    let (told, heard) = std::sync::mpsc::channel();
    let told = Box::new(move |outcome| told.send(outcome).expect("heard"));
    let writer = Writer::start(journal, BATCH_BYTES, told).expect("a thread");
    let odd = || Err(JournalError::Record { what: "planted".into() });
    let large = || Ok(vec![put(7, "beside it"), put(3, vec![0; VALUE_BYTES_MAX + 1])]);
    writer.submit(1, put(1, "a").into()).expect("room");
    writer.submit(2, Draft { bytes: 1, write: Box::new(odd) }).expect("room");
    writer.submit(3, Draft { bytes: 1, write: Box::new(large) }).expect("room");
    writer.submit(4, put(4, "b").into()).expect("room");
    drop(writer);
    let (mut failed, mut durable) = (Vec::new(), 0);
    for outcome in heard {
        match outcome {
            Outcome::Durable(upto) => durable = upto,
            Outcome::Failed { tickets, .. } => {
                assert!(durable < tickets[0], "it is said before it would count as durable");
                failed.extend(tickets);
            }
        }
    }
    assert_eq!((failed, durable), (vec![2, 3], 4));
    let found = open(&path, 1).expect("sound").records;
    assert_eq!(seqs(&found), [1, 4]);
}

#[test]
fn writers_flush_when_dropped() {
    use super::super::log::{Log, Outcome};
    use super::super::writer::{BATCH_BYTES, Writer};
    let (_folder, path) = folder();
    let journal = open(&path, 1).expect("new").journal;
    let (told, heard) = std::sync::mpsc::channel();
    let told = Box::new(move |outcome| told.send(outcome).expect("heard"));
    let writer = Writer::start(journal, BATCH_BYTES, told).expect("a thread");
    for ticket in 1..=500 {
        writer.submit(ticket, put(ticket, "value").into()).expect("room");
    }
    let began = Instant::now();
    drop(writer);
    let outcomes: Vec<_> = heard.iter().collect();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Durable(_))), "{outcomes:?}");
    assert!(matches!(outcomes.last(), Some(Outcome::Durable(500))));
    assert!(outcomes.len() < 250, "{} commits, {:?}", outcomes.len(), began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(open(&path, 1).expect("free").records.len(), 500);
}
