//! Logs written, read and replayed.

use super::*;
use crate::error::Error;
use crate::segments::{RangeId, SegmentStats, Segments, SimulatedDevice};
use proptest::prelude::*;

const MIB: usize = 1 << 20;

fn limits() -> SegmentLimits {
    SegmentLimits { segment_bytes: MIB, ..SegmentLimits::new(8 * MIB, 4 * MIB) }
}

fn device() -> SimulatedDevice {
    SimulatedDevice::new(8 * MIB, 4 * MIB)
}

/// Runs random requests and logs them.
fn logged(
    capacity: usize,
    steps: &[(bool, usize, prop::sample::Index)],
) -> (MemoryLog, SegmentStats) {
    let mut segments = Segments::new(limits(), device()).unwrap();
    let mut log = MemoryLog::new(limits(), capacity);
    let mut live: Vec<RangeId> = Vec::new();
    for (i, &(free, bytes, which)) in (0..).zip(steps) {
        let owner: Arc<str> = ["weights", "a, \"b\"\nc", ""][bytes % 3].into();
        let event = if free && !live.is_empty() {
            let id = live.swap_remove(which.index(live.len()));
            segments.free(id).unwrap();
            MemoryEvent::Freed { range: id.serial() }
        } else if let Ok(id) = segments.allocate(bytes, &owner) {
            live.push(id);
            MemoryEvent::Taken { range: id.serial(), bytes, owner }
        } else {
            MemoryEvent::Failed { bytes, owner }
        };
        log.push(Duration::from_micros(i), event);
    }
    (log, segments.stats())
}

fn steps() -> impl Strategy<Value = Vec<(bool, usize, prop::sample::Index)>> {
    prop::collection::vec(
        (prop::bool::weighted(0.4), 0..2 * MIB, any::<prop::sample::Index>()),
        1..80,
    )
}

proptest! {
    /// A complete log reproduces, through a file, the exact final state.
    #[test]
    fn a_whole_log_replays_exactly(steps in steps()) {
        let (log, stats) = logged(1000, &steps);
        let mut file = Vec::new();
        log.write_csv(&mut file).unwrap();
        let read = MemoryLog::read_csv(&file[..]).unwrap();
        prop_assert_eq!(&read.events, &log.events);
        let replay = read.replay(read.limits(), device()).unwrap();
        prop_assert_eq!(replay.stats, stats);
        prop_assert_eq!(replay.recovered, 0);
        prop_assert_eq!(replay.first_failure.is_some(), stats.failures > 0);
    }

    /// A log that dropped events still ends with the same ranges.
    #[test]
    fn a_short_log_ends_with_the_same_ranges(steps in steps(), capacity in 0usize..20) {
        let (log, stats) = logged(capacity, &steps);
        prop_assert!(log.events().count() <= capacity);
        prop_assert_eq!(log.dropped(), steps.len().saturating_sub(capacity) as u64);
        let mut file = Vec::new();
        log.write_csv(&mut file).unwrap();
        let read = MemoryLog::read_csv(&file[..]).unwrap();
        prop_assert_eq!((&read.held, read.dropped), (&log.held, log.dropped));
        // Twice the memory, because the ranges may be packed less well.
        let plenty = SegmentLimits { budget_bytes: 16 * MIB, ..limits() };
        let replay = read.replay(plenty, SimulatedDevice::new(16 * MIB, 4 * MIB)).unwrap();
        prop_assert_eq!(replay.stats.in_use_bytes, stats.in_use_bytes);
    }

    /// Reading and replaying a file with any content ends with a result or an error.
    #[test]
    fn any_text_has_an_answer(text in "(event|[a-z]{4,6}|held|taken|freed|failed|phase|host|[0-9]{0,20}|,|\n|\"){0,60}") {
        let text = format!("event,time_us,range,bytes,owner\n{text}");
        if let Ok(log) = MemoryLog::read_csv(text.as_bytes()) {
            let _ = log.replay(limits(), device());
        }
    }
}

#[test]
fn a_shortage_is_found_again_and_a_larger_budget_mends_it() {
    let mut log = MemoryLog::new(limits(), 100);
    let second = Duration::from_secs(1);
    for range in 0..3 {
        log.push(second, MemoryEvent::Taken { range, bytes: 2 * MIB, owner: "weights".into() });
    }
    log.push(second, MemoryEvent::Failed { bytes: 3 * MIB, owner: "arena".into() });
    let replay = log.replay(log.limits(), device()).unwrap();
    let (event, error) = replay.first_failure.unwrap();
    assert_eq!(event, 3);
    assert!(
        error.to_string().contains("held by \"weights\": 6291456 bytes in 3 ranges"),
        "{error}"
    );
    let more = SegmentLimits { budget_bytes: 9 * MIB, ..log.limits() };
    let replay = log.replay(more, SimulatedDevice::new(9 * MIB, 4 * MIB)).unwrap();
    assert_eq!((replay.recovered, replay.first_failure), (1, None));
}

#[test]
fn every_kind_of_event_survives_a_file() {
    let mut log = MemoryLog::new(limits(), 9);
    for event in [
        MemoryEvent::Phase { name: "load".into() },
        MemoryEvent::Taken { range: 3, bytes: 10, owner: "weights".into() },
        MemoryEvent::Host { owner: "process".into(), bytes: 77 },
        MemoryEvent::Failed { bytes: 5, owner: "arena".into() },
        MemoryEvent::Freed { range: 3 },
    ] {
        log.push(Duration::from_micros(8), event);
    }
    let mut file = Vec::new();
    log.write_csv(&mut file).unwrap();
    let read = MemoryLog::read_csv(&file[..]).unwrap();
    assert_eq!((read.limits, read.events), (log.limits, log.events));
}

#[test]
fn damaged_lines_are_named() {
    let head = "event,time_us,range,bytes,owner\n";
    for (text, part) in [
        ("event,time\n", "line 1: it has other columns"),
        (&format!("{head}taken,1,2,many,x\n"), "line 2: its bytes is \"many\", expected a number"),
        (&format!("{head}held,,1,5,x\ntaken,1,1,5,x\n"), "line 3: its range is \"1\""),
        (&format!("{head}freed,-1,2,,\n"), "its time_us is \"-1\""),
        (&format!("{head}melted,1,2,,\n"), "its event is \"melted\", expected an event"),
        (&format!("{head}freed,1\n"), "fields"),
    ] {
        let error = MemoryLog::read_csv(text.as_bytes()).unwrap_err();
        assert!(matches!(error, Error::LogLine { .. } | Error::LogFile { .. }));
        assert!(error.to_string().contains(part), "{error}");
    }
}
