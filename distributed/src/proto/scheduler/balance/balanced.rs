//! Balanced: load and expected time in equal parts, for clusters of unequal machines whose
//! models are not all measured yet.

use super::{Balance, Candidate, Choice, Request, View, least};
use std::time::Duration;

/// Weighs load against speed.
pub(super) struct Balanced;

impl Balance for Balanced {
    fn name(&self) -> &'static str {
        "balanced"
    }

    fn pick(&self, now: Duration, view: &View<'_>, request: &Request) -> Option<Choice> {
        let expected = |c: &Candidate<'_>| c.completion_ms(now, request.load_ms);
        let some = || view.some(request.random);
        let slowest = some().filter_map(|c| expected(&c)).fold(0.0, f64::max);
        let share_of_ms = if slowest > 0.0 { 0.5 / slowest } else { 0.0 };
        // Where nothing was measured, half of the slowest is a fair guess.
        let share = |c: &Candidate<'_>| match expected(c) {
            Some(ms) if slowest > 0.0 => ms * share_of_ms,
            _ => 0.25,
        };
        Choice::of(least(some(), |c| 0.5 * c.hot.load + share(c)), "load and time")
    }
}
