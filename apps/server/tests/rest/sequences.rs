//! Stateful models: inferences with the same `sequence_id` take turns, and each passes its state to the next.

use crate::grpc::{client, request as grpc_request};
use crate::rig::{Answer, Options, Rig, request};
use axum::body::Body;
use lgp_distributed::ExecError;
use lgp_inference::GraphBuilder;
use lgp_sdk::tensor::{DType, Dim, NamedTensor, SymShape, Tensor, TensorType};
use lgp_server::ServerConfig;
use lgp_server::inference::infer_parameter::ParameterChoice;
use lgp_server::inference::model_config::SchedulingChoice;
use lgp_server::inference::*;
use serde_json::{Value, json};
use std::time::Duration;
use tonic::Code;

const MODELS: &str = "/api/v1/cluster/models";

/// The first value blocks an inference until the gate opens; the second makes it fail.
pub(crate) const WAITS: f32 = 1000.0;
pub(crate) const FAILS: f32 = -1.0;

/// An ONNX file: `y` = `x` + `s`, which is also `t`; `begins` and `who` return the control inputs.
fn onnx() -> Vec<u8> {
    let ty = |dtype, width| TensorType {
        dtype,
        shape: Some(SymShape(vec![Dim::Symbol("n".into()), Dim::Known(width)])),
    };
    let mut graph = GraphBuilder::new("adds");
    let x = graph.input("x", ty(DType::F32, 2));
    let s = graph.input("s", ty(DType::F32, 2));
    let start = graph.input("start", ty(DType::F32, 1));
    let id = graph.input("id", ty(DType::U64, 1));
    let y = graph.node("Add", &[x, s], []);
    let outputs = [
        ("y", y, ty(DType::F32, 2)),
        ("t", graph.node("Identity", &[y], []), ty(DType::F32, 2)),
        ("begins", graph.node("Identity", &[start], []), ty(DType::F32, 1)),
        ("who", graph.node("Identity", &[id], []), ty(DType::U64, 1)),
    ];
    for (name, value, ty) in outputs {
        graph.output(name, value, ty);
    }
    graph.finish().unwrap().to_onnx().unwrap()
}

