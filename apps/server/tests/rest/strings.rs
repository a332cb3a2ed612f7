//! Strings take more memory parsed than in a request, so they are counted before they are parsed.

use crate::rig::{Options, Rig, request};
use axum::body::Body;
use lgp_server::ServerConfig;
use serde_json::json;

const LENGTH: &str = "inference-header-content-length";

#[tokio::test(flavor = "multi_thread")]
async fn strings_count_what_they_take() {
    // One request may take five eighths, at 128 bytes a string: 5,120 strings.
    let server = ServerConfig { bodies_bytes_max: 1 << 20, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    for (count, status, part) in [(5_000, 400, "expected FP32"), (5_200, 413, "at most 5120")] {
        let input = json!({"name": "x", "shape": [count], "datatype": "BYTES"});
        let binary = {
            let mut input = input.clone();
            input["parameters"] = json!({"binary_data_size": 4 * count});
            let json = json!({"model": "relu", "inputs": [input]}).to_string();
            let head = request("POST", "/api/v1/cluster/tasks").header(LENGTH, json.len());
            head.body(Body::from([json.into_bytes(), vec![0; 4 * count]].concat()))
        };
        let text = {
            let mut input = input.clone();
            input["data"] = json!(vec![""; count]);
            let task = json!({"model": "relu", "inputs": [input]});
            let batch = json!({"tasks": [task]}).to_string();
            request("POST", "/api/v1/cluster/tasks/batch").body(Body::from(batch))
        };
        for asked in [binary, text] {
            let answer = rig.call(asked.unwrap()).await;
            assert_eq!(answer.status, status, "{count}: {}", answer.text());
            assert!(answer.text().contains(part), "{count}: {}", answer.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strings_for_a_model_of_numbers_are_not_taken_apart() {
    let rig = Rig::start().await;
    let broken = json!({"name": "x", "shape": [1, 2], "datatype": "BYTES", "parameters": {"binary_data_size": 4}});
    for (name, shape, part) in [
        ("x", json!([1, 2]), "has datatype BYTES, expected FP32"),
        ("z", json!([1, 2]), "'z' is unknown"),
    ] {
        let mut input = broken.clone();
        (input["name"], input["shape"]) = (json!(name), shape);
        let json = json!({"inputs": [input]}).to_string();
        let head = request("POST", "/v2/models/relu/infer").header(LENGTH, json.len());
        let body = Body::from([json.as_bytes(), &[255; 4]].concat());
        let answer = rig.call(head.body(body).unwrap()).await;
        assert!(answer.status == 400 && answer.text().contains(part), "{}", answer.text());
    }
}
