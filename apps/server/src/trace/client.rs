//! How spans reach the collector: the exporter's own thread sends them, and has nothing else to do.

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use std::time::Duration;
use ureq::Agent;

/// How long one attempt may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What is read of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Client(Agent);

impl Client {
    pub(super) fn new() -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None);
        Self(Agent::new_with_config(config.build()))
    }
}

#[tonic::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let response = self.0.run(Request::from_parts(parts, &body[..]))?;
        let (parts, mut body) = response.into_parts();
        let bytes = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(Response::from_parts(parts, bytes.into()))
    }
}
