//! Results that are let go: only after they were written, and reported as such afterwards.

use crate::field::ask;
use crate::harness::{Cluster, Outcome, World, ZERO, eventually, npy};
use lgp_inference::GraphBuilder;
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};
use serde_json::{Value, json};
use std::process::Stdio;

/// This many elements take more than 64 KiB, so a durable task's outputs lie in a file.
const ELEMENTS: usize = 20_000;

/// A cluster with a model that takes exactly this number of elements, which only a run finds out.
fn cluster() -> Cluster {
    let cluster = Cluster::start(World::new(), "1");
    let of = |dims: Vec<Dim>| TensorType { dtype: DType::F32, shape: Some(SymShape(dims)) };
    let mut graph = GraphBuilder::new("fold");
    let x = graph.input("x", of(vec![Dim::Symbol("n".into())]));
    let shape = Tensor::from_slice([2], &[100i64, 200]).expect("two numbers");
    let shape = graph.initializer("shape", shape);
    let y = graph.node("Reshape", &[x, shape], []);
    graph.output("y", y, of(vec![Dim::Known(100), Dim::Known(200)]));
    let model = graph.finish().expect("a sound graph").to_onnx().expect("a sound model");
    let model = cluster.world.write("fold.onnx", model).display().to_string();
    cluster.run(&["models", "add", "fold", &model]).json();
    cluster
}

/// Submits a durable task; answers its id once it has ended.
fn submit(cluster: &Cluster, model: &str, input: Vec<u8>) -> String {
    let input = cluster.world.write("input.npy", input).display().to_string();
    let task = cluster.run(&["submit", "--model", model, "--input", &input, "--durable"]).json();
    let id = task["task_id"].as_str().expect("an id").to_owned();
    eventually("the task ends", || {
        let state = cluster.run(&["tasks", "show", &id]).json()["state"].clone();
        !["queued", "running"].map(Value::from).contains(&state)
    });
    id
}

/// Runs `result` with `--done` and the given stdout.
fn done(cluster: &Cluster, id: &str, stdout: impl Into<Stdio>, flags: &[&str]) -> Outcome {
    let data = cluster.endpoint["data"].as_str().expect("a path");
    let args = [&["result", id, "--done", "--data", data], flags].concat();
    let output = cluster.world.command(&args).stdout(stdout).stderr(Stdio::piped()).output();
    let output = output.expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    Outcome { code: output.status.code(), stdout, stderr }
}

#[test]
fn a_result_goes_once_it_was_written_and_not_before() {
    let cluster = cluster();
    let id = submit(&cluster, "digits", npy(&[1, 1, 8, 8], &ZERO));
    // Refused: output cut to the first values, output to nowhere, and a closed pipe.
    let shown = done(&cluster, &id, Stdio::piped(), &[]);
    assert!(shown.code == Some(2) && shown.stderr.contains("--output-dir"), "{shown:?}");
    assert_eq!(done(&cluster, &id, Stdio::null(), &["--json"]).error(2).0, "usage");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(done(&cluster, &id, writer, &["--json"]).error(1).0, "not_written");
    let out = cluster.world.path("out").display().to_string();
    let written = done(&cluster, &id, Stdio::null(), &["--output-dir", &out]);
    assert_eq!(written.code, Some(0), "it was there all the time: {written:?}");
    assert!(cluster.world.path("out/logits.npy").exists());

    assert_eq!(cluster.run(&["result", &id]).error(1).0, "expired");
    // The task has ended, whatever happened to its result.
    let cancelled = cluster.run(&["cancel", &id]).json();
    assert_eq!(cancelled, json!({ "task_id": id, "state": "expired" }));

    // A task's error is its result too, and is reported before it goes.
    let failed = submit(&cluster, "fold", npy(&[4], &[0.; 4]));
    let (code, message) = done(&cluster, &failed, Stdio::piped(), &["--json"]).error(1);
    assert!(code != "not_written" && message.contains("failed"), "{code}: {message}");
    assert_eq!(cluster.run(&["result", &failed]).error(1).0, "expired");
    a_damaged_result_is_given_up(cluster);
}

/// As `docs/cluster.md` says, the file may come back, so only an explicit request lets the result go.
fn a_damaged_result_is_given_up(cluster: Cluster) {
    let id = submit(&cluster, "fold", npy(&[ELEMENTS], &[1.; ELEMENTS]));
    // Restarted, because a coordinator does not read recent results from disk.
    cluster.run(&["stop"]).json();
    let cluster = &Cluster::start(cluster.world, "0");
    let folder = std::fs::read_dir(cluster.world.path("data/tasks.journal.inputs"));
    let file = folder.expect("a folder").next().expect("a file").expect("it can be read").path();
    let whole = std::fs::read(&file).expect("ours");
    std::fs::write(&file, "damaged").expect("ours");
    let lost = done(cluster, &id, Stdio::piped(), &["--json"]);
    assert_eq!(lost.code, Some(1), "{}", lost.stderr);
    assert_eq!(lost.error(1).0, "result_lost");
    let path = format!("tasks/{id}/result");
    assert!(lost.stderr.contains(&format!("DELETE {}", url(cluster, &path))), "{lost:?}");
    assert_eq!(cluster.run(&["cancel", &id]).json()["state"], "succeeded");
    assert_eq!(cluster.run(&["tasks", "backup"]).error(1).0, "tensors_damaged");
    // None of the commands has let the result go.
    std::fs::write(&file, &whole).expect("ours");
    assert_eq!(cluster.run(&["result", &id]).json()["state"], "succeeded");

    std::fs::write(&file, "damaged").expect("ours");
    assert_eq!(ask(cluster, "DELETE", &path, &Value::Null).0, 200);
    assert_eq!(cluster.run(&["result", &id]).error(1).0, "expired");
    eventually("the journal can be copied", || cluster.run(&["tasks", "backup"]).code == Some(0));
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

fn url(cluster: &Cluster, path: &str) -> String {
    format!("{}/api/v1/cluster/{path}", cluster.endpoint["http"].as_str().expect("an address"))
}
