//! Repeated requests with idempotency keys.

use crate::rig::{Options, Rig, onnx};
use lgp_sdk::cluster::{ModelRef, TaskSpec};
use lgp_sdk::model::Repository;
use lgp_sdk::tensor::{NamedTensor, Tensor};
use serde_json::{Value, json};

const TASKS: &str = "/api/v1/cluster/tasks";
const MODELS: &str = "/api/v1/cluster/models";

fn task(key: &str, x: [f32; 2]) -> Value {
    let x = json!({"name": "x", "shape": [1, 2], "datatype": "FP32", "data": x});
    json!({"model": "relu", "idempotency_key": key, "inputs": [x]})
}

async fn submit(rig: &Rig, task: &Value) -> String {
    let answer = rig.post(TASKS, task.to_string()).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    answer.json()["task_id"].as_str().unwrap().to_owned()
}

async fn succeeds(rig: &Rig, id: &str) {
    rig.until(&format!("{TASKS}/{id}"), |answer| answer.json()["state"] == "succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_for_its_task_whatever_becomes_of_the_model() {
    let rig = Rig::with(Options { journal: true, ..Options::default() }).await;
    let mut durable = task("kept", [1.0, 2.0]);
    durable["durable"] = json!(true);
    let bodies = [task("k", [1.0, 2.0]), durable];
    let mut ids = Vec::new();
    for body in &bodies {
        ids.push(submit(&rig, body).await);
        succeeds(&rig, &ids[ids.len() - 1]).await;
    }
    let expect_known = async |when: &str| {
        for (body, id) in bodies.iter().zip(&ids) {
            assert_eq!(&submit(&rig, body).await, id, "{when}");
        }
    };
    expect_known("nothing has changed").await;

    let added = rig.post(&format!("{MODELS}/relu"), onnx()).await;
    assert_eq!(added.json()["version"], 2, "{}", added.text());
    expect_known("another version serves").await;
    let answer = rig.post(TASKS, task("k", [1.0, 3.0]).to_string()).await;
    assert_eq!(answer.status, 409, "{}", answer.text());
    let mut exact = task("k", [1.0, 2.0]);
    exact["model"] = json!("relu/2");
    assert_eq!(rig.post(TASKS, exact.to_string()).await.status, 409, "it says something else");

    assert_eq!(rig.post(&format!("{MODELS}/relu/unload"), "{}").await.status, 200);
    expect_known("it is unloaded").await;
    assert_eq!(rig.delete(&format!("{MODELS}/relu")).await.status, 200);
    expect_known("it is removed").await;
    assert_eq!(rig.post(TASKS, task("other", [1.0, 2.0]).to_string()).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_batch_are_known_one_by_one() {
    let rig = Rig::start().await;
    let batch = async |tasks: Value| {
        let body = json!({ "tasks": tasks }).to_string();
        let answer = rig.post(&format!("{TASKS}/batch"), body).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        let tasks = answer.json()["tasks"].clone();
        let ids = tasks.as_array().unwrap().iter().map(|task| task["task_id"].clone());
        ids.collect::<Vec<Value>>()
    };
    let mut second = task("b", [1.0, 2.0]);
    second["depends_on"] = json!(["#0"]);
    let both = batch(json!([task("a", [1.0, 2.0]), second])).await;
    let mut third = task("c", [1.0, 2.0]);
    third["depends_on"] = json!(["#1", "#3"]);
    let more = batch(json!([task("a", [1.0, 2.0]), second, third, task("d", [0.0, 0.0])])).await;
    assert_eq!(both, more[..2]);
    let shown = rig.get(&format!("{TASKS}/{}", more[2].as_str().unwrap())).await.json();
    let mut others = shown["depends_on"].as_array().unwrap().clone();
    others.sort_by_key(|id| id.as_str().map(str::to_owned));
    let mut expected = vec![more[1].clone(), more[3].clone()];
    expected.sort_by_key(|id| id.as_str().map(str::to_owned));
    assert_eq!(others, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_was_submitted_otherwise_is_known_too() {
    let rig = Rig::start().await;
    let repository = Repository::open(rig.folder.path().join("models")).unwrap();
    let sha256 = repository.get("relu", Some(1)).unwrap().sha256;
    let model = ModelRef { name: "relu".to_owned(), version: 1, sha256 };
    let x = Tensor::from_slice([1, 2], &[1f32, 2.0]).unwrap();
    // As in journals of versions without digests of requests.
    let mut spec = TaskSpec::new(model, vec![NamedTensor::new("x", x)]);
    spec.idempotency_key = Some("k".to_owned());
    let id = rig.coordinator.submit(spec).unwrap().to_string();
    assert_eq!(submit(&rig, &task("k", [1.0, 2.0])).await, id);
    assert_eq!(rig.post(TASKS, task("k", [2.0, 2.0]).to_string()).await.status, 409);
}
