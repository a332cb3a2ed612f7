//! Aliases for weighted models.

use crate::rig::{Answer, Rig, onnx, request};
use axum::body::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const ALIASES: &str = "/api/v1/cluster/aliases";
const MODELS: &str = "/api/v1/cluster/models";

async fn set(rig: &Rig, name: &str, targets: Value) -> Answer {
    let body = json!({ "targets": targets }).to_string();
    rig.call(request("PUT", &format!("{ALIASES}/{name}")).body(Body::from(body)).unwrap()).await
}

async fn infer(rig: &Rig, id: Option<&str>) -> String {
    let input = json!({"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [-1, 2]});
    let body = json!({ "id": id, "inputs": [input] }).to_string();
    let answer = rig.post("/v2/models/prod/infer", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let value = answer.json();
    assert_eq!(value["outputs"][0]["data"], json!([0.0, 2.0]));
    format!(
        "{}/{}",
        value["model_name"].as_str().unwrap(),
        value["model_version"].as_str().unwrap()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_an_alias_are_spread_and_repeated_ones_stay() {
    let rig = Rig::start().await;
    rig.gate.open();
    let targets = json!([
        {"model": "relu", "version": 1, "weight": 50},
        {"model": "gated", "version": null, "weight": 50},
    ]);
    let answer = set(&rig, "prod", targets.clone()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        rig.get(ALIASES).await.json(),
        json!([{"name": "prod", "targets": targets, "shadow": null}])
    );
    let kept = std::fs::read(rig.folder.path().join("aliases.json")).unwrap();
    assert!(String::from_utf8(kept).unwrap().contains("gated"));

    let mut by_model: BTreeMap<String, usize> = BTreeMap::new();
    for n in 0..40 {
        let id = format!("request-{n}");
        let first = infer(&rig, Some(&id)).await;
        if n < 5 {
            assert_eq!(infer(&rig, Some(&id)).await, first, "{id} goes where it went");
        } else {
            *by_model.entry(first).or_default() += 1;
        }
    }
    assert_eq!(by_model.keys().collect::<Vec<_>>(), ["gated/1", "relu/1"]);
    let metadata = rig.get("/v2/models/prod").await.json();
    assert_eq!((&metadata["name"], &metadata["inputs"][0]["name"]), (&json!("relu"), &json!("x")));

    // Requests count for the model that answered, and none stays pending.
    let stats = |name: &str| format!("/v2/models/{name}/stats");
    let mut answered = 0;
    for name in ["relu", "gated"] {
        let stats = rig.get(&stats(name)).await.json();
        answered += stats["model_stats"][0]["inference_count"].as_u64().unwrap();
    }
    assert_eq!(answered, 45);
    let page = rig.get("/metrics").await.text();
    let pending = page.lines().filter(|l| l.starts_with("nv_inference_pending_request_count{"));
    assert!(pending.clone().count() >= 2 && pending.clone().all(|line| line.ends_with(" 0")));

    let only = set(&rig, "prod", json!([{"model": "relu", "weight": 1}])).await;
    assert_eq!(only.status, 200);
    for id in [None, Some("request-1"), Some("request-2"), Some("request-3")] {
        assert_eq!(infer(&rig, id).await, "relu/1");
    }
    let task = json!({
        "model": "prod", "idempotency_key": "k",
        "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}],
    });
    let accepted = rig.post("/api/v1/cluster/tasks", task.to_string()).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let id = accepted.json()["task_id"].as_str().unwrap().to_owned();
    assert_eq!(rig.get(&format!("/api/v1/cluster/tasks/{id}")).await.json()["model"], "relu/1");

    // A missing target does not affect the others.
    let both = json!([{"model": "gated", "weight": 1}, {"model": "relu", "weight": 99}]);
    assert_eq!(set(&rig, "prod", both).await.status, 200);
    assert_eq!(rig.delete(&format!("{MODELS}/gated")).await.status, 200);
    assert_eq!(rig.get("/v2/models/prod").await.json()["name"], "relu");
    assert_eq!(rig.delete(&format!("{ALIASES}/prod")).await.status, 200);
    assert_eq!(rig.get("/v2/models/prod").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_an_alias_is_refused() {
    let rig = Rig::start().await;
    let relu = || json!([{"model": "relu", "weight": 1}]);
    for (name, targets, status, part) in [
        ("relu", relu(), 409, "is a model"),
        ("stats", relu(), 400, "reserved"),
        ("..", relu(), 400, ".."),
        ("prod", json!([]), 400, "0 targets"),
        ("prod", json!([{"model": "relu", "weight": 0}]), 400, "weight of 'relu' is 0"),
        ("prod", json!([{"model": "nope", "weight": 1}]), 404, "nope"),
        ("prod", json!([{"model": "relu", "version": 7, "weight": 1}]), 404, "7"),
        ("prod", json!([{"model": "relu", "share": 1}]), 400, "share"),
    ] {
        let answer = set(&rig, &name.replace("..", "%2E%2E"), targets).await;
        assert_eq!(answer.status.as_u16(), status, "{name}: {}", answer.text());
        assert!(answer.text().contains(part), "{name}: {}", answer.text());
    }
    assert_eq!(rig.get(ALIASES).await.json(), json!([]));
    assert_eq!(set(&rig, "prod", relu()).await.status, 200);
    let taken = rig.post(&format!("{MODELS}/prod"), onnx()).await;
    assert_eq!(taken.status, 409, "{}", taken.text());
    assert_eq!(rig.get("/v2/models/prod/versions/1").await.status, 400, "an alias has no versions");
    assert_eq!(rig.delete(&format!("{ALIASES}/nope")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_good_for_the_alias_that_it_names() {
    let rig = Rig::start().await;
    assert_eq!(set(&rig, "prod", json!([{"model": "relu", "weight": 1}])).await.status, 200);
    for (model, status) in [("prod", 200), ("relu", 403)] {
        let key = json!({"role": "infer", "models": [model]}).to_string();
        let key = rig.post("/api/v1/cluster/keys", key).await.json()["key"].clone();
        let ask = request("GET", "/v2/models/prod");
        let ask = ask.header("authorization", format!("Bearer {}", key.as_str().unwrap()));
        let answer = rig.call(ask.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status.as_u16(), status, "{model}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_runs_copies_and_differences_count() {
    let rig = Rig::start().await;
    rig.gate.open();
    let wish = |shadow: &str, percent: u32| {
        json!({
            "targets": [{"model": "relu", "weight": 1}],
            "shadow": {"model": shadow, "percent": percent},
        })
    };
    let put = async |body: Value| {
        let request = request("PUT", &format!("{ALIASES}/prod"));
        rig.call(request.body(Body::from(body.to_string())).unwrap()).await
    };
    for (wrong, status) in
        [(wish("nope", 1), 404), (wish("gated", 0), 400), (wish("gated", 101), 400)]
    {
        assert_eq!(put(wrong).await.status.as_u16(), status);
    }
    // One shadow agrees, and one fails; callers see neither.
    for (shadow, differences) in [("gated", 0), ("fails", 3)] {
        assert_eq!(put(wish(shadow, 100)).await.status, 200);
        for _ in 0..3 {
            assert_eq!(infer(&rig, None).await, "relu/1");
        }
        let labels = format!("{{model=\"{shadow}\",version=\"1\"}}");
        let line = format!("lgp_shadow_requests_total{labels} 3");
        let page = rig.until("/metrics", |page| page.text().contains(&line)).await.text();
        let line = format!("lgp_shadow_differences_total{labels} {differences}");
        assert!(page.contains(&line), "{page}");
    }
}
