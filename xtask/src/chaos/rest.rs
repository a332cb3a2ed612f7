//! The REST interface as a stranger sees it: an answer, nobody there, or silence.

use serde_json::{Value, json};
use std::time::Duration;

/// What may pass before an answer: longer than any stop of the coordinator's process that is tried.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// What replacing every worker may take.
const LONG: Duration = Duration::from_secs(90);

/// What became of a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// Status and JSON; a body that is none is null.
    Said(u16, Value),
    /// Refused, reset, or ended within the answer.
    #[allow(dead_code, reason = "printed where it is a violation")]
    Gone(String),
    /// Not within the patience.
    Late,
}

impl Answer {
    /// The code of a typed refusal; the interface for inference has words only.
    pub(super) fn code(&self) -> Option<String> {
        let Self::Said(status, value) = self else { return None };
        let error = &value["error"];
        let text = error["code"].as_str().or_else(|| error.as_str())?;
        Some(format!("{status} {text}"))
    }
}

/// A client that opens a connection for every request.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    base: String,
    agent: ureq::Agent,
}

impl Rest {
    pub(super) fn new(base: &str) -> Self {
        // A connection that is kept would break when its coordinator is killed, though the request
        // that meets it then came after.
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let config = config.max_idle_connections(0).timeout_global(Some(PATIENCE));
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

    /// The same for what takes its time.
    pub(super) fn post_long(&self, path: &str, body: &Value) -> Answer {
        let request = self.agent.post(self.cluster(path));
        answer(request.config().timeout_global(Some(LONG)).build().send_json(body))
    }

    /// An inference that waits for its result.
    pub(super) fn infer(&self, picture: &[f32]) -> Answer {
        let url = format!("{}/v2/models/digits/infer", self.base);
        answer(self.agent.post(url).send_json(json!({ "inputs": inputs(picture) })))
    }

    fn cluster(&self, path: &str) -> String {
        format!("{}/api/v1/cluster/{path}", self.base)
    }
}

/// The bundled model's input.
pub(super) fn inputs(picture: &[f32]) -> Value {
    json!([{ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": picture }])
}

/// The values of a result's only output.
pub(super) fn outputs(result: &Value) -> Option<Vec<f64>> {
    let data = result["outputs"][0]["data"].as_array()?;
    data.iter().map(Value::as_f64).collect()
}

fn answer(result: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Answer {
    let text = result.and_then(|mut response| {
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(1 << 30).read_to_string()?;
        Ok((status, body))
    });
    match text {
        Ok((status, body)) => Answer::Said(status, serde_json::from_str(&body).unwrap_or_default()),
        Err(ureq::Error::Timeout(_)) => Answer::Late,
        Err(error) => Answer::Gone(error.to_string()),
    }
}
