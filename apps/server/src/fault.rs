//! The answer to a refused request: a status, a stable code, a message that names what was wrong and what was
//! expected, and a hint. Each API family renders it in its own JSON shape.

mod answer;

pub(crate) use answer::{ClusterError, OipError, code_of};

use crate::place::Place;
use axum::http::StatusCode;
use std::borrow::Cow;
use std::time::Duration;

/// The `Retry-After` of an overloaded or unready server.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Longest message in bytes. A message may quote the request, which can be as long as a body, and gRPC sends it in
/// a header, whose length clients limit.
const MESSAGE_BYTES_MAX: usize = 2048;
/// A cut message keeps this many bytes of its end, which says what was expected.
const END_BYTES: usize = 512;

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
}
