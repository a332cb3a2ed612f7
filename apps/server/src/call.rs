//! A request while it is served: what lines of the log say of it, and the line that ends it.

use crate::catalog::ModelEntry;
use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use lgp_sdk::TaskId;
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tonic::{Code, Status};
use tracing::{Instrument, Span, field};

/// Characters of a request's own id that lines of the log repeat.
const ID_CHARS_MAX: usize = 64;

/// A request under way. Clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    span: Span,
}

impl Call {
    /// What is asked for in another way than these interfaces have.
    pub(crate) fn unseen() -> Self {
        Self { span: Span::none() }
    }

    fn begin(request: &Request) -> Self {
        let route = request.extensions().get::<MatchedPath>().map_or("-", MatchedPath::as_str);
        let method = request.method().as_str();
        let (id, model, task) = (field::Empty, field::Empty, field::Empty);
        // Of the level of what is always logged: each line has it, whatever the log leaves out.
        Self { span: tracing::error_span!("request", method, route, id, model, task) }
    }

    /// What lines of the log say of the request.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// It is about a model.
    pub(crate) fn about(&self, entry: &ModelEntry) {
        self.span.record("model", field::display(entry.model()));
    }

    /// It waits for a task.
    pub(crate) fn runs(&self, task: TaskId) {
        self.span.record("task", field::display(task));
    }

    /// Its client has an id for it.
    pub(crate) fn named(&self, id: &str) {
        let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        let id: String = id.chars().take(ID_CHARS_MAX).map(shown).collect();
        self.span.record("id", id);
    }

    fn answered(&self, response: &Response, took: Duration) {
        let status = response.status().as_u16();
        let grpc = Status::from_header_map(response.headers()).map(|status| status.code());
        let ours = [Code::Unknown, Code::Internal, Code::Unavailable, Code::DataLoss];
        let failed = status >= 500 || grpc.is_some_and(|code| ours.contains(&code));
        let duration_ms = took.as_secs_f64() * 1e3;
        let grpc = grpc.map(|code| field::debug(code));
        self.span.in_scope(|| match failed {
            true => tracing::info!(status, grpc, duration_ms, "request failed"),
            false => tracing::debug!(status, grpc, duration_ms, "request answered"),
        });
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Call {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_else(Self::unseen))
    }
}

/// Middleware that has each line of the log say which request it is about, and a line end it.
pub(crate) async fn observed(mut request: Request, next: Next) -> Response {
    let call = Call::begin(&request);
    request.extensions_mut().insert(call.clone());
    let began = Instant::now();
    let response = next.run(request).instrument(call.span()).await;
    call.answered(&response, began.elapsed());
    response
}
