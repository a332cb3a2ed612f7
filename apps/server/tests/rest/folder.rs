//! Polling of the models' folder: overwritten files, unreadable folders, and models that load slowly.

use crate::model_files::write;
use crate::rig::{Options, PATIENCE, Rig, onnx};
use lgp_inference::GraphBuilder;
use lgp_sdk::tensor::{DType, Dim, SymShape, TensorType};
use lgp_server::ServerConfig;
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const INDEX: &str = "/v2/repository/index";
const INFER: &str = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;

async fn watched(runs_models: bool) -> Rig {
    let server = ServerConfig { models_poll_ms: 10, ..ServerConfig::default() };
    Rig::with(Options { server, runs_models, ..Options::default() }).await
}

/// Like the rig's models, with another operator.
fn with_operator(op: &str) -> Vec<u8> {
    with_width(op, 2)
}

fn with_width(op: &str, width: usize) -> Vec<u8> {
    let shape = SymShape(vec![Dim::Symbol("n".into()), Dim::Known(width)]);
    let ty = TensorType { dtype: DType::F32, shape: Some(shape) };
    let mut graph = GraphBuilder::new("small");
    let x = graph.input("x", ty.clone());
    let y = graph.node(op, &[x], []);
    let double = graph.node("Add", &[x, x], []);
    graph.output("y", y, ty.clone());
    graph.output("double", double, ty);
    graph.finish().unwrap().to_onnx().unwrap()
}

fn place(rig: &Rig, path: &str) -> PathBuf {
    rig.folder.path().join("models").join(path)
}

fn put(rig: &Rig, name: &str, bytes: &[u8]) {
    std::fs::create_dir_all(place(rig, name).join("1")).unwrap();
    std::fs::write(place(rig, name).join("1/model.onnx"), bytes).unwrap();
}

/// State and reason of the first version of a model in the index.
async fn indexed(rig: &Rig, name: &str) -> (String, String) {
    let index = rig.post(INDEX, "").await.json();
    let found = index.as_array().unwrap().iter().find(|model| model["name"] == name);
    let text = |field: &str| found.expect("it is listed")[field].as_str().unwrap().to_owned();
    (text("state"), text("reason"))
}

