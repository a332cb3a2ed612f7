//! Adding, removing, loading and unloading models.

use crate::grpc::client;
use crate::rig::{Options, Rig, onnx, request};
use axum::body::Body;
use http_body_util::BodyExt;
use lgp_server::ServerConfig;
use lgp_server::inference::ModelStatisticsRequest;
use serde_json::{Value, json};

const MODELS: &str = "/api/v1/cluster/models";

async fn names(rig: &Rig) -> Vec<String> {
    let list = rig.get(MODELS).await.json();
    let name = |m: &Value| format!("{}/{}", m["name"].as_str().unwrap(), m["version"]);
    list.as_array().unwrap().iter().map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_added_served_replaced_and_removed() {
    let rig = Rig::start().await;
    let path = format!("{MODELS}/mine");
    let answer = rig.post(&path, onnx()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let added = answer.json();
    assert_eq!(
        (&added["name"], &added["version"], &added["state"]),
        (&json!("mine"), &json!(1), &json!("ready"))
    );
    assert_eq!(added["workers"], json!(["w1"]));
    assert_eq!(added["inputs"], json!([{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]));
    rig.until("/v2/models/mine/ready", |a| a.status == 200).await;
    let body = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;
    assert_eq!(rig.post("/v2/models/mine/infer", body).await.json()["model_version"], "1");

    assert_eq!(rig.post(&path, onnx()).await.json()["version"], 2);
    rig.until("/v2/models/mine/versions/2/ready", |a| a.status == 200).await;
    assert_eq!(rig.post("/v2/models/mine/infer", body).await.json()["model_version"], "2");
    rig.until("/v2/models/mine/versions/1/ready", |a| a.status == 200).await;
    assert_eq!(rig.get("/v2/models/mine").await.json()["versions"], json!(["1", "2"]));

    assert_eq!(rig.post(&format!("{path}/unload"), "").await.status, 200);
    rig.until(&path, |a| a.json()["state"] == "unavailable").await;
    assert_eq!(rig.post(&format!("{path}/load"), "").await.json()["state"], "ready");

    assert_eq!(rig.delete(&path).await.status, 200);
    assert_eq!(rig.get(&path).await.status, 404);
    assert_eq!(rig.post("/v2/models/mine/infer", body).await.status, 404);
    assert!(!names(&rig).await.iter().any(|n| n.starts_with("mine")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_may_come_in_parts() {
    let rig = Rig::start().await;
    let part = |head: &str, data: &[u8]| {
        [format!("--B\r\nContent-Disposition: form-data; {head}\r\n\r\n").as_bytes(), data, b"\r\n"]
            .concat()
    };
    let send = async |parts: Vec<Vec<u8>>| {
        let body = [parts.concat(), b"--B--\r\n".to_vec()].concat();
        let request = request("POST", &format!("{MODELS}/parts"))
            .header("content-type", "multipart/form-data; boundary=B")
            .body(Body::from(body))
            .unwrap();
        rig.call(request).await
    };
    let model = part(r#"name="model"; filename="m.onnx""#, &onnx());
    let data = |name: &str| part(&format!(r#"name="data"; filename="{name}""#), b"0123");
    let answer = send(vec![model.clone(), data("m.onnx.data")]).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let large = part(r#"name="data"; filename="large.data""#, &vec![1; 3 << 20]);
    let answer = send(vec![model.clone(), large]).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    for (parts, expected) in [
        (vec![data("m.data")], "no part 'model'"),
        (vec![model.clone(), data("../evil")], "data file name '../evil' is not valid"),
        (vec![model.clone(), model.clone()], "exists"),
        (vec![model.clone(), part(r#"name="other""#, b"")], "is unknown"),
    ] {
        let answer = send(parts).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains(expected), "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_cannot_be_used_is_not_kept() {
    let server = ServerConfig { model_bytes_max: 100_000, ..Default::default() };
    let rig = Rig::with(Options { server, ..Default::default() }).await;
    let before = names(&rig).await;
    let truncated = onnx()[..onnx().len() / 2].to_vec();
    for (name, body, status, expected) in [
        ("empty", Vec::new(), 400, "the body is empty"),
        ("noise", vec![0xff; 64], 400, ""),
        ("cut", truncated, 400, ""),
        ("big", vec![0; 100_001], 413, "larger than 100000 bytes"),
        (".dot", onnx(), 400, "model name '.dot' is not valid"),
        ("stats", onnx(), 400, "reserved"),
        ("unloadable", onnx(), 400, "no worker can load 'unloadable': does not fit"),
    ] {
        let answer = rig.post(&format!("{MODELS}/{name}"), body).await;
        assert_eq!(answer.status.as_u16(), status, "{name}: {}", answer.text());
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(!message.is_empty() && message.contains(expected), "{name}: {message}");
        // Clients must not learn where the upload was stored.
        assert!(!message.contains("/tmp"), "{name}: {message}");
    }
    assert_eq!(names(&rig).await, before);
    assert_eq!(rig.delete(&format!("{MODELS}/nope")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_asks_for_is_kept_and_told() {
    let rig = Rig::start().await;
    for name in ["mine", "mine-int8"] {
        let answer = rig.post(&format!("{MODELS}/{name}"), onnx()).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let path = format!("{MODELS}/mine");
    let nothing = json!({
        "memory_bytes": null, "backend": null, "family": null, "variants": [], "run_limit_ms": null,
        "version_policy": null,
        "cache_bytes": null, "cache_ttl_ms": null, "batching": null, "sequences": null, "warm_up": [],
    });
    assert_eq!(rig.get(&path).await.json()["deployment"], nothing);
    let put = async |body: &Value| {
        let request = request("PUT", &format!("{path}/deployment"));
        rig.call(request.body(Body::from(body.to_string())).unwrap()).await
    };
    let wish = json!({
        "memory_bytes": 4096, "backend": "opencl", "family": "Polaris", "variants": ["mine-int8"],
        "run_limit_ms": 500, "version_policy": "latest:3", "cache_bytes": 4096, "cache_ttl_ms": 50,
        "batching": {"max": 8, "preferred": [4], "delay_us": 500}, "sequences": null,
        "warm_up": [{"shapes": {"x": [4, 2]}}],
    });
    let answer = put(&wish).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["deployment"], wish);
    for (wrong, part) in [
        (json!({"variants": ["nope"]}), "nope"),
        (json!({"variants": ["mine"]}), "itself"),
        (json!({"memory": 1}), "memory"),
        (json!({"memory_bytes": -1}), "memory_bytes"),
    ] {
        let answer = put(&wrong).await;
        assert!(answer.status.is_client_error(), "{wrong}: {}", answer.status);
        let said = answer.text().contains(part) || wrong.to_string().contains(part);
        assert!(said, "{wrong}: {}", answer.text());
    }
    assert_eq!(rig.get(&path).await.json()["deployment"], wish, "what was wrong changed nothing");

    // The adaptive strategy may choose either, and the record shows which.
    let strategy = request("PUT", "/api/v1/cluster/config/balancing");
    let strategy = strategy.body(Body::from(r#"{"strategy":"adaptive"}"#)).unwrap();
    assert_eq!(rig.call(strategy).await.status, 200);
    let task =
        r#"{"model":"mine","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;
    let mut ran = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let id = rig.post("/api/v1/cluster/tasks", task).await.json()["task_id"].clone();
        let show = format!("/api/v1/cluster/tasks/{}", id.as_str().unwrap());
        let done = rig.until(&show, |answer| answer.json()["state"] == "succeeded").await;
        ran.insert(done.json()["variant"].to_string());
    }
    // The strategy measures both before it prefers one.
    let both = ["\"mine-int8/1\"".to_owned(), "null".to_owned()];
    assert_eq!(ran.into_iter().collect::<Vec<_>>(), both);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_an_unloaded_model_wait_and_requests_for_it_do_not() {
    let rig = Rig::start().await;
    let input = r#""inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]"#;
    let mut tasks = Vec::new();
    for state in ["running", "queued"] {
        let body = format!(r#"{{"model":"gated",{input}}}"#);
        let id = rig.post("/api/v1/cluster/tasks", body).await.json()["task_id"].clone();
        let show = format!("/api/v1/cluster/tasks/{}", id.as_str().unwrap());
        rig.until(&show, |answer| answer.json()["state"] == state).await;
        tasks.push(show);
    }
    let infer = request("POST", "/v2/models/gated/infer");
    let infer = tokio::spawn(rig.send(infer.body(Body::from(format!("{{{input}}}"))).unwrap()));
    rig.until("/api/v1/cluster/stats", |answer| answer.json()["tasks"]["queued"] == 2).await;

    let unload = request("POST", &format!("{MODELS}/gated/unload"));
    let unload = unload.body(Body::from(r#"{"timeout_s":1}"#)).unwrap();
    let unloading = tokio::spawn(rig.send(unload));
    let refused = tokio::time::timeout(crate::rig::PATIENCE, infer).await.unwrap().unwrap();
    assert_eq!(refused.status(), 503);
    let began = std::time::Instant::now();
    // The running task is recalled and then ends.
    rig.until(&tasks[0], |answer| answer.json()["state"] == "queued").await;
    rig.gate.open();
    let answer = unloading.await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["ended"].as_array().map(Vec::len), Some(1), "{body}");
    rig.until(&format!("{MODELS}/gated"), |a| a.json()["state"] == "unavailable").await;
    for task in &tasks {
        let why = rig.get(&format!("{task}/why")).await.text();
        assert!(why.contains("which was unloaded"), "{why}");
    }
    assert_eq!(rig.post(&format!("{MODELS}/gated/load"), "").await.status, 200);
    for task in &tasks {
        rig.until(task, |answer| answer.json()["state"] == "succeeded").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unload_by_the_protocol_keeps_what_runs_and_holds_what_waits() {
    let rig = Rig::start().await;
    let body =
        r#"{"model":"gated","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;
    let mut tasks = Vec::new();
    for state in ["running", "queued"] {
        let id = rig.post("/api/v1/cluster/tasks", body).await.json()["task_id"].clone();
        let show = format!("/api/v1/cluster/tasks/{}", id.as_str().unwrap());
        rig.until(&show, |answer| answer.json()["state"] == state).await;
        tasks.push(show);
    }
    assert_eq!(rig.post("/v2/repository/models/gated/unload", "").await.status, 200);
    rig.gate.open();
    rig.until(&tasks[0], |answer| answer.json()["state"] == "succeeded").await;
    // Longer than a worker needs to load the model and run the task.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(rig.get(&tasks[1]).await.json()["state"], "queued");
    let why = rig.get(&format!("{}/why", tasks[1])).await.text();
    assert!(why.contains("which was unloaded"), "{why}");
    assert_eq!(rig.post("/v2/repository/models/gated/load", "").await.status, 200);
    rig.until(&tasks[1], |answer| answer.json()["state"] == "succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_kept_where_that_is_wanted() {
    let rig = Rig::start().await;
    let deploy = async |body: Value| {
        let request = request("PUT", &format!("{MODELS}/relu/deployment"));
        let answer = rig.call(request.body(Body::from(body.to_string())).unwrap()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let infer = async |values: [i32; 2], output: &str| {
        let body = json!({
            "id": "mine",
            "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": values}],
            "outputs": [{"name": output}],
        });
        let answer = rig.post("/v2/models/relu/infer", body.to_string()).await.json();
        assert_eq!(answer["id"], "mine");
        answer["outputs"][0]["data"].clone()
    };
    let counts = async || {
        let page = rig.get("/metrics").await.text();
        let of = |name: &str| {
            let line = page.lines().find(|line| line.starts_with(name));
            line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        };
        let relu = "{model=\"relu\",version=\"1\"}";
        ["nv_inference_count", "nv_inference_exec_count", "nv_cache_num_hits_per_model"]
            .map(|name| of(&format!("{name}{relu}")))
            .into_iter()
            .chain([of("nv_cache_num_misses_per_model{model=\"relu\""), of("lgp_tasks_submitted")])
            .collect::<Vec<_>>()
    };
    infer([-1, 2], "y").await;
    infer([-1, 2], "y").await;
    assert_eq!(counts().await, [2, 2, 0, 0, 2], "nothing is kept unless that is said");
    deploy(json!({"cache_bytes": 1 << 20})).await;
    for output in ["y", "y", "double"] {
        let expected = if output == "y" { json!([0.0, 2.0]) } else { json!([-2.0, 4.0]) };
        assert_eq!(infer([-1, 2], output).await, expected);
    }
    assert_eq!(counts().await, [3, 3, 2, 1, 3], "one run answers three requests");
    let stats = rig.get("/v2/models/relu/stats").await.json()["model_stats"][0].clone();
    let counted = |name: &str| stats["inference_stats"][name]["count"].as_u64();
    let all = ["success", "queue", "compute_input", "compute_infer", "cache_hit", "cache_miss"];
    assert_eq!(all.map(counted), [5, 5, 3, 3, 2, 1].map(Some), "{stats}");
    for name in ["cache_hit", "cache_miss"] {
        assert!(stats["inference_stats"][name]["ns"].as_u64() > Some(0), "{stats}");
    }
    let mut client = client(&rig, Some(&rig.bearer));
    let asked = ModelStatisticsRequest { name: "relu".to_owned(), version: String::new() };
    let told = client.model_statistics(asked).await.unwrap().into_inner().model_stats;
    let told = told.into_iter().next().unwrap().inference_stats.unwrap();
    let counts_of = [told.compute_infer, told.cache_hit, told.cache_miss];
    assert_eq!(counts_of.map(|it| it.unwrap().count), [3, 2, 1]);
    assert_eq!(infer([-1, 3], "y").await, json!([0.0, 3.0]));
    assert_eq!(counts().await, [4, 4, 2, 2, 4], "other inputs are another question");
    deploy(json!({})).await;
    infer([-1, 2], "y").await;
    assert_eq!(counts().await, [5, 5, 2, 2, 5]);
}
