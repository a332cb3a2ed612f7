//! A request while it is served: its log span, its final log line, and its trace.

use crate::access::NO_KEY;
use crate::catalog::ModelEntry;
use crate::fault::{self, Fault};
use crate::shed::{self, Shed};
use crate::state::ServerState;
use crate::trace::Steps;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use lgp_distributed::ms;
use lgp_sdk::cluster::TaskId;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{
    SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
    Tracer,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer};
use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tonic::Code;
use tracing::{Instrument, Span, field};

/// The most characters of a request's own id that the log repeats.
const ID_CHARS_MAX: usize = 64;

/// Routes that monitoring programs poll. They are traced only if the request brings a trace.
const WATCHED: [&str; 8] = [
    "/metrics",
    // Immich polls this route of its machine learning.
    "/ping",
    "/healthz",
    "/readyz",
    "/v2/health/live",
    "/v2/health/ready",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
];

/// A request in progress. Clones refer to the same request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    span: Span,
    /// The request's span in its trace.
    context: Context,
    /// The caller's id; all programs without a key share one.
    caller: Arc<str>,
}

impl Call {
    /// A request that arrived outside these interfaces, without a span.
    pub(crate) fn unseen() -> Self {
        Self { span: Span::none(), context: Context::new(), caller: nobody() }
    }

    /// A sub-request of this one: in the same trace, without a log span.
    pub(crate) fn within(&self) -> Self {
        let caller = Arc::clone(&self.caller);
        Self { span: Span::none(), context: self.context.clone(), caller }
    }

    /// A message of a stream that this request opened. Each message gets its own log span, because a span keeps
    /// every recorded field until it ends.
    pub(crate) fn message(&self) -> Self {
        let context = self.context.clone();
        let trace = context.span().span_context().trace_id();
        let span = line("POST", "/inference.GRPCInferenceService/ModelStreamInfer", trace);
        Self { span, context, caller: Arc::clone(&self.caller) }
    }

    fn begin(request: &Request, tracer: &SdkTracer) -> Self {
        let route = request.extensions().get::<MatchedPath>().map_or("-", MatchedPath::as_str);
        let method = known(request.method());
        let above = above(request.headers());
        let context = match WATCHED.contains(&route) && !above.has_active_span() {
            true => above.with_remote_span_context(untraced()),
            false => {
                let attributes = [("http.request.method", method), ("http.route", route)]
                    .map(|(name, value)| KeyValue::new(name, value.to_owned()));
                let builder = tracer.span_builder(format!("{method} {route}"));
                served(builder.with_attributes(attributes), tracer, &above)
            }
        };
        let trace = context.span().span_context().trace_id();
        Self { span: line(method, route, trace), context, caller: nobody() }
    }

    /// An image from Frigate's detector, which never brings a trace.
    pub(crate) fn of_image(tracer: &SdkTracer) -> Self {
        let context = served(tracer.span_builder("IMAGE frigate"), tracer, &Context::new());
        let trace = context.span().span_context().trace_id();
        Self { span: line("IMAGE", "frigate", trace), context, caller: nobody() }
    }

    /// The request's log span.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Sets the caller's id.
    pub(crate) fn comes_from(&mut self, caller: &str) {
        if *self.caller != *caller {
            self.caller = caller.into();
        }
    }

    /// The caller's id.
    pub(crate) fn caller(&self) -> &Arc<str> {
        &self.caller
    }

    /// Adds the model to the log span.
    pub(crate) fn about(&self, entry: &ModelEntry) {
        self.span.record("model", field::display(entry.model()));
    }

    /// Adds the task to the log span.
    pub(crate) fn runs(&self, task: TaskId) {
        self.span.record("task", field::display(task));
    }

    /// Adds the client's id of the request to the log span.
    pub(crate) fn named(&self, id: &str) {
        let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        let id: String = id.chars().take(ID_CHARS_MAX).map(shown).collect();
        self.span.record("id", id);
    }

    /// The request's trace, if it is sampled.
    pub(crate) fn kept_trace(&self) -> Option<TraceId> {
        let span = self.context.span();
        let context = span.span_context();
        context.is_sampled().then(|| context.trace_id())
    }

    /// Writes the steps of a finished inference to the trace.
    pub(crate) fn inferred(&self, tracer: &SdkTracer, steps: Steps, error: Option<&'static str>) {
        if self.kept_trace().is_some() {
            steps.write(tracer, &self.context, error);
        }
    }

