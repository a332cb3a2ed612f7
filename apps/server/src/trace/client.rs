//! Sends spans to the collector, on the exporter's own thread.

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use ureq::Agent;

/// The time limit of one attempt.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// The most characters of a collector's message that are logged.
const WHY_CHARS_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    rejected: Arc<AtomicU64>,
    /// Whether the collector rejected some spans of the last message.
    is_rejecting: AtomicBool,
}

/// The collector's answer: OTLP's `ExportTraceServiceResponse`.
#[derive(Clone, PartialEq, Message)]
struct Taken {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

impl Client {
    /// `rejected` is set to the spans that the collector rejected from the last accepted message.
    pub(super) fn new(rejected: Arc<AtomicU64>) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None);
        let agent = Agent::new_with_config(config.build());
        Self { agent, rejected, is_rejecting: AtomicBool::new(false) }
    }

    /// Records how many spans of a message the collector rejected.
    fn note(&self, answer: &[u8]) {
        // An invalid answer counts as no rejection.
        let partial = Taken::decode(answer).unwrap_or_default().partial_success.unwrap_or_default();
        let spans = u64::try_from(partial.rejected_spans).unwrap_or(0);
        self.rejected.store(spans, Relaxed);
        if !self.is_rejecting.swap(spans > 0, Relaxed) && spans > 0 {
            let why: String = partial.error_message.chars().take(WHY_CHARS_MAX).collect();
            tracing::warn!(spans, ?why, "the collector of traces rejects spans");
        }
    }
}

#[tonic::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let response = self.agent.run(Request::from_parts(parts, &body[..]))?;
        let (parts, mut body) = response.into_parts();
        let bytes = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        if parts.status.is_success() {
            self.note(&bytes);
        }
        Ok(Response::from_parts(parts, bytes.into()))
    }
}
