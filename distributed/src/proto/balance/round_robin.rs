//! Round robin: the worker whose turn is longest ago, however busy it is.

use super::{Balance, Candidate, Request, View};
use std::time::Duration;

/// Deals tasks like cards.
pub(super) struct RoundRobin;

impl Balance for RoundRobin {
    fn name(&self) -> &'static str {
        "round_robin"
    }

    fn pick(&self, _: Duration, view: &View<'_>, _: &Request<'_>) -> Option<Candidate> {
        view.candidates.iter().min_by_key(|c| c.last_dispatch).copied()
    }
}
