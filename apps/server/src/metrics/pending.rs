//! A request while it is under way, and what it counts as in the end.

use super::{BOUNDS_US, FailureReason, ModelCounters, Spans, nanos, now_ms};
use crate::place::Place;
use opentelemetry::trace::TraceId;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What the model did for one successful request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// Rows of the request: inferences, as Triton counts them.
    pub(crate) rows: u64,
    /// Runs, repeated attempts included; none where another request of its batch stands for the run.
    pub(crate) executions: u32,
    /// Rows in the run that it stands for, those of other requests included.
    pub(crate) batch: Option<u64>,
}

/// A request that is under way.
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

    /// It is one of another model.
    pub(crate) fn moved(&mut self, counters: Arc<ModelCounters>) {
        if Arc::ptr_eq(&self.counters, &counters) {
            return;
        }
        self.counters.leave(&self.caller);
        counters.enter(&self.caller);
        self.counters = counters;
    }

    /// Those of its model.
    pub(crate) fn counters(&self) -> &ModelCounters {
        &self.counters
    }

    /// It waits for its turn in a sequence, for as long as the guard lives.
    pub(crate) fn waits(&self) -> Waits {
        self.counters.turns.fetch_add(1, Relaxed);
        Waits(Arc::clone(&self.counters))
    }

    /// Its answer was looked for among those that are kept, which took so long.
    pub(crate) fn looked_up(&self, hit: bool, took: Duration) {
        let c = &self.counters;
        let (count, sum_ns) = match hit {
            true => (&c.cache_hits, &c.cache_hit_ns),
            false => (&c.cache_misses, &c.cache_miss_ns),
        };
        count.fetch_add(1, Relaxed);
        sum_ns.fetch_add(nanos(took), Relaxed);
    }

    /// It was not among them, and to keep it took so long.
    pub(crate) fn kept(&self, took: Duration) {
        self.counters.cache_miss_ns.fetch_add(nanos(took), Relaxed);
    }

    /// The request was answered, somewhere and maybe as part of a trace that is kept; without work where its
    /// answer was kept.
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

    /// The request was refused or failed after `time`.
    pub(crate) fn failed(mut self, reason: FailureReason, time: Duration) {
        self.decided = true;
        self.count_failure(reason, time);
    }

    fn count_failure(&self, reason: FailureReason, time: Duration) {
        self.counters.failure[reason.index()].fetch_add(1, Relaxed);
        self.counters.failure_ns.fetch_add(nanos(time), Relaxed);
    }
}

/// A request that waits for its turn.
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
