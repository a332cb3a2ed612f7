//! Sequences that start, continue, idle and end.

use super::*;
use lgp_sdk::tensor::Tensor;

const IDLE: Duration = Duration::from_millis(100);

fn key(id: u64) -> Key {
    let (caller, name) = ("k".to_owned(), "m".to_owned());
    Key { caller, name, version: None, id: SequenceId::Number(id) }
}

fn model(name: &str) -> Model<&'static str> {
    Model { key: (name.to_owned(), 1), idle: IDLE, entry: "entry" }
}

fn state(value: f32) -> Vec<NamedTensor> {
    vec![NamedTensor::new("s", Tensor::from_slice([1], &[value]).expect("small"))]
}

fn table(sequences: u64, bytes: usize) -> Table<&'static str> {
    Table::new(Limits { sequences, bytes })
}

/// Starts a sequence with one inference and keeps its state.
fn begin(table: &mut Table<&'static str>, id: u64, now: Instant) -> Result<u64, Full> {
    table.enter(&key(id), now);
    let number = table.begin(&key(id), model("m"), 4, now);
    let kept = number
        .and_then(|number| table.keep((&key(id), number), state(1.0), 4, now).map(|()| number));
    table.leave(&key(id), now);
    kept
}

#[test]
fn a_state_stays_until_its_sequence_is_over() {
    let (mut table, began) = (table(8, 100), Instant::now());
    let after = |ms| began + Duration::from_millis(ms);
    let number = begin(&mut table, 1, began).expect("there is room");
    assert_eq!((table.bytes, table.open[&("m".to_owned(), 1)]), (4, 1));
    // Each inference restarts the idle time, and a running inference is not idle.
    table.enter(&key(1), after(99));
    table.sweep(after(500));
    let found = table.find(&key(1)).expect("it is open");
    assert_eq!((found.number, found.states), (number, state(1.0)));
    table.leave(&key(1), after(500));
    table.sweep(after(599));
    assert!(table.find(&key(1)).is_some());
    // Without a sweep, a late inference does not find the sequence either.
    table.enter(&key(1), after(600));
    assert!(table.find(&key(1)).is_none());
    table.leave(&key(1), after(600));
    assert!(table.slots.is_empty() && table.open.is_empty() && table.bytes == 0);

    let number = begin(&mut table, 2, began).expect("there is room");
    table.finish(&key(2), number + 1);
    assert!(table.find(&key(2)).is_some(), "it is another one");
    table.finish(&key(2), number);
    assert!(table.slots.is_empty() && table.bytes == 0);
    begin(&mut table, 3, began).expect("there is room");
    table.sweep(after(100));
    assert!(table.slots.is_empty() && table.bytes == 0);
}

#[test]
fn what_ended_meanwhile_keeps_nothing() {
    let (mut table, now) = (table(8, 100), Instant::now());
    table.enter(&key(1), now);
    let number = table.begin(&key(1), model("m"), 4, now).expect("there is room");
    table.end(|key| key.0 == "other");
    assert!(table.find(&key(1)).is_some());
    table.end(|key| key.0 == "m");
    assert!(table.find(&key(1)).is_none() && table.bytes == 0);
    table.keep((&key(1), number), state(2.0), 4, now).expect("it is for nothing");
    assert!(table.find(&key(1)).is_none() && table.bytes == 0);
    // The next inference in line restarts the sequence; the first one's state does not apply to it.
    let next = table.begin(&key(1), model("m"), 4, now).expect("there is room");
    table.keep((&key(1), number), state(3.0), 4, now).expect("it is for nothing");
    assert_eq!(table.find(&key(1)).expect("it is open").states, []);
    table.keep((&key(1), next), state(4.0), 4, now).expect("there is room");
    assert_eq!(table.find(&key(1)).expect("it is open").states, state(4.0));
}

#[test]
fn both_rooms_are_bounded_and_what_is_over_makes_room() {
    let (mut table, began) = (table(2, 100), Instant::now());
    let after = |ms| began + Duration::from_millis(ms);
    for id in [1, 2] {
        begin(&mut table, id, began).expect("there is room");
    }
    assert_eq!(begin(&mut table, 3, after(50)), Err(Full::Sequences { most: 2 }));
    assert_eq!(table.slots.len(), 2, "what was refused leaves nothing");
    begin(&mut table, 2, after(50)).expect("begun anew it is no other one");
    // Each model has its own count.
    table.enter(&key(4), after(50));
    let number = table.begin(&key(4), model("other"), 40, after(50)).expect("there is room");
    begin(&mut table, 3, after(100)).expect("the first one was idle for too long");

    assert_eq!(table.bytes, 48);
    let full = |wanted| Err(Full::Bytes { wanted, most: 100 });
    assert_eq!(table.keep((&key(4), number), state(1.0), 93, after(100)), full(93));
    assert_eq!(table.bytes, 48, "what was refused changes nothing");
    table.keep((&key(4), number), state(1.0), 92, after(100)).expect("all that is left");
    table.enter(&key(5), after(100));
    assert_eq!(table.begin(&key(5), model("third"), 1, after(100)), full(1).map(|()| 0));
    // The two sequences of the first model have expired by then.
    table.begin(&key(5), model("third"), 1, after(300)).expect("they made room");
    assert_eq!(table.bytes, 93);
    let too_large = Full::Bytes { wanted: 101, most: 100 }.fault("m");
    assert_eq!((too_large.status.as_u16(), too_large.retry_after), (413, None));
    for full in [Full::Bytes { wanted: 1, most: 100 }, Full::Sequences { most: 2 }] {
        let fault = full.fault("m");
        assert!(fault.status == 503 && fault.retry_after.is_some(), "{}", fault.message);
    }
}
