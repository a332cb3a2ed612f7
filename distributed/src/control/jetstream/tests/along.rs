//! A follower reads the log ahead.

use super::super::JetStreamLog;
use super::super::client::Client;
use super::{client, log, nats, stream};
use crate::control::conformance::{Running, open, put};
use crate::control::log::{Change, Place};
use std::time::{Duration, Instant};

/// Follows until the last message was read.
fn follow(place: &JetStreamLog, client: &Client) {
    let last = client.info().expect("there").state.last_seq;
    let end = Instant::now() + Duration::from_secs(20);
    while place.along.tail() < last {
        assert!(Instant::now() < end, "it reads up to {}, not {last}", place.along.tail());
        place.follow();
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn write(running: &Running, ticket: u64, change: Change) {
    running.log.submit(ticket, change.into()).expect("taken");
    assert_eq!(running.fates(ticket..=ticket), [(ticket, true)].into());
}

#[test]
fn who_reads_along_opens_it_by_what_was_written_since() {
    let nats = nats!(1);
    let place = log(&nats, "along");
    let follower = JetStreamLog::new(stream(&nats, "along"), nats.0[0].beside("follower.last"));
    follower.follow();
    let running = open(&place, 1).expect("free");
    let client = client(&nats, "along");
    for ticket in 1..=200 {
        write(&running, ticket, put(ticket, 20));
    }
    follow(&follower, &client);
    // Without that message no other coordinator can open the log.
    client.delete(100);
    write(&running, 201, Change::Remove { epoch: 7, seq: 9 });
    write(&running, 202, put(1, 7));
    drop(running);
    let error = open(&place, 1).err().expect("a message is not there").to_string();
    assert!(error.contains("from message 65 on one is not there"), "{error}");
    let running = open(&follower, 1).expect("it was read before");
    let found: Vec<u64> = running.found.keys().map(|key| key.1).collect();
    assert_eq!(found, (1..=200).filter(|seq| *seq != 9).collect::<Vec<_>>());
    assert_eq!((running.found[&(7, 1)].len(), running.found[&(7, 200)].len()), (7, 20));
    write(&running, 1, put(300, 20));
}

#[test]
fn what_was_purged_while_nobody_followed_is_not_missed() {
    let nats = nats!(1);
    let place = log(&nats, "swept");
    let follower = JetStreamLog::new(stream(&nats, "swept"), nats.0[0].beside("follower.last"));
    let running = open(&place, 1).expect("free");
    write(&running, 1, put(1, 20));
    let client = client(&nats, "swept");
    follow(&follower, &client);
    for ticket in 2..=40 {
        write(&running, ticket, put(ticket % 4, 20_000));
    }
    assert!(running.log.compact().expect("there is what does not count"));
    assert!(client.info().expect("there").state.first_seq > follower.along.tail() + 1);
    follow(&follower, &client);
    for ticket in 41..=80 {
        write(&running, ticket, put(ticket % 4, 20_000));
    }
    assert!(running.log.compact().expect("there is what does not count"));
    write(&running, 81, put(5, 20));
    drop(running);
    let running = open(&follower, 1).expect("free");
    assert_eq!(running.found.keys().map(|key| key.1).collect::<Vec<_>>(), [0, 1, 2, 3, 5]);
}

#[test]
fn a_stream_that_was_restored_is_not_taken_for_the_one_that_was_read() {
    let mut nats = nats!(1);
    let place = log(&nats, "fork");
    let follower = JetStreamLog::new(stream(&nats, "fork"), nats.0[0].beside("follower.last"));
    let running = open(&place, 1).expect("free");
    write(&running, 1, put(1, 10));
    nats.0[0].kill();
    nats.0[0].copy("data", "backup");
    nats.run(0);
    write(&running, 2, put(2, 10));
    follow(&follower, &client(&nats, "fork"));
    let read = follower.along.tail();
    drop(running);
    nats.0[0].kill();
    nats.0[0].copy("backup", "data");
    nats.run(0);
    // The stream has as many messages as were read, but the last ones differ.
    let elsewhere = JetStreamLog::new(stream(&nats, "fork"), nats.0[0].beside("elsewhere"));
    drop(open(&elsewhere, 1).expect("free"));
    let last = client(&nats, "fork").info().expect("there").state.last_seq;
    assert!(last >= read, "{last}, {read}");
    let error = open(&follower, 1).err().expect("another log").to_string();
    assert!(error.contains("is another") && error.contains("follower.last"), "{error}");
}
