//! Round robin: the device whose turn is longest ago, however busy it is.

use super::{Balance, Choice, Request, View, least};
use std::time::Duration;

/// Deals tasks like cards.
pub(super) struct RoundRobin;

impl Balance for RoundRobin {
    fn name(&self) -> &'static str {
        "round_robin"
    }

    fn pick(&self, _: Duration, view: &View<'_>, _: &Request) -> Option<Choice> {
        // All score alike: whose turn is longest ago decides.
        Choice::of(least(view.all(), |_| 0.0), "longest without a task")
    }
}
