//! Balanced: load and expected time in equal parts, for clusters of unequal machines whose
//! models are not all measured yet.

use super::{Balance, Candidate, Choice, Request, View};
use std::time::Duration;

/// Weighs load against speed.
pub(super) struct Balanced;

impl Balance for Balanced {
    fn name(&self) -> &'static str {
        "balanced"
    }

    fn pick(&self, now: Duration, view: &View<'_>, request: &Request) -> Option<Choice> {
        let expected = |c: &Candidate| c.completion_ms(now, request.load_ms);
        let slowest = view.candidates().filter_map(|c| expected(&c)).fold(0.0, f64::max);
        // Where nothing was measured, half of the slowest is a fair guess.
        let share = |c: &Candidate| match expected(c) {
            Some(ms) if slowest > 0.0 => ms / slowest,
            _ => 0.5,
        };
        Choice::of(view.least(|c| 0.5f64.mul_add(c.hot.load, 0.5 * share(c))), "load and time")
    }
}
