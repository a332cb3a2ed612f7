//! Refusals as responses, in the shape of each API family.

use super::Fault;
use crate::grpc;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// The code of a refusal, attached to its response within the server.
#[derive(Debug, Clone, Copy)]
struct Code(&'static str);

/// The code of a response that is a refusal, for every protocol.
pub(crate) fn code_of(response: &Response) -> Option<&str> {
    let known = response.extensions().get::<Code>().map(|code| code.0);
    known.or_else(|| response.headers().get(grpc::CODE)?.to_str().ok())
}

impl Fault {
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
    use std::time::Duration;

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
