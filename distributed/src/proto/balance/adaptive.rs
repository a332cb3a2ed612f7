//! Adaptive: the device where the task is expected to be done first, by what was measured there.

use super::{Balance, Candidate, Choice, Request, View};
use std::time::Duration;

/// Learns how fast each device is at each model.
///
/// A device that was never measured is tried, by one task at a time. Old measurements fade (see
/// [`Service`](crate::proto::service::Service)), so that what was slow once is tried again.
pub(super) struct Adaptive;

impl Balance for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn compares_variants(&self) -> bool {
        true
    }

    fn pick(&self, now: Duration, view: &View<'_>, request: &Request) -> Option<Choice> {
        let unmeasured = |c: &Candidate| c.capable.service.expected_ms(now).is_none();
        let is_idle = |c: &Candidate| c.hot.free == c.hot.slots;
        let mut explored: Option<Candidate> = None;
        for candidate in view.candidates().filter(|c| unmeasured(c) && is_idle(c)) {
            if explored.is_none_or(|e| candidate.hot.last_dispatch < e.hot.last_dispatch) {
                explored = Some(candidate);
            }
        }
        if explored.is_some() {
            return Choice::of(explored.map(|c| (c, 0.0)), "not measured yet");
        }
        let cost = |c: &Candidate| {
            // Its first task is still under way: only where nothing else is free.
            let Some(ms) = c.completion_ms(now, request.load_ms) else { return f64::MAX };
            let joules = f64::from(c.hot.power_w) * ms / 1e3;
            request.thrift.mul_add(joules, ms)
        };
        Choice::of(view.least(cost), "expected completion, ms")
    }
}
