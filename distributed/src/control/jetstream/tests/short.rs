//! Commits of several messages, and how the stream stays short.

use super::super::frame::{self, Body, Carried};
use super::super::pen::Pen;
use super::super::{JetStreamLog, Stream};
use super::{client, log, nats, stream};
use crate::control::chain::Link;
use crate::control::conformance::{open, put};
use crate::control::log::{Change, Opener, Outcome, Place};
use crate::control::remembered::Remembered;
use crate::error::JournalError;
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

#[test]
fn commits_of_several_messages_are_there_whole_or_not_at_all() {
    let nats = nats!(1);
    let place = log(&nats, "parts");
    let running = open(&place, 1).expect("free");
    running.log.submit(1, vec![put(1, 3_000_000), put(2, 10)].into()).expect("taken");
    running.log.submit(2, Change::Remove { epoch: 7, seq: 2 }.into()).expect("taken");
    assert!(running.fates(1..=2).values().all(|durable| *durable));
    assert_eq!(running.log.read((7, 1)).expect("there"), Some(vec![1; 3_000_000]));
    assert_eq!(running.log.read((7, 2)).expect("there"), None);
    drop(running);
    // The leader was killed before the commit's last message.
    let client = Arc::new(client(&nats, "parts"));
    let mut pen = Pen::new(&client, Duration::from_secs(5));
    pen.tail = client.info().expect("there").state.last_seq;
    let link = Link { number: 9, digest: vec![9; 32] };
    let bytes = frame::commit(None, &[put(3, 10)]);
    pen.write(&link, Body::Part { at: 0, of: 2, bytes }).expect("taken");
    let running = open(&place, 1).expect("free");
    assert_eq!(running.found.keys().copied().collect::<Vec<_>>(), [(7, 1)]);
    running.log.submit(1, put(4, 10).into()).expect("taken");
    // A retry whose first answer was lost: it arrives after other messages and does not count.
    assert_eq!(running.fates(1..=1), [(1, true)].into());
    drop(running);
    assert_eq!(open(&place, 1).expect("free").found.len(), 2);
}

#[test]
fn what_does_not_count_is_purged_and_the_rest_stays() {
    let nats = nats!(1);
    // Opening fetches most values again.
    let short = Stream { slack: 100_000, kept_bytes: 10_000, ..stream(&nats, "short") };
    let place = JetStreamLog::new(short, nats.0[0].beside("short.last"));
    let running = open(&place, 1).expect("free");
    let mut expected = BTreeMap::new();
    let mut write = |ticket: u64, change: Change| {
        match change.clone() {
            Change::Put(record) => expected.insert((7, record.seq), record.bytes),
            Change::Remove { seq, .. } => expected.remove(&(7, seq)),
        };
        running.log.submit(ticket, change.into()).expect("taken");
        if ticket.is_multiple_of(20) {
            assert!(running.fates(ticket..=ticket).values().all(|durable| *durable));
        }
    };
    // Every tenth record stays; the others are soon replaced.
    for ticket in 1..=1_000 {
        write(
            ticket,
            match ticket % 10 {
                0 => put(ticket, 1_000),
                1 => Change::Remove { epoch: 7, seq: ticket / 2 },
                _ => put(5_000 + ticket % 7, 3_000),
            },
        );
    }
    let client = client(&nats, "short");
    let state = client.info().expect("there").state;
    assert!(state.first_seq > 5 && state.bytes < 600_000, "{state:?}");
    assert!(running.log.size_bytes().expect("there") < 600_000);
    for (key, value) in &expected {
        assert_eq!(running.log.read(*key).expect("there").as_ref(), Some(value), "{key:?}");
    }
    drop(running);
    let running = open(&place, 9).expect("free");
    assert_eq!(running.found, expected);
    assert!([1, 9].iter().all(|epoch| running.epochs.contains(epoch)), "they are carried on");
    let epochs = running.epochs.clone();
    drop(running);
    let long = JetStreamLog::new(stream(&nats, "short"), nats.0[0].beside("short.last"));
    let running = open(&long, 9).expect("free");
    for ticket in 1..=100 {
        running.log.submit(ticket, put(5_000, 3_000).into()).expect("taken");
    }
    expected.insert((7, 5_000), vec![(5_000 % 251) as u8; 3_000]);
    assert!(running.fates(1..=100).values().all(|durable| *durable));
    let before = running.log.size_bytes().expect("there");
    assert!(running.log.compact().expect("open"));
    assert!(running.log.size_bytes().expect("there") < before - 200_000);
    assert!(!running.log.compact().expect("open"), "there is nothing left to do");
    for (key, value) in &expected {
        assert_eq!(running.log.read(*key).expect("there").as_ref(), Some(value), "{key:?}");
    }
    drop(running);
    let again = open(&place, 9).expect("free");
    assert_eq!(again.found, expected);
    assert!(epochs.iter().all(|epoch| again.epochs.contains(epoch)), "{:?}", again.epochs);
}

