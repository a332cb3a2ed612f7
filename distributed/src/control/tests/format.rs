//! Older formats are upgraded in one step that a crash cannot split; newer ones are refused.

use super::super::migrate::Step;
use super::super::record;
use super::super::tables::RECORDS;
use super::super::trouble::Trouble;
use super::disk::Plan;
use super::*;
use redb::{ReadableTable, WriteTransaction};

const V1: Format = Format { version: 1, steps: &[] };
const V3: Format = Format {
    version: 3,
    steps: &[
        Step { from: 1, run: |txn| append(txn, b'2') },
        Step { from: 2, run: |txn| append(txn, b'3') },
    ],
};

fn new_disk() -> Arc<Disk> {
    new_disk_as(1)
}

fn start(disk: &Arc<Disk>) -> Result<Opened, JournalError> {
    start_as(disk, V1)
}

/// Rewrites each value with one more byte.
fn append(txn: &WriteTransaction, byte: u8) -> Result<(), Trouble> {
    let mut table = txn.open_table(RECORDS)?;
    let mut rows = Vec::new();
    for row in table.iter()? {
        let (key, stored) = row?;
        let value = record::decode(key.value(), stored.value()).map_err(Trouble::Damaged)?;
        rows.push((key.value(), [value, &[byte]].concat()));
    }
    let mut stored = Vec::new();
    for (key, value) in rows {
        record::encode(key, &value, &mut stored);
        table.insert(key, stored.as_slice())?;
    }
    Ok(())
}

/// A disk with records in format 1, and its records in formats 1 and 3.
fn old() -> (Arc<Disk>, State, State) {
    let disk = new_disk();
    let mut journal = start(&disk).expect("sound").journal;
    let changes: Vec<_> = (0..50).map(|seq| put(seq, vec![5; 200])).collect();
    journal.append(&changes).expect("room");
    drop(journal);
    let old = changed(State::new(), &changes);
    let new = old.iter().map(|(key, value)| (*key, [value.as_slice(), b"23"].concat())).collect();
    (disk, old, new)
}

#[test]
fn a_journal_of_the_first_format_is_read_as_it_is() {
    let (disk, old, _) = old();
    for _ in 0..2 {
        assert_eq!(state(&start_as(&disk, Format::CURRENT).expect("upgraded").records), old);
    }
    let refused = start(&disk).expect_err("too new");
    assert!(matches!(refused, JournalError::TooNew { found: 3, supported: 1, .. }), "{refused}");
}

#[test]
fn the_epochs_of_an_older_journal_are_those_of_its_tasks_and_of_its_last_coordinator() {
    let disk = new_disk_as(2);
    let v2 = Format { version: 2, steps: &[] };
    let record = |epoch, seq| Change::Put(Record { epoch, seq, bytes: b"a task".to_vec() });
    let mut journal = start_as(&disk, v2).expect("sound").journal;
    journal.append(&[record(40, 1), record(40, 2), record(70, 9)]).expect("room");
    // That version had no records of epochs.
    journal.append(&[Change::Remove { epoch: 1, seq: 0 }]).expect("room");
    drop(journal);
    let opened = start_as(&disk, Format::CURRENT).expect("upgraded");
    assert_eq!((opened.epoch, opened.epochs), (2, vec![0, 1, 2, 40, 70][1..].to_vec()));
    assert_eq!(opened.records.len(), 3);
    drop(opened.journal);
    let again = start_as(&disk, Format::CURRENT).expect("sound");
    assert_eq!(again.epochs, [1, 2, 3, 40, 70]);
}

#[test]
fn an_upgrade_happens_whole_or_not_at_all() {
    let (disk, _, new) = old();
    disk.plan(Plan::Nothing);
    assert_eq!(state(&start_as(&disk, V3).expect("upgraded").records), new);
    let count = disk.operations();
    let (mut before, mut after) = (0, 0);
    for k in 0..count {
        let (disk, old, new) = old();
        disk.plan(Plan::DieAt(k));
        // Dropped at once if it opens: death may come while it closes.
        let _ = start_as(&disk, V3).map(drop);
        for left in [disk.after_kill(), disk.after_power_loss(k), disk.after_power_loss(k + 1000)] {
            match start(&Disk::of(left.bytes())) {
                Ok(opened) => {
                    before += 1;
                    assert_eq!(state(&opened.records), old, "{k}");
                }
                Err(JournalError::TooNew { found: 3, supported: 1, .. }) => after += 1,
                Err(error) => panic!("{k}: {error}"),
            }
            assert_eq!(state(&start_as(&left, V3).expect("sound").records), new, "{k}");
        }
    }
    assert!(before > 20 && after > 20, "{before} {after}");
}

#[test]
fn a_failing_step_leaves_the_old_version() {
    const FAILS: &[Step] = &[
        Step { from: 1, run: |txn| append(txn, b'2') },
        Step {
            from: 2,
            run: |txn| {
                append(txn, b'3')?;
                Err(Trouble::Upgrade { from: 1, what: "planted".into() })
            },
        },
    ];
    const PANICS: &[Step] = &[Step { from: 1, run: |_| panic!("planted") }];
    for (version, steps, expected) in [
        (3, FAILS, "cannot be upgraded: planted"),
        (2, PANICS, "planted"),
        (3, PANICS, "planted"),
        (2, &[], "no step leads from format 1 to format 2"),
    ] {
        let (disk, old, _) = old();
        let refused = start_as(&disk, Format { version, steps }).expect_err("fails");
        assert!(refused.to_string().contains(expected), "{refused}");
        assert_eq!(state(&start(&disk).expect("as before").records), old);
    }
}

#[test]
fn a_newer_version_is_refused_by_both_numbers_and_not_touched() {
    let (disk, _, new) = old();
    let journal = start_as(&disk, V3).expect("upgraded").journal;
    // In use, which is the state after a crash, and closed.
    let in_use = disk.bytes();
    drop(journal);
    for bytes in [in_use, disk.bytes()] {
        let disk = Disk::of(bytes.clone());
        let refused = start(&disk).expect_err("too new");
        assert_eq!(refused.to_string(), "journal journal has format 3, expected at most 1");
        assert_eq!(disk.bytes(), bytes);
        assert_eq!(state(&start_as(&disk, V3).expect("sound").records), new);
    }
}
