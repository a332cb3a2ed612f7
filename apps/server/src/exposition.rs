//! `/metrics`: the Prometheus text format. Names that begin with `nv_` are Triton's, so that
//! dashboards made for it work; the platform's own begin with `lgp_`.

mod devices;

use crate::fault::{Fault, OipError};
use crate::metrics::{BOUNDS_US, FailureReason, ModelKey, ModelReading};
use crate::state::ServerState;
use crate::trace::Counts;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use lgp_sdk::{Percentiles, Stats};
use prometheus::TextEncoder;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType, Quantile,
    Summary,
};
use std::time::Duration;

/// The media type of the text format.
pub(crate) const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /metrics`.
pub(crate) async fn metrics(State(state): State<ServerState>) -> Result<Response, OipError> {
    let mut families = families(&state.coordinator().stats(), &state.metrics().read());
    families.extend(devices::families(&state.coordinator().workers()));
    if let Some(counts) = state.tracing().counts() {
        families.extend(spans(counts));
    }
    let text = TextEncoder::new().encode_to_string(&families);
    let text = text.map_err(|error| Fault::internal(error.to_string()))?;
    let format = HeaderValue::from_static(FORMAT);
    Ok(([(header::CONTENT_TYPE, format)], text).into_response())
}

fn families(stats: &Stats, models: &[(ModelKey, ModelReading)]) -> Vec<MetricFamily> {
    let mut page = Page::default();
    // Without a model there is nothing to say of any.
    if !models.is_empty() {
        inference(&mut page, models);
        overhead(&mut page, models);
        answers(&mut page, models);
    }
    cluster(&mut page, stats);
    page.0
}

/// Triton's counters, for requests that came through the Open Inference Protocol.
fn inference(page: &mut Page, models: &[(ModelKey, ModelReading)]) {
    type Column = (&'static str, Number, &'static str, fn(&ModelReading) -> u64);
    let columns: [Column; 11] = [
        ("nv_inference_request_success", Number::Counter, "Requests answered", |r| r.success),
        ("nv_inference_count", Number::Counter, "Inferences done", |r| r.success),
        (
            "nv_inference_exec_count",
            Number::Counter,
            "Model executions, repeated attempts included",
            |r| r.executions,
        ),
        (
            "nv_cache_num_hits_per_model",
            Number::Counter,
            "Requests answered from the model's response cache",
            |r| r.cache_hits,
        ),
        (
            "nv_cache_num_misses_per_model",
            Number::Counter,
            "Requests whose answer was not in the model's response cache",
            |r| r.cache_misses,
        ),
        ("nv_inference_pending_request_count", Number::Gauge, "Requests under way", |r| r.pending),
        ("nv_inference_request_duration_us", Number::Counter, "Time of answered requests", |r| {
            r.request_ns / 1_000
        }),
        (
            "nv_inference_queue_duration_us",
            Number::Counter,
            "Time spent waiting for a worker",
            |r| r.queue_ns / 1_000,
        ),
        (
            "nv_inference_compute_input_duration_us",
            Number::Counter,
            "Time spent reading inputs",
            |r| r.compute_input_ns / 1_000,
        ),
        (
            "nv_inference_compute_infer_duration_us",
            Number::Counter,
            "Time spent in the model",
            |r| r.compute_infer_ns / 1_000,
        ),
        (
            "nv_inference_compute_output_duration_us",
            Number::Counter,
            "Time spent writing outputs",
            |r| r.compute_output_ns / 1_000,
        ),
    ];
    for (name, number, help, value) in columns {
        let samples = models.iter().map(|(key, reading)| (model_labels(key), value(reading)));
        page.numbers((name, number, help), samples);
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

/// What the cluster added to the model's time, for the same requests.
fn overhead(page: &mut Page, models: &[(ModelKey, ModelReading)]) {
    let metrics = models.iter().map(|(key, reading)| {
        let mut seen = 0;
        let mut buckets = Vec::new();
        for (count, us) in reading.overhead.buckets.iter().zip(BOUNDS_US) {
            seen += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(Duration::from_micros(us).as_secs_f64());
            bucket.set_cumulative_count(seen);
            buckets.push(bucket);
        }
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(reading.overhead.buckets.iter().sum());
        histogram.set_sample_sum(Duration::from_nanos(reading.overhead.sum_ns).as_secs_f64());
        let mut metric = Metric::from_label(model_labels(key));
        metric.set_histogram(histogram);
        metric
    });
    let help = "Latency of answered requests outside queue and model";
    let metrics = metrics.collect();
    page.family("lgp_inference_overhead_seconds", MetricType::HISTOGRAM, help, metrics);
}

/// Who answered, for the same requests.
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

/// What became of the spans of traces.
fn spans(counts: &Counts) -> Vec<MetricFamily> {
    let mut page = Page::default();
    let help = "Spans that the collector has taken";
    let sent = [(Vec::new(), counts.sent())];
    page.numbers(("lgp_trace_spans_sent_total", Number::Counter, help), sent);
    let help = "Spans that found no room, or that the collector did not take";
    let dropped = counts.dropped().map(|(reason, spans)| (vec![label("reason", reason)], spans));
    page.numbers(("lgp_trace_spans_dropped_total", Number::Counter, help), dropped);
    page.0
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    label
}

fn model_labels((name, version): &ModelKey) -> Vec<LabelPair> {
    vec![label("model", name), label("version", &version.to_string())]
}

/// Kinds of metrics with one value.
#[derive(Clone, Copy)]
enum Number {
    Counter,
    Gauge,
}

impl Number {
    fn kind(self) -> MetricType {
        match self {
            Self::Counter => MetricType::COUNTER,
            Self::Gauge => MetricType::GAUGE,
        }
    }

    fn metric(self, labels: Vec<LabelPair>, value: f64) -> Metric {
        let mut metric = Metric::from_label(labels);
        match self {
            Self::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            Self::Gauge => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        }
        metric
    }
}

#[derive(Default)]
struct Page(Vec<MetricFamily>);

impl Page {
    fn family(&mut self, name: &str, kind: MetricType, help: &str, metrics: Vec<Metric>) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    fn numbers(
        &mut self,
        (name, number, help): (&str, Number, &str),
        samples: impl IntoIterator<Item = (Vec<LabelPair>, u64)>,
    ) {
        // Exact up to 2^53, and the format knows no other numbers.
        let samples = samples.into_iter().map(|(labels, value)| (labels, value as f64));
        self.measures((name, number, help), samples);
    }

    fn measures(
        &mut self,
        (name, number, help): (&str, Number, &str),
        samples: impl IntoIterator<Item = (Vec<LabelPair>, f64)>,
    ) {
        let metric = |(labels, value)| number.metric(labels, value);
        let metrics = samples.into_iter().map(metric).collect();
        self.family(name, number.kind(), help, metrics);
    }

    fn by_state(&mut self, family: (&str, Number, &str), states: &[(&str, u64)]) {
        let sample = |&(state, value): &(&str, u64)| (vec![label("state", state)], value);
        self.numbers(family, states.iter().map(sample));
    }

    fn summary(&mut self, name: &str, help: &str, values: &Percentiles) {
        let mut summary = Summary::default();
        // A summary without samples has no quantiles; zeros would read as very fast tasks.
        if values.count > 0 {
            let quantiles = [(0.5, values.p50), (0.95, values.p95), (0.99, values.p99)];
            let quantiles = quantiles.map(|(at, ms)| {
                let mut quantile = Quantile::default();
                quantile.set_quantile(at);
                quantile.set_value(ms / 1e3);
                quantile
            });
            summary.set_quantile(quantiles.to_vec());
        }
        // The mean times the count is the sum that the mean was made of.
        summary.set_sample_sum(values.mean * values.count as f64 / 1e3);
        summary.set_sample_count(values.count);
        let mut metric = Metric::default();
        metric.set_summary(summary);
        self.family(name, MetricType::SUMMARY, help, vec![metric]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_and_labels_escaped() {
        let mut page = Page::default();
        page.numbers(("m", Number::Counter, "help"), [(vec![label("a", "x\"\\\n")], 1)]);
        let text = TextEncoder::new().encode_to_string(&page.0).expect("a family with a metric");
        assert_eq!(text, "# HELP m help\n# TYPE m counter\nm{a=\"x\\\"\\\\\\n\"} 1\n");
    }
}
