//! Tasks, workers and settings, as clients see them.

use crate::rig::{Options, Rig, request};
use axum::body::Body;
use lgp_server::{BoxFuture, Driver, DriverError, Restarted};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TASKS: &str = "/api/v1/cluster/tasks";

fn task(model: &str, rest: &str) -> String {
    format!(
        r#"{{"model":"{model}","inputs":[
            {{"name":"x","shape":[1,2],"datatype":"FP32","data":[-1,0.1]}}]{rest}}}"#
    )
}

async fn submit(rig: &Rig, body: String) -> String {
    let answer = rig.post(TASKS, body).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let state = answer.json()["state"].as_str().unwrap().to_owned();
    assert!(["queued", "running", "succeeded", "failed"].contains(&state.as_str()), "{state}");
    answer.json()["task_id"].as_str().unwrap().to_owned()
}

async fn finished(rig: &Rig, id: &str) -> Value {
    let terminal = ["succeeded", "failed", "cancelled"];
    let path = format!("{TASKS}/{id}");
    rig.until(&path, |a| terminal.iter().any(|t| a.json()["state"] == *t)).await.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_accepted_run_and_shown() {
    let rig = Rig::start().await;
    let rest = r#","priority":"high","deadline_ms":60000,"durable":false,"depends_on":[]"#;
    let id = submit(&rig, task("relu", rest)).await;
    let shown = finished(&rig, &id).await;
    assert_eq!(shown["state"], "succeeded");
    assert_eq!((&shown["attempts"], &shown["worker"]), (&json!(1), &json!("w1")));
    assert_eq!(shown["error"], Value::Null);
    assert_eq!(
        shown["outputs"][0],
        json!({"name": "y", "shape": [1, 2], "datatype": "FP32", "data": [0.0, 0.1]})
    );
    for key in ["queued_ms", "model_ms", "overhead_ms"] {
        assert!(shown[key].as_f64().is_some_and(|ms| ms >= 0.0), "{key}: {shown}");
    }
    let list = rig.get(TASKS).await.json();
    assert_eq!(list.as_array().unwrap().len(), 1, "a bare array");
    assert_eq!(list[0]["task_id"], json!(id));
    assert_eq!(list[0].get("outputs"), None);
    assert_eq!(rig.delete(&format!("{TASKS}/{id}")).await.json()["state"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn tensors_of_tasks_may_follow_as_bytes() {
    let rig = Rig::start().await;
    let input =
        r#"{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}"#;
    let task = format!(r#"{{"model":"relu","inputs":[{input}]}}"#);
    let batch = format!(r#"{{"tasks":[{task},{task}]}}"#);
    let raw = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let send = async |path: &str, json: &str, raw: Vec<u8>| {
        let request = request("POST", path).header("inference-header-content-length", json.len());
        rig.call(request.body(Body::from([json.as_bytes(), &raw].concat())).unwrap()).await
    };
    let answer = send(TASKS, &task, raw(&[-1., 0.1])).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let shown = finished(&rig, answer.json()["task_id"].as_str().unwrap()).await;
    assert_eq!(shown["outputs"][0]["data"], json!([0.0, 0.1]));

    let batches = format!("{TASKS}/batch");
    let answer = send(&batches, &batch, raw(&[1., 2., 3., 4.])).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    for (at, expected) in [json!([1.0, 2.0]), json!([3.0, 4.0])].iter().enumerate() {
        let id = answer.json()["tasks"][at]["task_id"].as_str().unwrap().to_owned();
        assert_eq!(&finished(&rig, &id).await["outputs"][0]["data"], expected);
    }

    for (path, json, values, expected) in [
        (TASKS, &task, &[1., 2., 3.][..], "4 bytes follow the last binary input"),
        (TASKS, &task, &[1.], "binary_data_size 8, but 4 bytes are left"),
        (&*batches, &batch, &[1., 2.], "binary_data_size 8, but 0 bytes are left"),
        (&*batches, &batch, &[1.; 5], "4 bytes follow the last binary input"),
    ] {
        let answer = send(path, json, raw(values)).await;
        assert!(answer.status == 400 && answer.text().contains(expected), "{}", answer.text());
    }
    let answer = rig.post(TASKS, task).await;
    assert!(answer.text().contains("lacks the header"), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_task_says_why() {
    let rig = Rig::start().await;
    let shown = finished(&rig, &submit(&rig, task("fails", "")).await).await;
    assert_eq!((&shown["state"], &shown["outputs"]), (&json!("failed"), &Value::Null));
    assert_eq!(shown["error"]["code"], "model_failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_for_one_body() {
    let rig = Rig::start().await;
    let key = r#","idempotency_key":"k1""#;
    let first = submit(&rig, task("relu", key)).await;
    assert_eq!(submit(&rig, task("relu", key)).await, first);
    let answer = rig.post(TASKS, task("gated", key)).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["error"]["code"]),
        (409, &json!("conflict"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_task_is_cancelled() {
    let rig = Rig::start().await;
    let running = submit(&rig, task("gated", "")).await;
    let waiting = submit(&rig, task("relu", "")).await;
    let answer = rig.delete(&format!("{TASKS}/{waiting}")).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["state"]), (200, &json!("cancelled")));
    rig.gate.open();
    assert_eq!(finished(&rig, &running).await["state"], "succeeded");
    assert_eq!(finished(&rig, &waiting).await["state"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_keeps_its_order_and_is_checked_whole() {
    let rig = Rig::start().await;
    let path = format!("{TASKS}/batch");
    let good = task("relu", "");
    let answer = rig.post(&path, format!(r#"{{"tasks":[{good},{good},{good}]}}"#)).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let ids: Vec<String> = answer.json()["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["task_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 3);
    let submitted =
        async || rig.get("/api/v1/cluster/stats").await.json()["tasks"]["submitted"].clone();
    assert_eq!(submitted().await, 3);
    let mut newest_first: Vec<Value> = rig.get(TASKS).await.json().as_array().unwrap().clone();
    newest_first.reverse();
    let listed: Vec<&str> = newest_first.iter().map(|t| t["task_id"].as_str().unwrap()).collect();
    assert_eq!(listed, ids);

    let bad = task("nope", "");
    for (body, status, expected) in [
        (format!(r#"{{"tasks":[{good},{bad}]}}"#), 404, "task 1 of the batch: no model 'nope'"),
        (r#"{"tasks":[]}"#.to_owned(), 400, "the batch has 0 tasks, expected 1 to"),
        ("[]".to_owned(), 400, "not valid"),
    ] {
        let answer = rig.post(&path, body).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        assert!(answer.text().contains(expected), "{}", answer.text());
    }
    assert_eq!(submitted().await, 3, "nothing of a bad batch is submitted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_task_is_accepted_where_there_is_a_journal_and_explains_itself() {
    let rig = Rig::with(Options { journal: true, ..Options::default() }).await;
    let id = submit(&rig, task("relu", r#","durable":true,"idempotency_key":"k""#)).await;
    let shown = finished(&rig, &id).await;
    assert_eq!((&shown["state"], &shown["durable"]), (&json!("succeeded"), &json!(true)));
    assert_eq!(submit(&rig, task("relu", r#","durable":true,"idempotency_key":"k""#)).await, id);
    let why = rig.get(&format!("{TASKS}/{id}/why")).await.json();
    let said: Vec<&str> = why["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["what"].as_str().unwrap())
        .collect();
    let expected = ["accepted", "the journal has it", "attempt 1 sent to worker w1", "succeeded"];
    assert_eq!(said.len(), expected.len(), "{said:?}");
    assert!(said.iter().zip(expected).all(|(line, start)| line.starts_with(start)), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_task_that_cannot_be_saved_is_not_accepted() {
    let rig = Rig::with(Options { journal: true, ..Options::default() }).await;
    // Inputs beyond 64 MiB go to a folder beside the journal.
    let inputs = rig.folder.path().join("tasks.journal.inputs");
    std::fs::remove_dir(&inputs).unwrap();
    std::fs::write(&inputs, "in the way").unwrap();
    let bytes = 8 * 8_800_000;
    let json = format!(
        r#"{{"model":"relu","durable":true,"inputs":[{{"name":"x","shape":[8800000,2],
            "datatype":"FP32","parameters":{{"binary_data_size":{bytes}}}}}]}}"#
    );
    let request = request("POST", TASKS).header("inference-header-content-length", json.len());
    let raw = vec![0u8; bytes];
    let body = Body::from([json.as_bytes(), &raw].concat());
    let answer = rig.call(request.body(body).unwrap()).await;
    assert_eq!(answer.status, 507, "{}", answer.text());
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], "not_saved", "{error}");
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("free space")), "{error}");
    assert!(!answer.text().contains("tasks.journal"), "paths are for the log: {error}");
    assert_eq!(rig.get(TASKS).await.json(), json!([]));
    // Tasks that need only the journal are not affected.
    let id = submit(&rig, task("relu", r#","durable":true"#)).await;
    assert_eq!(finished(&rig, &id).await["state"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_cannot_be_written_says_so() {
    let rig = Rig::with(Options { journal: true, ..Options::default() }).await;
    let backups = rig.folder.path().join("backups");
    std::fs::write(&backups, "in the way").unwrap();
    let back_up = || rig.post("/api/v1/cluster/journal/backup", String::new());
    let answer = back_up().await;
    assert_eq!(answer.status, 500, "{}", answer.text());
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], "backup_failed", "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("backup") && message.contains("log"), "{message}");
    std::fs::remove_file(&backups).unwrap();
    let answer = back_up().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_batch_wait_for_those_that_they_depend_on() {
    let rig = Rig::start().await;
    let batch = |tasks: &[String]| format!(r#"{{"tasks":[{}]}}"#, tasks.join(","));
    let after = |n: u32| format!(r##","depends_on":["#{n}"]"##);
    let path = format!("{TASKS}/batch");
    let circle = batch(&[task("relu", &after(1)), task("relu", &after(0))]);
    let answer = rig.post(&path, circle).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("tasks 0, 1 of the batch depend"), "{}", answer.text());

    // The second runs before the first, and the third fails with the task that it depends on.
    let tasks =
        [task("relu", &after(1)), task("gated", ""), task("relu", &after(3)), task("fails", "")];
    let answer = rig.post(&path, batch(&tasks)).await.json();
    let ids: Vec<String> = answer["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["task_id"].as_str().unwrap().to_owned())
        .collect();
    let first = rig.get(&format!("{TASKS}/{}", ids[0])).await.json();
    assert_eq!((&first["state"], &first["depends_on"]), (&json!("queued"), &json!([ids[1]])));
    rig.gate.open();
    assert_eq!(finished(&rig, &ids[0]).await["state"], "succeeded");
    let fallen = finished(&rig, &ids[2]).await;
    assert_eq!(fallen["error"]["code"], "dependency_failed");
    let message = fallen["error"]["message"].as_str().unwrap();
    assert!(message.contains(&ids[3]), "{message}");
    // A task that depends on a failed one fails at once.
    let late = format!(r#","depends_on":["{}"]"#, ids[3]);
    let late = finished(&rig, &submit(&rig, task("relu", &late)).await).await;
    assert_eq!(late["error"]["code"], "dependency_failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_code_message_and_hint() {
    let rig = Rig::start().await;
    let key = "k".repeat(257);
    let cases: Vec<(&str, &str, String, u16, &str, &str)> = vec![
        ("POST", "/tasks", String::new(), 400, "bad_input", "EOF"),
        ("POST", "/tasks", task("nope", ""), 404, "unknown_model", "no model 'nope'"),
        ("POST", "/tasks", task("../relu", ""), 400, "bad_input", "not valid"),
        ("POST", "/tasks", task("relu/7", ""), 404, "unknown_model", "no version 7"),
        ("POST", "/tasks", task("relu", r#","durable":true"#), 501, "unsupported", "durable"),
        ("POST", "/tasks", task("relu", r#","depends_on":["1-1"]"#), 404, "unknown_task", "1-1"),
        (
            "POST",
            "/tasks",
            task("relu", r#","depends_on":["x"]"#),
            400,
            "bad_input",
            "id of a task",
        ),
        ("POST", "/tasks", task("relu", r##","depends_on":["#0"]"##), 400, "bad_input", "batch"),
        (
            "POST",
            "/tasks",
            task("relu", r#","priority":"urgent""#),
            400,
            "bad_input",
            "expected critical, high, normal, low or background",
        ),
        (
            "POST",
            "/tasks",
            task("relu", r#","deadline_ms":0"#),
            400,
            "bad_input",
            "deadline_ms is 0",
        ),
        (
            "POST",
            "/tasks",
            task("relu", r#","prioriti":"low""#),
            400,
            "bad_input",
            "unknown field `prioriti`",
        ),
        (
            "POST",
            "/tasks",
            task("relu", &format!(r#","idempotency_key":"{key}""#)),
            400,
            "bad_input",
            "257 bytes",
        ),
        (
            "POST",
            "/tasks",
            task("relu", "").replace("FP32", "INT8").replace("0.1", "1"),
            400,
            "bad_input",
            "input 'x' has datatype INT8, expected FP32",
        ),
        ("GET", "/tasks/zzz", String::new(), 404, "unknown_task", "no task 'zzz'"),
        ("DELETE", "/tasks/1-ffff", String::new(), 404, "unknown_task", "1-ffff"),
        ("GET", "/workers/nobody", String::new(), 404, "unknown_worker", "nobody"),
        ("GET", "/workers/nobody/metrics", String::new(), 404, "unknown_worker", "nobody"),
        ("POST", "/workers/nobody/shutdown", String::new(), 404, "unknown_worker", "nobody"),
        (
            "PUT",
            "/config/balancing",
            r#"{"strategy":"best"}"#.into(),
            400,
            "bad_input",
            "least_loaded",
        ),
        ("PUT", "/config/balancing", "{}".into(), 400, "bad_input", "strategy"),
        ("POST", "/scale", r#"{"workers":2}"#.into(), 501, "unsupported", "does not own"),
        ("POST", "/coordinator/stop", String::new(), 501, "unsupported", "does not own"),
        ("PATCH", "/tasks", String::new(), 405, "wrong_verb", "PATCH"),
        ("GET", "/nowhere", String::new(), 404, "unknown_path", "/api/v1/cluster/nowhere"),
    ];
    for (method, path, body, status, code, expected) in cases {
        let path = format!("/api/v1/cluster{path}");
        let answer = rig.call(request(method, &path).body(Body::from(body)).unwrap()).await;
        assert_eq!(answer.status.as_u16(), status, "{method} {path}: {}", answer.text());
        let error = answer.json()["error"].clone();
        assert_eq!(error["code"], code, "{method} {path}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(expected), "{method} {path}: {message}");
        assert!(error.get("hint").is_some(), "{method} {path}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_listed_measured_and_sent_away() {
    let rig = Rig::start().await;
    // A worker reports its loaded models with its next heartbeat.
    let loaded = |worker: &Value| {
        worker["models"].as_array().is_some_and(|models| models.contains(&json!("relu/1")))
    };
    let list = rig.until("/api/v1/cluster/workers", |a| loaded(&a.json()[0])).await.json();
    assert_eq!(list.as_array().unwrap().len(), 1, "a bare array");
    let worker = &list[0];
    for key in [
        "id",
        "pid",
        "state",
        "device",
        "backend",
        "models",
        "running",
        "queued",
        "vram_used_bytes",
        "vram_total_bytes",
    ] {
        assert!(worker.get(key).is_some(), "{key} is missing in {worker}");
    }
    assert_eq!((&worker["id"], &worker["state"]), (&json!("w1"), &json!("ready")));
    assert_eq!(rig.get("/api/v1/cluster/workers/w1").await.json()["device"], "cpu:0");
    assert_eq!(rig.get("/api/v1/cluster/workers/w1/metrics").await.json()["slots"], 1);
    assert_eq!(rig.get("/api/v1/cluster/health").await.json()["status"], "ok");

    let enabled = rig.post("/api/v1/cluster/workers/w1/enable", "").await;
    assert_eq!(
        (enabled.status.as_u16(), enabled.json()),
        (200, json!({"id": "w1", "enabled": []}))
    );
    for path in ["enable", "drain"] {
        let answer = rig.post(&format!("/api/v1/cluster/workers/w9/{path}"), "").await;
        assert_eq!(answer.status, 404, "{path}");
    }

    let answer = rig.post("/api/v1/cluster/workers/w1/shutdown", "").await;
    assert_eq!((answer.status.as_u16(), &answer.json()["state"]), (202, &json!("draining")));
    let health = rig.until("/api/v1/cluster/health", |a| a.status == 503).await;
    assert_eq!(health.json()["status"], "unavailable");
    rig.until("/v2/health/ready", |a| a.status == 503 && a.json() == json!({"ready": false})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_waits_until_the_worker_has_left() {
    let rig = Rig::start().await;
    let drain = "/api/v1/cluster/workers/w1/drain";
    assert_eq!(rig.post(drain, r#"{"timeout_s":-1}"#).await.status, 400);
    let answer = rig.post(drain, r#"{"timeout_s":20}"#).await;
    let left = json!({"id": "w1", "state": "left", "ended": []});
    assert_eq!((answer.status.as_u16(), answer.json()), (200, left));
    assert_eq!(rig.get("/api/v1/cluster/workers").await.json(), json!([]));
    assert_eq!(rig.post(drain, "").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_coordinator_reports_and_takes_a_strategy() {
    let rig = Rig::start().await;
    for _ in 0..2 {
        let answer = rig.post("/api/v1/cluster/coordinator/start", "").await;
        assert_eq!((answer.status.as_u16(), &answer.json()["state"]), (200, &json!("running")));
    }
    let config = rig.get("/api/v1/cluster/config").await.json();
    assert_eq!(config["server"]["body_bytes_max"], 64 << 20);
    assert!(config["coordinator"].is_object());
    let body = Body::from(r#"{"strategy":"round_robin"}"#);
    let put = request("PUT", "/api/v1/cluster/config/balancing").body(body).unwrap();
    assert_eq!(rig.call(put).await.status, 200);
    let config = rig.get("/api/v1/cluster/config").await.json();
    assert_eq!(config["balancing"]["strategy"], "round_robin");
    assert_eq!(rig.get("/api/v1/cluster/stats").await.json()["balancing"], "round_robin");
}

#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Driver for Recorder {
    fn scale(&self, workers: usize) -> BoxFuture<'_, Result<usize, DriverError>> {
        Box::pin(async move {
            if workers > 8 {
                return Err(DriverError::TooMany { given: workers, max: 8 });
            }
            self.0.lock().unwrap().push(format!("scale {workers}"));
            Ok(2)
        })
    }

    fn workers(&self) -> usize {
        0
    }

    fn restart(&self, limit: Duration) -> BoxFuture<'_, Result<Restarted, DriverError>> {
        Box::pin(async move {
            self.0.lock().unwrap().push(format!("restart within {limit:?}"));
            Ok(Restarted { workers: 2, ended: Vec::new() })
        })
    }

    fn stop(&self, now: bool) {
        self.0.lock().unwrap().push(format!("stop now={now}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_the_drivers_business() {
    let driver = Arc::new(Recorder::default());
    let rig = Rig::with(Options { driver: Some(driver.clone()), ..Default::default() }).await;
    let post = async |path: &str, body: &'static str| {
        rig.post(&format!("/api/v1/cluster/{path}"), body).await
    };
    let answer = post("scale", r#"{"workers":5}"#).await;
    assert_eq!((answer.status.as_u16(), answer.json()), (202, json!({"workers": 5, "before": 2})));
    assert_eq!(post("scale", r#"{"workers":9}"#).await.status, 400);
    assert_eq!(post("scale", r#"{"workers":-1}"#).await.status, 400);
    let answer = post("restart", "").await;
    let restarted = json!({"restarted": 2, "ended": []});
    assert_eq!((answer.status.as_u16(), answer.json()), (200, restarted));
    assert_eq!(post("restart", r#"{"timeout_s":7}"#).await.status, 200);
    assert_eq!(post("restart", r#"{"timeout_s":86401}"#).await.status, 400);
    assert_eq!(post("coordinator/stop", r#"{"now":true}"#).await.status, 202);
    assert_eq!(post("coordinator/stop", "").await.status, 202);
    let calls = driver.0.lock().unwrap().clone();
    assert_eq!(
        calls,
        ["scale 5", "restart within 60s", "restart within 7s", "stop now=true", "stop now=false",]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn large_results_come_whole() {
    let rig = Rig::with(Options { journal: true, ..Options::default() }).await;
    const ROWS: usize = 150_000;
    for durable in [false, true] {
        let json = json!({ "model": "relu", "durable": durable, "inputs": [{
            "name": "x", "shape": [ROWS, 2], "datatype": "FP32",
            "parameters": { "binary_data_size": ROWS * 8 },
        }]})
        .to_string();
        let values = (0..2 * ROWS).flat_map(|i| (i as f32).to_le_bytes());
        let body: Vec<u8> = json.bytes().chain(values).collect();
        let length = json.len().to_string();
        let post = request("POST", TASKS).header("inference-header-content-length", length);
        let answer = rig.call(post.body(Body::from(body)).unwrap()).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        let id = answer.json()["task_id"].as_str().unwrap().to_owned();
        let done = finished(&rig, &id).await;
        assert_eq!(done["state"], "succeeded");
        for (output, factor) in [(0, 1), (1, 2)] {
            let data = done["outputs"][output]["data"].as_array().unwrap();
            assert_eq!(data.len(), 2 * ROWS);
            let last = (2 * ROWS - 1) * factor;
            assert_eq!(data.last().unwrap().as_f64(), Some(last as f64), "durable {durable}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_early_has_the_shape_of_its_family() {
    let rig = Rig::start().await;
    let packed = request("POST", TASKS).header("content-encoding", "gzip");
    let answer = rig.call(packed.body(Body::from("x")).unwrap()).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["error"]["code"]),
        (415, &json!("encoding"))
    );
    let verb = rig.call(request("PATCH", TASKS).body(Body::empty()).unwrap()).await;
    assert_eq!((verb.status.as_u16(), &verb.json()["error"]["code"]), (405, &json!("wrong_verb")));
    // The message gives the position in the body.
    let batch = r#"{"tasks":[{"model":"relu","inputs":[{"name":"x","shape":"no"}]}]}"#;
    let answer = rig.post(&format!("{TASKS}/batch"), batch).await;
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("tasks[0].inputs[0].shape"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_did_not_succeed_runs_again_under_no_key() {
    let rig = Rig::start().await;
    let api = "/api/v1/cluster";
    let input = json!({ "name": "x", "shape": [1, 2], "datatype": "FP32", "data": [-1, 2] });
    let task = |key: &str| {
        json!({ "model": "relu", "inputs": [input], "idempotency_key": key }).to_string()
    };
    let done = rig.post(&format!("{api}/tasks"), task("once")).await.json();
    let done = done["task_id"].as_str().unwrap().to_owned();
    rig.get(&format!("{api}/tasks/{done}?wait_ms=60000")).await;
    let refused = rig.post(&format!("{api}/tasks/{done}/retry"), "").await;
    assert_eq!(
        (refused.status.as_u16(), &refused.json()["error"]["code"]),
        (410, &json!("inputs_gone"))
    );
    rig.post(&format!("{api}/workers/w1/drain"), "").await;
    let lost = rig.post(&format!("{api}/tasks"), task("twice")).await.json();
    let lost = lost["task_id"].as_str().unwrap().to_owned();
    let early = rig.post(&format!("{api}/tasks/{lost}/retry"), "").await;
    assert_eq!(early.status.as_u16(), 409, "it waits: {}", early.text());
    rig.call(request("DELETE", &format!("{api}/tasks/{lost}")).body(Body::empty()).unwrap()).await;
    let again = rig.post(&format!("{api}/tasks/{lost}/retry"), "").await;
    assert_eq!((again.status.as_u16(), &again.json()["state"]), (202, &json!("queued")));
    let again = again.json()["task_id"].as_str().unwrap().to_owned();
    assert_ne!(again, lost);
    let same = rig.post(&format!("{api}/tasks"), task("twice")).await.json();
    assert_eq!(same["task_id"], json!(lost), "the key stands for the one that was cancelled");
}
