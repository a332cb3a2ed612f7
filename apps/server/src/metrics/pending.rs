//! Counts a pending request, and its outcome at the end.

use super::{BOUNDS_US, FailureReason, ModelCounters, Spans, nanos, now_ms};
use crate::place::Place;
use opentelemetry::trace::TraceId;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The model's work for one successful request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// Rows of the request: inferences in Triton's sense.
    pub(crate) rows: u64,
    /// Runs, including retries; 0 if another request of the batch counts the run.
    pub(crate) executions: u32,
    /// Rows in the run that this request counts, including those of other requests.
    pub(crate) batch: Option<u64>,
}

/// A pending request.
#[derive(Debug)]
pub(crate) struct Pending {
    counters: Arc<ModelCounters>,
    caller: Arc<str>,
    decided: bool,
}

impl Pending {
    pub(super) fn new(counters: Arc<ModelCounters>, caller: &Arc<str>) -> Self {
        counters.enter(caller);
        Self { counters, caller: Arc::clone(caller), decided: false }
    }

    /// Moves the request to another model.
    pub(crate) fn moved(&mut self, counters: Arc<ModelCounters>) {
        if Arc::ptr_eq(&self.counters, &counters) {
            return;
        }
        self.counters.leave(&self.caller);
        counters.enter(&self.caller);
        self.counters = counters;
    }

    /// The counters of the request's model.
    pub(crate) fn counters(&self) -> &ModelCounters {
        &self.counters
    }

    /// Counts the request as waiting for its turn in a sequence, for as long as the guard lives.
    pub(crate) fn waits(&self) -> Waits {
        self.counters.turns.fetch_add(1, Relaxed);
        Waits(Arc::clone(&self.counters))
    }

    /// Counts a lookup in the response cache and its duration.
    pub(crate) fn looked_up(&self, hit: bool, took: Duration) {
        let c = &self.counters;
        let (count, sum_ns) = match hit {
            true => (&c.cache_hits, &c.cache_hit_ns),
            false => (&c.cache_misses, &c.cache_miss_ns),
        };
        count.fetch_add(1, Relaxed);
        sum_ns.fetch_add(nanos(took), Relaxed);
    }

    /// Adds the time of caching an answer after a miss.
    pub(crate) fn kept(&self, took: Duration) {
        self.counters.cache_miss_ns.fetch_add(nanos(took), Relaxed);
    }

    /// Counts a success, with the place that answered and a sampled trace. `work` is `None` for a cached answer.
    pub(crate) fn succeeded(
        mut self,
        spans: &Spans,
        work: Option<Work>,
        (place, trace): (Option<Place>, Option<TraceId>),
    ) {
        self.decided = true;
        let c = &self.counters;
        c.success.fetch_add(1, Relaxed);
        if let Some(Work { rows, executions, batch }) = work {
            c.computed.fetch_add(1, Relaxed);
            c.inferences.fetch_add(rows, Relaxed);
            c.executions.fetch_add(u64::from(executions), Relaxed);
            if let Some(rows) = batch {
                c.batches.ran(rows, spans);
            }
        }
        c.last_inference_ms.store(now_ms(), Relaxed);
        for (counter, span) in [
            (&c.request_ns, spans.request),
            (&c.queue_ns, spans.queue),
            (&c.compute_input_ns, spans.compute_input),
            (&c.compute_infer_ns, spans.compute_infer),
            (&c.compute_output_ns, spans.compute_output),
        ] {
            counter.fetch_add(nanos(span), Relaxed);
        }
        if let Some(overhead) = spans.overhead {
            c.overhead.observe(&BOUNDS_US, overhead);
        }
        c.latency.observe(spans.request, trace);
        if let Some(place) = place {
            c.answered_at(place);
        }
    }

    /// Counts a refusal or failure after `time`.
    pub(crate) fn failed(mut self, reason: FailureReason, time: Duration) {
        self.decided = true;
        self.count_failure(reason, time);
    }

    fn count_failure(&self, reason: FailureReason, time: Duration) {
        self.counters.failure[reason.index()].fetch_add(1, Relaxed);
        self.counters.failure_ns.fetch_add(nanos(time), Relaxed);
    }
}

/// A guard of a request that waits for its turn.
#[derive(Debug)]
pub(crate) struct Waits(Arc<ModelCounters>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.turns.fetch_sub(1, Relaxed);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.counters.leave(&self.caller);
        if !self.decided {
            self.count_failure(FailureReason::Canceled, Duration::ZERO);
        }
    }
}
