//! Killed processes: no task is lost, and no process is left behind.

use crate::harness::{self, Cluster, World, ZERO, eventually, npy, signal, start};
use rustix::process::Signal;
use serde_json::json;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

#[test]
fn a_killed_worker_is_replaced_and_its_tasks_are_redone() {
    let cluster = Cluster::start(World::new(), "2");
    let first = cluster.workers("ready");
    assert_eq!(first.len(), 2);
    let image = cluster.world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let mut tasks = Vec::new();
    for round in 0..12 {
        let submitted = cluster.run(&["submit", "--model", "digits", "--input", &image]).json();
        tasks.push(submitted["task_id"].as_str().expect("an id").to_owned());
        if round == 5 {
            signal(first[0], Signal::KILL);
        }
    }
    for task in tasks {
        assert_eq!(cluster.run(&["result", &task, "--wait"]).json()["state"], json!("succeeded"));
    }
    eventually("the cluster heals", || {
        let ready = cluster.workers("ready");
        ready.len() == 2 && !ready.contains(&first[0])
    });
    // The killed worker is still listed, and has nothing left to finish.
    let listed = cluster.run(&["workers"]).json();
    let lost = listed.as_array().expect("an array").iter().find(|w| w["state"] == "lost");
    let lost = lost.and_then(|w| w["id"].as_str()).expect("it is listed");
    let (code, message) = cluster.run(&["workers", "drain", lost]).error(1);
    assert!(code == "worker_gone" && message.contains("gone already"), "{code}: {message}");
    // Both workers at once: tasks wait until a worker is back.
    cluster.workers("ready").into_iter().for_each(|pid| signal(pid, Signal::KILL));
    let submit = ["submit", "--model", "digits", "--input", &image, "--wait"];
    assert_eq!(cluster.run(&submit).json()["state"], json!("succeeded"));
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn a_killed_coordinator_takes_its_workers_along_and_can_be_followed() {
    let cluster = Cluster::start(World::new(), "2");
    signal(cluster.pid(), Signal::KILL);
    cluster.world.expect_no_processes();
    // The runtime file is still there, but is stale.
    assert!(cluster.world.path("data/coordinator.json").exists());
    assert_eq!(cluster.run(&["status"]).error(1).0, "not_running");
    assert_eq!(cluster.run(&["stop"]).error(1).0, "not_running");

    let follower = Cluster::start(cluster.world, "1");
    assert_eq!(follower.run(&["status"]).json()["status"], json!("ok"));
    follower.run(&["stop"]).json();
    follower.world.expect_no_processes();
}

#[test]
fn a_task_that_was_accepted_is_named_when_its_coordinator_goes() {
    for (durable, fate) in [
        (&[][..], "is lost with its coordinator"),
        (&["--durable"][..], "goes on once the coordinator runs again"),
    ] {
        // Without workers, it waits.
        let cluster = Cluster::start(World::new(), "0");
        let image = cluster.world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO));
        let image = image.display().to_string();
        let data = cluster.endpoint["data"].as_str().expect("a path");
        let submit = ["submit", "--model", "digits", "--input", &image, "--json", "--data", data];

        let taken = ["--wait", "--output-dir", &image];
        let (_, message) = cluster.world.run(&[&submit[..], &taken, durable].concat()).error(1);
        assert!(message.contains("output folder"), "{message}");
        assert_eq!(cluster.run(&["tasks"]).json(), json!([]), "it was not submitted");

        let child = cluster.world.spawn(&[&submit[..], &["--wait"], durable].concat());
        let mut id = String::new();
        eventually("the task is accepted", || {
            let tasks = cluster.run(&["tasks"]).json();
            id = tasks[0]["task_id"].as_str().unwrap_or_default().to_owned();
            !id.is_empty()
        });
        leave_waiting(&cluster, &image, durable);
        // A task is listed a moment before its submission is answered.
        std::thread::sleep(Duration::from_millis(500));
        signal(cluster.pid(), Signal::KILL);
        let output = harness::output(child);
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("task {id} was accepted")) && said.contains(fate), "{said}");
    }
}

/// Interrupts a wait for a task, and checks the hint.
fn leave_waiting(cluster: &Cluster, image: &str, durable: &[&str]) {
    let data = cluster.endpoint["data"].as_str().expect("a path");
    let submit = ["submit", "--model", "digits", "--input", image, "--wait", "--data", data];
    let mut child = cluster.world.spawn(&[&submit[..], durable].concat());
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut said = String::new();
    stderr.read_line(&mut said).expect("a line");
    let id = said.split(' ').nth(1).unwrap_or_default().to_owned();
    assert!(said.starts_with(&format!("task {id} is accepted")), "{said}");
    signal(child.id(), Signal::INT);
    stderr.read_to_string(&mut said).expect("text");
    assert_eq!(harness::output(child).status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("radeon-cluster result --wait {id}")), "{said}");
    assert_eq!(cluster.run(&["tasks", "show", &id]).json()["state"], json!("queued"));
}