/// Runs such a model on a worker of the tests.
pub(crate) fn run(inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>, ExecError> {
    let named = |name: &str| &inputs.iter().find(|input| input.name == name).unwrap().tensor;
    let (x, s) = (named("x"), named("s"));
    let (given, state) = (x.as_slice::<f32>().unwrap(), s.as_slice::<f32>().unwrap());
    if given[0] == FAILS {
        return Err(ExecError::failed("it was asked to"));
    }
    let sum: Vec<f32> = given.iter().zip(state).map(|(a, b)| a + b).collect();
    let sum = Tensor::from_slice(x.shape().clone(), &sum).unwrap();
    Ok(vec![
        NamedTensor::new("y", sum.clone()),
        NamedTensor::new("t", sum),
        NamedTensor::new("begins", named("start").clone()),
        NamedTensor::new("who", named("id").clone()),
    ])
}

/// A deployment with a response cache, which must not be used for sequences.
fn wish(idle_ms: u64) -> Value {
    json!({"cache_bytes": 1 << 20, "sequences": {
        "idle_ms": idle_ms,
        "states": [{"input": "s", "output": "t"}],
        "controls": [
            {"input": "start", "kind": "start"}, {"input": "id", "kind": "correlation_id"},
        ],
    }})
}

async fn deploy(rig: &Rig, name: &str, wish: Value) -> Answer {
    let put = request("PUT", &format!("{MODELS}/{name}/deployment"));
    rig.call(put.body(Body::from(wish.to_string())).unwrap()).await
}

pub(crate) async fn add(rig: &Rig, name: &str, idle_ms: u64) {
    let answer = rig.post(&format!("{MODELS}/{name}"), onnx()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let answer = deploy(rig, name, wish(idle_ms)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

async fn start(server: ServerConfig, idle_ms: u64) -> Rig {
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    add(&rig, "adds", idle_ms).await;
    rig
}

fn body(x: f32, parameters: &Value) -> String {
    let input = json!({"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [x, 0]});
    json!({"parameters": parameters, "inputs": [input]}).to_string()
}

/// Status, and the sum or the error.
fn sum(answer: &Answer) -> (u16, Value) {
    let value = answer.json();
    let told = if answer.status == 200 { &value["outputs"][0]["data"][0] } else { &value["error"] };
    (answer.status.as_u16(), told.clone())
}

pub(crate) async fn infer(rig: &Rig, path: &str, x: f32, parameters: Value) -> (u16, Value) {
    let path = format!("/v2/models/{path}/infer");
    sum(&rig.post(&path, body(x, &parameters)).await)
}

pub(crate) fn first(id: impl Into<Value>) -> Value {
    json!({"sequence_id": id.into(), "sequence_start": true})
}

fn next(id: impl Into<Value>) -> Value {
    json!({"sequence_id": id.into()})
}

fn last(id: impl Into<Value>) -> Value {
    json!({"sequence_id": id.into(), "sequence_end": true})
}

fn is_unknown((status, told): &(u16, Value)) -> bool {
    *status == 400 && told.as_str().is_some_and(|told| told.contains("expected sequence_start"))
}

async fn open(rig: &Rig, name: &str) -> String {
    let page = rig.get("/metrics").await.text();
    let start = format!("lgp_sequences{{model=\"{name}\"");
    let line = page.lines().find(|line| line.starts_with(&start)).unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

fn message(name: &str, x: f32, id: i64, starts: bool) -> ModelInferRequest {
    let parameter = |choice| InferParameter { parameter_choice: Some(choice) };
    let mut message = grpc_request(name, [x, 0.0]);
    let id = parameter(ParameterChoice::Int64Param(id));
    message.parameters.insert("sequence_id".to_owned(), id);
    let starts = parameter(ParameterChoice::BoolParam(starts));
    message.parameters.insert("sequence_start".to_owned(), starts);
    message
}

fn float(raw: &[u8]) -> f32 {
    f32::from_le_bytes(raw[..4].try_into().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn sequences_that_take_turns_each_have_their_sum() {
    let rig = Rig::start().await;
    add(&rig, "real.adds", 60_000).await;
    let path = "real.adds";
    for (x, parameters, expected) in [
        (1.0, first(1), 1.0),
        (10.0, first(2), 10.0),
        (2.0, next(1), 3.0),
        (20.0, next(2), 30.0),
        (3.0, last(1), 6.0),
        // A textual id is a different one, and a restarted sequence has no earlier state.
        (5.0, next(2), 35.0),
        (7.0, first(2), 7.0),
        (8.0, next(2), 15.0),
    ] {
        assert_eq!(infer(&rig, path, x, parameters).await, (200, json!(expected)));
    }
    assert!(is_unknown(&infer(&rig, path, 1.0, next(1)).await), "it has ended");
    assert!(is_unknown(&infer(&rig, path, 1.0, next(3)).await), "it was never begun");
    assert_eq!(open(&rig, path).await, "1");

    // The control inputs, and the outputs for the client.
    let answer = rig.post("/v2/models/real.adds/infer", body(1.0, &first(9))).await.json();
    let outputs = |answer: &Value| {
        let all = answer["outputs"].as_array().unwrap().iter();
        all.map(|it| (it["name"].clone(), it["data"].clone())).collect::<Vec<_>>()
    };
    let told = |begins: f32| vec![(json!("begins"), json!([begins])), (json!("who"), json!([9]))];
    assert_eq!(outputs(&answer)[1..], told(1.0));
    let answer = rig.post("/v2/models/real.adds/infer", body(1.0, &next(9))).await.json();
    assert_eq!(outputs(&answer)[1..], told(0.0));
    let metadata = rig.get("/v2/models/real.adds").await.json();
    let names = |of: &Value| -> Vec<Value> {
        of.as_array().unwrap().iter().map(|it| it["name"].clone()).collect()
    };
    assert_eq!(names(&metadata["inputs"]), ["x"]);
    assert_eq!(names(&metadata["outputs"]), ["y", "begins", "who"]);
    let config = rig.get("/v2/models/real.adds/config").await.json();
    assert_eq!(names(&config["input"]), ["x"]);
    let batching = &config["sequence_batching"];
    assert_eq!(batching["max_sequence_idle_microseconds"], 60_000_000);
    assert_eq!(batching["state"][0]["output_name"], "t");
    assert_eq!(batching["control_input"][1]["control"][0]["data_type"], "TYPE_UINT64");
    let asked = ModelConfigRequest { name: "real.adds".to_owned(), version: String::new() };
    let config = client(&rig, Some(&rig.bearer)).model_config(asked).await.unwrap();
    let choice = config.into_inner().config.unwrap().scheduling_choice.unwrap();
    let SchedulingChoice::SequenceBatching(batching) = choice else { panic!("{choice:?}") };
    assert_eq!(batching.state[0].input_name, "s");
    let listed = rig.get(&format!("{MODELS}/real.adds")).await.json();
    assert_eq!(listed["inputs"].as_array().unwrap().len(), 4, "tasks bring all of them");
    let floats = |name: &str, data: Value| {
        let width = data.as_array().unwrap().len();
        json!({"name": name, "shape": [1, width], "datatype": "FP32", "data": data})
    };
    let mut inputs = vec![
        floats("x", json!([1, 2])),
        floats("s", json!([3, 4])),
        floats("start", json!([0])),
        json!({"name": "id", "shape": [1, 1], "datatype": "UINT64", "data": [5]}),
    ];
    for status in [202, 400] {
        let task = json!({"model": path, "inputs": inputs}).to_string();
        let answer = rig.post("/api/v1/cluster/tasks", task).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        inputs.pop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inferences_that_come_at_once_run_one_after_another() {
    let rig = start(ServerConfig::default(), 60_000).await;
    assert_eq!(infer(&rig, "adds", 0.0, first(9)).await.0, 200);
    let asked = (0..50).map(|_| infer(&rig, "adds", 1.0, next(9)));
    let mut sums: Vec<f64> = futures_util::future::join_all(asked)
        .await
        .into_iter()
        .map(|(status, sum)| {
            assert_eq!(status, 200, "{sum}");
            sum.as_f64().unwrap()
        })
        .collect();
    sums.sort_by(f64::total_cmp);
    let expected: Vec<f64> = (1..=50).map(f64::from).collect();
    assert_eq!(sums, expected, "each found what one before it had left");

    // A stream keeps the order of its messages, within each of two sequences.
    let messages = (0..50u8).map(|n| message("adds", f32::from(n), 1 + i64::from(n % 2), n < 2));
    let messages = tokio_stream::iter(messages.collect::<Vec<_>>());
    let mut client = client(&rig, Some(&rig.bearer));
    let mut answers = client.model_stream_infer(messages).await.unwrap().into_inner();
    let mut sums = [0.0; 2];
    for n in 0..50u8 {
        let answer = answers.message().await.unwrap().expect("one for each");
        assert_eq!(answer.error_message, "");
        let sum = &mut sums[usize::from(n % 2)];
        *sum += f32::from(n);
        assert_eq!(float(&answer.infer_response.unwrap().raw_output_contents[0]), *sum);
    }
    // Both protocols refer to the same sequence.
    let sum = infer(&rig, "adds", 1.0, next(2)).await;
    assert_eq!(sum, (200, json!(f64::from(sums[1]) + 1.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_its_turn_for_too_long_is_refused() {
    let rig = start(ServerConfig::default(), 60_000).await;
    for id in [1, 2] {
        assert_eq!(infer(&rig, "adds", 0.0, first(id)).await.0, 200);
    }
    let post = |x: f32, id: u64, timeout: u64| {
        let parameters = json!({"sequence_id": id, "timeout": timeout});
        let request = request("POST", "/v2/models/adds/infer");
        rig.call(request.body(Body::from(body(x, &parameters))).unwrap())
    };
    let slow = post(WAITS, 1, 0);
    let others = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let late = post(1.0, 1, 100_000).await;
        assert_eq!(late.status, 503, "{}", late.text());
        assert!(late.text().contains("before it in sequence 1"), "{}", late.text());
        rig.gate.open();
    };
    let (slow, ()) = tokio::join!(slow, others);
    assert_eq!(sum(&slow), (200, json!(1000.0)));
    assert_eq!(infer(&rig, "adds", 1.0, next(1)).await, (200, json!(1001.0)));
    assert_eq!(infer(&rig, "adds", 1.0, next(2)).await, (200, json!(1.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_leaves_the_state_and_idleness_or_unloading_does_not() {
    let rig = start(ServerConfig::default(), 60_000).await;
    assert_eq!(infer(&rig, "adds", 1.0, first(1)).await, (200, json!(1.0)));
    assert_eq!(infer(&rig, "adds", FAILS, next(1)).await.0, 500);
    assert_eq!(infer(&rig, "adds", FAILS, last(1)).await.0, 500);
    let rows = json!({"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]});
    let two = json!({"parameters": next(1), "inputs": [rows]}).to_string();
    let refused = rig.post("/v2/models/adds/infer", two).await;
    assert_eq!(refused.status, 400, "its state has one row: {}", refused.text());
    assert_eq!(infer(&rig, "adds", 2.0, next(1)).await, (200, json!(3.0)));
    assert_eq!(infer(&rig, "adds", FAILS, first(1)).await.0, 500);
    assert!(is_unknown(&infer(&rig, "adds", 1.0, next(1)).await), "it was not begun");
    assert_eq!(open(&rig, "adds").await, "0");

    assert_eq!(infer(&rig, "adds", 1.0, first(1)).await, (200, json!(1.0)));
    for end in ["unload", "load"] {
        assert_eq!(rig.post(&format!("{MODELS}/adds/{end}"), "").await.status, 200, "{end}");
    }
    rig.until("/v2/models/adds/ready", |answer| answer.status == 200).await;
    assert!(is_unknown(&infer(&rig, "adds", 1.0, next(1)).await), "it went with its model");
    assert_eq!(infer(&rig, "adds", 1.0, first(1)).await, (200, json!(1.0)));
    assert_eq!(deploy(&rig, "adds", wish(50)).await.status, 200);
    assert!(is_unknown(&infer(&rig, "adds", 1.0, next(1)).await), "its model changed");
    assert_eq!(infer(&rig, "adds", 1.0, first(1)).await, (200, json!(1.0)));
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert!(is_unknown(&infer(&rig, "adds", 1.0, next(1)).await), "it was idle");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_rooms_are_bounded() {
    let server =
        ServerConfig { sequences_max: 2, sequences_bytes_max: 32, ..ServerConfig::default() };
    let rig = start(server, 60_000).await;
    for id in [1, 2] {
        assert_eq!(infer(&rig, "adds", 1.0, first(id)).await.0, 200);
    }
    let refused = rig.post("/v2/models/adds/infer", body(1.0, &first(3))).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
    assert!(refused.text().contains("sequences_max"), "{}", refused.text());
    assert_eq!(infer(&rig, "adds", 1.0, last(1)).await.0, 200);
    let of_rows = async |rows: usize| {
        let data = vec![0; 2 * rows];
        let x = json!({"name": "x", "shape": [rows, 2], "datatype": "FP32", "data": data});
        let body = json!({"parameters": first(3), "inputs": [x]}).to_string();
        rig.post("/v2/models/adds/infer", body).await
    };
    // A row of a state has eight bytes, and the other sequence holds eight.
    for (rows, status, part) in [(5, 413, "at most 32"), (4, 503, "no room"), (3, 200, "")] {
        let answer = of_rows(rows).await;
        assert!(answer.status == status && answer.text().contains(part), "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_and_names_the_field() {
    let rig = start(ServerConfig::default(), 60_000).await;
    for (path, parameters, status, part) in [
        ("adds", json!({}), 400, "expected the parameter sequence_id"),
        ("adds", json!({"sequence_id": 0}), 400, "expected the parameter sequence_id"),
        ("relu", next(1), 501, "'relu' keeps no sequences"),
        ("adds", json!({"sequence_id": -1}), 400, "sequence_id is -1"),
        ("adds", json!({"sequence_id": true}), 400, "sequence_id is true"),
        ("adds", json!({"sequence_id": "a".repeat(257)}), 400, "257 bytes"),
        ("adds", json!({"sequence_id": 1, "sequence_start": 1}), 400, "sequence_start is 1"),
        ("adds", json!({"sequence_id": 1, "sequence_end": "x"}), 400, "sequence_end is"),
        ("adds", json!({"sequence_end": true}), 400, "without sequence_id"),
        ("adds", first("text"), 400, "input 'id'"),
    ] {
        let (given, told) = infer(&rig, path, 1.0, parameters).await;
        assert!(given == status && told.as_str().unwrap().contains(part), "{given}: {told}");
    }
    let more = |name: &str| {
        let input =
            |name| json!({"name": name, "shape": [1, 2], "datatype": "FP32", "data": [1, 0]});
        json!({"parameters": first(1), "inputs": [input("x"), input(name)]}).to_string()
    };
    for name in ["s", "start"] {
        let refused = rig.post("/v2/models/adds/infer", more(name)).await;
        let part = format!("input '{name}' is unknown");
        assert!(refused.status == 400 && refused.text().contains(&part), "{}", refused.text());
    }
    let asked = json!({"parameters": first(1), "outputs": [{"name": "t"}], "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 0]}]});
    let refused = rig.post("/v2/models/adds/infer", asked.to_string()).await;
    assert!(refused.status == 400 && refused.text().contains("'t'"), "{}", refused.text());
    let mut client = client(&rig, Some(&rig.bearer));
    let status = client.model_infer(message("adds", 1.0, -1, true)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("sequence_id"), "{status:?}");

    let targets = json!([{"model": "adds", "weight": 1}, {"model": "relu", "weight": 1}]);
    let put = request("PUT", "/api/v1/cluster/aliases/prod");
    let alias = Body::from(json!({ "targets": targets }).to_string());
    let refused = rig.call(put.body(alias).unwrap()).await;
    let part = "keeps sequences and one does not";
    assert!(refused.status == 400 && refused.text().contains(part), "{}", refused.text());

    let states = |input: &str| json!({"sequences": {"states": [{"input": input, "output": "t"}]}});
    for input in ["none", "id"] {
        let refused = deploy(&rig, "adds", states(input)).await;
        let named = refused.text().contains(&format!("'{input}'"));
        assert!(refused.status == 400 && named, "{}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_is_its_callers_and_stays_with_its_model() {
    let rig = start(ServerConfig::default(), 60_000).await;
    assert_eq!(infer(&rig, "adds", 1.0, first(1)).await, (200, json!(1.0)));
    let key = rig.post("/api/v1/cluster/keys", r#"{"role":"infer"}"#).await.json()["key"].clone();
    let bearer = format!("Bearer {}", key.as_str().unwrap());
    let mut other = client(&rig, Some(&bearer));
    let status = other.model_infer(message("adds", 1.0, 1, false)).await.unwrap_err();
    assert!(status.message().contains("expected sequence_start"), "{status:?}");
    let answer = other.model_infer(message("adds", 5.0, 1, true)).await.unwrap().into_inner();
    assert_eq!(float(&answer.raw_output_contents[0]), 5.0);
    assert_eq!(infer(&rig, "adds", 1.0, next(1)).await, (200, json!(2.0)));

    // New sequences start on the newer version.
    let answer = rig.post(&format!("{MODELS}/adds"), onnx()).await;
    assert_eq!(answer.json()["version"], 2, "{}", answer.text());
    let version = async |path: &str, parameters: Value| {
        let path = format!("/v2/models/{path}/infer");
        let answer = rig.post(&path, body(1.0, &parameters)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["model_version"].clone()
    };
    let ready = "/v2/models/adds/versions/2/ready";
    rig.until(ready, |answer| answer.status == 200).await;
    assert_eq!(version("adds", next(1)).await, "1");
    assert_eq!(version("adds", first(2)).await, "2");
    assert_eq!(version("adds/versions/1", first(2)).await, "1");
    assert_eq!(version("adds", next(2)).await, "2", "the two are of different names");

    let targets =
        |version: u64| json!({"targets": [{"model": "adds", "version": version, "weight": 1}]});
    let set = async |wish: Value| {
        let put = request("PUT", "/api/v1/cluster/aliases/prod");
        rig.call(put.body(Body::from(wish.to_string())).unwrap()).await
    };
    assert_eq!(set(targets(1)).await.status, 200);
    assert_eq!(version("prod", first(1)).await, "1");
    assert_eq!(set(targets(2)).await.status, 200);
    assert_eq!(version("prod", next(1)).await, "1", "it was begun there");
    assert_eq!(version("prod", first(1)).await, "2");
    let gone = rig.post(&format!("{MODELS}/adds/versions/1/unload"), "").await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert!(is_unknown(&infer(&rig, "adds", 1.0, next(1)).await), "it went with its version");
    assert_eq!(version("adds", next(2)).await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_worker_goes_on_where_one_has_left() {
    let mut rig = Rig::start().await;
    add(&rig, "real.adds", 60_000).await;
    assert_eq!(infer(&rig, "real.adds", 1.0, first(1)).await, (200, json!(1.0)));
    rig.replace_worker().await;
    let workers = format!("{MODELS}/real.adds");
    rig.until(&workers, |answer| answer.json()["workers"] == json!(["w2"])).await;
    let answer = rig.post("/v2/models/real.adds/infer", body(2.0, &next(1))).await;
    assert_eq!(sum(&answer), (200, json!(3.0)));
    assert_eq!(answer.headers["lgp-worker"], "w2");
}
