//! Versions of a model side by side, version policies, and models added to and removed from the
//! folder by hand.

use crate::grpc::{client, request as grpc_request};
use crate::rig::{Options, Rig, onnx, request};
use axum::body::Body;
use futures_util::future::join_all;
use lgp_server::ServerConfig;
use lgp_server::inference::RepositoryIndexRequest;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

const MODELS: &str = "/api/v1/cluster/models";
const INFER: &str = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;

async fn add(rig: &Rig, name: &str) -> Value {
    let answer = rig.post(&format!("{MODELS}/{name}"), onnx()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

/// Status and version of an inference.
async fn infer(rig: &Rig, path: &str) -> (u16, Value) {
    let answer = rig.post(&format!("/v2/models/{path}/infer"), INFER).await;
    (answer.status.as_u16(), answer.json()["model_version"].clone())
}

/// The state of each version of a model, oldest first.
async fn states(rig: &Rig, name: &str) -> Vec<String> {
    let all = rig.get(MODELS).await.json();
    let named = all.as_array().unwrap().iter().filter(|model| model["name"] == name);
    named.map(|model| model["state"].as_str().unwrap().to_owned()).collect()
}

async fn until_states(rig: &Rig, name: &str, expected: &[&str]) {
    let named = |all: &Value| {
        let of_name = all.as_array().unwrap().iter().filter(|model| model["name"] == name);
        of_name.map(|model| model["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    rig.until(MODELS, |answer| named(&answer.json()) == expected).await;
}

async fn deploy(rig: &Rig, name: &str, policy: Value) -> (u16, String) {
    let put = request("PUT", &format!("{MODELS}/{name}/deployment"));
    let body = json!({ "version_policy": policy }).to_string();
    let answer = rig.call(put.body(Body::from(body)).unwrap()).await;
    (answer.status.as_u16(), answer.text())
}

/// Puts a version of a model into the folder by hand.
fn put(rig: &Rig, name: &str, version: u64, bytes: &[u8]) -> PathBuf {
    let folder = rig.folder.path().join("models").join(name).join(version.to_string());
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("model.onnx"), bytes).unwrap();
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_serves_on_when_a_newer_one_comes() {
    let rig = Rig::start().await;
    for version in 1..=2 {
        assert_eq!(add(&rig, "clf").await["version"], version);
    }
    until_states(&rig, "clf", &["ready", "ready"]).await;
    assert_eq!(infer(&rig, "clf").await, (200, json!("2")));
    for version in ["1", "2"] {
        assert_eq!(infer(&rig, &format!("clf/versions/{version}")).await, (200, json!(version)));
        let mut message = grpc_request("clf", [1.0, 2.0]);
        message.model_version = version.to_owned();
        let answer = client(&rig, Some(&rig.bearer)).model_infer(message).await.unwrap();
        assert_eq!(answer.into_inner().model_version, version);
    }
    // Without the newest version, the one before it answers.
    assert_eq!(rig.post(&format!("{MODELS}/clf/versions/2/unload"), "").await.status, 200);
    until_states(&rig, "clf", &["ready", "unavailable"]).await;
    assert_eq!(infer(&rig, "clf").await, (200, json!("1")));
    // The metadata lists the serving versions, or all if none serves.
    let listed = async || rig.get("/v2/models/clf").await.json()["versions"].clone();
    assert_eq!(listed().await, json!(["1"]));
    assert_eq!(rig.post(&format!("{MODELS}/clf/unload"), "").await.status, 200);
    assert_eq!(listed().await, json!(["1", "2"]));
    assert_eq!(rig.post(&format!("{MODELS}/clf/versions/1/load"), "").await.status, 200);
    let refused = rig.post("/v2/models/clf/versions/2/infer", INFER).await;
    assert!(refused.status == 503 && refused.text().contains("version 2"), "{}", refused.text());
    let task = |model: &str| {
        format!(
            r#"{{"model":"{model}","inputs":{}}}"#,
            &INFER["{\"inputs\":".len()..INFER.len() - 1]
        )
    };
    let refused = rig.post("/api/v1/cluster/tasks", task("clf/2")).await;
    assert_eq!(refused.json()["error"]["hint"], "radeon-cluster models load clf/2");
    let taken = rig.post("/api/v1/cluster/tasks", task("clf/1")).await;
    assert_eq!(taken.status, 202, "{}", taken.text());

    let loaded = rig.post(&format!("{MODELS}/clf/versions/2/load"), "").await.json();
    assert_eq!((&loaded["version"], &loaded["state"]), (&json!(2), &json!("ready")));
    until_states(&rig, "clf", &["ready", "ready"]).await;
    let gone = rig.delete(&format!("{MODELS}/clf/versions/1")).await;
    assert_eq!(gone.json(), json!({ "name": "clf", "version": 1, "removed": true }));
    assert_eq!(infer(&rig, "clf/versions/1").await.0, 404);
    assert_eq!(infer(&rig, "clf").await, (200, json!("2")));
    for (path, status) in
        [("clf/versions/9", 404), ("clf/versions/0", 400), ("clf/versions/x", 400)]
    {
        for end in ["/load", "/unload"] {
            let answer = rig.post(&format!("{MODELS}/{path}{end}"), "").await;
            assert_eq!(answer.status, status, "{path}{end}: {}", answer.text());
        }
        assert_eq!(rig.delete(&format!("{MODELS}/{path}")).await.status, status, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_says_which_versions_are_loaded() {
    let rig = Rig::start().await;
    for _ in 0..3 {
        add(&rig, "clf").await;
    }
    until_states(&rig, "clf", &["ready"; 3]).await;
    for (policy, expected) in [
        ("latest:1", ["unavailable", "unavailable", "ready"]),
        ("1,2", ["ready", "ready", "unavailable"]),
        ("all", ["ready", "ready", "ready"]),
        ("latest:2", ["unavailable", "ready", "ready"]),
    ] {
        let (status, text) = deploy(&rig, "clf", json!(policy)).await;
        assert_eq!(status, 200, "{text}");
        until_states(&rig, "clf", &expected).await;
        let config = rig.get("/v2/models/clf/config").await.json()["version_policy"].clone();
        let told = match policy {
            "1,2" => json!({ "specific": { "versions": [1, 2] } }),
            "all" => json!({ "all": {} }),
            latest => json!({ "latest": { "num_versions": latest[7..].parse::<u32>().unwrap() } }),
        };
        assert_eq!(config, told);
    }
    // The policy also applies to versions that are added later.
    add(&rig, "clf").await;
    until_states(&rig, "clf", &["unavailable", "unavailable", "ready", "ready"]).await;
    assert_eq!(deploy(&rig, "clf", json!("1")).await.0, 200);
    assert_eq!(add(&rig, "clf").await["state"], "unavailable");
    assert_eq!(infer(&rig, "clf").await, (200, json!("1")));
    for wrong in [json!("newest"), json!("latest:0"), json!(1), json!("7,x")] {
        assert_eq!(deploy(&rig, "clf", wrong.clone()).await.0, 400, "{wrong}");
    }
    let (status, text) = deploy(&rig, "clf", json!("9")).await;
    assert!(
        status == 400 && text.contains("chooses none of its versions [1, 2, 3, 4, 5]"),
        "{text}"
    );
    let shown = rig.get(&format!("{MODELS}/clf")).await.json();
    assert_eq!(shown["deployment"]["version_policy"], "1", "what was refused is not kept");
    // After the newest version is removed, the policy chooses another.
    assert_eq!(deploy(&rig, "clf", json!("latest:1")).await.0, 200);
    assert_eq!(rig.delete(&format!("{MODELS}/clf/versions/5")).await.status, 200);
    assert_eq!(infer(&rig, "clf").await, (200, json!("4")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_model_says_why_and_the_others_serve() {
    let rig = Rig::start().await;
    put(&rig, "broken", 1, b"no model");
    put(&rig, "relu", 2, &onnx()[..40]);
    let index = rig.post("/v2/repository/index", "").await.json();
    let of = |name: &str, version: &str| {
        let mut all = index.as_array().unwrap().iter();
        all.find(|m| m["name"] == name && m["version"] == version).expect("it is listed").clone()
    };
    assert_eq!(of("relu", "1")["state"], "READY");
    let mut client = client(&rig, Some(&rig.bearer));
    let asked = RepositoryIndexRequest::default();
    let other = client.repository_index(asked).await.unwrap().into_inner().models;
    for (name, version) in [("broken", "1"), ("relu", "2")] {
        let found = of(name, version);
        assert_eq!(found["state"], "UNAVAILABLE");
        let reason = found["reason"].as_str().unwrap();
        assert!(reason.len() > 10, "{reason}");
        let same = other.iter().find(|m| m.name == name && m.version == version).unwrap();
        assert_eq!(same.reason, reason);
        let path = format!("/v2/models/{name}/versions/{version}/infer");
        let refused = rig.post(&path, INFER).await;
        assert!(refused.status == 400 && refused.text().contains(reason), "{}", refused.text());
    }
    assert_eq!(states(&rig, "broken").await, ["unavailable"]);
    // The usable version answers.
    assert_eq!(infer(&rig, "relu").await, (200, json!("1")));
    assert_eq!(rig.post("/v2/models/broken/infer", INFER).await.status, 400);
    // An unusable version may be removed or replaced.
    put(&rig, "broken", 1, &onnx());
    assert_eq!(states(&rig, "broken").await, ["unavailable"], "nobody has loaded it");
    assert_eq!(rig.post(&format!("{MODELS}/broken/load"), "").await.status, 200);
    assert_eq!(rig.delete(&format!("{MODELS}/relu/versions/2")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_and_goes_in_the_folder_is_loaded_and_unloaded() {
    let server = ServerConfig { models_poll_ms: 10, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let done = AtomicBool::new(false);
    // No request is lost while versions change.
    let asks = async {
        let mut answered = 0;
        while !done.load(Ordering::Relaxed) {
            let (status, version) = infer(&rig, "relu").await;
            assert_eq!(status, 200, "after {answered} of version {version}");
            answered += 1;
        }
        answered
    };
    let changes = async {
        let second = put(&rig, "relu", 2, &onnx());
        until_states(&rig, "relu", &["ready", "ready"]).await;
        assert_eq!(infer(&rig, "relu").await, (200, json!("2")));
        // An incomplete model is checked again once it is complete.
        put(&rig, "new", 3, &onnx()[..50]);
        tokio::time::sleep(std::time::Duration::from_millis(40)).await;
        assert_eq!(states(&rig, "new").await, ["unavailable"]);
        put(&rig, "new", 3, &onnx());
        until_states(&rig, "new", &["ready"]).await;
        assert_eq!(infer(&rig, "new").await, (200, json!("3")));
        std::fs::remove_dir_all(second).unwrap();
        until_states(&rig, "relu", &["ready"]).await;
        rig.until("/v2/models/relu", |answer| answer.json()["versions"] == json!(["1"])).await;
        std::fs::remove_dir_all(rig.folder.path().join("models/new")).unwrap();
        rig.until("/v2/models/new/ready", |answer| answer.status == 404).await;
        done.store(true, Ordering::Relaxed);
    };
    let (answered, ()) = tokio::join!(asks, changes);
    assert!(answered > 10, "{answered}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_while_versions_replace_one_another() {
    const CLIENTS: usize = 8;
    const VERSIONS: u64 = 12;
    let rig = Rig::start().await;
    add(&rig, "clf").await;
    until_states(&rig, "clf", &["ready"]).await;
    let alias = request("PUT", "/api/v1/cluster/aliases/prod");
    let alias = alias.body(Body::from(r#"{"targets":[{"model":"clf","weight":1}]}"#)).unwrap();
    assert_eq!(rig.call(alias).await.status, 200);
    let done = AtomicBool::new(false);
    let over_rest = async |name: &str| {
        let mut seen = BTreeSet::new();
        while !done.load(Ordering::Relaxed) {
            let answer = rig.post(&format!("/v2/models/{name}/infer"), INFER).await;
            assert_eq!(answer.status, 200, "{name} after {seen:?}: {}", answer.text());
            seen.insert(answer.json()["model_version"].as_str().unwrap().to_owned());
        }
        seen.len()
    };
    let over_grpc = async || {
        let mut client = client(&rig, Some(&rig.bearer));
        let mut seen = BTreeSet::new();
        while !done.load(Ordering::Relaxed) {
            let answer = client.model_infer(grpc_request("clf", [1.0, 2.0])).await;
            let answer = answer.unwrap_or_else(|e| panic!("after {seen:?}: {e}"));
            seen.insert(answer.into_inner().model_version);
        }
        seen.len()
    };
    let asks = async {
        let plain = join_all((0..CLIENTS).map(|_| over_rest("clf")));
        let aliased = join_all((0..CLIENTS).map(|_| over_rest("prod")));
        let (plain, aliased, grpc) = tokio::join!(plain, aliased, over_grpc());
        plain.into_iter().chain(aliased).chain([grpc])
    };
    // Each way of removing a version.
    let changes = async {
        for version in 2..=VERSIONS {
            assert_eq!(add(&rig, "clf").await["version"], version);
            let old = format!("{MODELS}/clf/versions/{}", version - 1);
            match version % 3 {
                0 => assert_eq!(rig.delete(&old).await.status, 200),
                1 => assert_eq!(rig.post(&format!("{old}/unload"), "").await.status, 200),
                _ => {
                    let (status, text) = deploy(&rig, "clf", json!("latest:1")).await;
                    assert_eq!(status, 200, "{text}");
                    assert_eq!(deploy(&rig, "clf", Value::Null).await.0, 200);
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    };
    let (seen, ()) = tokio::join!(asks, changes);
    let seen: Vec<usize> = seen.collect();
    assert!(seen.iter().all(|versions| *versions > 2), "versions of each: {seen:?}");
}
