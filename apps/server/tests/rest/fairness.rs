//! Fair shares of callers, and the limits of a key.

use crate::grpc;
use crate::rig::{Answer, Options, PATIENCE, Rig, request};
use axum::body::Body;
use axum::response::Response;
use http_body_util::BodyExt;
use lgp_server::ServerConfig;
use serde_json::{Value, json};

const EVENTS: &str = "/api/v1/cluster/events";
const INFER: &str = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;

/// Makes a key and returns its credential.
async fn key(rig: &Rig, what: Value) -> String {
    let made = rig.post("/api/v1/cluster/keys", what.to_string()).await;
    format!("Bearer {}", made.json()["key"].as_str().expect("a key"))
}

fn send(
    rig: &Rig,
    bearer: &str,
    (method, path): (&str, &str),
    body: &str,
) -> impl Future<Output = Response> + Send + 'static {
    let request = request(method, path).header("authorization", bearer);
    rig.send(request.body(Body::from(body.to_owned())).unwrap())
}

async fn ask(rig: &Rig, bearer: &str, route: (&str, &str), body: &str) -> Answer {
    Answer::of(send(rig, bearer, route, body).await).await
}

async fn with(server: ServerConfig) -> Rig {
    Rig::with(Options { server, ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_key_leaves_room_to_another() {
    let rig = with(ServerConfig { pending_max: 16, ..ServerConfig::default() }).await;
    let (flood, other) =
        (key(&rig, json!({"role": "infer"})).await, key(&rig, json!({"role": "infer"})).await);
    let begin =
        |bearer: &str| tokio::spawn(send(&rig, bearer, ("POST", "/v2/models/gated/infer"), INFER));
    let under_way = async |count: u64| {
        rig.until("/api/v1/cluster/stats", |a| a.json()["tasks"]["submitted"] == count).await
    };
    let mut held: Vec<_> = (0..14).map(|_| begin(&flood)).collect();
    under_way(14).await;
    let refused = begin(&flood).await.unwrap();
    assert_eq!(refused.status(), 503);
    held.push(begin(&other));
    under_way(15).await;
    // Over gRPC, the same key's limits apply.
    let mut client = grpc::client(&rig, Some(&flood));
    let status = client.model_infer(grpc::request("gated", [1.0, 2.0])).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    rig.gate.open();
    for held in held {
        assert_eq!(held.await.unwrap().status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_of_one_key_leave_room_to_another() {
    let rig = with(ServerConfig { listeners_max: 16, ..ServerConfig::default() }).await;
    let (flood, other) =
        (key(&rig, json!({"role": "submit"})).await, key(&rig, json!({"role": "submit"})).await);
    let mut listeners = Vec::new();
    for (bearer, expected) in [(&flood, 14), (&other, 2)] {
        for _ in 0..expected {
            let listener = send(&rig, bearer, ("GET", EVENTS), "").await;
            assert_eq!(listener.status(), 200);
            listeners.push(listener);
        }
        assert_eq!(send(&rig, bearer, ("GET", EVENTS), "").await.status(), 503);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_place_is_enough_for_a_stream() {
    let rig = Rig::start().await;
    let bearer = key(&rig, json!({"role": "infer", "concurrent_max": 1})).await;
    let mut client = grpc::client(&rig, Some(&bearer));
    let requests = tokio_stream::iter((0..20).map(|_| grpc::request("relu", [1.0, 2.0])));
    let mut answers = client.model_stream_infer(requests).await.unwrap().into_inner();
    for n in 0..20 {
        let answer = answers.message().await.unwrap().expect("one for each");
        assert_eq!(answer.error_message, "", "{n}");
    }
    client.model_infer(grpc::request("relu", [1.0, 2.0])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_counts_as_many_requests_as_it_has_tasks() {
    let rig = Rig::start().await;
    let bearer = key(&rig, json!({"role": "submit", "rate_per_s": 5})).await;
    let task: Value = serde_json::from_str(INFER).unwrap();
    let batch = |count: usize| {
        let task = json!({"model": "relu", "inputs": task["inputs"]});
        json!({"tasks": vec![task; count]}).to_string()
    };
    let route = ("POST", "/api/v1/cluster/tasks/batch");
    let refused = ask(&rig, &bearer, route, &batch(7)).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.text().contains("fewer at a time"), "{}", refused.text());
    let began = std::time::Instant::now();
    assert_eq!(ask(&rig, &bearer, route, &batch(4)).await.status, 202);
    let refused = ask(&rig, &bearer, route, &batch(5)).await;
    // After a second, the key's rate allows as many again.
    if began.elapsed() < std::time::Duration::from_millis(700) {
        assert_eq!(refused.status, 429, "{}", refused.text());
        assert!(refused.headers.contains_key("retry-after"), "{}", refused.text());
        let tasks = rig.get("/api/v1/cluster/tasks").await.json();
        assert_eq!(tasks.as_array().unwrap().len(), 4, "all of a batch or none");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_keeps_its_place_and_ends_with_its_key() {
    let rig = Rig::start().await;
    let made = rig.post("/api/v1/cluster/keys", r#"{"role":"submit","concurrent_max":1}"#).await;
    let made = made.json();
    let bearer = format!("Bearer {}", made["key"].as_str().unwrap());
    let mut listener = send(&rig, &bearer, ("GET", EVENTS), "").await.into_body();
    assert_eq!(ask(&rig, &bearer, ("GET", "/v2"), "").await.status, 429);
    let path = format!("/api/v1/cluster/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(rig.delete(&path).await.status, 200);
    let ended = async { while listener.frame().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("it ends with the key");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_for_one_model_hears_and_reads_of_no_other() {
    let rig = Rig::start().await;
    let bearer = key(&rig, json!({"role": "submit", "models": ["relu", "both"]})).await;
    let task: Value = serde_json::from_str(INFER).unwrap();
    let task = json!({"model": "gated", "inputs": task["inputs"]}).to_string();
    for _ in 0..8 {
        assert_eq!(rig.post("/api/v1/cluster/tasks", task.clone()).await.status, 202);
    }
    for path in ["/api/v1/cluster/stats", "/metrics"] {
        rig.until(path, |all| all.text().contains("gated")).await;
        let text = ask(&rig, &bearer, ("GET", path), "").await.text();
        assert!(!text.contains("gated"), "{path}: {text}");
    }
    rig.gate.open();
    for (name, shadow) in [("both", Value::Null), ("hidden", Value::Null)] {
        let targets = json!([{"model": "relu", "weight": 1}]);
        let alias = json!({"targets": targets, "shadow": shadow}).to_string();
        let put = request("PUT", &format!("/api/v1/cluster/aliases/{name}"));
        assert_eq!(rig.call(put.body(Body::from(alias)).unwrap()).await.status, 200);
    }
    for model in ["relu", "gated"] {
        let answer = rig.post(&format!("/v2/models/{model}/infer"), INFER).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let of_both = "/api/v1/cluster/aliases/both";
    let alias = json!({
        "targets": [{"model": "relu", "weight": 1}],
        "shadow": {"model": "gated", "percent": 1},
    });
    let put = request("PUT", of_both).body(Body::from(alias.to_string())).unwrap();
    assert_eq!(rig.call(put).await.status, 200);
    for path in [
        "/metrics",
        "/api/v1/cluster/workers",
        "/api/v1/cluster/workers/w1",
        "/api/v1/cluster/aliases",
        "/api/v1/cluster/config",
    ] {
        let answer = ask(&rig, &bearer, ("GET", path), "").await;
        let text = answer.text();
        assert!(answer.status == 200 && !text.contains("gated"), "{path}: {text}");
        assert!(!text.contains("hidden"), "{path}: {text}");
        assert_eq!(text.contains("relu"), path != "/api/v1/cluster/config", "{path}: {text}");
        let all = rig.get(path).await.text();
        assert_eq!(all.contains("gated"), path != "/api/v1/cluster/config", "{path}: {all}");
    }
    let mut listener = send(&rig, &bearer, ("GET", EVENTS), "").await.into_body();
    for model in ["gated", "relu"] {
        for change in ["unload", "load"] {
            let path = format!("/v2/repository/models/{model}/{change}");
            assert_eq!(rig.post(&path, "").await.status, 200, "{path}");
        }
    }
    let mut text = String::new();
    while !text.contains("\"relu\"") {
        let frame = tokio::time::timeout(PATIENCE, listener.frame()).await.expect("an event");
        let bytes = frame.expect("more").unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert!(!text.contains("gated"), "{text}");
}
