//! The server's counters per model version, read by `/v2/…/stats` and `/metrics`.
//!
//! The registry belongs to one server, not to the process, so that two servers never mix.

mod batches;
mod histogram;
mod latency;
mod pending;

use crate::place::Place;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use batches::BatchReading;
use batches::Batches;
use histogram::{Histogram, HistogramReading};
pub(crate) use latency::{Exemplar, LATENCY_US};
use latency::{Latency, LatencyReading};
pub(crate) use pending::{Pending, Work};

/// Why a request failed, by Triton's names of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureReason {
    /// Refused before it ran: bad input, model not loaded, queue full, deadline passed.
    Rejected,
    /// Cancelled, or its client disconnected.
    Canceled,
    /// The model failed while it ran.
    Backend,
    /// Anything else.
    Other,
}

impl FailureReason {
    pub(crate) const ALL: [Self; 4] = [Self::Rejected, Self::Canceled, Self::Backend, Self::Other];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rejected => "REJECTED",
            Self::Canceled => "CANCELED",
            Self::Backend => "BACKEND",
            Self::Other => "OTHER",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Rejected => 0,
            Self::Canceled => 1,
            Self::Backend => 2,
            Self::Other => 3,
        }
    }
}

/// The parts of the time of one successful request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Spans {
    pub(crate) request: Duration,
    pub(crate) queue: Duration,
    pub(crate) compute_input: Duration,
    pub(crate) compute_infer: Duration,
    pub(crate) compute_output: Duration,
    /// The cluster's overhead beyond the model's own time; unknown for an ensemble.
    pub(crate) overhead: Option<Duration>,
}

/// Counters of one model version; they only grow.
#[derive(Debug, Default)]
pub(crate) struct ModelCounters {
    success: AtomicU64,
    failure: [AtomicU64; 4],
    /// Successful requests that ran the model, without cache hits.
    computed: AtomicU64,
    inferences: AtomicU64,
    executions: AtomicU64,
    batches: Batches,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
    cache_hit_ns: AtomicU64,
    cache_miss_ns: AtomicU64,
    shadow_requests: AtomicU64,
    shadow_differences: AtomicU64,
    /// Pending requests, and those among them that wait for their turn in a sequence.
    pending: AtomicU64,
    turns: AtomicU64,
    last_inference_ms: AtomicU64,
    request_ns: AtomicU64,
    failure_ns: AtomicU64,
    queue_ns: AtomicU64,
    compute_input_ns: AtomicU64,
    compute_infer_ns: AtomicU64,
    compute_output_ns: AtomicU64,
    overhead: Histogram<OVERHEAD_BUCKETS>,
    latency: Latency,
    /// Pending requests of each caller.
    callers: Mutex<HashMap<Arc<str>, u64>>,
    /// Answers by the place that gave them.
    places: Mutex<BTreeMap<Place, u64>>,
}

/// The most places that are counted for each model, because workers of many names may come and go. Further places
/// are counted together.
const PLACES_MAX: usize = 1_024;

/// A snapshot of [`ModelCounters`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelReading {
    pub(crate) success: u64,
    pub(crate) failure: [u64; 4],
    pub(crate) computed: u64,
    pub(crate) inferences: u64,
    pub(crate) executions: u64,
    pub(crate) batches: Vec<(u64, BatchReading)>,
    pub(crate) cache_hits: u64,
    pub(crate) cache_misses: u64,
    pub(crate) cache_hit_ns: u64,
    pub(crate) cache_miss_ns: u64,
    pub(crate) shadow_requests: u64,
    pub(crate) shadow_differences: u64,
    pub(crate) turns: u64,
    pub(crate) last_inference_ms: u64,
    pub(crate) request_ns: u64,
    pub(crate) failure_ns: u64,
    pub(crate) queue_ns: u64,
    pub(crate) compute_input_ns: u64,
    pub(crate) compute_infer_ns: u64,
    pub(crate) compute_output_ns: u64,
    pub(crate) overhead: HistogramReading<OVERHEAD_BUCKETS>,
    pub(crate) latency: LatencyReading,
    pub(crate) places: Vec<(Place, u64)>,
}

impl ModelReading {
    pub(crate) fn failures(&self, reason: FailureReason) -> u64 {
        self.failure[reason.index()]
    }
}

impl ModelCounters {
    /// Counts a request as pending for as long as the guard lives. A guard that is dropped without an outcome means
    /// that the client disconnected.
    pub(crate) fn begin(self: &Arc<Self>, caller: &Arc<str>) -> Pending {
        Pending::new(Arc::clone(self), caller)
    }

    /// Pending requests, in all and of a caller.
    pub(crate) fn pending(&self, caller: &str) -> (u64, u64) {
        let own = self.callers().get(caller).copied().unwrap_or(0);
        (self.pending.load(Relaxed), own)
    }

    fn enter(&self, caller: &Arc<str>) {
        self.pending.fetch_add(1, Relaxed);
        *self.callers().entry(Arc::clone(caller)).or_default() += 1;
    }

