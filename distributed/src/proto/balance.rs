//! Balancing strategies: one trait, one table, a file each.

mod least_loaded;
mod round_robin;

use crate::error::Error;
use crate::task::{ModelRef, Priority};
use std::time::Duration;

/// A worker that may take the request: ready, with a free slot, and with the model unless it
/// is up to the worker to load it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    /// Index that identifies the worker to the scheduler.
    pub(crate) index: usize,
    /// Load from 0 to 1, see [`load`].
    pub(crate) load: f64,
    /// Number of the dispatch that last went to it; 0 for none.
    pub(crate) last_dispatch: u64,
}

/// What a strategy sees of the cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    /// Never empty.
    pub(crate) candidates: &'a [Candidate],
}

/// What a strategy sees of a task.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "the strategies so far look only at the workers")]
pub(crate) struct Request<'a> {
    pub(crate) model: &'a ModelRef,
    pub(crate) priority: Priority,
}

/// Chooses a worker for a request; pure, so that a simulation repeats exactly.
pub(crate) trait Balance: Sync {
    /// The name in settings.
    fn name(&self) -> &'static str;

    /// The chosen one of the view's candidates.
    fn pick(&self, now: Duration, view: &View<'_>, request: &Request<'_>) -> Option<Candidate>;
}

/// Every strategy, the default first.
static STRATEGIES: &[&dyn Balance] = &[&least_loaded::LeastLoaded, &round_robin::RoundRobin];

/// Names of the balancing strategies, the default first.
#[must_use]
pub fn balancing_strategies() -> Vec<&'static str> {
    STRATEGIES.iter().map(|s| s.name()).collect()
}

/// The strategy of a name.
pub(crate) fn by_name(name: &str) -> Result<&'static dyn Balance, Error> {
    STRATEGIES.iter().copied().find(|s| s.name() == name).ok_or_else(|| Error::UnknownBalancing {
        given: name.chars().take(64).collect(),
        known: balancing_strategies(),
    })
}

/// The load of a worker, 0 idle to 1 full:
/// 0.4 · tasks/slots + 0.3 · utilisation + 0.2 · memory in use + 0.1 · queue/20, each at most 1.
pub(crate) fn load(tasks: usize, slots: u32, utilisation: f64, memory: f64, queued: u32) -> f64 {
    let tasks = f64::from(u32::try_from(tasks).unwrap_or(u32::MAX));
    0.4 * (tasks / f64::from(slots.max(1))).min(1.0)
        + 0.3 * utilisation.clamp(0.0, 1.0)
        + 0.2 * memory.clamp(0.0, 1.0)
        + 0.1 * (f64::from(queued) / 20.0).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_weighs_its_four_parts_and_saturates() {
        let cases = [
            ((0, 4, 0.0, 0.0, 0), 0.0),
            ((2, 4, 0.0, 0.0, 0), 0.2),
            ((9, 4, 0.0, 0.0, 0), 0.4),
            ((0, 4, 0.5, 0.0, 0), 0.15),
            ((0, 4, 0.0, 0.5, 0), 0.1),
            ((0, 4, 0.0, 0.0, 10), 0.05),
            ((4, 4, 7.0, 7.0, 99), 1.0),
        ];
        for ((tasks, slots, utilisation, memory, queued), expected) in cases {
            let given = load(tasks, slots, utilisation, memory, queued);
            assert!((given - expected).abs() < 1e-12, "{given} is not {expected}");
        }
    }

    #[test]
    fn each_strategy_picks_as_it_says() {
        let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
        let request = Request { model: &model, priority: Priority::Normal };
        let candidate = |index, load, last_dispatch| Candidate { index, load, last_dispatch };
        let cases: [(&str, &[Candidate], usize); 5] = [
            ("least_loaded", &[candidate(0, 0.5, 1), candidate(1, 0.2, 9)], 1),
            ("least_loaded", &[candidate(0, 0.2, 9), candidate(1, 0.2, 1)], 1),
            ("round_robin", &[candidate(0, 0.0, 9), candidate(1, 0.9, 1)], 1),
            ("round_robin", &[candidate(0, 0.0, 0), candidate(1, 0.0, 0)], 0),
            ("round_robin", &[candidate(0, 0.0, 3), candidate(1, 0.0, 4)], 0),
        ];
        for (name, candidates, expected) in cases {
            let strategy = by_name(name).expect("in the table");
            let picked = strategy.pick(Duration::ZERO, &View { candidates }, &request);
            assert_eq!(picked.map(|c| c.index), Some(expected), "{name}");
            assert_eq!(strategy.pick(Duration::ZERO, &View { candidates: &[] }, &request), None);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = by_name("magic").err().expect("unknown").to_string();
        assert_eq!(
            error,
            "balancing \"magic\" is not known, expected one of: least_loaded, round_robin"
        );
    }
}
