//! Models with batching settings, and warm-up runs of devices.

use crate::rig::{Options, Rig, onnx, request};
use axum::body::Body;
use serde_json::{Value, json};

const MODELS: &str = "/api/v1/cluster/models";
const REQUESTS: u32 = 40;

async fn deploy(rig: &Rig, name: &str, wish: Value) -> Value {
    let request = request("PUT", &format!("{MODELS}/{name}/deployment"));
    let answer = rig.call(request.body(Body::from(wish.to_string())).unwrap()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// A counter of a model in `/metrics`.
fn count(page: &str, name: &str, model: &str) -> u64 {
    let of = |line: &&str| line.starts_with(name) && line.contains(&format!("\"{model}\""));
    let line = page.lines().find(of).unwrap_or_else(|| panic!("no {name} of {model} in {page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn inferences_of_a_model_that_says_so_run_together() {
    let rig = Rig::with(Options { runs_models: true, ..Options::default() }).await;
    for name in ["together", "alone"] {
        assert_eq!(rig.post(&format!("{MODELS}/{name}"), onnx()).await.status, 201);
    }
    let batching = json!({"max": 8, "preferred": [4], "delay_us": 50_000});
    let told = deploy(&rig, "together", json!({"batching": batching})).await;
    assert_eq!(told["deployment"]["batching"], batching);
    let infer = async |model: &str, value: u32, rows: usize| {
        let data = [f64::from(value), -1.0].repeat(rows);
        let body = json!({"inputs": [
            {"name": "x", "shape": [rows, 2], "datatype": "FP32", "data": data},
        ]});
        let answer = rig.post(&format!("/v2/models/{model}/infer"), body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let outputs = answer.json()["outputs"].clone();
        let y = outputs.as_array().unwrap().iter().find(|output| output["name"] == "y").unwrap();
        assert_eq!(y["data"], json!([f64::from(value), 0.0].repeat(rows)), "{model}");
    };
    for model in ["together", "alone"] {
        futures_util::future::join_all((0..REQUESTS).map(|value| infer(model, value, 1))).await;
    }
    infer("alone", 7, 3).await;
    let page = rig.get("/metrics").await.text();
    let counts = |model| {
        let of = |name| count(&page, name, model);
        let (answered, rows) = (of("nv_inference_request_success"), of("nv_inference_count"));
        (answered, rows, of("nv_inference_exec_count"))
    };
    let all = u64::from(REQUESTS);
    assert_eq!(counts("alone"), (all + 1, all + 3, all + 1));
    let (answered, rows, runs) = counts("together");
    assert_eq!((answered, rows), (all, all));
    // Runs by their number of rows.
    let batches = async |model: &str| {
        let stats = rig.get(&format!("/v2/models/{model}/stats")).await.json();
        let batches = stats["model_stats"][0]["batch_stats"].as_array().unwrap().clone();
        let count = |batch: &Value, name: &str| batch[name]["count"].as_u64().unwrap();
        let size = |batch: &Value| batch["batch_size"].as_u64().unwrap();
        batches.iter().map(|it| (size(it), count(it, "compute_infer"))).collect::<Vec<_>>()
    };
    assert_eq!(batches("alone").await, [(1, all), (3, 1)]);
    let told = batches("together").await;
    assert_eq!(told.iter().map(|(_, count)| count).sum::<u64>(), runs, "{told:?}");
    assert_eq!(told.iter().map(|(size, count)| size * count).sum::<u64>(), all, "{told:?}");
    // Ten runs of four if all requests came in time; late ones ran after the delay.
    assert!((10..all).contains(&runs), "{runs} runs");
    let wrong = json!({"batching": {"max": 8, "preferred": [9]}});
    let request = request("PUT", &format!("{MODELS}/together/deployment"));
    let answer = rig.call(request.body(Body::from(wrong.to_string())).unwrap()).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("preferred size 9"), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_ready_after_its_warm_up_and_a_failed_one_is_told() {
    let rig = Rig::with(Options { runs_models: true, ..Options::default() }).await;
    let path = format!("{MODELS}/warm");
    assert_eq!(rig.post(&path, onnx()).await.status, 201);
    let anew = async || {
        assert_eq!(rig.post(&format!("{path}/unload"), "").await.status, 200);
        rig.until(&path, |a| a.json()["state"] == "unavailable").await;
        rig.post(&format!("{path}/load"), "").await
    };
    deploy(&rig, "warm", json!({"warm_up": [{}, {"shapes": {"x": [16, 2]}}]})).await;
    let loaded = anew().await;
    assert_eq!(loaded.json()["state"], "ready", "{}", loaded.text());
    // The shape fits the model, but no worker can run it.
    let huge = json!({"warm_up": [{}, {"shapes": {"x": [1u64 << 40, 2]}}]});
    deploy(&rig, "warm", huge).await;
    let refused = anew().await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("warm-up run 2"), "{}", refused.text());
    let not_ready = rig.get("/v2/models/warm/ready").await;
    assert_ne!(not_ready.status, 200);
    deploy(&rig, "warm", json!({"warm_up": [{}]})).await;
    assert_eq!(rig.post(&format!("{path}/load"), "").await.json()["state"], "ready");
    let wrong = json!({"warm_up": [{"shapes": {"x": [1, 3]}}]});
    let request = request("PUT", &format!("{path}/deployment"));
    let answer = rig.call(request.body(Body::from(wrong.to_string())).unwrap()).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("expected [n, 2]"), "{}", answer.text());
}
