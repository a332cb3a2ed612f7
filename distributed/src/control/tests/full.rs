//! A full disk: changes that do not fit are absent, and changes after it has room again are stored.

use super::disk::Plan;
use super::*;

#[test]
fn a_full_disk_refuses_whole_batches_and_takes_others_later() {
    for spare in 0..60 {
        let disk = new_disk();
        let mut journal = start(&disk).expect("sound").journal;
        journal.append(&script()[0]).expect("room");
        let mut expected = changed(State::new(), &script()[0]);
        disk.plan(Plan::Blocks(disk.blocks() + spare));
        let mut refused = 0;
        for seq in 100..180 {
            let changes = [put(seq, vec![1; 3_000]), put(seq + 1_000, "beside it")];
            match journal.append(&changes) {
                Ok(()) => expected = changed(expected, &changes),
                Err(JournalError::Full { .. }) => refused += 1,
                Err(error) => panic!("{spare}: {error}"),
            }
        }
        assert!(refused > 0, "{spare}");
        let copy = start(&disk.after_kill()).expect("sound");
        assert_eq!(state(&copy.records), expected, "{spare}");
        // There is room again.
        disk.plan(Plan::Nothing);
        let changes: Vec<_> = (300..400).map(|seq| put(seq, vec![2; 2_000])).collect();
        journal.append(&changes).expect("room");
        expected = changed(expected, &changes);
        drop(journal);
        assert_eq!(state(&start(&disk).expect("sound").records), expected, "{spare}");
    }
}

#[test]
fn a_disk_that_takes_no_write_at_all_for_a_while_loses_nothing() {
    let (mut full, mut broken) = (0, 0);
    for k in 0.. {
        let disk = new_disk();
        let mut journal = start(&disk).expect("sound").journal;
        let mut expected = State::new();
        disk.plan(Plan::FullFrom(k));
        let mut in_doubt = None;
        for changes in script() {
            let after = changed(expected.clone(), &changes);
            match journal.append(&changes) {
                Ok(()) => expected = after,
                Err(JournalError::Full { .. }) if in_doubt.is_none() => {
                    full += 1;
                    disk.plan(Plan::Nothing);
                    journal.append(&changes).expect("room");
                    expected = after;
                }
                Err(JournalError::Broken { .. }) => {
                    broken += 1;
                    in_doubt.get_or_insert(after);
                }
                Err(error) => panic!("{k}: {error}"),
            }
        }
        let reached = disk.operations() > k || full + broken > k;
        drop(journal);
        let found = state(&start(&disk.after_kill()).expect("sound").records);
        assert!(found == expected || Some(found) == in_doubt, "{k}");
        if !reached {
            break;
        }
    }
    // The journal breaks only if the guard cannot be overwritten in place.
    assert!(full > 40 && broken < full, "{full} {broken}");
}

#[test]
fn a_full_disk_at_the_start_is_told_and_changes_nothing() {
    let disk = new_disk();
    let bytes = disk.bytes();
    disk.plan(Plan::FullFrom(0));
    let refused = start(&disk).expect_err("no room");
    assert!(matches!(refused, JournalError::Full { .. }), "{refused}");
    assert_eq!(disk.bytes(), bytes);
    disk.plan(Plan::Nothing);
    assert_eq!(start(&disk).expect("room").records, []);
}