    fn leave(&self, caller: &str) {
        self.pending.fetch_sub(1, Relaxed);
        let mut callers = self.callers();
        if let Some(own) = callers.get_mut(caller) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                callers.remove(caller);
            }
        }
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<Arc<str>, u64>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a copy of a request that the model ran as a shadow, and whether its outputs were the same.
    pub(crate) fn shadowed(&self, same: bool) {
        self.shadow_requests.fetch_add(1, Relaxed);
        self.shadow_differences.fetch_add(u64::from(!same), Relaxed);
    }

    pub(crate) fn read(&self) -> ModelReading {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        ModelReading {
            success: get(&self.success),
            failure: self.failure.each_ref().map(get),
            computed: get(&self.computed),
            inferences: get(&self.inferences),
            executions: get(&self.executions),
            batches: self.batches.read(),
            cache_hits: get(&self.cache_hits),
            cache_misses: get(&self.cache_misses),
            cache_hit_ns: get(&self.cache_hit_ns),
            cache_miss_ns: get(&self.cache_miss_ns),
            shadow_requests: get(&self.shadow_requests),
            shadow_differences: get(&self.shadow_differences),
            turns: get(&self.turns),
            last_inference_ms: get(&self.last_inference_ms),
            request_ns: get(&self.request_ns),
            failure_ns: get(&self.failure_ns),
            queue_ns: get(&self.queue_ns),
            compute_input_ns: get(&self.compute_input_ns),
            compute_infer_ns: get(&self.compute_infer_ns),
            compute_output_ns: get(&self.compute_output_ns),
            overhead: self.overhead.read(),
            latency: self.latency.read(),
            places: self.places().iter().map(|(place, count)| (place.clone(), *count)).collect(),
        }
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<Place, u64>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered_at(&self, place: Place) {
        let mut places = self.places();
        let is_known = places.len() < PLACES_MAX || places.contains_key(&place);
        if let Some(place) = if is_known { Some(place) } else { Place::other() } {
            *places.entry(place).or_default() += 1;
        }
    }
}

/// Upper bounds of the overhead histogram in microseconds.
pub(crate) const BOUNDS_US: [u64; 12] =
    [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000];
const OVERHEAD_BUCKETS: usize = BOUNDS_US.len() + 1;

/// Name and version of a model.
pub(crate) type ModelKey = (String, u64);

/// The counters of every requested model. Only registered models get an entry, so invented names cannot make it
/// grow.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    models: RwLock<BTreeMap<ModelKey, Arc<ModelCounters>>>,
}

impl Metrics {
    /// The counters of a registered model.
    pub(crate) fn model(&self, name: &str, version: u64) -> Arc<ModelCounters> {
        let key = (name.to_owned(), version);
        if let Some(counters) = self.models.read().unwrap_or_else(PoisonError::into_inner).get(&key)
        {
            return Arc::clone(counters);
        }
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(models.entry(key).or_default())
    }

    /// Drops the counters of a model that left the repository, or of one of its versions.
    pub(crate) fn remove(&self, name: &str, version: Option<u64>) {
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        models.retain(|key, _| key.0 != name || version.is_some_and(|version| version != key.1));
    }

    /// Every model's counters, by name and version.
    pub(crate) fn read(&self) -> Vec<(ModelKey, ModelReading)> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        models.iter().map(|(key, counters)| (key.clone(), counters.read())).collect()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_pending_until_it_is_decided() {
        let metrics = Metrics::default();
        let model = metrics.model("m", 1);
        let [a, b, c] = ["k", "k", "-"].map(|caller| model.begin(&caller.into()));
        assert_eq!((model.pending("k"), model.read().turns), ((3, 2), 0));
        let waits = b.waits();
        assert_eq!(model.read().turns, 1);
        drop(waits);
        let spans = Spans { request: Duration::from_millis(2), ..Spans::default() };
        let place = Place { worker: "w1".parse().expect("a name"), device: None };
        let work = Work { rows: 4, executions: 2, batch: Some(8) };
        a.succeeded(&spans, Some(work), (Some(place.clone()), None));
        model.begin(&"k".into()).succeeded(&Spans::default(), None, (None, None));
        b.failed(FailureReason::Backend, Duration::from_millis(1));
        drop(c);
        let reading = model.read();
        assert_eq!((model.pending("k"), reading.turns, reading.success), ((0, 0), 0, 2));
        let ran = (reading.computed, reading.inferences, reading.executions);
        assert_eq!(ran, (1, 4, 2), "an answer that was kept is no inference");
        assert_eq!(reading.batches, [(8, BatchReading { runs: 1, ..BatchReading::default() })]);
        assert!(model.callers().is_empty());
        assert_eq!(reading.failures(FailureReason::Backend), 1);
        assert_eq!(reading.failures(FailureReason::Canceled), 1);
        assert_eq!((reading.request_ns, reading.failure_ns), (2_000_000, 1_000_000));
        assert!(reading.last_inference_ms > 0);
        assert_eq!(reading.places, [(place, 1)]);
    }
}
