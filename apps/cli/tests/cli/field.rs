//! Faults of long use: results that are read late, models and cards that hang, a coordinator that stands still for
//! seconds.

use crate::harness::{Cluster, World, ZERO, eventually, field, npy, npy_of, number, signal};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const F32: u8 = 1;
const I64: u8 = 7;
const BOOL: u8 = 9;

/// A value's name and type: a tensor with an axis of each of these lengths.
fn value(name: &str, elements: u8, lengths: &[u8]) -> Vec<u8> {
    let shape: Vec<u8> = lengths.iter().flat_map(|&length| field(1, &number(1, length))).collect();
    let tensor = [number(1, elements), field(2, &shape)].concat();
    [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
}

fn node(op: &str, inputs: &[&str], output: &str) -> Vec<u8> {
    let inputs: Vec<u8> = inputs.iter().flat_map(|name| field(1, name.as_bytes())).collect();
    [inputs, field(2, output.as_bytes()), field(4, op.as_bytes())].concat()
}

fn model(graph: &[Vec<u8>]) -> Vec<u8> {
    let graph = [graph.concat(), field(2, b"g")].concat();
    [number(1, 8), field(7, &graph), field(8, &number(2, 17))].concat()
}

/// `y = x + 1 + … + 1`, n times in a loop, which can be stopped between any two additions.
fn counting() -> Vec<u8> {
    let one = [number(1, 1), number(2, F32), field(8, b"one"), field(9, &1f32.to_le_bytes())];
    let body = [
        field(1, &node("Identity", &["go"], "go_on")),
        field(1, &node("Add", &["v", "one"], "w")),
        field(2, b"body"),
        field(5, &one.concat()),
        field(11, &value("i", I64, &[])),
        field(11, &value("go", BOOL, &[])),
        field(11, &value("v", F32, &[1])),
        field(12, &value("go_on", BOOL, &[])),
        field(12, &value("w", F32, &[1])),
    ];
    let body = [field(1, b"body"), field(6, &body.concat()), vec![0xA0, 1, 5]].concat();
    let counted = [node("Loop", &["n", "", "x"], "y"), field(5, &body)].concat();
    model(&[
        field(1, &counted),
        field(11, &value("n", I64, &[1])),
        field(11, &value("x", F32, &[1])),
        field(12, &value("y", F32, &[1])),
    ])
}

/// One product of two matrices of the caller's size, which cannot be stopped once begun.
fn product() -> Vec<u8> {
    model(&[
        field(1, &node("ConstantOfShape", &["shape"], "a")),
        field(1, &node("MatMul", &["a", "a"], "b")),
        field(1, &node("ReduceSum", &["b"], "y")),
        field(11, &value("shape", I64, &[2])),
        field(12, &value("y", F32, &[1, 1])),
    ])
}

fn add(cluster: &Cluster, name: &str, bytes: Vec<u8>) {
    let file = cluster.world.write(&format!("{name}.onnx"), bytes).display().to_string();
    cluster.run(&["models", "add", name, &file]).json();
}

fn integers(cluster: &Cluster, name: &str, values: &[i64]) -> String {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let path: PathBuf = cluster.world.write(name, npy_of("<i8", &[values.len()], bytes));
    path.display().to_string()
}

/// Submits a task that counts up to `to`, with further flags; answers the task's id.
fn count(cluster: &Cluster, to: i64, flags: &[&str]) -> String {
    let n = format!("n={}", integers(cluster, "n.npy", &[to]));
    let x = format!("x={}", cluster.world.write("x.npy", npy(&[1], &[0.])).display());
    let submit = ["submit", "--model", "count", "--input", &n, "--input", &x];
    let task = cluster.run(&[&submit[..], flags].concat()).json();
    task["task_id"].as_str().expect("an id").to_owned()
}

fn digit(cluster: &Cluster) -> Value {
    let image = cluster.world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    cluster.run(&["submit", "--model", "digits", "--input", &image, "--wait"]).json()
}

fn ended(cluster: &Cluster, id: &str) -> Value {
    let mut task = Value::Null;
    eventually("the task ends", || {
        task = cluster.run(&["tasks", "show", id]).json();
        !["queued", "running"].map(Value::from).contains(&task["state"])
    });
    task
}

fn why(cluster: &Cluster, id: &str) -> String {
    cluster.run(&["tasks", "show", id, "--why"]).json()["decisions"].to_string()
}

#[test]
fn endless_models_give_their_slots_back() {
    let cluster = Cluster::start(World::new(), "1");
    add(&cluster, "count", counting());
    // Endless runs are ended by a run limit, by a deadline, and by a caller that cancels.
    let limit = ["--run-limit-ms", "500", "--max-attempts", "2"];
    let limited = count(&cluster, i64::MAX, &limit);
    let task = ended(&cluster, &limited);
    assert_eq!((&task["state"], &task["attempts"]), (&json!("failed"), &json!(2)), "{task}");
    assert_eq!(task["error"]["code"], "run_limit", "{task}");
    assert!(why(&cluster, &limited).contains("limit"), "{}", why(&cluster, &limited));
    assert_eq!(digit(&cluster)["state"], "succeeded");

    let late = count(&cluster, i64::MAX, &["--deadline-ms", "600"]);
    assert_eq!(ended(&cluster, &late)["error"]["code"], "deadline_exceeded");
    assert_eq!(digit(&cluster)["state"], "succeeded");

    let unwanted = count(&cluster, i64::MAX, &[]);
    eventually("it runs", || {
        cluster.run(&["tasks", "show", &unwanted]).json()["state"] == "running"
    });
    cluster.run(&["cancel", &unwanted]).json();
    assert_eq!(ended(&cluster, &unwanted)["state"], "cancelled");
    assert_eq!(digit(&cluster)["state"], "succeeded");
    let workers = cluster.run(&["workers"]).json();
    assert_eq!(workers[0]["running"], 0, "{workers}");
    assert_eq!(workers[0]["hangs"], 0, "they stopped when they were asked to: {workers}");
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn a_worker_whose_run_does_not_stop_is_replaced() {
    let cluster = Cluster::start(World::new(), "1");
    add(&cluster, "product", product());
    let first = cluster.workers("ready");
    let shape = format!("shape={}", integers(&cluster, "shape.npy", &[8_000, 8_000]));
    let submit = ["submit", "--model", "product", "--input", &shape];
    let limit = ["--run-limit-ms", "2000", "--max-attempts", "1", "--durable"];
    let id = cluster.run(&[&submit[..], &limit].concat()).json();
    let id = id["task_id"].as_str().expect("an id").to_owned();
    let task = ended(&cluster, &id);
    assert_eq!(task["error"]["code"], "run_limit", "{task}");
    eventually("another worker is there", || {
        let ready = cluster.workers("ready");
        ready.len() == 1 && ready != first
    });
    assert!(why(&cluster, &id).contains("replaced"), "{}", why(&cluster, &id));
    assert_eq!(digit(&cluster)["state"], "succeeded");
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn drain_restart_and_unload_end_in_time_and_say_what_they_ended() {
    let cluster = Cluster::start(World::new(), "1");
    add(&cluster, "count", counting());
    for command in [&["restart"][..], &["models", "unload", "count"]] {
        let endless = count(&cluster, i64::MAX, &["--max-attempts", "1"]);
        eventually("it runs", || {
            cluster.run(&["tasks", "show", &endless]).json()["state"] == "running"
        });
        let began = Instant::now();
        let done = cluster.run(&[command, &["--timeout-s", "1"]].concat()).json();
        assert!(began.elapsed() < Duration::from_secs(30), "{command:?}");
        assert_eq!(done["ended"], json!([endless]), "{command:?}: {done}");
        // The task waits, for a worker or its model, until it is cancelled.
        assert_eq!(cluster.run(&["tasks", "show", &endless]).json()["error"], Value::Null);
        cluster.run(&["cancel", &endless]).json();
        ended(&cluster, &endless);
    }
    cluster.run(&["stop", "--now"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn a_coordinator_that_stood_still_takes_no_work_from_its_workers() {
    let cluster = Cluster::start(World::new(), "1");
    add(&cluster, "count", counting());
    let long = count(&cluster, 1_500_000, &["--durable"]);
    eventually("it runs", || cluster.run(&["tasks", "show", &long]).json()["state"] == "running");
    signal(cluster.pid(), Signal::STOP);
    // Longer than workers may be silent, and than a connection lasts without a sign of life.
    std::thread::sleep(Duration::from_secs(4));
    signal(cluster.pid(), Signal::CONT);
    let task = ended(&cluster, &long);
    assert_eq!((&task["state"], &task["attempts"]), (&json!("succeeded"), &json!(1)), "{task}");
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

/// Answers the status of a request to the cluster's interface, and its body.
pub(crate) fn ask(cluster: &Cluster, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let http = cluster.endpoint["http"].as_str().expect("an address");
    let url = format!("{http}/api/v1/cluster/{path}");
    let bearer = cluster.bearer();
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let answer = match method {
        "GET" => agent.get(url).header("authorization", &bearer).call(),
        "DELETE" => agent.delete(url).header("authorization", &bearer).call(),
        _ => agent.post(url).header("authorization", &bearer).send_json(body),
    };
    let mut answer = answer.expect("an answer");
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(1 << 30).read_json();
    (status, body.unwrap_or_default())
}

#[test]
fn results_wait_until_they_are_read_and_let_go() {
    const TASKS: usize = 6_000;
    let cluster = Cluster::start(World::new(), "1");
    let inputs = json!([{ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32",
        "data": ZERO.to_vec() }]);
    let task = json!({ "model": "digits", "inputs": inputs, "durable": true });
    let (status, made) =
        ask(&cluster, "POST", "tasks/batch", &json!({ "tasks": vec![task; TASKS] }));
    assert_eq!(status, 202, "{made}");
    let ids: Vec<String> = made["tasks"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|task| task["task_id"].as_str().expect("an id").to_owned())
        .collect();
    eventually("every task ends", || {
        ask(&cluster, "GET", "stats", &Value::Null).1["tasks"]["succeeded"] == TASKS
    });
    for id in &ids {
        let (status, task) = ask(&cluster, "GET", &format!("tasks/{id}"), &Value::Null);
        assert_eq!((status, &task["state"]), (200, &json!("succeeded")), "{id}: {task}");
        assert_eq!(task["outputs"][0]["shape"], json!([1, 10]), "{id}");
    }
    // Pages lead to all tasks, and `after` to a single one.
    let (_, page) = ask(&cluster, "GET", "tasks?state=succeeded&limit=5", &Value::Null);
    let page = page.as_array().expect("a list");
    assert_eq!(page.len(), 5);
    let after = page[4]["task_id"].as_str().expect("an id");
    let (_, next) = ask(&cluster, "GET", &format!("tasks?limit=1&after={after}"), &Value::Null);
    assert_eq!(next[0]["task_id"], json!(ids[TASKS - 6]));

    // A result that was let go is gone, and is reported so, also after a restart.
    let id = &ids[0];
    assert_eq!(ask(&cluster, "DELETE", &format!("tasks/{id}/result"), &Value::Null).0, 200);
    assert_eq!(ask(&cluster, "GET", &format!("tasks/{id}"), &Value::Null).0, 410);
    let done = cluster.run(&["result", &ids[1], "--done"]).json();
    assert_eq!(done["state"], "succeeded");
    assert_eq!(cluster.run(&["result", &ids[1]]).error(1).0, "expired");
    signal(cluster.pid(), Signal::KILL);
    cluster.world.expect_no_processes();
    let follower = Cluster::start(cluster.world, "1");
    for (id, expected) in [(&ids[0], 410), (&ids[1], 410), (&ids[2], 200), (&ids[TASKS - 1], 200)] {
        let (status, task) = ask(&follower, "GET", &format!("tasks/{id}"), &Value::Null);
        assert_eq!(status, expected, "{id}: {task}");
    }
    assert_eq!(ask(&follower, "GET", "tasks/ffff-1", &Value::Null).0, 404);
    follower.run(&["stop"]).json();
    follower.world.expect_no_processes();
}
