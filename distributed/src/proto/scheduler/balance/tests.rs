//! Each strategy on small clusters.

use super::*;

/// Load, free slots of two, last dispatch, free MiB, fit, measured milliseconds, resident.
type Row = (f64, u32, u64, f64, f64, Option<u64>, bool);

const IDLE: Row = (0.0, 2, 0, f64::INFINITY, 1.0, Some(10), true);

fn pick(name: &str, rows: &[Row], request: &Request) -> Option<usize> {
    let hot: Vec<Hot> = rows
        .iter()
        .map(|&(load, free, last_dispatch, free_mib, ..)| Hot {
            heard_ns: if free > 0 { 1_000_000_000 } else { 0 },
            last_dispatch,
            load,
            turns: f64::from(2 - free) / 2.0 + 1.0,
            free_mib,
            power_w: if load > 0.0 { 200.0 } else { 10.0 },
            free,
            shared_free: free,
            idle: free == 2,
        })
        .collect();
    let capable: Vec<Capable> = rows
        .iter()
        .enumerate()
        .map(|(seat, &(.., fit, ms, resident))| {
            let mut service = Service::default();
            if let Some(ms) = ms {
                service.measure(Duration::ZERO, Duration::from_millis(ms));
            }
            Capable { seat, service, resident, fit, own_free: None }
        })
        .collect();
    let view = View::new(&capable, &hot, Duration::from_secs(1));
    let strategy = by_name(name).expect("in the table");
    strategy.pick(Duration::from_secs(1), &view, request).map(|choice| choice.seat)
}

#[test]
fn load_weighs_its_four_parts_and_saturates() {
    let cases = [
        ((0.0, 0.0, 0.0, 0), 0.0),
        ((0.5, 0.0, 0.0, 0), 0.2),
        ((2.25, 0.0, 0.0, 0), 0.4),
        ((0.0, 0.5, 0.0, 0), 0.15),
        ((0.0, 0.0, 0.5, 0), 0.1),
        ((0.0, 0.0, 0.0, 10), 0.05),
        ((1.0, 7.0, 7.0, 99), 1.0),
    ];
    for ((taken, utilisation, memory, queued), expected) in cases {
        let given = load(taken, utilisation, memory, queued);
        assert!((given - expected).abs() < 1e-12, "{given} is not {expected}");
    }
}

#[test]
fn each_strategy_picks_as_it_says() {
    let request = Request { needs_mib: 1024.0, load_ms: 500.0, ..Request::default() };
    let loaded = |load| Row::from((load, 2, 0, f64::INFINITY, 1.0, Some(10), true));
    let turn = |load, last| Row::from((load, 2, last, f64::INFINITY, 1.0, Some(10), true));
    let memory = |mib, resident| Row::from((0.0, 2, 0, mib, 1.0, Some(10), resident));
    let fit = |load, mib, fit| Row::from((load, 2, 0, mib, fit, Some(10), false));
    let speed = |free, ms, resident| Row::from((0.0, free, 1, f64::INFINITY, 1.0, ms, resident));
    let cases: &[(&str, &[Row], usize)] = &[
        ("least_loaded", &[turn(0.5, 1), turn(0.2, 9)], 1),
        ("least_loaded", &[turn(0.2, 9), turn(0.2, 1)], 1),
        ("round_robin", &[turn(0.0, 9), turn(0.9, 1)], 1),
        ("round_robin", &[turn(0.0, 0), turn(0.0, 0)], 0),
        ("round_robin", &[turn(0.0, 3), turn(0.0, 4)], 0),
        ("power_of_two", &[loaded(0.9), loaded(0.1)], 1),
        ("power_of_two", &[loaded(0.9)], 0),
        ("memory_aware", &[memory(2048.0, false), memory(4096.0, false)], 1),
        ("memory_aware", &[memory(100.0, true), memory(8192.0, false)], 0),
        (
            "balanced",
            &[(0.8, 1, 0, 0.0, 1.0, Some(10), true), (0.0, 2, 0, 0.0, 1.0, Some(12), true)],
            1,
        ),
        (
            "balanced",
            &[(0.1, 2, 0, 0.0, 1.0, Some(10), true), (0.0, 2, 0, 0.0, 1.0, Some(90), true)],
            0,
        ),
        ("gpu_match", &[fit(0.0, 8192.0, 0.5), fit(0.4, 8192.0, 1.0)], 1),
        ("gpu_match", &[fit(0.0, 8192.0, 0.5), fit(0.0, 512.0, 1.0)], 0),
        ("gpu_match", &[fit(0.0, 8192.0, 1.0), fit(1.0, 8192.0, 1.0)], 0),
        ("adaptive", &[speed(2, Some(20), true), speed(2, Some(10), true)], 1),
        ("adaptive", &[speed(2, Some(14), true), speed(1, Some(10), true)], 0),
        ("adaptive", &[speed(2, Some(600), true), speed(2, Some(10), false)], 1),
        ("adaptive", &[speed(2, Some(400), true), speed(2, Some(10), false)], 0),
        ("adaptive", &[speed(2, Some(1), true), speed(2, None, true)], 1),
        ("adaptive", &[speed(2, Some(1), true), speed(1, None, true)], 0),
        ("adaptive", &[speed(1, None, true)], 0),
    ];
    for (name, rows, expected) in cases {
        assert_eq!(pick(name, rows, &request), Some(*expected), "{name} of {rows:?}");
    }
}

