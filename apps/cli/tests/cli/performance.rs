//! `stats --report`: one page about a running cluster.

use crate::harness::{Cluster, World, ZERO, npy};
use serde_json::json;

#[test]
fn a_cluster_is_told_on_one_page_that_is_not_overwritten() {
    let cluster = Cluster::start(World::new(), "2");
    let image = cluster.world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO));
    let input = format!("image={}", image.display());
    for _ in 0..3 {
        cluster.run(&["submit", "--model", "digits", "--input", &input, "--wait"]).json();
    }
    let report =
        |flags: &[&str]| cluster.run(&[&["stats", "--report", "cluster.html"], flags].concat());
    let told = report(&[]).json();
    assert_eq!((&told["report"], &told["workers"]), (&json!("cluster.html"), &json!(2)));
    let path = cluster.world.path("cluster.html");
    let page = std::fs::read_to_string(&path).expect("written");
    for part in [
        "<h2>Devices</h2>",
        "<h2>Memory</h2>",
        "<h2>Communication</h2>",
        "<h2>Scaling</h2>",
        "<h2>Scheduler</h2>",
        "3 succeeded and 0 failed",
        "2 of 2 workers are ready, with 2 devices in all.",
        "over QUIC. How long round trips take is not known",
        "2 workers finished 3 tasks since joining",
        "local-1",
        "digits/1",
        "<svg",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    for foreign in ["<script", "https:", "NaN"] {
        assert!(!page.contains(foreign), "{foreign}");
    }

    std::fs::write(&path, "mine").expect("ours");
    assert_eq!(report(&[]).error(1).0, "file_exists");
    assert_eq!(std::fs::read_to_string(&path).expect("ours"), "mine");
    report(&["--force"]).json();
    assert!(std::fs::read_to_string(&path).expect("ours").starts_with("<!DOCTYPE html>"));
    let nowhere = cluster.run(&["stats", "--report", "none/cluster.html"]);
    assert_eq!(nowhere.code, Some(1), "{nowhere:?}");
    assert_eq!(cluster.run(&["stats", "--force"]).error(2).0, "usage");
}
