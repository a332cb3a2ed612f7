//! Memory aware: where the model is loaded, then where most memory stays free.

use super::{Balance, Candidate, Choice, Request, View, least};
use std::time::Duration;

/// Keeps memory free for models to come.
pub(super) struct MemoryAware;

impl Balance for MemoryAware {
    fn name(&self) -> &'static str {
        "memory_aware"
    }

    fn pick(&self, _: Duration, view: &View<'_>, request: &Request) -> Option<Choice> {
        // Devices that say nothing of their memory count as large ones of 1 TiB.
        const UNKNOWN_MIB: f64 = 1_048_576.0;
        let left = |c: &Candidate<'_>| {
            let needs = if c.capable.resident { 0.0 } else { request.needs_mib };
            c.hot.free_mib.min(UNKNOWN_MIB) - needs
        };
        // A device that has the model need not load it, whatever memory there is elsewhere. The
        // load decides between devices that have about the same memory.
        let score = |c: &Candidate<'_>| {
            let loading = if c.capable.resident { 0.0 } else { 10.0 * UNKNOWN_MIB };
            // Whole MiB in whole quarters of a GiB, rounded down.
            let steps = f64::from(((left(c) as i64) >> 8) as i32);
            loading - steps * 256.0 + c.hot.load
        };
        let best = least(view.all(), score);
        let best = best.map(|(candidate, _)| (candidate, left(&candidate)));
        Choice::of(best, "most memory left, MiB")
    }
}
