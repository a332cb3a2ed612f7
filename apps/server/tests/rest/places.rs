//! Answers, refusals and metrics say which worker and device ran the model.

use crate::grpc::{client, request as message};
use crate::rig::Rig;
use lgp_server::inference::infer_parameter::ParameterChoice;
use lgp_server::inference::{ModelInferResponse, ModelStreamInferResponse};
use serde_json::json;

const BODY: &str = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[-1.5,2.5]}]}"#;

/// The parameters of an answer with the place of the run.
fn place(answer: &ModelInferResponse) -> [Option<&ParameterChoice>; 2] {
    ["lgp_worker", "lgp_device"]
        .map(|name| answer.parameters.get(name).and_then(|it| it.parameter_choice.as_ref()))
}

fn texts() -> [ParameterChoice; 2] {
    ["w1", "cpu:0"].map(|text| ParameterChoice::StringParam(text.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_answers_and_refusals_name_worker_and_device() {
    let rig = Rig::start().await;
    for (model, status) in [("relu", 200), ("fails", 500)] {
        let answer = rig.post(&format!("/v2/models/{model}/infer"), BODY).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.headers["lgp-worker"], "w1", "{model}");
        assert_eq!(answer.headers["lgp-device"], "cpu:0", "{model}");
        let times = answer.headers.get("server-timing").map(|times| times.to_str().unwrap());
        assert_eq!(times.is_some_and(are_times), status == 200, "{model}: {times:?}");
    }
    let failed = rig.post("/v2/models/fails/infer", BODY).await.json();
    let message = failed["error"].as_str().unwrap();
    assert!(message.ends_with("(worker w1, device cpu:0)"), "{message}");

    let refused = rig.post("/v2/models/relu/infer", r#"{"inputs":[]}"#).await;
    assert_eq!(refused.status, 400);
    assert!(!refused.headers.contains_key("lgp-worker"), "no worker had it");
}

/// Whether the header has a run's times, in milliseconds.
fn are_times(header: &str) -> bool {
    let mut names = Vec::new();
    for part in header.split(", ") {
        let Some((name, ms)) = part.split_once(";dur=") else { return false };
        names.push(name);
        if !ms.parse::<f64>().is_ok_and(|ms| (0.0..10_000.0).contains(&ms)) {
            return false;
        }
    }
    names == ["queue", "model"]
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_name_the_device() {
    let rig = Rig::start().await;
    let body = json!({
        "model": "relu",
        "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]
    });
    let task = rig.post("/api/v1/cluster/tasks", body.to_string()).await.json();
    let path = format!("/api/v1/cluster/tasks/{}", task["task_id"].as_str().unwrap());
    let ended = rig.until(&path, |answer| answer.json()["state"] == "succeeded").await.json();
    assert_eq!((&ended["worker"], &ended["device"]), (&json!("w1"), &json!("cpu:0")));
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_answers_and_refusals_name_worker_and_device() {
    let rig = Rig::start().await;
    let mut client = client(&rig, Some(&rig.bearer));
    let answer = client.model_infer(message("relu", [1.0, 2.0])).await.unwrap().into_inner();
    assert_eq!(place(&answer).map(Option::unwrap), texts().each_ref());
    for name in ["lgp_queue_us", "lgp_model_us"] {
        let time = answer.parameters[name].parameter_choice.as_ref();
        let is_time = matches!(time, Some(ParameterChoice::Int64Param(us)) if *us >= 0);
        assert!(is_time, "{name}: {time:?}");
    }
    let status = client.model_infer(message("fails", [1.0, 2.0])).await.unwrap_err();
    assert_eq!(status.metadata().get("lgp-worker").unwrap(), "w1");
    assert_eq!(status.metadata().get("lgp-device").unwrap(), "cpu:0");

    let requests = ["relu", "fails"].map(|model| message(model, [1.0, 2.0]));
    let answers = client.model_stream_infer(tokio_stream::iter(requests)).await.unwrap();
    let mut answers = answers.into_inner();
    for fails in [false, true] {
        let answer: ModelStreamInferResponse = answers.message().await.unwrap().unwrap();
        assert_eq!(!answer.error_message.is_empty(), fails);
        let answer = answer.infer_response.unwrap();
        assert_eq!(place(&answer).map(Option::unwrap), texts().each_ref());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_counted_where_the_model_ran() {
    let rig = Rig::start().await;
    let line =
        r#"lgp_inference_answers_total{model="relu",version="1",worker="w1",device="cpu:0"}"#;
    assert!(!rig.get("/metrics").await.text().contains("lgp_inference_answers_total"));
    for count in 1..=2 {
        rig.post("/v2/models/relu/infer", BODY).await;
        rig.post("/v2/models/fails/infer", BODY).await;
        let page = rig.get("/metrics").await.text();
        assert!(page.contains(&format!("{line} {count}\n")), "{page}");
        assert_eq!(page.matches("lgp_inference_answers_total{").count(), 1, "{page}");
    }
}