#[test]
fn a_log_that_nobody_reads_any_more_stops_nothing() {
    let world = World::new();
    let data = world.path("data").display().to_string();
    let any = "127.0.0.1:0";
    let place = ["--data", &data, "--http", any, "--grpc", any, "--quic", any, "--workers", "1"];
    let mut child = world.spawn(&[&["start", "--foreground", "--json"], &place[..]].concat());
    let mut line = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    // The log's reader closes; later lines meet a broken pipe.
    drop(child.stderr.take());
    let cluster = Cluster { world, endpoint: serde_json::from_str(&line).expect("JSON") };
    let first = cluster.workers("ready");
    assert_eq!(first.len(), 1);
    signal(first[0], Signal::KILL);
    eventually("the worker is replaced", || {
        let ready = cluster.workers("ready");
        ready.len() == 1 && ready != first
    });
    cluster.run(&["stop"]).json();
    assert_eq!(harness::output(child).status.code(), Some(0));
    cluster.world.expect_no_processes();
}

#[test]
fn durable_tasks_survive_coordinators_that_are_killed() {
    let mut cluster = Cluster::start(World::new(), "1");
    let image = cluster.world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let mut tasks = Vec::new();
    let mut shown = Vec::new();
    for round in 0..5 {
        for number in 0..8 {
            let key = format!("{round}-{number}");
            let args =
                ["submit", "--model", "digits", "--input", &image, "--durable", "--key", &key];
            let id = cluster.run(&args).json()["task_id"].as_str().expect("an id").to_owned();
            tasks.push((key, id));
        }
        // Some tasks have ended, some run, some wait; a shown result must not change.
        let (_, last) = &tasks[tasks.len() - 8];
        let result = cluster.run(&["result", last, "--wait"]).json();
        shown.push((last.clone(), result["state"].clone(), result["outputs"].clone()));
        signal(cluster.pid(), Signal::KILL);
        cluster.world.expect_no_processes();
        cluster = Cluster::start(cluster.world, "1");
    }
    for (key, id) in &tasks {
        assert_eq!(cluster.run(&["result", id, "--wait"]).json()["state"], json!("succeeded"));
        let args = ["submit", "--model", "digits", "--input", &image, "--durable", "--key", key];
        assert_eq!(cluster.run(&args).json()["task_id"], json!(id), "the key stands for it");
    }
    for (id, state, outputs) in shown {
        let result = cluster.run(&["result", &id]).json();
        assert_eq!((&result["state"], &result["outputs"]), (&state, &outputs), "{id}");
    }
    let why = cluster.run(&["tasks", "show", &tasks[0].1, "--why"]).json();
    let decisions = why["decisions"].to_string();
    assert!(decisions.contains("ran on worker") && decisions.contains("succeeded"), "{why}");
    cluster.run(&["tasks", "compact"]).json();
    let copy =
        cluster.run(&["tasks", "backup"]).json()["path"].as_str().expect("a path").to_owned();
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();

    // The copy replaces the journal.
    let journal = cluster.world.path("data/tasks.journal");
    std::fs::rename(&copy, &journal).expect("both are in the data folder");
    let cluster = Cluster::start(cluster.world, "1");
    for (_, id) in &tasks {
        assert_eq!(cluster.run(&["result", id]).json()["state"], json!("succeeded"));
    }
    cluster.run(&["stop"]).json();
}

#[test]
fn a_damaged_journal_is_refused_and_left_as_it_is() {
    let cluster = Cluster::start(World::new(), "1");
    cluster.run(&["stop"]).json();
    let world = cluster.world;
    let path = world.path("data/tasks.journal");
    let mut bytes = std::fs::read(&path).expect("the coordinator made it");
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&path, &bytes).expect("the folder is ours");
    let data = world.path("data").display().to_string();
    let any = "127.0.0.1:0";
    let args = ["start", "--json", "--data", &data, "--http", any, "--grpc", any, "--quic", any];
    let (code, message) = world.run(&args).error(1);
    assert!(code.contains("journal") && message.contains("damaged"), "{code}: {message}");
    assert_eq!(std::fs::read(&path).expect("still there"), bytes);
    world.expect_no_processes();
}

#[test]
fn a_start_that_is_interrupted_leaves_nothing() {
    let world = World::new();
    let data = world.path("data").display().to_string();
    let any = "127.0.0.1:0";
    for delay_ms in [0, 20, 80, 200] {
        let args =
            ["start", "--json", "--data", &data, "--http", any, "--grpc", any, "--quic", any];
        let child = world.spawn(&args);
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        signal(child.id(), Signal::INT);
        let ended = harness::output(child).status;
        if ended.success() {
            // The start finished before the signal.
            world.run(&["stop", "--data", &data, "--json"]).json();
        }
        world.expect_no_processes();
    }
    // The folder is free again.
    start(&world, &["--workers", "1"]).json();
    world.run(&["stop", "--data", &data, "--json"]).json();
}
