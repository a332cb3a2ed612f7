//! The log in the form of the setting.

use crate::harness::{Cluster, World};
use serde_json::Value;

fn lines(cluster: &Cluster, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(cluster.world.path(&format!("data/{name}"))).expect(name);
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(parse).collect()
}

#[test]
fn coordinator_and_workers_log_json_where_it_is_wanted() {
    let cluster = Cluster::start_with(World::new(), &["--log-format", "json"]);
    cluster.run(&["stop"]).json();
    let told = lines(&cluster, "coordinator.log");
    let ready = told.iter().find(|line| line["message"] == "ready").expect("it was ready");
    assert_eq!((&ready["level"], ready["http"].is_string()), (&"INFO".into(), true), "{ready}");
    assert!(!lines(&cluster, "workers.log").is_empty(), "workers say that they begin");
}
