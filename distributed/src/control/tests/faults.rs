//! Death, power loss and failing syncs at each operation of a run: acknowledged changes survive,
//! and nothing else but the change in progress may be there.

use super::disk::Plan;
use super::*;

/// A run's knowledge when it ends, by itself or by a fault.
#[derive(Debug, Default)]
struct Known {
    acknowledged: State,
    /// The state if the failed change took effect.
    in_doubt: Option<State>,
    epoch: u64,
    errors: Vec<JournalError>,
}

/// Opens, appends, compacts, closes, opens again and appends.
fn run(disk: &Arc<Disk>) -> Known {
    let mut known = Known::default();
    for part in script().chunks(3) {
        let mut journal = match start(disk) {
            Ok(opened) => {
                assert_eq!(state(&opened.records), known.acknowledged);
                assert!(opened.epoch > known.epoch);
                known.epoch = opened.epoch;
                opened.journal
            }
            Err(error) => {
                known.errors.push(error);
                return known;
            }
        };
        for changes in part {
            let after = changed(known.acknowledged.clone(), changes);
            match journal.append(changes) {
                Ok(()) => known.acknowledged = after,
                Err(error) => {
                    known.in_doubt.get_or_insert(after);
                    known.errors.push(error);
                }
            }
        }
        known.errors.extend(journal.compact().err());
        if !known.errors.is_empty() {
            return known;
        }
    }
    known
}

fn check(disk: &Arc<Disk>, known: &Known, what: &str) {
    let opened = start(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = state(&opened.records);
    let expected = found == known.acknowledged || Some(&found) == known.in_doubt.as_ref();
    assert!(expected, "{what}: found {} records of {known:?}", found.len());
    assert!(opened.epoch > known.epoch, "{what}");
    // The journal accepts further changes.
    let mut journal = opened.journal;
    journal.append(&[put(77, "more")]).unwrap_or_else(|error| panic!("{what}: {error}"));
    drop(journal);
    let again = start(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(state(&again.records), changed(found, &[put(77, "more")]), "{what}");
}

#[test]
fn what_was_acknowledged_survives_death_at_each_operation() {
    let disk = new_disk();
    disk.plan(Plan::Nothing);
    let known = run(&disk);
    assert!(known.errors.is_empty(), "{known:?}");
    let count = disk.operations();
    assert!(count > 100, "{count}");
    for k in 0..count {
        let disk = new_disk();
        disk.plan(Plan::DieAt(k));
        let known = run(&disk);
        // Closing ignores errors, so death may come after the last answer.
        check(&disk.after_kill(), &known, &format!("killed at {k}"));
        for seed in 0..3 {
            let what = format!("power lost at {k}, {seed}");
            check(&disk.after_power_loss(seed), &known, &what);
        }
    }
}

#[test]
fn a_failing_sync_is_the_end_of_appending() {
    let mut broken = 0;
    for k in 0.. {
        let disk = new_disk();
        disk.plan(Plan::FailSyncAt(k));
        let known = run(&disk);
        if disk.operations() <= k {
            break;
        }
        let appended: Vec<_> =
            known.errors.iter().filter(|e| matches!(e, JournalError::Broken { .. })).collect();
        if let Some(first) = appended.first() {
            broken += 1;
            // Each later append returns the first failure, although the disk works again.
            let same = appended.iter().all(|error| error.to_string() == first.to_string());
            assert!(same && appended.len() == known.errors.len(), "{known:?}");
        }
        check(&disk.after_kill(), &known, &format!("killed after the sync {k} failed"));
        check(&disk.after_power_loss(k), &known, &format!("power lost after sync {k}"));
    }
    assert!(broken > 8, "{broken}");
}

#[test]
fn a_disk_that_cannot_be_read_is_not_called_damaged() {
    let disk = new_disk();
    let bytes = disk.bytes();
    disk.plan(Plan::Unreadable);
    let refused = start(&disk).expect_err("unreadable");
    assert!(matches!(refused, JournalError::Io { .. }), "{refused}");
    assert_eq!(disk.bytes(), bytes);
}

#[test]
fn an_older_state_is_noticed_and_an_unacknowledged_one_is_kept() {
    let disk = new_disk();
    let mut journal = start(&disk).expect("sound").journal;
    journal.append(&[put(1, "a")]).expect("room");
    let older = disk.bytes();
    journal.append(&[put(2, "b")]).expect("room");
    let newer = disk.bytes();
    let head = usize::try_from(super::super::guard::HEAD_BYTES).expect("small");
    // redb accepts either state: only the guard knows which was acknowledged.
    let lost = Disk::of([&newer[..head], &older[head..]].concat());
    let refused = start(&lost).expect_err("older");
    assert!(refused.to_string().contains("it holds commit 3, expected 4"), "{refused}");
    let under_way = Disk::of([&older[..head], &newer[head..]].concat());
    assert_eq!(start(&under_way).expect("sound").records.len(), 2);
}
