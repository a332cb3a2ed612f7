//! `/metrics`: the Prometheus text format. Names that begin with `nv_` are Triton's, so that
//! dashboards made for it work; the platform's own begin with `lgp_`.

use crate::metrics::{BOUNDS_US, FailureReason, ModelKey, ModelReading};
use crate::state::ServerState;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use lgp_sdk::{Percentiles, Stats};
use std::fmt::{Display, Write};

/// `GET /metrics`.
pub(crate) async fn metrics(State(state): State<ServerState>) -> Response {
    let text = render(&state.coordinator().stats(), &state.metrics().read());
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, format)], text).into_response()
}

fn render(stats: &Stats, models: &[(ModelKey, ModelReading)]) -> String {
    let mut page = Page::default();
    inference(&mut page, models);
    overhead(&mut page, models);
    cluster(&mut page, stats);
    page.0
}

/// Triton's counters, for requests that came through the Open Inference Protocol.
fn inference(page: &mut Page, models: &[(ModelKey, ModelReading)]) {
    type Column = (&'static str, &'static str, &'static str, fn(&ModelReading) -> u64);
    let columns: [Column; 9] = [
        ("nv_inference_request_success", "counter", "Requests answered", |r| r.success),
        ("nv_inference_count", "counter", "Inferences done", |r| r.success),
        (
            "nv_inference_exec_count",
            "counter",
            "Model executions, repeated attempts included",
            |r| r.executions,
        ),
        ("nv_inference_pending_request_count", "gauge", "Requests under way", |r| r.pending),
        ("nv_inference_request_duration_us", "counter", "Time of answered requests", |r| {
            r.request_ns / 1_000
        }),
        ("nv_inference_queue_duration_us", "counter", "Time spent waiting for a worker", |r| {
            r.queue_ns / 1_000
        }),
        ("nv_inference_compute_input_duration_us", "counter", "Time spent reading inputs", |r| {
            r.compute_input_ns / 1_000
        }),
        ("nv_inference_compute_infer_duration_us", "counter", "Time spent in the model", |r| {
            r.compute_infer_ns / 1_000
        }),
        ("nv_inference_compute_output_duration_us", "counter", "Time spent writing outputs", |r| {
            r.compute_output_ns / 1_000
        }),
    ];
    for (name, kind, help, value) in columns {
        page.family(name, kind, help);
        for (key, reading) in models {
            page.sample(name, &model_labels(key), value(reading));
        }
    }
    let name = "nv_inference_request_failure";
    page.family(name, "counter", "Requests refused or failed, by reason");
    for (key, reading) in models {
        for reason in FailureReason::ALL {
            let mut labels = model_labels(key);
            labels.push(("reason", reason.name().to_owned()));
            page.sample(name, &labels, reading.failures(reason));
        }
    }
}

/// What the cluster added to the model's time, for the same requests.
fn overhead(page: &mut Page, models: &[(ModelKey, ModelReading)]) {
    let name = "lgp_inference_overhead_seconds";
    page.family(name, "histogram", "Latency of answered requests outside queue and model");
    for (key, reading) in models {
        let mut seen = 0;
        for (i, count) in reading.overhead.buckets.iter().enumerate() {
            seen += count;
            let bound = BOUNDS_US.get(i).map_or("+Inf".to_owned(), |&us| seconds(us * 1_000));
            let mut labels = model_labels(key);
            labels.push(("le", bound));
            page.sample(&format!("{name}_bucket"), &labels, seen);
        }
        let labels = model_labels(key);
        page.sample(&format!("{name}_sum"), &labels, seconds(reading.overhead.sum_ns));
        page.sample(&format!("{name}_count"), &labels, seen);
    }
}

fn cluster(page: &mut Page, stats: &Stats) {
    let (workers, tasks) = (&stats.workers, &stats.tasks);
    page.by_state(
        ("lgp_workers", "gauge", "Workers by state"),
        &[
            ("ready", workers.ready),
            ("draining", workers.draining),
            ("away", workers.away),
            ("lost", workers.lost),
        ],
    );
    page.by_state(
        ("lgp_tasks", "gauge", "Tasks that are not finished, by state"),
        &[("queued", tasks.queued), ("running", tasks.running)],
    );
    page.by_state(
        ("lgp_tasks_finished_total", "counter", "Finished tasks by state"),
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
        page.family(name, "counter", help);
        page.sample(name, &[], value);
    }
    page.family("lgp_uptime_seconds", "gauge", "Time since the coordinator started");
    page.sample("lgp_uptime_seconds", &[], stats.uptime_s);
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

fn model_labels((name, version): &ModelKey) -> Vec<(&'static str, String)> {
    vec![("model", name.clone()), ("version", version.to_string())]
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, String)], value: impl Display) {
        let mut inner = String::new();
        for (i, (key, text)) in labels.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            inner.push_str(&format!("{comma}{key}=\"{escaped}\""));
        }
        if inner.is_empty() {
            self.line(format_args!("{name} {value}"));
        } else {
            self.line(format_args!("{name}{{{inner}}} {value}"));
        }
    }

    fn by_state(&mut self, (name, kind, help): (&str, &str, &str), states: &[(&str, u64)]) {
        self.family(name, kind, help);
        for (state, value) in states {
            self.sample(name, &[("state", (*state).to_owned())], value);
        }
    }

    fn summary(&mut self, name: &str, help: &str, values: &Percentiles) {
        self.family(name, "summary", help);
        // A summary without samples has no quantiles; zeros would read as very fast tasks.
        if values.count > 0 {
            for (quantile, ms) in [("0.5", values.p50), ("0.95", values.p95), ("0.99", values.p99)]
            {
                self.sample(name, &[("quantile", quantile.to_owned())], ms / 1_000.0);
            }
        }
        // The mean times the count is the sum that the mean was made of.
        let sum = values.mean * f64::from(u32::try_from(values.count).unwrap_or(u32::MAX)) / 1e3;
        self.sample(&format!("{name}_sum"), &[], sum);
        self.sample(&format!("{name}_count"), &[], values.count);
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_become_exact_seconds() {
        for (ns, text) in
            [(0, "0"), (50_000, "0.00005"), (1_000_000_000, "1"), (1_500_000_001, "1.500000001")]
        {
            assert_eq!(seconds(ns), text);
        }
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.sample("m", &[("a", "x\"\\\n".to_owned()), ("b", "y".to_owned())], 1);
        assert_eq!(page.0, "m{a=\"x\\\"\\\\\\n\",b=\"y\"} 1\n");
    }
}
