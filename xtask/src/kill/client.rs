//! A coordinator's REST interface, asked with a limit on time and a connection for each request.

use serde::Serialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time limit of an answer. The coordinator itself waits up to 10 s for a leader.
pub(super) const PATIENCE: Duration = Duration::from_secs(13);

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The task for a key.
    Accepted(String),
    /// The task has not ended.
    Open,
    /// The task's end state, and a digest of its result.
    Ended(String),
    /// The coordinator does not know the task.
    Unknown,
    /// The key belongs to another request, says the coordinator.
    Conflict(String),
    /// A typed refusal.
    Refused(String),
    /// No answer, or half of one.
    Lost(String),
}

/// A client of one coordinator.
#[derive(Clone)]
pub(crate) struct Client {
    base: String,
    key: PathBuf,
    agent: ureq::Agent,
}

impl Client {
    /// A client of the coordinator at `base`. The owner's key is in the folder `data` once the coordinator has started.
    pub(crate) fn new(base: &str, data: &Path) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        // A kept connection would break with its coordinator, and fail a later request.
        let config = config.max_idle_connections(0).timeout_global(Some(PATIENCE));
        let agent = config.build().new_agent();
        Self { base: base.to_owned(), key: data.join("local.key"), agent }
    }

    /// The same client with connections of its own, which it keeps open.
    pub(crate) fn keeping(&self) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent = config.timeout_global(Some(PATIENCE)).build().new_agent();
        Self { agent, ..self.clone() }
    }

    fn ask(&self, method: &str, path: &str, body: &[u8]) -> Result<(u16, Value), String> {
        let key = std::fs::read_to_string(&self.key).unwrap_or_default();
        let request = ureq::http::Request::builder().method(method);
        let request = request.uri(format!("{}{path}", self.base));
        let request = request.header("authorization", format!("Bearer {}", key.trim()));
        let request = request.header("content-type", "application/json");
        let sent = match body.is_empty() {
            true => request.body(()).map(|request| self.agent.run(request)),
            false => request.body(body).map(|request| self.agent.run(request)),
        };
        let mut answer = sent.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_vec().map_err(|error| error.to_string())?;
        Ok((status, serde_json::from_slice(&text).unwrap_or_default()))
    }

    /// Any request below the cluster's interface that is answered with success.
    pub(crate) fn cluster(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.cluster_raw(method, path, body.to_string().as_bytes())
    }

    /// As [`Self::cluster`], with a body of bytes.
    pub(crate) fn cluster_raw(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> anyhow::Result<Value> {
        let asked = self.ask(method, &format!("/api/v1/cluster/{path}"), body);
        let (status, value) = asked.map_err(anyhow::Error::msg)?;
        anyhow::ensure!(status < 300, "{method} {path}: {status} {value}");
        Ok(value)
    }

    /// Whether the coordinator leads, and its reported trouble.
    pub(super) fn standing(&self) -> anyhow::Result<(bool, Option<String>)> {
        let told = self.cluster("POST", "coordinator/start", &json!({}))?;
        let trouble = told["control"]["trouble"].as_str().map(str::to_owned);
        Ok((told["control"]["leads"] == true, trouble))
    }

    /// Submits a durable task of `work`; the same for the same key.
    pub(crate) fn submit(&self, key: &str, iterations: u64) -> Answer {
        let inputs = json!([
            { "name": "n", "shape": [1], "datatype": "INT64", "data": [iterations] },
            { "name": "x", "shape": [1], "datatype": "FP32", "data": [7.0] },
        ]);
        let body =
            json!({ "model": "work", "inputs": inputs, "durable": true, "idempotency_key": key });
        match self.ask("POST", "/api/v1/cluster/tasks", body.to_string().as_bytes()) {
            Ok((202, told)) => match told["task_id"].as_str() {
                Some(id) => Answer::Accepted(id.to_owned()),
                None => Answer::Lost(format!("no id in {told}")),
            },
            Ok((409, told)) => Answer::Conflict(told.to_string()),
            Ok((status, told)) => refused(status, &told),
            Err(error) => Answer::Lost(error),
        }
    }

    /// Asks for a task, and waits up to `wait` for its end.
    pub(crate) fn look(&self, id: &str, wait: Duration) -> Answer {
        let path = format!("/api/v1/cluster/tasks/{id}?wait_ms={}", wait.as_millis());
        seen(self.ask("GET", &path, &[]))
    }

    pub(super) fn cancel(&self, id: &str) -> Answer {
        seen(self.ask("DELETE", &format!("/api/v1/cluster/tasks/{id}"), &[]))
    }

    /// Runs an inference and waits for its result; the error says what was wrong.
    pub(super) fn infer(&self) -> Result<(), String> {
        let data = vec![0.5; 64];
        let input =
            json!({ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": data });
        let body = json!({ "inputs": [input] }).to_string();
        match self.ask("POST", "/v2/models/digits/infer", body.as_bytes())? {
            (200, _) => Ok(()),
            (status, told) => Err(format!("{status} {told}")),
        }
    }
}

fn refused(status: u16, told: &Value) -> Answer {
    let error = &told["error"];
    let code = error["code"].as_str().or_else(|| error.as_str()).unwrap_or_default();
    Answer::Refused(format!("{status} {code}"))
}

fn seen(asked: Result<(u16, Value), String>) -> Answer {
    match asked {
        Ok((200, told)) => match told["state"].as_str() {
            Some("queued" | "running") => Answer::Open,
            Some(state) => {
                let given = [&told["outputs"], &told["error"]].map(Value::to_string).concat();
                Answer::Ended(format!("{state} {}", digest(&given)))
            }
            None => Answer::Lost(format!("no state in {told}")),
        },
        Ok((404 | 410, _)) => Answer::Unknown,
        Ok((status, told)) => refused(status, &told),
        Err(error) => Answer::Lost(error),
    }
}

/// A digest that distinguishes results.
fn digest(text: &str) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
