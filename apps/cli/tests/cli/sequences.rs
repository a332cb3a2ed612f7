//! Sequences, whose states are not kept by workers.

use crate::field::ask;
use crate::harness::{Cluster, World, eventually, signal};
use lgp_inference::GraphBuilder;
use lgp_memory::{DType, Dim, SymShape, TensorType};
use rustix::process::Signal;
use serde_json::{Value, json};

/// `y` = `x` + `s`, which is also `t`.
fn adds() -> Vec<u8> {
    let ty = TensorType { dtype: DType::F32, shape: Some(SymShape(vec![Dim::Known(1)])) };
    let mut graph = GraphBuilder::new("adds");
    let x = graph.input("x", ty.clone());
    let s = graph.input("s", ty.clone());
    let y = graph.node("Add", &[x, s], []);
    let t = graph.node("Identity", &[y], []);
    graph.output("y", y, ty.clone());
    graph.output("t", t, ty);
    graph.finish().expect("a sound graph").to_onnx().expect("a sound model")
}

/// Adds to the sequence's sum; answers the new sum, and the worker that ran it.
fn add(http: &str, x: f32, starts: bool) -> (Value, String) {
    let answer = ureq::post(format!("{http}/v2/models/adds/infer")).send_json(json!({
        "parameters": {"sequence_id": 1, "sequence_start": starts},
        "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [x]}],
    }));
    let mut answer = answer.expect("an answer");
    let worker = answer.headers()["lgp-worker"].to_str().expect("text").to_owned();
    let body: Value = answer.body_mut().read_json().expect("JSON");
    (body["outputs"][0]["data"][0].clone(), worker)
}

#[test]
fn a_sequence_goes_on_where_its_worker_is_killed_in_an_inference() {
    let cluster = Cluster::start(World::new(), "1");
    let path = cluster.world.write("adds.onnx", adds()).display().to_string();
    cluster.run(&["models", "add", "adds", &path]).json();
    let http = cluster.endpoint["http"].as_str().expect("an address").to_owned();
    let states = json!([{"input": "s", "output": "t"}]);
    ureq::patch(format!("{http}/api/v1/cluster/models/adds/deployment"))
        .header("authorization", &cluster.bearer())
        .send_json(json!({"sequences": {"idle_ms": 600_000, "states": states}}))
        .expect("it can keep such");
    let (sum, killed) = add(&http, 1.0, true);
    assert_eq!(sum, json!(1.0));

    // The worker gets the next inference and does not finish it.
    let worker = cluster.workers("ready")[0];
    signal(worker, Signal::STOP);
    let later = |x: f32| {
        let http = http.clone();
        std::thread::spawn(move || add(&http, x, false))
    };
    let second = later(2.0);
    eventually("the worker has it", || {
        ask(&cluster, "GET", "stats", &Value::Null).1["tasks"]["running"] == 1
    });
    let third = later(4.0);
    // An inference that comes while no worker has the model would be refused.
    eventually("the third waits for its turn", || {
        let metrics =
            ureq::get(format!("{http}/metrics")).header("authorization", &cluster.bearer());
        let text = metrics.call().expect("an answer").body_mut().read_to_string().expect("text");
        let mut lines = text.lines().filter(|line| line.contains(r#"model="adds""#));
        lines.any(|line| line.starts_with("nv_inference_pending_") && line.ends_with(" 1"))
    });
    signal(worker, Signal::KILL);
    for (waits, expected) in [(second, 3.0), (third, 7.0)] {
        let (sum, other) = waits.join().expect("it is answered");
        assert_eq!(sum, json!(expected));
        assert_ne!(other, killed);
    }
    assert_eq!(add(&http, 8.0, false).0, json!(15.0));
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}
