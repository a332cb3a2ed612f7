//! Every breach is noticed, and nothing else counts as one.

use super::*;
use crate::chaos::job::Job;
use crate::chaos::rest::Told;
use serde_json::json;

fn told(id: &str, state: &str, data: &[f64], code: &str) -> Told {
    let outputs = json!([{ "name": "logits", "data": data }]);
    let error = json!({ "code": code });
    let task = json!({ "task_id": id, "durable": true, "state": state, "attempts": 1,
        "outputs": outputs, "error": error, "queued_ms": 1.0, "model_ms": 1.0, "overhead_ms": 1.0 });
    serde_json::from_value(task).unwrap()
}

fn digits(key: &str) -> Spec {
    Spec::new(key, Job::Digits { picture: 0 })
}

fn accept(ledger: &mut Ledger, specs: Vec<Spec>, ids: &[&str]) {
    let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    let excused = ledger.excuse.so_far();
    ledger.acknowledged(&Arc::new(Submission(specs)), &ids, Instant::now(), excused);
}

fn pictures() -> Pictures {
    Pictures::of(&[&[1.0], &[2.0]])
}

/// The state of task `a`, with outputs, or with the code of a failure.
fn asked(ledger: &mut Ledger, id: &str, state: &str, data: &[f64], code: &str) -> bool {
    ledger.asked(id, Ok(told(id, state, data, code)), &pictures())
}

fn listed(ledger: &mut Ledger, tasks: &[(&str, &str)]) -> Vec<String> {
    let list: Vec<Told> = tasks.iter().map(|(id, state)| told(id, state, &[], "")).collect();
    ledger.listed(&list)
}

fn refused(ledger: &mut Ledger, status: u16) {
    ledger.asked("a", Err(Answer::Said(status, json!(null))), &pictures());
}

#[test]
fn every_breach_is_noticed() {
    type Act = fn(&mut Ledger);
    let cases: &[(&str, Act)] = &[
        ("", |l| assert!(!asked(l, "a", "queued", &[], ""))),
        ("", |l| assert!(asked(l, "a", "succeeded", &[1.0], ""))),
        ("", |l| refused(l, 503)),
        ("", |l| accept(l, vec![digits("k")], &["a"])),
        ("", |l| assert!(listed(l, &[("a", "running")]).is_empty())),
        ("", |l| assert_eq!(listed(l, &[("a", "failed")]), ["a"])),
        ("twice: key k stands for a, and now for b", |l| accept(l, vec![digits("k")], &["b"])),
        ("twice: task a was given out twice", |l| accept(l, vec![digits("other")], &["a"])),
        ("lost: acknowledged task a answers 404", |l| refused(l, 404)),
        ("lost: acknowledged task a answers 410", |l| refused(l, 410)),
        ("other: acknowledged task a answers 200", |l| refused(l, 200)),
        ("wrong: task a has the wrong result", |l| {
            asked(l, "a", "succeeded", &[2.0], "");
        }),
        ("wrong: task a ended after 1 attempts", |l| {
            asked(l, "a", "cancelled", &[], "cancelled");
        }),
        ("wrong: task a ended after 1 attempts", |l| {
            asked(l, "a", "failed", &[], "worker_lost");
        }),
        ("wrong: task a ended after 1 attempts", |l| {
            asked(l, "a", "failed", &[], "deadline_exceeded");
        }),
        ("wrong: task a ended after 1 attempts", |l| {
            asked(l, "a", "failed", &[], "dependency_failed");
        }),
        ("wrong: task a ended after 1 attempts", |l| {
            asked(l, "a", "failed", &[], "inputs_lost");
        }),
        ("twice: task a was succeeded and is queued", |l| {
            asked(l, "a", "succeeded", &[1.0], "");
            asked(l, "a", "queued", &[], "");
        }),
        ("twice: task a ended as", |l| {
            asked(l, "a", "succeeded", &[1.0], "");
            asked(l, "a", "succeeded", &[1.0001], "");
        }),
        ("twice: task a was succeeded and is listed as queued", |l| {
            asked(l, "a", "succeeded", &[1.0], "");
            listed(l, &[("a", "queued")]);
        }),
        ("twice: task a is listed twice", |l| {
            listed(l, &[("a", "queued"), ("a", "queued")]);
        }),
        ("twice: durable task b is listed and nobody's", |l| {
            listed(l, &[("a", "queued"), ("b", "queued")]);
        }),
        ("lost: acknowledged task a is not listed", |l| {
            listed(l, &[]);
        }),
    ];
    for (expected, act) in cases {
        let mut ledger = Ledger::default();
        accept(&mut ledger, vec![digits("k")], &["a"]);
        act(&mut ledger);
        expect(&ledger, expected);
    }
}

#[track_caller]
fn expect(ledger: &Ledger, expected: &str) {
    let all: Vec<String> =
        ledger.violations.iter().map(|v| format!("{}: {}", v.breach.name(), v.what)).collect();
    match expected {
        "" => assert!(all.is_empty(), "{all:?}"),
        _ => assert!(all.iter().any(|v| v.starts_with(expected)), "{expected}, not {all:?}"),
    }
}

