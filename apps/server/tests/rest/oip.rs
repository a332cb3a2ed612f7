//! The Open Inference Protocol, as clients see it.

use crate::rig::{Options, Rig, request};
use axum::body::Body;
use lgp_server::ServerConfig;
use serde_json::{Value, json};

const INFER: &str = "/v2/models/relu/infer";

fn body(rest: &str) -> String {
    format!(
        r#"{{"inputs":[{{"name":"x","shape":[1,2],"datatype":"FP32","data":[-1.5,2.5]}}]{rest}}}"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_and_its_models_describe_themselves() {
    let rig = Rig::start().await;
    for (path, expected) in [
        ("/v2/health/live", json!({"live": true})),
        ("/v2/health/ready", json!({"ready": true})),
        ("/v2/models/relu/ready", json!({"name": "relu", "ready": true})),
        ("/v2/models/relu/versions/1/ready", json!({"name": "relu", "ready": true})),
        (
            "/v2/models/relu",
            json!({
                "name": "relu", "versions": ["1"], "platform": "lgp_onnx",
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
                "outputs": [
                    {"name": "y", "datatype": "FP32", "shape": [-1, 2]},
                    {"name": "double", "datatype": "FP32", "shape": [-1, 2]}
                ]
            }),
        ),
    ] {
        let answer = rig.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (200, expected), "{path}");
    }
    let server = rig.get("/v2").await.json();
    assert!(server["extensions"].as_array().unwrap().contains(&json!("binary_tensor_data")));
    let config = rig.get("/v2/models/relu/config").await.json();
    assert_eq!(config["input"][0], json!({"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 2]}));
    assert_eq!(config["max_batch_size"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_in_json_out() {
    let rig = Rig::start().await;
    let answer = rig.post(INFER, body(r#","id":"a b""#)).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(
        answer.json(),
        json!({
            "model_name": "relu", "model_version": "1", "id": "a b",
            "outputs": [
                {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [0.0, 2.5]},
                {"name": "double", "datatype": "FP32", "shape": [1, 2], "data": [-3.0, 5.0]}
            ]
        })
    );
    let one = rig.post(INFER, body(r#","outputs":[{"name":"double"}]"#)).await.json();
    assert_eq!(one["outputs"].as_array().unwrap().len(), 1);
    assert_eq!(one["outputs"][0]["name"], "double");
    assert!(!one["id"].as_str().unwrap().is_empty(), "an id is made where none is given");
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_in_binary_out() {
    let rig = Rig::start().await;
    let json = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32",
        "parameters":{"binary_data_size":8}}],
        "outputs":[{"name":"y"},{"name":"double","parameters":{"binary_data":true}}]}"#;
    let raw: Vec<u8> = [-1.5f32, 2.5].iter().flat_map(|v| v.to_le_bytes()).collect();
    let request = request("POST", INFER)
        .header("inference-header-content-length", json.len())
        .body(Body::from([json.as_bytes(), &raw].concat()))
        .unwrap();
    let answer = rig.call(request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "application/octet-stream");
    let length: usize =
        answer.headers["inference-header-content-length"].to_str().unwrap().parse().unwrap();
    let head: Value = serde_json::from_slice(&answer.body[..length]).unwrap();
    assert_eq!(head["outputs"][0]["data"], json!([0.0, 2.5]));
    assert_eq!(head["outputs"][1]["parameters"], json!({"binary_data_size": 8}));
    assert_eq!(head["outputs"][1].get("data"), None);
    let expected: Vec<u8> = [-3.0f32, 5.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(answer.body[length..], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_the_protocols_status_and_shape() {
    let rig = Rig::start().await;
    let good = body("");
    let cases: &[(&str, &str, &str, u16, &str)] = &[
        ("GET", "/v2/models/nope", "", 404, "no model 'nope' in the repository, it has"),
        ("POST", "/v2/models/nope/infer", &good, 404, "no model 'nope'"),
        ("POST", "/v2/models/nope/../infer", &good, 404, "nothing is served at"),
        ("POST", "/v2/models/relu/versions/9/infer", &good, 404, "model 'relu' has no version 9"),
        ("GET", "/v2/models/relu/versions/x", "", 400, "model version 'x' is not valid"),
        ("GET", "/v2/models/.hidden", "", 400, "model name '.hidden' is not valid"),
        ("GET", "/v2/models/a%2F..%2Fb", "", 400, "model name 'a/../b' is not valid"),
        ("GET", "/v2/models/%ff", "", 400, "bad path"),
        ("GET", INFER, "", 405, "GET is not offered at /v2/models/relu/infer"),
        ("PUT", "/v2", "", 405, "PUT is not offered"),
        ("GET", "/v2/trace/setting", "", 501, "is not offered"),
        ("POST", "/v2/models/relu/trace/setting", "{}", 501, "is not offered"),
        ("POST", "/v2/logging", "{}", 501, "is not offered"),
        ("POST", "/v2/cudasharedmemory/region/r/register", "{}", 501, "is not offered"),
        ("GET", "/v2/nowhere", "", 404, "nothing is served at /v2/nowhere"),
        ("POST", INFER, "{", 400, "the request body is not valid"),
        ("POST", INFER, r#"{"inputs":[]}"#, 400, "input 'x' is missing, the model needs 'x'"),
        ("POST", "/v2/models/fails/infer", &good, 500, "the server's log has the cause"),
        ("POST", "/v2/repository/models/nope/load", "", 404, "no model 'nope'"),
        (
            "POST",
            "/v2/repository/models/relu/load",
            r#"{"parameters":{"config":"{}"}}"#,
            501,
            "config",
        ),
    ];
    for (method, path, body, status, expected) in cases {
        let request = request(method, path).body(Body::from((*body).to_owned())).unwrap();
        let answer = rig.call(request).await;
        assert_eq!(answer.status.as_u16(), *status, "{method} {path}: {}", answer.text());
        let message = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(expected), "{method} {path}: {message}");
        assert!(!message.contains("secret"), "{message}");
        assert_eq!(answer.headers.contains_key("allow"), *status == 405, "{method} {path}");
    }
}

const LENGTH: &str = "inference-header-content-length";

#[tokio::test(flavor = "multi_thread")]
async fn limits_hosts_and_encodings_are_enforced() {
    let server = ServerConfig { body_bytes_max: 200, binary_bytes_max: 400, ..Default::default() };
    let rig = Rig::with(Options { server, ..Default::default() }).await;
    let send = async |name: &str, value: &str, body: String| {
        let builder = axum::http::Request::builder().method("POST").uri(INFER).header(name, value);
        let builder = if name == "host" { builder } else { builder.header("host", "localhost") };
        rig.call(builder.body(Body::from(body)).unwrap()).await
    };
    for (name, value, body, status, expected) in [
        ("x-nothing", "1", body(""), 200, ""),
        ("x-nothing", "1", body(&" ".repeat(200)), 413, "larger than 200 bytes"),
        ("host", "evil.example", body(""), 403, "not this server's"),
        ("origin", "http://evil.example", body(""), 403, "may not use this server"),
        ("content-encoding", "gzip", body(""), 415, "content encoding"),
        (LENGTH, "-1", body(""), 400, "is '-1', expected 0 to"),
        (LENGTH, "x", body(""), 400, "is 'x', expected 0 to"),
        (LENGTH, "99999999999999999999999", body(""), 400, "expected 0 to"),
        (LENGTH, "201", " ".repeat(201), 413, "http.body_bytes_max"),
        // A length beyond the body is reported even if the body would be too large.
        (LENGTH, "1000", body(""), 400, "is '1000', expected 0 to"),
        // Bytes after the JSON have their own limit.
        (LENGTH, "10", " ".repeat(400), 400, "not valid"),
        (LENGTH, "10", " ".repeat(401), 413, "larger than 400 bytes"),
        ("x-nothing", "1", body(&" ".repeat(200)), 413, "http.body_bytes_max"),
    ] {
        let answer = send(name, value, body).await;
        assert_eq!(answer.status.as_u16(), status, "{name}: {value}: {}", answer.text());
        assert!(answer.text().contains(expected), "{name}: {value}: {}", answer.text());
    }
    // On routes without tensors, the header does not raise the limit.
    for path in ["/v2/repository/index", "/api/v1/cluster/scale"] {
        let request = request("POST", path).header(LENGTH, "0");
        let answer = rig.call(request.body(Body::from(" ".repeat(201))).unwrap()).await;
        assert_eq!(answer.status, 413, "{path}: {}", answer.text());
        assert!(answer.text().contains("larger than 200 bytes"), "{path}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_json_is_too_long_says_how_to_have_it() {
    let server = ServerConfig { binary_bytes_max: 1_000, ..Default::default() };
    let rig = Rig::with(Options { server, ..Default::default() }).await;
    let call = async |asked: &str| {
        let json = format!(
            r#"{{"inputs":[{{"name":"x","shape":[100,2],"datatype":"FP32",
                "parameters":{{"binary_data_size":800}}}}]{asked}}}"#
        );
        let request = request("POST", INFER).header(LENGTH, json.len());
        let values = [1.234_567_f32.to_le_bytes(); 200].concat();
        rig.call(request.body(Body::from([json.as_bytes(), &values].concat())).unwrap()).await
    };
    let refused = call("").await;
    assert_eq!(refused.status, 413, "{}", refused.text());
    assert!(refused.text().contains("JSON has more than 1000 bytes"), "{}", refused.text());
    assert!(refused.text().contains("binary_data_output"), "{}", refused.text());
    let answer = call(r#","parameters":{"binary_data_output":true}"#).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_keep_their_room_until_their_task_has_ended() {
    let server = ServerConfig {
        body_bytes_max: 200,
        binary_bytes_max: 1_000,
        // All of these bodies fit in the first bytes, whose share is an eighth; one caller may have three quarters
        // of that.
        bodies_bytes_max: 8 * 4 * 512 * 4 / 3,
        body_timeout_ms: 300,
        ..Default::default()
    };
    let rig = Rig::with(Options { server, ..Default::default() }).await;
    let json = r#"{"inputs":[{"name":"x","shape":[50,2],"datatype":"FP32",
        "parameters":{"binary_data_size":400}}]}"#;
    let large = || {
        let request = request("POST", "/v2/models/gated/infer").header(LENGTH, json.len());
        request.body(Body::from([json.as_bytes(), &[0; 400]].concat())).unwrap()
    };
    // Their answers take room too, and free it at once.
    let status = |request| {
        let answer = rig.send(request);
        tokio::spawn(async move { answer.await.status() })
    };
    let held: Vec<_> = (0..4).map(|_| status(large())).collect();
    rig.until("/api/v1/cluster/stats", |answer| {
        let stats = answer.json();
        let count = |state: &str| stats["tasks"][state].as_u64().unwrap();
        count("queued") + count("running") == 4
    })
    .await;
    let refused = rig.call(large()).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
    assert!(refused.text().contains("http.bodies_bytes_max"), "{}", refused.text());
    // Requests without a body need no room, and another caller has its own.
    assert_eq!(rig.get("/v2").await.status, 200);
    let key = rig.post("/api/v1/cluster/keys", r#"{"role":"infer"}"#).await.json()["key"].clone();
    let mut others = large();
    let bearer = format!("Bearer {}", key.as_str().unwrap());
    others.headers_mut().insert("authorization", bearer.parse().unwrap());
    let others = status(others);
    rig.gate.open();
    for held in held {
        assert_eq!(held.await.unwrap(), 200);
    }
    assert_eq!(others.await.unwrap(), 200);
    assert_eq!(rig.call(large()).await.status, 200);
}

/// An eighth of the room is for the first bytes of each body.
#[tokio::test(flavor = "multi_thread")]
async fn no_body_is_larger_than_the_room_for_all() {
    let server = ServerConfig { bodies_bytes_max: 80_000, ..Default::default() };
    let rig = Rig::with(Options { server, ..Default::default() }).await;
    for (bytes, status) in [(70_000, 400), (70_001, 413), (80_001, 413)] {
        let asked = request("POST", INFER).header(LENGTH, "1");
        let answer = rig.call(asked.body(Body::from(" ".repeat(bytes))).unwrap()).await;
        assert_eq!(answer.status, status, "{bytes}: {}", answer.text());
        let told = answer.text().contains("http.bodies_bytes_max");
        assert_eq!(told, status == 413, "{bytes}: {}", answer.text());
        let asked = request("POST", INFER).body(Body::from(" ".repeat(bytes)));
        assert_eq!(rig.call(asked.unwrap()).await.status, status, "{bytes} of JSON");
    }
    assert_eq!(rig.post(INFER, body("")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unloaded_model_is_not_ready() {
    let rig = Rig::start().await;
    assert_eq!(rig.post("/v2/repository/models/relu/unload", "{}").await.status, 200);
    rig.until("/v2/models/relu/ready", |a| a.status == 503).await;
    let answer = rig.post(INFER, body("")).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.json()["error"], "model 'relu' version 1 is not ready: unloaded");
    let index = rig.post("/v2/repository/index", "").await.json();
    let relu = index.as_array().unwrap().iter().find(|m| m["name"] == "relu").unwrap().clone();
    assert_eq!(
        relu,
        json!({"name": "relu", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"})
    );
    let ready = rig.post("/v2/repository/index", r#"{"ready":true}"#).await.json();
    assert!(ready.as_array().unwrap().iter().all(|m| m["state"] == "READY" && m["name"] != "relu"));
    assert_eq!(rig.post("/v2/repository/models/relu/load", "{}").await.status, 200);
    rig.until("/v2/models/relu/ready", |a| a.status == 200).await;
    assert_eq!(rig.post(INFER, body("")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_answers_503_and_when_to_come_back() {
    let rig = Rig::with(Options { queue_tasks_max: Some(1), ..Default::default() }).await;
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let request = request("POST", "/v2/models/gated/infer").body(Body::from(body("")));
            tokio::spawn(rig.send(request.unwrap()))
        })
        .collect();
    rig.until("/api/v1/cluster/stats", |a| a.json()["overloaded"].as_u64() > Some(0)).await;
    let answer = rig.post("/v2/models/gated/infer", body("")).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.headers.contains_key("retry-after"));
    rig.gate.open();
    let mut answered = 0;
    for task in waiting {
        answered += usize::from(task.await.unwrap().status() == 200);
    }
    assert!(answered >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_passes_is_an_error_and_not_a_hang() {
    let rig = Rig::start().await;
    let answer =
        rig.post("/v2/models/gated/infer", body(r#","parameters":{"timeout":50000}"#)).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    rig.gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_cancels_its_task() {
    let rig = Rig::start().await;
    let call = rig.post("/v2/models/gated/infer", body(""));
    assert!(tokio::time::timeout(std::time::Duration::from_millis(200), call).await.is_err());
    let wanted = |a: &crate::rig::Answer| a.json()["tasks"]["cancelled"] == 1;
    rig.until("/api/v1/cluster/stats", wanted).await;
    let metrics = rig.get("/metrics").await.text();
    let line = r#"nv_inference_request_failure{model="gated",version="1",reason="CANCELED"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
    rig.gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted() {
    let rig = Rig::start().await;
    for _ in 0..3 {
        let answer = rig.post(INFER, body("")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(rig.post(INFER, "{").await.status, 400);
    let answer = rig.post("/v2/models/fails/infer", body("")).await;
    assert_eq!(answer.status, 500, "{}", answer.text());
    let stats = rig.get("/v2/models/relu/stats").await.json()["model_stats"][0].clone();
    assert_eq!((&stats["name"], &stats["version"]), (&json!("relu"), &json!("1")));
    assert_eq!((&stats["inference_count"], &stats["execution_count"]), (&json!(3), &json!(3)));
    assert_eq!(stats["inference_stats"]["success"]["count"], 3);
    assert_eq!(stats["inference_stats"]["fail"]["count"], 1);
    assert!(stats["inference_stats"]["success"]["ns"].as_u64() > Some(0));
    assert!(stats["last_inference"].as_u64() > Some(0));
    let all = rig.get("/v2/models/stats").await.json();
    assert_eq!(all["model_stats"].as_array().unwrap().len(), crate::rig::MODELS.len());

    let text = rig.get("/metrics").await.text();
    for line in [
        "# TYPE nv_inference_request_success counter",
        r#"nv_inference_request_success{model="relu",version="1"} 3"#,
        r#"nv_inference_request_failure{model="relu",version="1",reason="REJECTED"} 1"#,
        r#"nv_inference_request_failure{model="fails",version="1",reason="BACKEND"} 1"#,
        r#"nv_inference_pending_request_count{model="relu",version="1"} 0"#,
        r#"lgp_inference_overhead_seconds_bucket{model="relu",version="1",le="+Inf"} 3"#,
        r#"lgp_inference_overhead_seconds_count{model="relu",version="1"} 3"#,
        r#"lgp_workers{state="ready"} 1"#,
        r#"lgp_workers{state="away"} 0"#,
        "lgp_runs_overran_total 0",
        "lgp_runs_hung_total 0",
        r#"lgp_tasks_finished_total{state="succeeded"} 3"#,
    ] {
        assert!(text.lines().any(|l| l == line), "no line {line:?} in\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_may_be_answered_by_its_best_classes() {
    let rig = Rig::start().await;
    std::fs::write(rig.folder.path().join("models/relu/labels.txt"), "cat\ndog\n").unwrap();
    let ask = |parameters: Value| {
        json!({
            "inputs": [{ "name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1.5, 2, 4, -3] }],
            "outputs": [{ "name": "y", "parameters": parameters }, { "name": "double" }],
        })
    };
    let answer = rig.post("/v2/models/relu/infer", ask(json!({ "classification": 1 })).to_string());
    let answer = answer.await.json();
    let expected = json!({ "name": "y", "datatype": "BYTES", "shape": [2, 1], "data": ["2:1:dog", "4:0:cat"] });
    assert_eq!(answer["outputs"][0], expected);
    assert_eq!(answer["outputs"][1]["datatype"], "FP32", "only what asks for it");
    for (parameters, part) in [
        (json!({ "classification": "many" }), "expected an integer"),
        (json!({ "classification": 1.5 }), "expected an integer"),
    ] {
        let answer = rig.post("/v2/models/relu/infer", ask(parameters).to_string()).await;
        assert!(answer.status == 400 && answer.text().contains(part), "{}", answer.text());
    }
}
