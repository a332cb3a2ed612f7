//! Adaptive: the device where the task is expected to be done first, by what was measured there.

use super::{Balance, Choice, Least, Request, View};
use std::time::Duration;

/// Learns how fast each device is at each model.
///
/// A device that was never measured is tried, by one task at a time. Old measurements fade (see
/// [`Service`](crate::proto::scheduler::service::Service)), so that a slow device is tried again.
pub(super) struct Adaptive;

impl Balance for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn compares_variants(&self) -> bool {
        true
    }

    fn pick(&self, now: Duration, view: &View<'_>, request: &Request) -> Option<Choice> {
        let (mut unmeasured, mut best) = (Least::default(), Least::default());
        view.some(request.random).for_each(|candidate| {
            let hot = candidate.hot;
            match candidate.completion_ms(now, request.load_ms) {
                Some(ms) => {
                    let joules = f64::from(hot.power_w) * (ms * 1e-3);
                    best.offer(candidate, request.thrift * joules + ms);
                }
                None if hot.idle => unmeasured.offer(candidate, 0.0),
                // Its first task is still under way: picked only if no other device is free.
                None => best.offer(candidate, f64::MAX),
            }
        });
        Choice::of(unmeasured.found(), "not measured yet")
            .or_else(|| Choice::of(best.found(), "expected completion, ms"))
    }
}