    fn answered(&self, response: &Response, took: Duration, shed: &Shed) {
        let status = response.status().as_u16();
        let grpc = tonic::Status::from_header_map(response.headers()).map(|status| status.code());
        let ours = [Code::Unknown, Code::Internal, Code::Unavailable, Code::DataLoss];
        let failed = status >= 500 || grpc.is_some_and(|code| ours.contains(&code));
        let span = self.context.span();
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
        if let Some(code) = grpc {
            span.set_attribute(KeyValue::new("rpc.grpc.status_code", i64::from(i32::from(code))));
        }
        if failed {
            span.set_status(Status::error("the server is to blame"));
        }
        span.end();
        let duration_ms = ms(took);
        // An overloaded server must not write a log line for every refused request.
        let is_shed = failed && shed::is_told_seldom(fault::code_of(response));
        let untold = if is_shed { shed.tell(Instant::now()) } else { Some(0) };
        let grpc = grpc.map(field::debug);
        self.span.in_scope(|| match (failed, untold) {
            (true, Some(0)) => tracing::info!(status, grpc, duration_ms, "request failed"),
            (true, Some(untold)) => {
                tracing::info!(status, grpc, duration_ms, untold, "request failed");
            }
            _ => tracing::debug!(status, grpc, duration_ms, "request answered"),
        });
    }

    /// Ends the span of an image. A camera's next image follows at once and may fail in the same way, so the log
    /// line has a level that is off by default.
    pub(crate) fn image_answered(&self, fault: Option<&Fault>, took: Duration) {
        let span = self.context.span();
        if let Some(fault) = fault {
            span.set_attribute(KeyValue::new("error.type", fault.code));
            span.set_status(Status::error(fault.code));
        }
        span.end();
        let status = fault.map_or(StatusCode::OK, |fault| fault.status).as_u16();
        let duration_ms = ms(took);
        self.span.in_scope(|| tracing::debug!(status, duration_ms, "request answered"));
    }
}

/// The id of callers without a key.
fn nobody() -> Arc<str> {
    static NOBODY: LazyLock<Arc<str>> = LazyLock::new(|| NO_KEY.into());
    Arc::clone(&NOBODY)
}

/// Begins the server's span of a trace.
fn served(builder: SpanBuilder, tracer: &SdkTracer, above: &Context) -> Context {
    let builder = builder.with_kind(SpanKind::Server);
    above.with_span(tracer.build_with_context(builder, above))
}

/// The log span of a request.
fn line(method: &str, route: &str, trace: TraceId) -> Span {
    let (id, model, task) = (field::Empty, field::Empty, field::Empty);
    // The level `error` keeps the span in each line at every log level.
    tracing::error_span!(parent: None, "request", method, route, %trace, id, model, task)
}

/// The method's name, or a fixed one for a non-standard method, which could be long.
fn known(method: &Method) -> &str {
    let all = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::PATCH,
    ];
    if all.contains(method) { method.as_str() } else { "_OTHER" }
}

/// The remote span of a request, without its vendors' state, which may be long.
fn above(headers: &HeaderMap) -> Context {
    let given = TraceContextPropagator::new();
    let given = given.extract_with_context(&Context::new(), &HeaderExtractor(headers));
    if !given.has_active_span() {
        return given;
    }
    let context = given.span().span_context().clone();
    let (trace, span, flags) = (context.trace_id(), context.span_id(), context.trace_flags());
    let short = SpanContext::new(trace, span, flags, true, TraceState::default());
    Context::new().with_remote_span_context(short)
}

/// A trace id that is not sampled, for the log lines.
fn untraced() -> SpanContext {
    let ids = RandomIdGenerator::default();
    let (trace, span) = (ids.new_trace_id(), ids.new_span_id());
    SpanContext::new(trace, span, TraceFlags::default(), false, TraceState::default())
}

impl<S: Send + Sync> FromRequestParts<S> for Call {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_else(Self::unseen))
    }
}

/// Middleware that gives each request a log span, a final log line, and a trace for the collector.
pub(crate) async fn observed(
    State(state): State<ServerState>,
    mut request: Request,
    next: Next,
) -> Response {
    let call = Call::begin(&request, state.tracing().tracer());
    request.extensions_mut().insert(call.clone());
    let began = Instant::now();
    let response = next.run(request).instrument(call.span()).await;
    call.answered(&response, began.elapsed(), state.shed());
    response
}
