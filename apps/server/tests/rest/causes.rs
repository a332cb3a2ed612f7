//! Causes of model failures: those in the model and its inputs are reported, those in the machine are not.

use crate::grpc::{client, request as message};
use crate::rig::{Answer, Rig, request};
use axum::body::Body;
use lgp_inference::GraphBuilder;
use lgp_sdk::tensor::{DType, Dim, SymShape, Tensor, TensorType};
use lgp_server::inference::ModelInferRequest;
use serde_json::{Value, json};
use tonic::Code;

const TASKS: &str = "/api/v1/cluster/tasks";
/// The model `real.pick` has three elements, so that index 9 fails.
const CAUSE: &str = "(Gather): ";
const ENSEMBLE: &str = r#"
inputs = [{ name = "x", datatype = "INT64", shape = [1] }]
outputs = [{ name = "y" }]

[[steps]]
model = "real.pick"
inputs = { x = "x" }
outputs = { y = "y" }
"#;

/// Picks one of three elements.
fn pick() -> Vec<u8> {
    let ty = TensorType { dtype: DType::I64, shape: Some(SymShape(vec![Dim::Known(1)])) };
    let mut graph = GraphBuilder::new("pick");
    let x = graph.input("x", ty.clone());
    let all = graph.initializer("all", Tensor::from_slice([3], &[1i64, 2, 3]).unwrap());
    let y = graph.node("Gather", &[all, x], []);
    graph.output("y", y, ty);
    graph.finish().unwrap().to_onnx().unwrap()
}

async fn picking() -> Rig {
    let rig = Rig::start().await;
    let answer = rig.post("/api/v1/cluster/models/real.pick", pick()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let folder = rig.folder.path().join("models/both");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("ensemble.toml"), ENSEMBLE).unwrap();
    for name in ["real.pick", "both"] {
        rig.until(&format!("/v2/models/{name}/ready"), |answer| answer.status == 200).await;
    }
    rig
}

fn at(index: i64) -> Value {
    json!({"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [index]}]})
}

fn raw(model: &str, index: i64) -> ModelInferRequest {
    let mut request = message(model, [0.0; 2]);
    request.inputs[0].datatype = "INT64".to_owned();
    request.inputs[0].shape = vec![1];
    request.raw_input_contents = vec![index.to_le_bytes().to_vec().into()];
    request
}

fn expect_cause(text: &str) {
    assert!(text.contains("the model failed: node '") && text.contains(CAUSE), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_refuses_is_told_by_every_way() {
    let rig = picking().await;
    for name in ["real.pick", "both"] {
        let path = format!("/v2/models/{name}/infer");
        assert_eq!(rig.post(&path, at(2).to_string()).await.status, 200);
        let answer = rig.post(&path, at(9).to_string()).await;
        assert_eq!(answer.status, 500, "{}", answer.text());
        expect_cause(&answer.text());
        let mut client = client(&rig, Some(&rig.bearer));
        let status = client.model_infer(raw(name, 9)).await.expect_err("there is no such element");
        assert_eq!(status.code(), Code::Internal);
        expect_cause(status.message());
        let stream = tokio_stream::iter(vec![raw(name, 9)]);
        let mut answers = client.model_stream_infer(stream).await.unwrap().into_inner();
        expect_cause(&answers.message().await.unwrap().unwrap().error_message);
    }
}

async fn ended(rig: &Rig, path: &str) -> Answer {
    rig.until(path, |answer| answer.json()["state"] == "failed").await
}

#[tokio::test(flavor = "multi_thread")]
async fn other_causes_are_for_administrators() {
    let rig = picking().await;
    let key = rig.post("/api/v1/cluster/keys", r#"{"role":"submit"}"#).await.json();
    let key = key["key"].as_str().unwrap().to_owned();
    let mut task = at(9);
    task["model"] = json!("real.pick");
    let x = json!({"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]});
    let fails = json!({"model": "fails", "inputs": [x]});
    for (task, code, cause, is_told) in [
        (task, "operator_failed", CAUSE, true),
        (fails, "model_failed", "secret detail in /home/somebody", false),
    ] {
        let id = rig.post(TASKS, task.to_string()).await.json()["task_id"].clone();
        let path = format!("{TASKS}/{}", id.as_str().unwrap());
        let all = ended(&rig, &path).await;
        assert_eq!(all.json()["error"]["code"], code);
        assert!(all.text().contains(cause), "{}", all.text());
        for path in [path.clone(), format!("{TASKS}?limit=1"), format!("{path}/why")] {
            let asked = request("GET", &path).header("authorization", format!("Bearer {key}"));
            let answer = rig.call(asked.body(Body::empty()).unwrap()).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.text().contains(cause), is_told, "{path}: {}", answer.text());
            assert!(answer.text().contains(code), "{path}: {}", answer.text());
        }
    }
}
