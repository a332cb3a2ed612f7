//! GPU match: the device that best fits what the model wants, unless it is busy.

use super::{Balance, Candidate, Choice, Request, View, least};
use std::time::Duration;

/// Scores a device by what its model wants: nothing if the memory is short, otherwise its fit times
/// (1 − load/2).
pub(super) struct GpuMatch;

impl Balance for GpuMatch {
    fn name(&self) -> &'static str {
        "gpu_match"
    }

    fn pick(&self, _: Duration, view: &View<'_>, request: &Request) -> Option<Choice> {
        let score = |c: &Candidate<'_>| {
            let short = !c.capable.resident && c.hot.free_mib < request.needs_mib;
            if short { 0.0 } else { c.capable.fit * (1.0 - 0.5 * c.hot.load) }
        };
        let best = least(view.all(), |c| -score(c));
        Choice::of(best.map(|(candidate, least)| (candidate, -least)), "best match")
    }
}
