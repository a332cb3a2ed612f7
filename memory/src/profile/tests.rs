//! Phases, peaks and spikes of handwritten logs.

use super::*;
use crate::segments::SegmentLimits;
use proptest::prelude::*;

const RULE: SpikeRule = SpikeRule { bytes: 1000, within: Duration::from_millis(10) };

fn taken(range: u64, bytes: usize, owner: &str) -> MemoryEvent {
    MemoryEvent::Taken { range, bytes, owner: owner.into() }
}

fn phase(name: &str) -> MemoryEvent {
    MemoryEvent::Phase { name: name.into() }
}

fn log(events: impl IntoIterator<Item = (u64, MemoryEvent)>) -> MemoryLog {
    let mut log = MemoryLog::new(SegmentLimits::new(1 << 20, 1 << 20), 1000);
    for (ms, event) in events {
        log.push(Duration::from_millis(ms), event);
    }
    log
}

#[test]
fn each_phase_has_its_peak_and_who_held_it() {
    let host = |bytes| MemoryEvent::Host { owner: "host pool".into(), bytes };
    let log = log([
        (0, phase("load")),
        (1, taken(0, 500, "weights")),
        (2, taken(1, 300, "staging")),
        (3, host(70)),
        (4, MemoryEvent::Freed { range: 1 }),
        (5, phase("run")),
        (6, taken(2, 100, "arena")),
        (7, MemoryEvent::Failed { bytes: 9000, owner: "arena".into() }),
        (8, host(50)),
        (9, MemoryEvent::Freed { range: 2 }),
    ]);
    let profile = MemoryProfile::new(&log, RULE);
    let peaks: Vec<_> = profile
        .phases
        .iter()
        .map(|p| (&*p.name, p.begin.as_millis(), p.end.as_millis(), p.peak_bytes, p.failures))
        .collect();
    assert_eq!(peaks, [("", 0, 0, 0, 0), ("load", 0, 5, 800, 0), ("run", 5, 9, 600, 1)]);
    let holders = |phase: usize| -> Vec<(String, usize)> {
        profile.phases[phase].holders.iter().map(|h| (h.owner.to_string(), h.bytes)).collect()
    };
    assert_eq!(holders(1), [("weights".to_owned(), 500), ("staging".to_owned(), 300)]);
    assert_eq!(holders(2), [("weights".to_owned(), 500), ("arena".to_owned(), 100)]);
    // The host's memory at the start of a phase counts for the phase.
    let hosts: Vec<_> = profile.phases.iter().map(|p| p.host_peaks.get("host pool")).collect();
    assert_eq!(hosts, [None, Some(&70), Some(&70)]);
    let mut file = Vec::new();
    profile.write_csv(&mut file).unwrap();
    let text = String::from_utf8(file).unwrap();
    assert_eq!(
        text.lines().skip(2).take(3).collect::<Vec<_>>(),
        [
            "2000,load,device,staging,300,800",
            "3000,load,host,host pool,70,800",
            "4000,load,device,staging,0,500",
        ]
    );
}

#[test]
fn growth_is_a_spike_if_it_is_large_and_sudden() {
    for (events, wanted) in [
        // Too slow, then too little.
        (vec![(0, taken(0, 600, "a")), (11, taken(1, 600, "a"))], vec![]),
        (vec![(0, taken(0, 999, "a"))], vec![]),
        // At once; over several steps and owners; with a fall in between.
        (vec![(5, taken(0, 1000, "a"))], vec![(5, 5, 1000, vec![("a", 1000)])]),
        (
            vec![
                (1, taken(0, 100, "a")),
                (20, taken(1, 500, "b")),
                (25, taken(2, 600, "c")),
                (26, MemoryEvent::Freed { range: 0 }),
                (30, taken(3, 300, "b")),
                (60, taken(4, 900, "a")),
            ],
            // The minimum is the point just before the growth.
            vec![(20, 30, 1300, vec![("b", 800), ("c", 600)])],
        ),
        (
            vec![
                (0, taken(0, 2000, "a")),
                (1, MemoryEvent::Freed { range: 0 }),
                (2, taken(1, 3000, "b")),
            ],
            vec![(0, 0, 2000, vec![("a", 2000)]), (2, 2, 3000, vec![("b", 3000)])],
        ),
    ] {
        let profile = MemoryProfile::new(&log(events), RULE);
        let spikes: Vec<_> = profile
            .spikes
            .iter()
            .map(|s| {
                let owners = s.owners.iter().map(|(owner, bytes)| (&**owner, *bytes)).collect();
                (s.begin.as_millis(), s.end.as_millis(), s.bytes, owners)
            })
            .collect();
        assert_eq!(spikes, wanted);
    }
}

#[test]
fn the_host_has_spikes_of_its_own() {
    let host = |owner: &str, bytes| MemoryEvent::Host { owner: owner.into(), bytes };
    let log = log([
        (0, host("process", 5000)),
        (20, host("host pool", 100)),
        (21, host("process", 7000)),
        (22, host("host pool", 1900)),
    ]);
    let spikes = MemoryProfile::new(&log, RULE).spikes;
    let found: Vec<_> = spikes.iter().map(|s| (s.kind, &*s.owners[0].0, s.bytes)).collect();
    // The memory at the first measurement may be old, so it is no spike.
    assert_eq!(found, [(MemoryKind::Host, "process", 2000), (MemoryKind::Host, "host pool", 1800)]);
}

#[test]
fn what_was_held_before_is_no_spike() {
    let mut log = MemoryLog::new(SegmentLimits::new(1 << 20, 1 << 20), 1);
    for (range, bytes) in [(0, 5000), (1, 900), (2, 1000)] {
        log.push(Duration::ZERO, taken(range, bytes, "a"));
    }
    let profile = MemoryProfile::new(&log, RULE);
    assert_eq!(profile.phases[0].peak_bytes, 6900);
    let spikes: Vec<_> = profile.spikes.iter().map(|s| (s.bytes, s.owners[0].1)).collect();
    assert_eq!(spikes, [(1000, 1000)]);
}

proptest! {
    /// For any log, peaks are peaks, and owners' growth covers each spike.
    #[test]
    fn profiles_add_up(
        events in prop::collection::vec((0u64..5, 0usize..4, 0usize..2000, 0u64..20), 0..80),
        capacity in 0usize..100,
    ) {
        let mut log = MemoryLog::new(SegmentLimits::new(1 << 20, 1 << 20), capacity);
        let mut now = 0;
        for (serial, (wait, what, bytes, range)) in (100..).zip(events) {
            now += wait;
            let event = match what {
                0 => MemoryEvent::Freed { range: serial - range },
                1 => phase("x"),
                _ => taken(serial, bytes, ["a", "b", "c"][bytes % 3]),
            };
            log.push(Duration::from_millis(now), event);
        }
        let profile = MemoryProfile::new(&log, RULE);
        for phase in &profile.phases {
            let held: usize = phase.holders.iter().map(|holder| holder.bytes).sum();
            prop_assert_eq!(held, phase.peak_bytes);
        }
        let most = profile.steps.iter().map(|step| step.device_bytes).max().unwrap_or(0);
        prop_assert_eq!(profile.phases.iter().map(|p| p.peak_bytes).max(), Some(most));
        for spike in &profile.spikes {
            let grown: usize = spike.owners.iter().map(|(_, bytes)| bytes).sum();
            prop_assert!(spike.bytes >= RULE.bytes && grown >= spike.bytes, "{:?}", spike);
        }
    }
}