#[test]
fn ends_are_allowed_to_those_alone_who_asked_for_them() {
    // A task that was asked to be cancelled may be cancelled or succeed first.
    for (state, data) in [("cancelled", &[][..]), ("succeeded", &[1.0])] {
        let mut ledger = Ledger::default();
        accept(&mut ledger, vec![digits("k")], &["a"]);
        ledger.cancelling("a");
        assert!(asked(&mut ledger, "a", state, data, ""));
        expect(&ledger, "");
    }
    // After the most attempts of a task, counted over all lives of the coordinator.
    let mut ledger = Ledger::default();
    accept(&mut ledger, vec![digits("k")], &["a"]);
    for _ in 0..4 {
        asked(&mut ledger, "a", "running", &[], "");
        ledger.next_life();
    }
    asked(&mut ledger, "a", "queued", &[], "");
    asked(&mut ledger, "a", "failed", &[], "worker_lost");
    expect(&ledger, "");
    let all = ledger.tally.all();
    assert_eq!((all.redone, all.attempts_max, all.accepted), (1, 5, 1));
}

#[test]
fn deadlines_end_tasks_neither_early_nor_late() {
    let with = |deadline_ms: u64| {
        let mut ledger = Ledger::default();
        let deadline = Some(Duration::from_millis(deadline_ms));
        accept(&mut ledger, vec![Spec { deadline, ..digits("k") }], &["a"]);
        ledger
    };
    let mut ledger = with(1);
    asked(&mut ledger, "a", "failed", &[], "deadline_exceeded");
    expect(&ledger, "");
    let mut ledger = with(60_000);
    asked(&mut ledger, "a", "failed", &[], "deadline_exceeded");
    expect(&ledger, "wrong: task a ended after 1 attempts");
    // A clock that is set makes the end early.
    let mut ledger = with(60_000);
    ledger.excuse.set(Duration::from_secs(60));
    asked(&mut ledger, "a", "failed", &[], "deadline_exceeded");
    expect(&ledger, "");

    // A clock set before takes effect when the next coordinator begins with it.
    for (begins, expected) in [(true, ""), (false, "wrong: task a ended after 1 attempts")] {
        let mut ledger = Ledger::default();
        ledger.excuse.set(Duration::from_secs(60));
        let deadline = Some(Duration::from_secs(60));
        accept(&mut ledger, vec![Spec { deadline, ..digits("k") }], &["a"]);
        if begins {
            ledger.excuse.begin();
            ledger.excuse.end();
        }
        asked(&mut ledger, "a", "failed", &[], "deadline_exceeded");
        expect(&ledger, expected);
    }

    let long_ago = |ledger: &mut Ledger| {
        let entry = ledger.tasks.get_mut("a").unwrap();
        entry.acknowledged = Instant::now().checked_sub(Duration::from_secs(30)).unwrap();
    };
    let mut ledger = with(1_000);
    long_ago(&mut ledger);
    asked(&mut ledger, "a", "running", &[], "");
    expect(&ledger, "late: task a is running");
    let mut ledger = with(1_000);
    long_ago(&mut ledger);
    ledger.excuse.set(Duration::from_secs(30));
    asked(&mut ledger, "a", "running", &[], "");
    expect(&ledger, "");
    let mut ledger = with(1_000);
    let late = Told { queued_ms: 30_000.0, ..told("a", "succeeded", &[1.0], "") };
    ledger.asked("a", Ok(late), &pictures());
    expect(&ledger, "late: task a took");
}

#[test]
fn dependencies_are_kept() {
    let graph = || {
        let mut ledger = Ledger::default();
        let second = Spec { within: vec![0], ..digits("l") };
        accept(&mut ledger, vec![digits("k"), second], &["a", "b"]);
        ledger
    };
    let mut ledger = graph();
    listed(&mut ledger, &[("a", "succeeded"), ("b", "running")]);
    expect(&ledger, "");
    for state in ["running", "succeeded"] {
        let mut ledger = graph();
        listed(&mut ledger, &[("a", "running"), ("b", state)]);
        expect(&ledger, "wrong: task b is");
    }
    for (first, second, code, expected) in [
        ("succeeded", "succeeded", "", ""),
        ("cancelled", "failed", "dependency_failed", ""),
        ("succeeded", "failed", "dependency_failed", "wrong: task b is failed"),
        ("cancelled", "succeeded", "", "wrong: task b succeeded, and 1 before it did not"),
    ] {
        let mut ledger = graph();
        ledger.cancelling("a");
        asked(&mut ledger, "a", first, &[1.0], "");
        asked(&mut ledger, "b", second, &[1.0], code);
        ledger.dependencies();
        expect(&ledger, expected);
    }
}

#[test]
fn what_was_let_go_is_known_and_not_asked_for() {
    let mut ledger = Ledger::default();
    accept(&mut ledger, vec![digits("k")], &["a"]);
    accept(&mut ledger, vec![digits("l")], &["b"]);
    asked(&mut ledger, "a", "succeeded", &[1.0], "");
    ledger.let_go();
    assert_eq!(ledger.open(), ["b"]);
    listed(&mut ledger, &[("a", "succeeded"), ("b", "queued")]);
    assert!(!asked(&mut ledger, "a", "queued", &[], ""));
    expect(&ledger, "");
    accept(&mut ledger, vec![digits("new")], &["a"]);
    expect(&ledger, "twice: task a was given out twice");
}

#[test]
fn reasons_for_an_excuse_may_overlap() {
    let mut excuse = Excuse::default();
    excuse.begin();
    excuse.begin();
    excuse.end();
    std::thread::sleep(Duration::from_millis(5));
    assert!(excuse.so_far().time() >= Duration::from_millis(5));
    excuse.end();
    let ended = excuse.so_far().time();
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(excuse.so_far().time(), ended);
}
