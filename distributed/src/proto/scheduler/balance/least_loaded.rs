//! Least loaded: the device with the lowest load, taking turns among equals.

use super::{Balance, Choice, Request, View, least};
use std::time::Duration;

/// Evens out load.
pub(super) struct LeastLoaded;

impl Balance for LeastLoaded {
    fn name(&self) -> &'static str {
        "least_loaded"
    }

    fn pick(&self, _: Duration, view: &View<'_>, request: &Request) -> Option<Choice> {
        // Equal machines have equal loads most of the time: taking turns spreads the wear.
        Choice::of(least(view.some(request.random), |c| c.hot.load), "lowest load")
    }
}
