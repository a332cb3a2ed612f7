//! The answer to a refused request: a status, a stable code, a message that names what was wrong and what was
//! expected, and a hint. Each API family renders it in its own JSON shape.

use crate::grpc;
use crate::place::Place;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::borrow::Cow;
use std::time::Duration;

/// The `Retry-After` of an overloaded or unready server.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Longest message in bytes. A message may quote the request, which can be as long as a body, and gRPC sends it in
/// a header, whose length clients limit.
const MESSAGE_BYTES_MAX: usize = 2048;
/// A cut message keeps this many bytes of its end, which says what was expected.
const END_BYTES: usize = 512;

/// The code of a refusal, attached to its response within the server.
#[derive(Debug, Clone, Copy)]
struct Code(&'static str);

/// The code of a response that is a refusal, for every protocol.
pub(crate) fn code_of(response: &Response) -> Option<&str> {
    let known = response.extensions().get::<Code>().map(|code| code.0);
    known.or_else(|| response.headers().get(grpc::CODE)?.to_str().ok())
}

/// A refusal, independent of the API family.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    /// Where the failed task ran.
    pub(crate) place: Option<Box<Place>>,
}

impl Fault {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), hint: None, retry_after: None, place: None }
    }

    /// 400: the input cannot be used.
    pub(crate) fn bad_input(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_input", message)
    }

    /// 404.
    pub(crate) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// 409.
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    /// 501: a valid request for a feature that is not built.
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "unsupported", message)
    }

    /// 503 with `Retry-After`.
    pub(crate) fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        let mut fault = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        fault.retry_after = Some(RETRY_AFTER);
        fault
    }

    /// 500: the cause goes to the log, never to the client.
    pub(crate) fn internal(cause: impl std::fmt::Display) -> Self {
        tracing::error!(%cause, "request failed");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "internal error; the server's log has the cause",
        )
        .hint("radeon-cluster logs --level error")
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Adds the place where a task failed, also to the message.
    pub(crate) fn at(mut self, place: Option<Place>) -> Self {
        if let Some(place) = place {
            self.message = format!("{} ({place})", self.message);
            self.place = Some(Box::new(place));
        }
        self
    }

    /// The message for a client; a long one is cut in the middle.
    pub(crate) fn told(&self) -> Cow<'_, str> {
        let text = self.message.as_str();
        if text.len() <= MESSAGE_BYTES_MAX {
            return Cow::Borrowed(text);
        }
        let begin = text.get(..text.floor_char_boundary(MESSAGE_BYTES_MAX - END_BYTES));
        let end = text.get(text.ceil_char_boundary(text.len() - END_BYTES)..);
        Cow::Owned([begin.unwrap_or_default(), " … ", end.unwrap_or_default()].concat())
    }

    /// The answer in the shape of the API family that `path` belongs to.
    pub(crate) fn for_path(self, path: &str) -> Response {
        if path.starts_with("/api/") {
            ClusterError(self).into_response()
        } else if grpc::is_path(path) {
            grpc::respond(self)
        } else {
            OipError(self).into_response()
        }
    }

    /// The answer, with a body in the caller's shape.
    pub(crate) fn respond(self, body: &serde_json::Value) -> Response {
        let mut response = (self.status, axum::Json(body)).into_response();
        response.extensions_mut().insert(Code(self.code));
        if let Some(delay) = self.retry_after {
            // Fractions of a second round up, because `Retry-After: 0` would invite a busy loop.
            let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if let Some(place) = &self.place {
            place.add_to(response.headers_mut());
        }
        response
    }
}

/// A refusal in the Open Inference Protocol's shape: `{"error":"message"}`.
#[derive(Debug)]
pub(crate) struct OipError(pub(crate) Fault);

/// A refusal in the cluster API's shape: `{"error":{"code","message","hint"}}`.
#[derive(Debug)]
pub(crate) struct ClusterError(pub(crate) Fault);

impl From<Fault> for OipError {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

impl From<Fault> for ClusterError {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

impl IntoResponse for OipError {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.0.told() });
        self.0.respond(&body)
    }
}

impl IntoResponse for ClusterError {
    fn into_response(self) -> Response {
        let body = json!({
            "error": { "code": self.0.code, "message": self.0.told(), "hint": self.0.hint }
        });
        self.0.respond(&body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_rounds_up_to_whole_seconds() {
        for (delay_ms, expected) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (5000, "5")] {
            let fault =
                Fault::unavailable("overloaded", "x").retry_after(Duration::from_millis(delay_ms));
            let response = fault.for_path("/v2");
            assert_eq!(response.headers()["retry-after"], expected, "{delay_ms} ms");
        }
    }
}