#[test]
fn whoever_ends_before_it_purges_or_purges_late_loses_nothing() {
    let nats = nats!(1);
    let place = log(&nats, "late");
    let running = open(&place, 1).expect("free");
    for ticket in 1..=9 {
        running.log.submit(ticket, put(ticket, 100).into()).expect("taken");
        assert!(running.fates(ticket..=ticket)[&ticket]);
    }
    running.log.submit(10, Change::Remove { epoch: 7, seq: 2 }.into()).expect("taken");
    drop(running);
    // The leader republishes the live records of the first commits, and is cut off.
    let client = Arc::new(client(&nats, "late"));
    let mut pen = Pen::new(&client, Duration::from_secs(5));
    pen.tail = client.info().expect("there").state.last_seq;
    let last = Remembered(nats.0[0].beside("late.last")).read().expect("ours").expect("written");
    let moved = [put(1, 100), put(3, 100)];
    let carried = Carried { lead: 2_000_000, claimed: 2_000_000, epochs: [1].into() };
    let bytes = frame::commit(Some(&carried), &moved);
    pen.commit(&last.next(&moved), &bytes).expect("it is the next");
    let expected: Vec<_> = [1, 3, 4, 5, 6, 7, 8, 9].map(|seq| (7, seq)).into();
    let keys = |found: &BTreeMap<_, Vec<u8>>| found.keys().copied().collect::<Vec<_>>();
    let refused = open_early(&place);
    assert!(matches!(refused, JournalError::InUse { .. }), "the lead is carried on: {refused}");
    let opener = Opener { lead: 2_000_001, epoch: 2 };
    let mut found = BTreeMap::new();
    let opened = place.open(opener, &mut |key, bytes| {
        found.insert(key, bytes.to_vec());
        Ok(())
    });
    assert_eq!(
        (keys(&found), opened.as_ref().expect("later").epochs.clone()),
        (expected.clone(), vec![1, 2, 2_000_001])
    );
    let running = (opened.expect("later").start)(Box::new(|_| {})).expect("a thread");
    // The claim and the opening of the first leader, and its commits of 1, 2 and 3.
    client.purge(6).expect("as it would");
    for key in &expected {
        assert_eq!(running.read(*key).expect("there").map(|value| value.len()), Some(100));
    }
    drop(running);
    let mut again = BTreeMap::new();
    let opener = Opener { lead: 2_000_002, epoch: 3 };
    let opened = place.open(opener, &mut |key, bytes| {
        again.insert(key, bytes.to_vec());
        Ok(())
    });
    assert_eq!(opened.expect("later").epochs, [1, 2, 3, 2_000_001, 2_000_002]);
    assert_eq!(again, found);
}

fn open_early(place: &JetStreamLog) -> JournalError {
    place.open(1_999_999.into(), &mut |_, _| Ok(())).err().expect("of an earlier lead")
}

#[test]
fn of_two_that_open_it_at_once_the_later_lead_has_it() {
    let nats = nats!(1);
    let place = log(&nats, "at_once");
    let (mut writer, mut ticket) = (open(&place, 1).expect("free").log, 0);
    for round in 0..10 {
        // The previous leader continues to write meanwhile.
        for _ in 0..5 {
            ticket += 1;
            writer.submit(ticket, put(ticket, 10).into()).expect("taken, for the time being");
        }
        let lead = 3_000_000 + round * 2;
        let (sender, told) = mpsc::channel();
        let [earlier, later] = std::thread::scope(|scope| {
            let open = |lead: u64| {
                let (place, sender) = (&place, sender.clone());
                scope.spawn(move || {
                    let opened = place.open(Opener { lead, epoch: lead }, &mut |_, _| Ok(()))?;
                    (opened.start)(Box::new(move |outcome| drop(sender.send((lead, outcome)))))
                })
            };
            [open(lead), open(lead + 1)].map(|thread| thread.join().expect("no panic"))
        });
        let later = later.expect("nobody has a later lead");
        later.submit(1, put(100 + round, 10).into()).expect("taken");
        let told = told.recv_timeout(Duration::from_secs(30)).expect("it is told");
        assert!(matches!(told, (from, Outcome::Durable(1)) if from == lead + 1), "{told:?}");
        match earlier {
            Ok(deposed) => {
                deposed.submit(1, put(200 + round, 10).into()).expect("taken, and refused then");
            }
            Err(error) => assert!(matches!(error, JournalError::InUse { .. }), "{error}"),
        }
        (writer, ticket) = (later, 1);
    }
    drop(writer);
    let mut found = Vec::new();
    let opened = place.open(4_000_000.into(), &mut |key, _| {
        found.extend((key.1 >= 100).then_some(key.1));
        Ok(())
    });
    drop(opened.expect("free"));
    assert_eq!(found, (100..110).collect::<Vec<_>>());
}
