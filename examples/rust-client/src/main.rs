//! Asks a running cluster over REST: is it ready, which models it has, what digit a picture shows; and,
//! with a key in the variable RADEON_KEY, a task that is kept and waited for.
//!
//! `cargo run -p example-client -- http://127.0.0.1:8000`

#![forbid(unsafe_code)]

use serde_json::{Value, json};
use std::error::Error;
use std::time::Duration;

/// A seven, 8 by 8 pixels, from 0 for paper to 16 for ink.
const SEVEN: [u8; 64] = [
    0, 0, 7, 15, 6, 0, 0, 0, //
    0, 0, 2, 14, 15, 2, 0, 0, //
    0, 0, 0, 5, 16, 6, 0, 0, //
    0, 0, 0, 5, 16, 9, 2, 0, //
    0, 5, 14, 16, 15, 11, 4, 0, //
    0, 5, 7, 12, 11, 0, 0, 0, //
    0, 0, 4, 15, 1, 0, 0, 0, //
    0, 0, 10, 11, 0, 0, 0, 0, //
];

/// A server, and the key to it where there is one.
struct Cluster {
    agent: ureq::Agent,
    url: String,
    key: Option<String>,
}

impl Cluster {
    fn new(url: &str, key: Option<String>) -> Self {
        // Answers with an error's status are read too: they say what was wrong.
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(60)))
            .http_status_as_error(false)
            .build();
        Self { agent: config.into(), url: url.trim_end_matches('/').to_owned(), key }
    }

    fn get(&self, path: &str) -> Result<Value, Box<dyn Error>> {
        let request = self.agent.get(format!("{}{path}", self.url));
        read(self.with_key(request).call()?)
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, Box<dyn Error>> {
        let request = self.agent.post(format!("{}{path}", self.url));
        read(self.with_key(request).send_json(body)?)
    }

    fn with_key<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.key {
            Some(key) => request.header("Authorization", format!("Bearer {key}")),
            None => request,
        }
    }
}

/// The JSON of an answer; the server's own words where it refused.
fn read(answer: ureq::http::Response<ureq::Body>) -> Result<Value, Box<dyn Error>> {
    let (head, mut body) = answer.into_parts();
    let text = body.read_to_string()?;
    if !head.status.is_success() {
        return Err(format!("{}: {text}", head.status).into());
    }
    Ok(if text.is_empty() { Value::Null } else { serde_json::from_str(&text)? })
}

/// The place of the largest score: the digit.
fn digit(outputs: &Value) -> Option<usize> {
    let scores = outputs[0]["data"].as_array()?;
    let number = |at: &usize| scores[*at].as_f64().unwrap_or(f64::NEG_INFINITY);
    (0..scores.len()).max_by(|a, b| number(a).total_cmp(&number(b)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8000".to_owned());
    let cluster = Cluster::new(&url, std::env::var("RADEON_KEY").ok());
    cluster.get("/v2/health/ready")?;
    println!("ready: {}", cluster.get("/v2")?["name"]);

    let image = json!([{ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32",
        "data": SEVEN.to_vec() }]);
    let answer = cluster.post("/v2/models/digits/infer", &json!({ "inputs": image }))?;
    println!("inference: it is a {}", digit(&answer["outputs"]).ok_or("no scores came")?);

    if cluster.key.is_none() {
        println!("task: not tried, RADEON_KEY is not set");
        return Ok(());
    }
    // The same key with the same body is the same task, however often it is sent.
    let task = json!({ "model": "digits", "inputs": image, "durable": true,
        "idempotency_key": "example-client" });
    let accepted = cluster.post("/api/v1/cluster/tasks", &task)?;
    let id = accepted["task_id"].as_str().ok_or("the task has no id")?;
    let path = format!("/api/v1/cluster/tasks/{id}?wait_ms=10000");
    let mut ended = cluster.get(&path)?;
    while ["queued", "running"].contains(&ended["state"].as_str().unwrap_or_default()) {
        ended = cluster.get(&path)?;
    }
    println!("task: {} and it is a {}", ended["state"], digit(&ended["outputs"]).ok_or("failed")?);
    Ok(())
}
