//! Least loaded: the worker with the lowest load, taking turns among equals.

use super::{Balance, Candidate, Request, View};
use std::time::Duration;

/// Evens out load.
pub(super) struct LeastLoaded;

impl Balance for LeastLoaded {
    fn name(&self) -> &'static str {
        "least_loaded"
    }

    fn pick(&self, _: Duration, view: &View<'_>, _: &Request<'_>) -> Option<Candidate> {
        // Equal machines have equal loads most of the time: taking turns spreads the wear.
        let order = |a: &Candidate, b: &Candidate| {
            a.load.total_cmp(&b.load).then(a.last_dispatch.cmp(&b.last_dispatch))
        };
        view.candidates.iter().copied().min_by(order)
    }
}
