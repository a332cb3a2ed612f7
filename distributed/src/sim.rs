//! A seeded simulation: the pure core on a bad network, among workers that crash, stall, leave
//! and come back. The same seed gives the same run.
//!
//! A run has two halves: chaos, in which messages are delayed, lost, repeated and overtake one
//! another, and healing, in which every task must come to its end. A ledger that knows nothing
//! of the core's insides checks each step.

mod carousel;
mod coordinator;
mod ledger;
mod life;
mod network;
mod worker;
mod workload;
mod world;

pub use carousel::Carousel;
use std::time::Duration;

/// What one simulated run went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub struct SimReport {
    pub events: u64,
    pub tasks: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub retries: u64,
    pub stale_completions: u64,
    pub messages: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub crashes: u64,
    pub partitions: u64,
    pub disconnections: u64,
    pub stalls: u64,
    pub departures: u64,
    pub device_errors: u64,
}

impl SimReport {
    /// Each figure with its name.
    #[must_use]
    pub fn figures(&self) -> [(&'static str, u64); 17] {
        [
            ("events", self.events),
            ("tasks", self.tasks),
            ("succeeded", self.succeeded),
            ("failed", self.failed),
            ("cancelled", self.cancelled),
            ("retries", self.retries),
            ("stale completions refused", self.stale_completions),
            ("messages", self.messages),
            ("messages lost", self.lost),
            ("messages duplicated", self.duplicated),
            ("messages reordered", self.reordered),
            ("worker crashes", self.crashes),
            ("partitions", self.partitions),
            ("connections broken", self.disconnections),
            ("worker stalls", self.stalls),
            ("departures", self.departures),
            ("device errors", self.device_errors),
        ]
    }
}

/// A broken invariant, with what led to it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("seed {seed} at {at:?}: {what}\n{}", trace.join("\n"))]
#[non_exhaustive]
pub struct SimFailure {
    /// Repeats the run.
    pub seed: u64,
    /// Simulated time.
    pub at: Duration,
    /// The invariant and how it was broken.
    pub what: String,
    /// The last events, oldest first.
    pub trace: Vec<String>,
}

/// Runs one seed.
///
/// # Errors
/// [`SimFailure`] when an invariant is broken.
///
/// ```
/// let report = lgp_distributed::simulate(7)?;
/// assert_eq!(report.tasks, report.succeeded + report.failed + report.cancelled);
/// # Ok::<(), lgp_distributed::SimFailure>(())
/// ```
pub fn simulate(seed: u64) -> Result<SimReport, SimFailure> {
    world::World::new(seed).run()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::state::Planted;

    #[test]
    fn invariants_hold_for_many_seeds_and_every_fault_occurs() {
        let mut faults = [0; 17];
        for seed in 0..300 {
            let report = simulate(seed).unwrap_or_else(|failure| panic!("{failure}"));
            for (sum, (_, figure)) in faults.iter_mut().zip(report.figures()) {
                *sum += figure;
            }
        }
        let names = SimReport::default().figures();
        for (sum, (name, _)) in faults.into_iter().zip(names) {
            assert!(sum > 0, "no {name} in any run");
        }
    }

    #[test]
    fn a_seed_repeats_exactly() {
        for seed in [1, 2, 3] {
            assert_eq!(simulate(seed).expect("holds"), simulate(seed).expect("holds"));
        }
        assert_ne!(simulate(1).expect("holds"), simulate(2).expect("holds"));
    }

    #[test]
    fn planted_faults_are_caught() {
        for (planted, expected) in [
            (Planted::AcceptStale, "which is not the current attempt"),
            (Planted::ForgetLost, "is still open"),
            (Planted::IgnoreSlots, "more than its slots"),
        ] {
            let caught = (0..50).find_map(|seed| {
                let mut world = world::World::new(seed);
                world.plant(planted);
                world.run().err()
            });
            let caught = caught.unwrap_or_else(|| panic!("{planted:?} was not caught"));
            assert!(caught.what.contains(expected), "{planted:?}: {caught}");
        }
    }
}
