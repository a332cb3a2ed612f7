//! The spans of an inference, made after its end: decoding, waiting, each attempt with the model's run on its
//! worker and that run's nodes, encoding.

use crate::catalog::ModelEntry;
use lgp_distributed::{AttemptRecord, NodeTime, RunTrace};
use lgp_sdk::cluster::{Coordinator, TaskRecord};
use opentelemetry::trace::{Span, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;
use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

/// Start and end.
type Time = (Instant, Instant);

/// The steps of an inference, as far as it got.
#[derive(Debug)]
pub(crate) struct Steps {
    began: Instant,
    /// The model that answered.
    pub(crate) model: ModelEntry,
    pub(crate) decode: Option<Time>,
    pub(crate) task: Option<Ran>,
    pub(crate) encode: Option<Time>,
}

/// A task that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    time: Time,
    id: String,
    /// Each attempt, with the trace that its worker reported.
    tries: Vec<(AttemptRecord, Option<RunTrace>)>,
    error: Option<&'static str>,
}

impl Ran {
    /// Pass the coordinator if the task was traced; it has the traces of runs.
    pub(crate) fn of(
        record: &TaskRecord,
        submitted: Instant,
        coordinator: Option<&Coordinator>,
    ) -> Self {
        let told = |attempt: &AttemptRecord| {
            let trace = coordinator.and_then(|it| it.run_trace(record.task_id, attempt.attempt));
            (attempt.clone(), trace)
        };
        Self {
            time: (submitted, Instant::now()),
            id: record.task_id.to_string(),
            tries: record.tries.iter().map(told).collect(),
            error: record.error.as_ref().map(|error| error.code.name()),
        }
    }
}

/// A finished span.
struct Part {
    name: Cow<'static, str>,
    kind: SpanKind,
    time: Time,
    attributes: Vec<KeyValue>,
    error: Option<&'static str>,
}

impl Part {
    fn new(name: impl Into<Cow<'static, str>>, time: Time) -> Self {
        let (kind, attributes, name) = (SpanKind::Internal, Vec::new(), name.into());
        Self { name, kind, time, attributes, error: None }
    }
}

/// Writes spans below others.
struct Scribe<'a> {
    tracer: &'a SdkTracer,
    /// The same moment on both clocks.
    now: (Instant, SystemTime),
}

impl Scribe<'_> {
    fn at(&self, moment: Instant) -> SystemTime {
        let (now, time) = self.now;
        time.checked_sub(now.saturating_duration_since(moment)).unwrap_or(time)
    }

    /// Writes a span and returns the context for its children.
    fn put(&self, above: &Context, part: Part) -> Context {
        let (began, ended) = part.time;
        let builder = self.tracer.span_builder(part.name).with_kind(part.kind);
        let builder = builder.with_start_time(self.at(began)).with_attributes(part.attributes);
        let mut span = self.tracer.build_with_context(builder, above);
        if let Some(error) = part.error {
            span.set_attribute(KeyValue::new("error.type", error));
            span.set_status(Status::error(error));
        }
        span.end_with_timestamp(self.at(ended));
        above.with_remote_span_context(span.span_context().clone())
    }
}

impl Steps {
    /// Begins an inference of a model, which an alias may replace later.
    pub(crate) fn begin(model: &ModelEntry) -> Self {
        let (began, model) = (Instant::now(), model.clone());
        Self { began, model, decode: None, task: None, encode: None }
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Ends the inference, with or without an error, and writes its spans below `above`.
    pub(crate) fn write(self, tracer: &SdkTracer, above: &Context, error: Option<&'static str>) {
        let now = Instant::now();
        let scribe = Scribe { tracer, now: (now, SystemTime::now()) };
        let attributes = vec![KeyValue::new("lgp.model", self.model.model().to_string())];
        let whole = Part { attributes, error, ..Part::new("inference", (self.began, now)) };
        let above = scribe.put(above, whole);
        if let Some(time) = self.decode {
            scribe.put(&above, Part::new("decode", time));
        }
        if let Some(task) = self.task {
            task.write(&scribe, &above);
        }
        if let Some(time) = self.encode {
            scribe.put(&above, Part::new("encode", time));
        }
    }
}

impl Ran {
    fn write(self, scribe: &Scribe<'_>, above: &Context) {
        let (submitted, ended) = self.time;
        let attributes = vec![KeyValue::new("lgp.task", self.id)];
        let part = Part { attributes, error: self.error, ..Part::new("task", self.time) };
        let above = scribe.put(above, part);
        let at = |ms: f64| submitted.checked_add(after(ms)).unwrap_or(ended).min(ended);
        // The time between attempts is waiting. A hedged attempt begins before the other ends.
        let mut waits_since = submitted;
        for (attempt, told) in &self.tries {
            let sent = at(attempt.sent_ms);
            if sent >= waits_since {
                scribe.put(&above, Part::new("queue", (waits_since, sent)));
            }
            let over = attempt.ended_ms.map_or(ended, at);
            waits_since = waits_since.max(over);
            write_attempt(scribe, &above, (attempt, told.as_ref()), (sent, over));
        }
        if self.tries.is_empty() {
            scribe.put(&above, Part::new("queue", self.time));
        }
    }
}

fn write_attempt(
    scribe: &Scribe<'_>,
    above: &Context,
    (attempt, told): (&AttemptRecord, Option<&RunTrace>),
    time: Time,
) {
    let place = vec![
        KeyValue::new("lgp.worker", attempt.worker.to_string()),
        KeyValue::new("lgp.device", attempt.device.to_string()),
    ];
    let mut attributes = place.clone();
    attributes.push(KeyValue::new("lgp.attempt", i64::from(attempt.attempt)));
    let part = Part {
        kind: SpanKind::Client,
        attributes,
        error: attempt.error.map(|error| error.name()),
        ..Part::new("attempt", time)
    };
    let above = scribe.put(above, part);
    let Some(ms) = attempt.model_ms else { return };
    // The worker measures the run's duration on its own clock, so the ways there and back are assumed to take
    // equally long.
    let (sent, over) = time;
    let whole = over.saturating_duration_since(sent);
    let took = after(ms).min(whole);
    let waited = told.map_or(Duration::ZERO, |told| told.waited).min(whole - took);
    let arrived = sent + (whole - took - waited) / 2;
    let began = arrived + waited;
    if told.is_some() {
        let attributes = place.clone();
        scribe.put(
            &above,
            Part {
                kind: SpanKind::Server,
                attributes,
                ..Part::new("device_queue", (arrived, began))
            },
        );
    }
    let run = (began, began + took);
    let part = Part { kind: SpanKind::Server, attributes: place, ..Part::new("model", run) };
    let above = scribe.put(&above, part);
    for node in told.iter().flat_map(|told| &told.nodes) {
        write_node(scribe, &above, node, run);
    }
}

/// Writes the span of a run's node, named after its operator.
fn write_node(scribe: &Scribe<'_>, above: &Context, node: &NodeTime, (began, ended): Time) {
    let at = |ns: u64| began.checked_add(Duration::from_nanos(ns)).unwrap_or(ended).min(ended);
    let time = (at(node.start_ns), at(node.start_ns.saturating_add(node.took_ns)));
    let attributes = vec![KeyValue::new("lgp.node", node.name.clone())];
    scribe.put(above, Part { attributes, ..Part::new(node.op.clone(), time) });
}

fn after(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}
