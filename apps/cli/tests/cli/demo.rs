//! The demo: a killed worker loses no task, and ctrl-C at any moment leaves no process behind.

use crate::harness::{self, World, eventually, signal};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

const KEYS: [&str; 10] = [
    "images",
    "correct",
    "accuracy",
    "workers",
    "workers_killed",
    "lost",
    "tasks_per_s",
    "latency_ms",
    "overhead_ms",
    "device",
];

#[track_caller]
fn check(report: &Value) {
    for key in KEYS {
        assert!(!report[key].is_null(), "{key} is missing: {report}");
    }
    assert_eq!((&report["images"], &report["workers"]), (&json!(360), &json!(2)));
    assert_eq!((&report["workers_killed"], &report["lost"]), (&json!(1), &json!(0)));
    assert!(report["accuracy"].as_f64() >= Some(0.975), "{report}");
    for kind in ["latency_ms", "overhead_ms"] {
        let at = |key: &str| report[kind][key].as_f64().expect("a number");
        assert!(at("p50") <= at("p95") && at("p95") <= at("p99"), "{report}");
    }
    for device in report["devices_not_used"].as_array().expect("an array") {
        assert!(device["id"].is_string() && device["reason"].is_string(), "{device}");
    }
}

#[test]
fn nothing_is_lost() {
    let world = World::new();
    let outcome = world.run(&["demo", "--json"]);
    check(&outcome.json());
    world.expect_no_processes();
    let people = world.run(&["demo"]);
    assert_eq!(people.code, Some(0), "{people:?}");
    assert!(
        people.stdout.contains("lost      0 of 360 tasks; 1 of 2 workers killed"),
        "{people:?}"
    );
}

#[test]
fn keep_goes_on_serving_until_ctrl_c_or_stop() {
    let world = World::new();
    let child = kept(&world, |child, _, _| signal(child.id(), Signal::INT));
    assert!(harness::output(child).status.success());
    world.expect_no_processes();
    let child = kept(&world, |_, http, key| {
        world.run(&["stop", "--json", "--server", http, "--key-file", key]).json();
    });
    assert!(harness::output(child).status.success());
    world.expect_no_processes();
}

/// Runs a demo that keeps serving, until `end` ends it.
fn kept(world: &World, end: impl FnOnce(&Child, &str, &str)) -> Child {
    let mut child = world.spawn(&["demo", "--json", "--keep"]);
    let mut line = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let report: Value = serde_json::from_str(&line).expect("JSON");
    check(&report);
    assert!(report.as_object().is_some_and(|report| report["grpc"].is_string()));
    let http = report["http"].as_str().expect("a URL");
    let key = report["key_file"].as_str().expect("a path");
    let status = ["status", "--json", "--server", http, "--key-file", key];
    let status = world.run(&status).json();
    assert_eq!(status["models"][0]["name"], json!("digits"));
    end(&child, http, key);
    child
}

#[test]
fn ctrl_c_with_tasks_in_flight_is_an_orderly_end() {
    let world = World::new();
    let mut child = world.spawn(&["demo"]);
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let started = stderr.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("started")));
    assert!(started.is_some(), "the demo says when its workers are there");
    signal(child.id(), Signal::INT);
    let code = harness::output(child).status.code();
    // 0 where it was done already.
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
    world.expect_no_processes();
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let world = World::new();
    for delay_ms in [0, 30, 100, 200, 300, 400, 600] {
        let child = world.spawn(&["demo", "--json"]);
        std::thread::sleep(Duration::from_millis(delay_ms));
        signal(child.id(), Signal::INT);
        let output = harness::output(child);
        let stderr = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            // It was done before the signal came.
            Some(0) => {}
            Some(1) => assert!(stderr.contains("\"code\":\"interrupted\""), "{stderr}"),
            // The signal came before it listened.
            None => assert!(stderr.is_empty(), "{stderr}"),
            other => panic!("exit code {other:?}: {stderr}"),
        }
        world.expect_no_processes();
    }
}

#[test]
fn ctrl_c_leaves_no_temporary_folder() {
    let world = World::new();
    let temporary = world.path("tmp");
    std::fs::create_dir(&temporary).expect("the folder is ours");
    let folders = || {
        let all = std::fs::read_dir(&temporary).expect("ours").flatten().map(|it| it.path());
        all.filter(|path| path.display().to_string().contains("radeon-cluster-temporary-"))
    };
    for delay_ms in [0, 20, 50, 100, 200] {
        let mut command = world.command(&["bench", "end-to-end", "--quick", "--json"]);
        command.env("TMPDIR", &temporary).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the binary starts");
        // By then it listens to signals.
        eventually("a round begins", || folders().any(|folder| folder.join("0").is_dir()));
        std::thread::sleep(Duration::from_millis(delay_ms));
        signal(child.id(), Signal::INT);
        let output = harness::output(child);
        // 0 where it was done already.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        assert_eq!(folders().collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
    }
    world.expect_no_processes();
}