#[test]
fn none_picks_what_is_full_or_silent() {
    let request = Request::default();
    for name in balancing_strategies() {
        assert_eq!(pick(name, &[], &request), None);
        let full = (0.1, 0, 0, f64::INFINITY, 1.0, Some(1), true);
        assert_eq!(pick(name, &[full], &request), None, "{name}");
        assert_eq!(pick(name, &[full, IDLE, full], &request), Some(1), "{name}");
        let capable = [Capable {
            seat: 0,
            service: Service::default(),
            resident: true,
            fit: 1.0,
            own_free: None,
        }];
        let hot =
            [Hot { heard_ns: 999_999, free: 2, shared_free: 2, idle: true, ..Hot::default() }];
        let view = View::new(&capable, &hot, Duration::from_millis(1));
        let strategy = by_name(name).expect("in the table");
        assert_eq!(strategy.pick(Duration::from_secs(9), &view, &request), None, "{name}");
    }
}

#[test]
fn the_only_free_one_of_many_is_found_wherever_it_is() {
    let full = (0.1, 0, 0, f64::INFINITY, 1.0, Some(1), true);
    for name in balancing_strategies() {
        for (free, random) in [(0, 7), (2_500, 4_999), (4_999, 0), (4_999, u64::MAX)] {
            let mut rows = [full; 5_000];
            rows[free] = IDLE;
            let request = Request { random, ..Request::default() };
            assert_eq!(pick(name, &rows, &request), Some(free), "{name}");
        }
    }
}

#[test]
fn the_choice_of_some_is_a_good_one_and_not_always_of_the_same() {
    let row = |at: u32| (f64::from(at) / 5_000.0, 2, 0, f64::INFINITY, 1.0, Some(10), true);
    // Neighbours have unlike loads: 2,003 and 5,000 have no common factor.
    let rows: Vec<Row> = (0..5_000).map(|at| row(at * 2_003 % 5_000)).collect();
    let mut hits = std::collections::BTreeSet::new();
    for turn in 0..100 {
        let request = Request { random: turn * 50, ..Request::default() };
        let seat = pick("least_loaded", &rows, &request).expect("all are free");
        assert!(rows[seat].0 <= 0.02, "seat {seat} has a load of {}", rows[seat].0);
        hits.insert(seat);
    }
    assert!(hits.len() > 3, "{hits:?}");
}

#[test]
fn less_energy_is_worth_a_longer_time() {
    let thirsty = (0.1, 2, 0, 0.0, 1.0, Some(100), true);
    let thrifty = (0.0, 2, 0, 0.0, 1.0, Some(120), true);
    let time_alone = Request::default();
    let thrift = Request { thrift: 2.0, ..Request::default() };
    assert_eq!(pick("adaptive", &[thirsty, thrifty], &time_alone), Some(0));
    assert_eq!(pick("adaptive", &[thirsty, thrifty], &thrift), Some(1));
}

#[test]
fn two_drawn_of_many_spread_the_work() {
    let rows = [IDLE; 100];
    let mut hits = [0; 100];
    for random in 0..10_000 {
        let request = Request { random, ..Request::default() };
        hits[pick("power_of_two", &rows, &request).expect("all are idle")] += 1;
    }
    let (least, most) = (hits.iter().min(), hits.iter().max());
    assert!(least > Some(&40) && most < Some(&200), "{least:?} to {most:?}");
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let error = by_name("magic").err().expect("unknown").to_string();
    let known = balancing_strategies().join(", ");
    assert_eq!(error, format!("balancing \"magic\" is not known, expected one of: {known}"));
}
