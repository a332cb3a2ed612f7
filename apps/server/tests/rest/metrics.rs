//! Checks the page of metrics with Prometheus's own checker.

use crate::ensembles::{INFER, plain, put};
use crate::rig::{Rig, request};
use crate::{devices, sequences};
use axum::body::Body;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

/// The checker's complaints about names that Triton has fixed.
const KNOWN: &str = include_str!("../promtool-known.txt");

#[tokio::test(flavor = "multi_thread")]
async fn promtool_says_nothing_but_what_tritons_names_make_it_say() {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    promtool.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = match promtool.spawn() {
        Ok(promtool) => promtool,
        Err(error) => return println!("skipped: promtool: {error}"),
    };
    let rig = devices::rig(devices::card()).await;
    sequences::add(&rig, "adds", 60_000).await;
    assert_eq!(sequences::infer(&rig, "adds", 1.0, sequences::first(1)).await.0, 200);
    put(&rig, "ensemble", "ensemble.toml", &plain("relu"));
    put(&rig, "broken", "ensemble.toml", &plain("fails"));
    for (model, body, status) in
        [("ensemble", INFER, 200), ("broken", INFER, 500), ("relu", "{}", 400)]
    {
        let answer = rig.post(&format!("/v2/models/{model}/infer"), body).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    let all = |page: &str| {
        let series = [
            r#"nv_inference_request_failure{model="fails",version="1",reason="BACKEND"} 1"#,
            r#"nv_inference_request_success{model="ensemble",version="1"} 1"#,
            r#"lgp_sequences{model="adds",version="1"} 1"#,
            r#"nv_energy_consumption{gpu_uuid="w1/opencl:0""#,
        ];
        series.iter().all(|series| page.contains(series))
    };
    let page = rig.until("/metrics", |answer| all(&answer.text())).await.text();
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let said: BTreeSet<&str> = said.lines().collect();
    assert_eq!(said, KNOWN.lines().collect::<BTreeSet<&str>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_model_is_told() {
    let rig = Rig::start().await;
    let body = |model: &str| {
        let input = json!({"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]});
        json!({"model": model, "inputs": [input]})
    };
    let infer = |model: &str| {
        let mut body = body(model);
        body.as_object_mut().unwrap().remove("model");
        let asked = request("POST", &format!("/v2/models/{model}/infer"));
        tokio::spawn(rig.send(asked.body(Body::from(body.to_string())).unwrap()))
    };
    let running = infer("gated");
    rig.until("/api/v1/cluster/stats", |a| a.json()["tasks"]["running"] == 1).await;
    let waiting = [infer("gated"), infer("gated"), infer("relu")];
    for model in ["gated", "fails"] {
        let task = rig.post("/api/v1/cluster/tasks", body(model).to_string()).await;
        assert_eq!(task.status, 202, "{}", task.text());
    }
    let told = |page: &str| {
        let of = |model: &str| {
            let name = "nv_inference_pending_request_count";
            let start = format!("{name}{{model=\"{model}\",version=\"1\"}} ");
            page.lines().find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok())
        };
        ["gated", "relu", "fails"].map(of)
    };
    // `fails` had no requests by Triton's protocol.
    let wanted = [3, 1, 1].map(Some);
    rig.until("/metrics", |answer| told(&answer.text()) == wanted).await;
    rig.gate.open();
    for call in waiting.into_iter().chain([running]) {
        assert_eq!(call.await.unwrap().status(), 200);
    }
    let done = |page: &str| told(page)[..2] == [Some(0); 2];
    rig.until("/metrics", |answer| done(&answer.text())).await;
}
