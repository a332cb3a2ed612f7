//! The REST interface as a client sees it: an answer, a broken connection, or silence.

use super::outputs::Output;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use ureq::SendBody;
use ureq::http::{HeaderValue, Request, header};
use ureq::middleware::MiddlewareNext;

/// The longest wait for an answer: longer than any tried stop of the coordinator's process.
pub(super) const PATIENCE: Duration = Duration::from_secs(45);
/// The longest wait where every worker is replaced, or a body has 200 MB.
const LONG: Duration = Duration::from_secs(150);
/// The size from which a body may take that long.
const LARGE_BYTES: usize = 4 << 20;

/// The outcome of a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// Status and JSON; null for a body that is not JSON.
    Said(u16, Value),
    /// Refused, reset, or ended within the answer.
    #[allow(dead_code, reason = "printed where it is a violation")]
    Gone(String),
    /// No answer within the time limit.
    Late,
}

impl Answer {
    /// The code of a typed refusal; refusals of the inference interface have only words.
    pub(super) fn code(&self) -> Option<String> {
        let Self::Said(status, value) = self else { return None };
        let error = &value["error"];
        let text = error["code"].as_str().or_else(|| error.as_str())?;
        Some(format!("{status} {text}"))
    }

    /// The status, where there was an answer.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Said(status, _) => Some(*status),
            Self::Gone(_) | Self::Late => None,
        }
    }
}

/// A task as the cluster reports it; in a list, without its outputs.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Told {
    pub(super) task_id: String,
    pub(super) durable: bool,
    pub(super) state: String,
    pub(super) attempts: u64,
    #[serde(default)]
    pub(super) error: Value,
    #[serde(default)]
    pub(super) outputs: Option<Vec<Output>>,
    /// The parts of its latency.
    #[serde(default)]
    pub(super) queued_ms: f64,
    #[serde(default)]
    pub(super) model_ms: Option<f64>,
    #[serde(default)]
    pub(super) overhead_ms: Option<f64>,
}

impl Told {
    /// Whether it has not ended.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state.as_str(), "queued" | "running")
    }

    /// The time from submission to end, where all its parts are known.
    pub(super) fn latency_ms(&self) -> Option<f64> {
        Some(self.queued_ms + self.model_ms? + self.overhead_ms?)
    }
}

/// JSON, and the tensors that follow it as bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Body {
    pub(super) json: Vec<u8>,
    pub(super) raw: Vec<u8>,
}

/// A client that opens a connection for every request.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    base: String,
    agent: ureq::Agent,
}

impl Rest {
    /// A client of the coordinator at `base`. The owner's key is in the folder `data` once the
    /// coordinator has started.
    pub(super) fn new(base: &str, data: &Path) -> Self {
        let key = data.join("local.key");
        // A kept connection would break when its coordinator is killed, and fail a request made
        // later.
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let config = config.max_idle_connections(0).timeout_global(Some(PATIENCE));
        let config = config.middleware(
            move |mut request: Request<SendBody<'_>>, next: MiddlewareNext<'_>| {
                let key = std::fs::read_to_string(&key).unwrap_or_default();
                if let Ok(value) = HeaderValue::from_str(&format!("Bearer {}", key.trim())) {
                    request.headers_mut().insert(header::AUTHORIZATION, value);
                }
                next.handle(request)
            },
        );
        Self { base: base.to_owned(), agent: config.build().new_agent() }
    }

    /// `GET` below the cluster's interface.
    pub(super) fn get(&self, path: &str) -> Answer {
        answer(self.agent.get(self.cluster(path)).call())
    }

    /// `POST` below the cluster's interface.
    pub(super) fn post(&self, path: &str, body: &Value) -> Answer {
        answer(self.agent.post(self.cluster(path)).send_json(body))
    }

    /// As [`Self::post`], with the longer time limit.
    pub(super) fn post_long(&self, path: &str, body: &Value) -> Answer {
        let request = self.agent.post(self.cluster(path));
        answer(request.config().timeout_global(Some(LONG)).build().send_json(body))
    }