/// Waits for a state and reason of a model in the index.
async fn until_indexed(rig: &Rig, name: &str, wanted: impl Fn(&str, &str) -> bool) {
    let began = Instant::now();
    loop {
        let (state, reason) = indexed(rig, name).await;
        if wanted(&state, &reason) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{name} stays {state}: {reason}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_overwritten_serves_without_a_request_lost() {
    let rig = watched(true).await;
    let named = |answer: &crate::rig::Answer| {
        let models = answer.json()[0]["models"].to_string();
        models.matches("relu").count()
    };
    let before = named(&rig.get("/api/v1/cluster/workers").await);
    assert!(before > 0, "a worker says what it has");
    let done = AtomicBool::new(false);
    let last = |answer: crate::rig::Answer| {
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["outputs"][0]["data"][1].as_f64().unwrap()
    };
    let asks = async |path: &str| {
        let (mut answered, mut seen) = (0, Vec::new());
        while !done.load(Ordering::Relaxed) {
            let y = last(rig.post(&format!("/v2/models/{path}/infer"), INFER).await);
            if seen.last() != Some(&y) {
                seen.push(y);
            }
            answered += 1;
        }
        assert!(answered > 10, "{answered}");
        seen
    };
    let until = async |y: f64| {
        let began = Instant::now();
        while last(rig.post("/v2/models/relu/infer", INFER).await) != y {
            assert!(began.elapsed() < PATIENCE, "it never answers {y}");
        }
    };
    let changes = async {
        put(&rig, "relu", &with_operator("Neg"));
        until(-2.0).await;
        // An unusable file does not affect the serving version, and the index reports it.
        put(&rig, "relu", b"no model");
        until_indexed(&rig, "relu", |state, reason| state == "READY" && !reason.is_empty()).await;
        assert_eq!(last(rig.post("/v2/models/relu/infer", INFER).await), -2.0);
        let refused = rig.post("/v2/repository/models/relu/load", "").await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        put(&rig, "relu", &with_operator("Relu"));
        until(2.0).await;
        until_indexed(&rig, "relu", |state, reason| state == "READY" && reason.is_empty()).await;
        done.store(true, Ordering::Relaxed);
    };
    let (newest, first, ()) = tokio::join!(asks("relu"), asks("relu/versions/1"), changes);
    assert_eq!((newest, first), (vec![2.0, -2.0, 2.0], vec![2.0, -2.0, 2.0]));
    // Workers unload the replaced version.
    rig.until("/api/v1/cluster/workers", |answer| named(answer) == before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_model_that_is_not_loaded_is_read_when_it_is() {
    let server = ServerConfig { models_poll_ms: 0, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, runs_models: true, ..Options::default() }).await;
    assert_eq!(rig.post("/v2/repository/models/relu/unload", "").await.status, 200);
    put(&rig, "relu", &with_operator("Neg"));
    let loaded = rig.post("/v2/repository/models/relu/load", "").await;
    assert_eq!(loaded.status, 200, "{}", loaded.text());
    let answer = rig.post("/v2/models/relu/infer", INFER).await;
    assert_eq!(answer.json()["outputs"][0]["data"], json!([-1.0, -2.0]), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_whose_client_leaves_goes_on() {
    let server = ServerConfig { models_poll_ms: 0, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let (load, model) = ("/v2/repository/models/slow/load", "/api/v1/cluster/models/slow");
    rig.gate.open();
    put(&rig, "slow", &onnx());
    assert_eq!(rig.post(load, "").await.status, 200);
    let (digest, loads) =
        (rig.get(model).await.json()["sha256"].clone(), rig.gate.loads_of("slow"));
    let named = |answer: &crate::rig::Answer| {
        let models = answer.json()[0]["models"].to_string();
        models.matches("slow").count()
    };
    let before = named(&rig.until("/api/v1/cluster/workers", |answer| named(answer) > 0).await);

    rig.gate.close();
    put(&rig, "slow", &with_operator("Neg"));
    let is_told = async {
        let began = Instant::now();
        while rig.gate.loads_of("slow") == loads {
            assert!(began.elapsed() < PATIENCE, "no worker is told to load it");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = rig.post(load, "") => panic!("{}", answer.text()),
        () = is_told => {}
    }
    rig.gate.open();
    // No poll happens here: this is the end of the load above.
    rig.until(model, |answer| answer.status == 200 && answer.json()["sha256"] != digest).await;
    until_indexed(&rig, "slow", |state, reason| state == "READY" && reason.is_empty()).await;
    // Workers unload the replaced version.
    rig.until("/api/v1/cluster/workers", |answer| named(answer) == before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_and_the_file_beside_it_change_in_any_order() {
    let rig = watched(false).await;
    let says = |width: usize| {
        let text = format!("input {{ name: \"x\" dims: [ -1, {width} ] }}");
        write(&rig, "clf", "config.pbtxt", &text);
    };
    let until_wide = async |width: usize| {
        let shape = json!([-1, width]);
        let is_wide = |answer: &crate::rig::Answer| {
            answer.status == 200 && answer.json()["inputs"][0]["shape"] == shape
        };
        rig.until("/v2/models/clf", is_wide).await;
        until_indexed(&rig, "clf", |state, reason| state == "READY" && reason.is_empty()).await;
    };
    says(2);
    put(&rig, "clf", &onnx());
    until_wide(2).await;
    // The model changes first.
    put(&rig, "clf", &with_width("Neg", 3));
    until_indexed(&rig, "clf", |state, reason| state == "READY" && !reason.is_empty()).await;
    says(3);
    until_wide(3).await;
    // The config file changes first.
    says(2);
    until_indexed(&rig, "clf", |state, _| state == "UNAVAILABLE").await;
    put(&rig, "clf", &onnx());
    until_wide(2).await;
    // Both change at once.
    put(&rig, "clf", &with_width("Neg", 3));
    says(3);
    until_wide(3).await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn folders_that_cannot_be_read_leave_the_others_alone() {
    use std::os::unix::fs::PermissionsExt;
    let rig = watched(false).await;
    std::fs::create_dir_all(place(&rig, "nested/1/model.onnx")).unwrap();
    std::fs::create_dir_all(place(&rig, "piped")).unwrap();
    let made =
        std::process::Command::new("mkfifo").arg(place(&rig, "piped/ensemble.toml")).status();
    assert!(made.unwrap().success());
    put(&rig, "shut", &onnx());
    std::fs::set_permissions(place(&rig, "shut"), PermissionsExt::from_mode(0o000)).unwrap();
    let is_shut = std::fs::read_dir(place(&rig, "shut")).is_err();
    let piped = tokio::time::timeout(PATIENCE, rig.get("/v2/models/piped")).await;
    assert_eq!(piped.expect("an answer").status, 404);
    let (state, reason) = indexed(&rig, "nested").await;
    assert!(state == "UNAVAILABLE" && reason.contains("not a regular file"), "{state} {reason}");
    if is_shut {
        let (state, reason) = indexed(&rig, "shut").await;
        assert!(state == "UNAVAILABLE" && reason.contains("cannot list"), "{state} {reason}");
    }
    // New models are still noticed, and an unknown name stays unknown.
    put(&rig, "new", &onnx());
    until_indexed(&rig, "new", |state, _| state == "READY").await;
    assert_eq!(rig.get("/v2/models/nobody").await.status, 404);
    std::fs::set_permissions(place(&rig, "shut"), PermissionsExt::from_mode(0o700)).unwrap();
    until_indexed(&rig, "shut", |state, _| state == "READY").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_loads_for_long_holds_no_other_up() {
    let rig = watched(false).await;
    let began = Instant::now();
    put(&rig, "slow", &onnx());
    until_indexed(&rig, "slow", |state, _| state == "LOADING").await;
    std::fs::remove_dir_all(place(&rig, "fails")).unwrap();
    rig.until("/v2/models/fails/ready", |answer| answer.status == 404).await;
    assert!(began.elapsed() < PATIENCE / 2, "it was waited for: {:?}", began.elapsed());
    assert_eq!(indexed(&rig, "slow").await.0, "LOADING");
    rig.gate.open();
    until_indexed(&rig, "slow", |state, _| state == "READY").await;
}
