//! Config files beside models: read, refused with a reason, corrected and changed while the server runs.

use crate::deployment::say;
use crate::grpc::client;
use crate::rig::{Answer, Options, Rig, onnx, request};
use axum::body::Body;
use lgp_server::ServerConfig;
use lgp_server::inference::model_config::SchedulingChoice;
use lgp_server::inference::{ModelConfigRequest, RepositoryIndexRequest};
use serde_json::{Value, json};

const MODELS: &str = "/api/v1/cluster/models";
const INDEX: &str = "/v2/repository/index";
pub(crate) const INFER: &str =
    r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;
pub(crate) const GOOD: &str = r#"
name: "clf"
platform: "onnxruntime_onnx"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [
  { name: "y" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "names.txt" },
  { name: "double" data_type: TYPE_FP32 dims: [ 2 ] }
]
dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 50 }
instance_group [ { kind: KIND_GPU } ]
"#;

pub(crate) async fn watched() -> Rig {
    let server = ServerConfig { models_poll_ms: 10, ..ServerConfig::default() };
    Rig::with(Options { server, ..Options::default() }).await
}

/// Writes a file into a model's folder atomically.
pub(crate) fn write(rig: &Rig, name: &str, file: &str, text: &str) {
    let folder = rig.folder.path().join("models").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(".new"), text).unwrap();
    std::fs::rename(folder.join(".new"), folder.join(file)).unwrap();
}

pub(crate) fn put_version(rig: &Rig, name: &str, version: u64) {
    write(rig, &format!("{name}/{version}"), "model.onnx", "");
    let path = format!("models/{name}/{version}/model.onnx");
    std::fs::write(rig.folder.path().join(path), onnx()).unwrap();
}

/// State and reason of a version in the index.
async fn indexed(rig: &Rig, name: &str, version: &str) -> (String, String) {
    let index = rig.post(INDEX, "").await.json();
    let mut all = index.as_array().unwrap().iter();
    let found = all.find(|m| m["name"] == name && m["version"] == version).expect("it is listed");
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    (text("state"), text("reason"))
}

fn rows(count: usize) -> String {
    let data = vec!["1"; count * 2].join(",");
    format!(
        r#"{{"inputs":[{{"name":"x","shape":[{count},2],"datatype":"FP32","data":[{data}]}}]}}"#
    )
}