    /// As [`Self::post`] for tasks, whose tensors may follow.
    pub(super) fn submit(&self, path: &str, body: &Body) -> Answer {
        let mut request = self.agent.post(self.cluster(path));
        if body.raw.is_empty() {
            return answer(request.content_type("application/json").send(&body.json[..]));
        }
        request = request.header("Inference-Header-Content-Length", body.json.len().to_string());
        if body.raw.len() >= LARGE_BYTES {
            request = request.config().timeout_global(Some(LONG)).build();
        }
        let both = [&body.json[..], &body.raw].concat();
        answer(request.content_type("application/octet-stream").send(&both[..]))
    }

    /// A task with its outputs. Any other answer is an error.
    pub(super) fn task(&self, id: &str) -> Result<Told, Answer> {
        let request = self.agent.get(self.cluster(&format!("tasks/{id}")));
        told(request.config().timeout_global(Some(LONG)).build().call())
    }

    /// Cancels a task, and answers its state after that.
    pub(super) fn cancel(&self, id: &str) -> Result<Told, Answer> {
        told(self.agent.delete(self.cluster(&format!("tasks/{id}"))).call())
    }

    /// Every task that the cluster knows, page after page, without outputs.
    pub(super) fn list(&self) -> Result<Vec<Told>, Answer> {
        let mut all = Vec::new();
        let mut next = Some(self.cluster("tasks?limit=1000"));
        while let Some(url) = next {
            let response = self.agent.get(url).call();
            let link = response.as_ref().ok().and_then(|response| response.headers().get("link"));
            let link = link.and_then(|link| following(link.to_str().ok()?));
            next = link.map(|path| format!("{}{path}", self.base));
            all.append(&mut told::<Vec<Told>>(response)?);
        }
        Ok(all)
    }

    /// Adds a model.
    pub(super) fn upload(&self, name: &str, file: &[u8]) -> Answer {
        let request = self.agent.post(self.cluster(&format!("models/{name}")));
        let request = request.config().timeout_global(Some(LONG)).build();
        answer(request.content_type("application/octet-stream").send(file))
    }

    /// An inference of the bundled model, of the highest priority, that waits for its result.
    pub(super) fn infer(&self, picture: &[f32]) -> Answer {
        let url = format!("{}/v2/models/digits/infer", self.base);
        let body = json!({ "inputs": inputs(picture), "parameters": { "priority": 1 } });
        answer(self.agent.post(url).send_json(body))
    }

    fn cluster(&self, path: &str) -> String {
        format!("{}/api/v1/cluster/{path}", self.base)
    }
}

/// The bundled model's input.
pub(super) fn inputs(picture: &[f32]) -> Value {
    json!([{ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": picture }])
}

/// The target of a link to a next page (RFC 8288).
fn following(link: &str) -> Option<&str> {
    link.strip_prefix('<')?.strip_suffix(">; rel=\"next\"")
}

type Response = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

/// Status and body.
fn read(response: Response) -> Result<(u16, Vec<u8>), Answer> {
    let both = response.and_then(|mut response| {
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(4 << 30).read_to_vec()?;
        Ok((status, body))
    });
    both.map_err(|error| match error {
        ureq::Error::Timeout(_) => Answer::Late,
        error => Answer::Gone(error.to_string()),
    })
}

fn answer(response: Response) -> Answer {
    match read(response) {
        Ok((status, body)) => Answer::Said(status, json_of(&body)),
        Err(answer) => answer,
    }
}

fn json_of(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

/// The value in an answer with status 200.
fn told<T: for<'de> Deserialize<'de>>(response: Response) -> Result<T, Answer> {
    let (status, body) = read(response)?;
    if status != 200 {
        return Err(Answer::Said(status, json_of(&body)));
    }
    serde_json::from_slice(&body).map_err(|error| {
        let text = String::from_utf8_lossy(body.get(..body.len().min(300)).unwrap_or_default());
        Answer::Said(status, json!(format!("{error}: {text}")))
    })
}
