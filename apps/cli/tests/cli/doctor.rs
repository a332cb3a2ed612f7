//! The doctor on a machine without a cluster, with one, and with a remote one.

use crate::harness::{Cluster, Outcome, World};
use serde_json::Value;

/// Runs the doctor without any driver, so that only the processor is tested.
pub(crate) fn run(world: &World, args: &[&str]) -> Outcome {
    let mut command = world.command(args);
    let output = command.env("OCL_ICD_VENDORS", world.path("none")).output().expect("it starts");
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// The finding about a subject.
fn about<'a>(report: &'a Value, subject: &str) -> &'a Value {
    let findings = report["findings"].as_array().expect("an array").iter();
    let mut found = findings.filter(|finding| finding["subject"] == subject);
    found.next().unwrap_or_else(|| panic!("nothing about {subject}: {report:#}"))
}

#[test]
fn a_machine_without_a_cluster_is_well() {
    let world = World::new();
    let data = world.path("data").display().to_string();
    let report = run(&world, &["doctor", "--json", "--data", &data]).json();
    assert_eq!(report["ok"], true);
    assert_eq!(about(&report, "loopback")["status"], "ok");
    let cluster = about(&report, "cluster");
    assert_eq!(cluster["status"], "info");
    assert!(cluster["fix"].as_str().is_some_and(|fix| fix.contains("radeon-cluster start")));
    assert!(!world.path("data").exists(), "nothing was made");
}

#[test]
fn a_cluster_is_checked_with_the_machine() {
    let cluster = Cluster::start(World::new(), "1");
    let data = cluster.endpoint["data"].as_str().expect("a path");
    let report = run(&cluster.world, &["doctor", "--json", "--data", data]).json();
    assert_eq!(about(&report, "cluster")["status"], "ok", "{report:#}");
    let quic = about(&report, "quic");
    assert_eq!(quic["status"], "ok", "the port answers: {quic}");
    // A remote cluster, by its address, with a read-only key.
    let (url, key) = (cluster.endpoint["http"].as_str().expect("an address"), cluster.key_file());
    let far = ["doctor", "--json", "--server", url, "--key-file", &key];
    assert_eq!(about(&run(&cluster.world, &far).json(), "quic")["status"], "ok");
    cluster.run(&["scale", "--workers", "0"]).json();
    crate::harness::eventually("no worker is left", || cluster.workers("ready").is_empty());
    let sick = run(&cluster.world, &["doctor", "--json", "--data", data]);
    assert_eq!(sick.code, Some(1), "{sick:?}");
    let report: Value = serde_json::from_str(&sick.stdout).expect("the findings all the same");
    assert_eq!(about(&report, "workers")["status"], "fail");
    assert!(sick.stderr.contains("cluster_faulty"), "{sick:?}");
}

#[test]
fn a_cluster_that_was_named_and_is_not_there_is_a_failure() {
    let world = World::new();
    let outcome = run(&world, &["doctor", "--server", "http://127.0.0.1:1"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stdout.contains("fail  cluster"), "{outcome:?}");
}