pub(crate) async fn until_states(rig: &Rig, name: &str, expected: &[&str]) {
    let named = |all: &Value| {
        let of_name = all.as_array().unwrap().iter().filter(|model| model["name"] == name);
        of_name.map(|model| model["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    rig.until(MODELS, |answer| named(&answer.json()) == expected).await;
}

async fn infer(rig: &Rig, path: &str) -> (u16, String) {
    let answer = rig.post(&format!("/v2/models/{path}/infer"), INFER).await;
    (answer.status.as_u16(), answer.text())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_breaks_its_model_alone_until_it_is_mended() {
    let rig = watched().await;
    for (name, file, text, part) in [
        ("wide", "config.pbtxt", "input { name: \"x\" dims: [ -1, 3 ] }", "dims are [-1, 3]"),
        ("typo", "config.pbtxt", "max_batch: 8", "line 1: field 'max_batch' not found"),
        ("deep", "config.pbtxt", &"[a/inference.ModelInput]{".repeat(2500), "config.pbtxt"),
        ("own", "config.toml", "memory = 1", "unknown field `memory`"),
        ("other", "config.toml", "variants = [\"other\"]", "it is the model itself"),
    ] {
        write(&rig, name, file, text);
        put_version(&rig, name, 1);
        let (state, reason) = indexed(&rig, name, "1").await;
        assert!(state == "UNAVAILABLE" && reason.contains(part), "{name}: {state} {reason}");
        assert!(reason.contains(&format!("{file} of model '{name}'")), "{reason}");
        let (status, text) = infer(&rig, name).await;
        assert!(status == 400 && text.contains(&reason[..20]), "{status} {text}");
        let refused = rig.post(&format!("{MODELS}/{name}/load"), "").await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        // gRPC reports the same reason.
        let asked = RepositoryIndexRequest::default();
        let all = client(&rig, Some(&rig.bearer)).repository_index(asked).await.unwrap();
        let all = all.into_inner().models;
        assert_eq!(all.iter().find(|m| m.name == name).unwrap().reason, reason);
        assert_eq!(infer(&rig, "relu").await.0, 200);
    }
    let put = request("PUT", &format!("{MODELS}/typo/deployment"));
    let refused = rig.call(put.body(Body::from("{}")).unwrap()).await;
    assert!(refused.status == 400 && refused.text().contains("max_batch"), "{}", refused.text());

    write(&rig, "wide", "config.pbtxt", "input { name: \"x\" dims: [ 1, 2 ] }");
    write(&rig, "own", "config.toml", "memory_bytes = 1");
    for name in ["wide", "own"] {
        until_states(&rig, name, &["ready"]).await;
        assert_eq!(infer(&rig, name).await.0, 200);
    }
    let two = r#"{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[1,2,3,4]}]}"#;
    let refused = rig.post("/v2/models/wide/infer", two).await;
    assert!(refused.status == 400 && refused.text().contains("expected"), "{}", refused.text());
    assert_eq!(indexed(&rig, "typo", "1").await.0, "UNAVAILABLE", "the others are as they were");
    // A serving model stops when its file becomes invalid, and resumes when the error is gone.
    write(&rig, "wide", "config.toml", "");
    until_states(&rig, "wide", &["unavailable"]).await;
    // The index reads the file itself; requests follow after the next poll.
    rig.until("/v2/models/wide", |answer| answer.status == 400).await;
    let (status, text) = infer(&rig, "wide").await;
    assert!(status == 400 && text.contains("keep one"), "{status} {text}");
    std::fs::remove_file(rig.folder.path().join("models/wide/config.toml")).unwrap();
    until_states(&rig, "wide", &["ready"]).await;
    // A version that was unloaded by command does not return with it.
    put_version(&rig, "wide", 2);
    until_states(&rig, "wide", &["ready", "ready"]).await;
    assert_eq!(rig.post(&format!("{MODELS}/wide/versions/1/unload"), "").await.status, 200);
    write(&rig, "wide", "config.pbtxt", "max_batch: 8");
    rig.until("/v2/models/wide", |answer| answer.status == 400).await;
    write(&rig, "wide", "config.pbtxt", "");
    until_states(&rig, "wide", &["unavailable", "ready"]).await;
    assert_eq!(infer(&rig, "relu").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_holds_for_a_model_is_told_and_changes_with_its_file() {
    let rig = watched().await;
    write(&rig, "clf", "config.pbtxt", GOOD);
    write(&rig, "clf", "names.txt", "cat\ndog\n");
    put_version(&rig, "clf", 1);
    put_version(&rig, "clf", 2);
    until_states(&rig, "clf", &["ready", "ready"]).await;
    let config = rig.get("/v2/models/clf/config").await.json();
    assert_eq!(config["max_batch_size"], 8);
    let batching = json!({ "preferred_batch_size": [4], "max_queue_delay_microseconds": 50 });
    assert_eq!(config["dynamic_batching"], batching);
    let told = json!([{ "name": "x", "data_type": "TYPE_FP32", "dims": [2] }]);
    assert_eq!(config["input"], told, "rows are not among them");
    let asked = ModelConfigRequest { name: "clf".to_owned(), version: String::new() };
    let other = client(&rig, Some(&rig.bearer)).model_config(asked).await.unwrap();
    let other = other.into_inner().config.unwrap();
    assert_eq!((other.max_batch_size, &other.input[0].dims), (8, &vec![2]));
    assert!(matches!(other.scheduling_choice, Some(SchedulingChoice::DynamicBatching(_))));
    let metadata = rig.get("/v2/models/clf").await.json();
    assert_eq!(metadata["inputs"][0]["shape"], json!([-1, 2]), "and here they are");
    let classes = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}],
        "outputs":[{"name":"y","parameters":{"classification":1}}]}"#;
    let answer = rig.post("/v2/models/clf/infer", classes).await.json();
    assert_eq!(answer["outputs"][0]["data"], json!(["2:1:dog"]), "{answer}");

    // More rows than that are refused by both protocols.
    assert_eq!(rig.post("/v2/models/clf/infer", rows(8)).await.status, 200);
    let refused = rig.post("/v2/models/clf/infer", rows(9)).await;
    let words = "inference request batch-size must be <= 8 for 'clf'";
    assert!(refused.status == 400 && refused.text().contains(words), "{}", refused.text());
    let mut nine = crate::grpc::request("clf", [0.0; 2]);
    nine.inputs[0].shape = vec![9, 2];
    nine.raw_input_contents = vec![vec![0u8; 9 * 2 * 4].into()];
    let refused = client(&rig, Some(&rig.bearer)).model_infer(nine).await.unwrap_err();
    assert!(refused.message().contains(words), "{refused}");

    // An administrator's settings override the file's; the file sets the rest.
    let put = request("PUT", &format!("{MODELS}/clf/deployment"));
    let wish = json!({ "batching": { "max": 3 }, "run_limit_ms": 5000 });
    let shown = rig.call(put.body(Body::from(wish.to_string())).unwrap()).await.json();
    assert_eq!(shown["deployment"]["batching"]["max"], 3, "{shown}");
    let text = GOOD.to_owned()
        + "version_policy { latest { num_versions: 1 } } response_cache { enable: true }
           model_warmup { batch_size: 2 inputs { key: \"x\" value { dims: 2 zero_data: true } } }";
    write(&rig, "clf", "config.pbtxt", &text);
    until_states(&rig, "clf", &["unavailable", "ready"]).await;
    let shown = rig.get(&format!("{MODELS}/clf")).await.json()["deployment"].clone();
    assert_eq!(shown["version_policy"], "latest:1");
    assert_eq!((&shown["batching"]["max"], &shown["run_limit_ms"]), (&json!(3), &json!(5000)));
    let config = rig.get("/v2/models/clf/config").await.json();
    assert_eq!(config["max_batch_size"], 8, "what is held, and no count of inferences");
    assert_eq!(config["response_cache"], json!({ "enable": true }));
    assert_eq!(config["version_policy"], json!({ "latest": { "num_versions": 1 } }));
    let run = json!({ "data_type": "TYPE_FP32", "dims": [2], "zero_data": true });
    let run = json!({ "name": "", "batch_size": 2, "inputs": { "x": run }, "count": 1 });
    assert_eq!(config["model_warmup"], json!([run]));
    write(&rig, "clf", "config.pbtxt", &(GOOD.to_owned() + "version_policy { all {} }"));
    until_states(&rig, "clf", &["ready", "ready"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_field_takes_nothing_of_the_file() {
    let rig = watched().await;
    write(&rig, "clf", "config.pbtxt", GOOD);
    write(&rig, "clf", "names.txt", "cat\ndog\n");
    put_version(&rig, "clf", 1);
    until_states(&rig, "clf", &["ready"]).await;
    let told = |answer: Answer| {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let deployment = answer.json()["deployment"].clone();
        (deployment["batching"]["max"].clone(), deployment["run_limit_ms"].clone())
    };
    let answer = say(&rig, "PATCH", "clf", &json!({"run_limit_ms": 5000})).await;
    assert_eq!(told(answer), (json!(8), json!(5000)));
    // Fields that the file set before the change still follow the file.
    let text = GOOD.replace("max_batch_size: 8", "max_batch_size: 4");
    write(&rig, "clf", "config.pbtxt", &text);
    let is_four = |answer: &Answer| answer.json()["deployment"]["batching"]["max"] == 4;
    rig.until(&format!("{MODELS}/clf"), is_four).await;
    for (batching, max) in [(json!({"max": 3}), 3), (json!(null), 4)] {
        let answer = say(&rig, "PATCH", "clf", &json!({ "batching": batching })).await;
        assert_eq!(told(answer), (json!(max), json!(5000)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_of_models_that_are_none_here_are_told() {
    let rig = Rig::start().await;
    for (name, text, part) in [
        ("steps", "ensemble_scheduling { step { model_name: \"relu\" } }", "ensemble.toml"),
        ("plan", "platform: \"tensorrt_plan\"", "expected 'onnxruntime_onnx'"),
        ("named", "default_model_filename: \"net.onnx\"", "expected 'model.onnx'"),
        ("empty", "max_batch_size: 8", "expected empty/3/model.onnx"),
    ] {
        write(&rig, name, "config.pbtxt", text);
        write(&rig, &format!("{name}/3"), "net.onnx", "");
        let (state, reason) = indexed(&rig, name, "3").await;
        assert!(state == "UNAVAILABLE" && reason.contains(part), "{name}: {reason}");
        let (status, text) = infer(&rig, name).await;
        assert!(status == 404 && text.contains(part), "{status} {text}");
    }
    assert_eq!(infer(&rig, "relu").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_uploaded_against_the_file_is_not_kept() {
    let rig = Rig::start().await;
    write(&rig, "clf", "config.pbtxt", "input { name: \"x\" dims: [ -1, 3 ] }");
    let refused = rig.post(&format!("{MODELS}/clf"), onnx()).await;
    assert!(refused.status == 400 && refused.text().contains("dims are"), "{}", refused.text());
    assert_eq!(rig.get(&format!("{MODELS}/clf")).await.status, 404);
    write(&rig, "clf", "config.pbtxt", "input { name: \"x\" dims: [ -1, 2 ] }");
    let added = rig.post(&format!("{MODELS}/clf"), onnx()).await;
    assert_eq!((added.status.as_u16(), added.json()["version"].clone()), (201, json!(1)));
}
