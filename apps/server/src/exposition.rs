//! `/metrics` in the Prometheus text format. Names with `nv_` are Triton's, so that its dashboards work; the
//! platform's own names begin with `lgp_`.

mod devices;
mod openmetrics;
mod page;

use crate::access::Caller;
use crate::cluster::{leave_out, may_see};
use crate::fault::{Fault, OipError};
use crate::metrics::{BOUNDS_US, FailureReason, LATENCY_US, ModelKey, ModelReading};
use crate::state::ServerState;
use crate::trace::Counts;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use lgp_distributed::{Stats, Traffic};
use page::{Number, Page, label};
use prometheus::TextEncoder;
use prometheus::proto::{LabelPair, MetricFamily, MetricType};
use std::collections::HashMap;

pub(crate) use openmetrics::OPENMETRICS;

/// The media type of the text format.
pub(crate) const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /metrics`.
pub(crate) async fn metrics(
    State(state): State<ServerState>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, OipError> {
    let mut models = state.metrics().read();
    models.retain(|((name, version), _)| may_see(&state, &caller, (name, *version)));
    let mut stats = state.coordinator().stats();
    // The number of named models is limited, so models without a name may have queues too.
    let are_all = stats.queued_by_model.values().sum::<u64>() >= stats.runnable;
    leave_out(&state, &caller, &mut stats);
    let mut families = families((&stats, are_all), &models, &state.sequences().open());
    families.extend(traffic(&state.coordinator().traffic()));
    families.extend(devices::families(&state.coordinator().workers()));
    if let Some(counts) = state.tracing().counts() {
        families.extend(spans(counts));
    }
    let exemplars = models.iter().flat_map(|(_, reading)| reading.latency.exemplars);
    let (text, format) = match openmetrics::is_wanted(&headers) {
        true => (openmetrics::page(&families, exemplars), OPENMETRICS),
        false => (TextEncoder::new().encode_to_string(&families), FORMAT),
    };
    let text = text.map_err(|error| Fault::internal(error.to_string()))?;
    let headers = [(header::CONTENT_TYPE, format), (header::VARY, header::ACCEPT.as_str())];
    Ok((headers, text).into_response())
}

fn families(
    (stats, are_all): (&Stats, bool),
    models: &[(ModelKey, ModelReading)],
    sequences: &HashMap<ModelKey, u64>,
) -> Vec<MetricFamily> {
    let mut page = Page::default();
    // Without models there are no samples of models.
    if !models.is_empty() {
        inference(&mut page, models);
        times(&mut page, models);
        answers(&mut page, models);
        let open = models
            .iter()
            .map(|(key, _)| (model_labels(key), sequences.get(key).copied().unwrap_or_default()));
        page.numbers(("lgp_sequences", Number::Gauge, "Sequences that are open"), open);
    }
    queues(&mut page, (stats, are_all), models);
    cluster(&mut page, stats);
    page.families()
}

/// A metric of each model: its name, its help text, and how it is read.
type Column = (&'static str, &'static str, fn(&ModelReading) -> u64);

/// Triton's counters, and those of shadows.
const COLUMNS: [Column; 12] = [
    ("nv_inference_request_success", "Requests answered", |r| r.success),
    ("nv_inference_count", "Inferences that the model ran, each row of a batch counted", |r| {
        r.inferences
    }),
    (
        "nv_inference_exec_count",
        "Model executions, each batch counted once, repeated attempts included",
        |r| r.executions,
    ),
    ("nv_cache_num_hits_per_model", "Requests answered from the model's response cache", |r| {
        r.cache_hits
    }),
    (
        "nv_cache_num_misses_per_model",
        "Requests whose answer was not in the model's response cache",
        |r| r.cache_misses,
    ),
    ("lgp_shadow_requests_total", "Copies of requests that the model ran as a shadow", |r| {
        r.shadow_requests
    }),
    ("lgp_shadow_differences_total", "Copies whose outputs differed from the answer", |r| {
        r.shadow_differences
    }),
    ("nv_inference_request_duration_us", "Time of answered requests", |r| r.request_ns / 1_000),
    ("nv_inference_queue_duration_us", "Time spent waiting for a worker", |r| r.queue_ns / 1_000),
    ("nv_inference_compute_input_duration_us", "Time spent reading inputs", |r| {
        r.compute_input_ns / 1_000
    }),
    ("nv_inference_compute_infer_duration_us", "Time spent in the model", |r| {
        r.compute_infer_ns / 1_000
    }),
    ("nv_inference_compute_output_duration_us", "Time spent writing outputs", |r| {
        r.compute_output_ns / 1_000
    }),
];

/// Triton's counters, for requests by the Open Inference Protocol.
fn inference(page: &mut Page, models: &[(ModelKey, ModelReading)]) {
    for (name, help, value) in COLUMNS {
        let samples = models.iter().map(|(key, reading)| (model_labels(key), value(reading)));
        page.numbers((name, Number::Counter, help), samples);
    }
    let failures = models.iter().flat_map(|(key, reading)| {
        FailureReason::ALL.map(|reason| {
            let mut labels = model_labels(key);
            labels.push(label("reason", reason.name()));
            (labels, reading.failures(reason))
        })
    });
    let name = "nv_inference_request_failure";
    page.numbers((name, Number::Counter, "Requests refused or failed, by reason"), failures);
}

/// Waiting requests of each model: for a worker, including tasks of the cluster API, or for their turn in a
/// sequence. If all models with queues are named, the others have empty ones.
fn queues(page: &mut Page, (stats, are_all): (&Stats, bool), models: &[(ModelKey, ModelReading)]) {
    let mut queued = stats.queued_by_model.clone();
    let asked = models.iter().filter_map(|(key, reading)| {
        let named = queued.remove(&format!("{}/{}", key.0, key.1));
        let depth = named.or_else(|| are_all.then_some(0))?;
        Some((model_labels(key), depth.saturating_add(reading.turns)))
    });
    let mut samples: Vec<_> = asked.collect();
    samples.extend(queued.iter().filter_map(|(model, depth)| {
        let (name, version) = model.rsplit_once('/')?;
        Some((vec![label("model", name), label("version", version)], *depth))
    }));
    if !samples.is_empty() {
        let help = "Requests and tasks that wait and that no worker has been given";
        page.numbers(("nv_inference_pending_request_count", Number::Gauge, help), samples);
    }
}

/// Latencies of the same requests, and the cluster's overhead in them.
fn times(page: &mut Page, models: &[(ModelKey, ModelReading)]) {
    let took = models.iter().map(|(key, reading)| {
        let histogram = &reading.latency.histogram;
        (model_labels(key), &histogram.buckets[..], histogram.sum_ns)
    });
    page.histogram((openmetrics::LATENCY, "Latency of answered requests"), &LATENCY_US, took);
    let added = models.iter().map(|(key, reading)| {
        (model_labels(key), &reading.overhead.buckets[..], reading.overhead.sum_ns)
    });
    let help = "Latency of answered requests outside queue and model";
    page.histogram(("lgp_inference_overhead_seconds", help), &BOUNDS_US, added);
}

/// Workers and devices that answered the same requests.
fn answers(page: &mut Page, models: &[(ModelKey, ModelReading)]) {
    let samples = models.iter().flat_map(|(key, reading)| {
        reading.places.iter().map(|(place, count)| {
            let mut labels = model_labels(key);
            labels.push(label("worker", place.worker.as_str()));
            labels.push(label("device", place.device.as_deref().unwrap_or_default()));
            (labels, *count)
        })
    });
    let samples: Vec<_> = samples.collect();
    if !samples.is_empty() {
        let help = "Requests answered, by the worker and the device that ran the model";
        page.numbers(("lgp_inference_answers_total", Number::Counter, help), samples);
    }
}

fn cluster(page: &mut Page, stats: &Stats) {
    let (workers, tasks) = (&stats.workers, &stats.tasks);
    page.by_state(
        ("lgp_workers", Number::Gauge, "Workers by state"),
        &[
            ("ready", workers.ready),
            ("draining", workers.draining),
            ("away", workers.away),
            ("lost", workers.lost),
        ],
    );
    page.by_state(
        ("lgp_tasks", Number::Gauge, "Tasks that are not finished, by state"),
        &[("queued", tasks.queued), ("running", tasks.running)],
    );
    page.by_state(
        ("lgp_tasks_finished_total", Number::Counter, "Finished tasks by state"),
        &[("succeeded", tasks.succeeded), ("failed", tasks.failed), ("cancelled", tasks.cancelled)],
    );
    for (name, help, value) in [
        ("lgp_tasks_submitted_total", "Tasks accepted", tasks.submitted),
        ("lgp_tasks_refused_total", "Tasks refused because the queue was full", stats.overloaded),
        ("lgp_task_retries_total", "Attempts that had to be repeated", stats.retries),
        ("lgp_runs_overran_total", "Runs that were asked to stop at their limit", stats.overran),
        ("lgp_runs_hung_total", "Runs that did not stop when they were asked to", stats.hangs),
        (
            "lgp_stale_completions_total",
            "Answers refused because their attempt was no longer current",
            stats.stale_completions,
        ),
    ] {
        page.numbers((name, Number::Counter, help), [(Vec::new(), value)]);
    }
    let metric = Number::Gauge.metric(Vec::new(), stats.uptime_s);
    let help = "Time since the coordinator started";
    page.family("lgp_uptime_seconds", MetricType::GAUGE, help, vec![metric]);
    for (name, help, values) in [
        ("lgp_task_latency_seconds", "Latency of tasks that succeeded", &stats.latency_ms),
        ("lgp_task_queued_seconds", "Time of tasks before their last dispatch", &stats.queued_ms),
        ("lgp_task_model_seconds", "Time of tasks in the model", &stats.model_ms),
        (
            "lgp_task_overhead_seconds",
            "Latency of tasks outside queue and model",
            &stats.overhead_ms,
        ),
    ] {
        page.summary(name, help, values);
    }
}

/// Traffic between the coordinator and the connected workers. A worker's traffic ends with its connection.
fn traffic(traffic: &Traffic) -> Vec<MetricFamily> {
    let mut page = Page::default();
    for (name, help, sent, received) in [
        (
            "lgp_quic_bytes",
            "Bytes of UDP payload over the present connections of workers",
            traffic.sent_bytes,
            traffic.received_bytes,
        ),
        (
            "lgp_quic_datagrams",
            "UDP datagrams over the present connections of workers",
            traffic.sent_datagrams,
            traffic.received_datagrams,
        ),
    ] {
        let samples = [("sent", sent), ("received", received)]
            .map(|(direction, count)| (vec![label("direction", direction)], count));
        page.numbers((name, Number::Gauge, help), samples);
    }
    page.families()
}

/// Counts of sent and dropped spans.
fn spans(counts: &Counts) -> Vec<MetricFamily> {
    let mut page = Page::default();
    let help = "Spans of messages that the collector has answered well";
    let sent = [(Vec::new(), counts.sent())];
    page.numbers(("lgp_trace_spans_sent_total", Number::Counter, help), sent);
    let help = "Spans that found no room, or that the collector did not take";
    let dropped = counts.dropped().map(|(reason, spans)| (vec![label("reason", reason)], spans));
    page.numbers(("lgp_trace_spans_dropped_total", Number::Counter, help), dropped);
    page.families()
}

fn model_labels((name, version): &ModelKey) -> Vec<LabelPair> {
    vec![label("model", name), label("version", &version.to_string())]
}
