//! Tests and measurements of the cluster: a seeded simulation of its core ([`simulate`]), of its
//! network code ([`simulate_glue`]) and of several coordinators ([`simulate_among`]), damaged
//! journals ([`DamagedImage`]), invalid bytes ([`Untrusted`]), and measurements of parts
//! ([`Carousel`], [`Crowd`], [`Selection`], [`Envelope`], [`journal_speed`], [`log_speed`]).
//!
//! The core runs on a bad network, with workers that crash, stall, leave and come back. The same
//! seed gives the same run. A run has two halves: chaos, in which messages are delayed, lost,
//! repeated and reordered, and healing, in which every task must end. A ledger that knows nothing
//! of the core's internals checks each step.
//!
//! The crate builds on `lgp_distributed::inside`, which exists only in builds with this crate.
#![forbid(unsafe_code)]

/// Defines a report: the struct, the sum of two reports, and the table of its figures.
macro_rules! figures {
    ($(#[$what:meta])* $report:ident { $($field:ident: $name:literal,)* }) => {
        $(#[$what])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the names say it")]
        pub struct $report {
            $(pub $field: u64,)*
        }

        impl $report {
            /// Each figure with its name.
            #[must_use]
            pub fn figures(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field),)*]
            }

            /// Adds another run's figures.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

mod carousel;
mod coordinator;
mod crowd;
mod damage;
mod disk;
mod envelope;
mod glue;
mod laws;
mod ledger;
mod life;
mod log_speed;
mod network;
mod selection;
mod speed;
mod untrusted;
mod worker;
mod workload;
mod world;

pub use carousel::Carousel;
pub use crowd::Crowd;
pub use damage::{DamageReport, DamagedImage};
pub use envelope::Envelope;
pub use glue::{
    AmongReport, GlueReport, among_mutants, glue_mutants, simulate_among, simulate_glue,
};
use lgp_distributed::inside::Planted;
pub use log_speed::{LogLoad, LogSpeed, log_speed};
pub use selection::Selection;
pub use speed::{JournalSpeed, journal_speed};
use std::time::Duration;
pub use untrusted::Untrusted;

figures! {
    /// The figures of one simulated run, or of several together.
    SimReport {
        workers: "workers",
        events: "events",
        tasks: "tasks",
        durable: "of them durable",
        succeeded: "succeeded",
        failed: "failed",
        cancelled: "cancelled",
        retries: "retries",
        hedges: "rival attempts",
        batched: "attempts that ran in a batch",
        recalls: "attempts asked back",
        yielded: "of them, came back to make room",
        moved: "of them, came back to be done sooner",
        recalls_late: "recalls of what had begun",
        recalls_vain: "recalls of what was not there",
        breakers_opened: "breakers opened",
        evictions: "models that made room",
        strays: "models found where they were not placed",
        unloads: "models unloaded by callers",
        stale_completions: "stale completions refused",
        messages: "messages",
        lost: "messages lost",
        duplicated: "messages duplicated",
        reordered: "messages reordered",
        misdirected: "answers on the wrong connection",
        crashes: "worker crashes",
        coordinator_crashes: "coordinator crashes",
        clock_jumps: "clock jumps",
        disk_full: "commits without room",
        stored: "outputs that lay apart",
        partitions: "partitions",
        disconnections: "connections broken",
        resumed: "workers that came back with what they held",
        stalls: "worker stalls",
        hangs: "runs that hang",
        replaced: "workers replaced",
        freezes: "coordinator stopped for a while",
        departures: "departures",
        device_errors: "device errors",
    }
}

impl SimReport {
    /// Faults of processes, disks and links; lost and late messages do not count.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.crashes
            + self.coordinator_crashes
            + self.clock_jumps
            + self.disk_full
            + self.partitions
            + self.disconnections
            + self.stalls
            + self.hangs
            + self.freezes
            + self.departures
            + self.device_errors
    }
}

/// A broken invariant, with what led to it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("seed {seed} at {at:?}: {what}\n{}", trace.join("\n"))]
#[non_exhaustive]
pub struct SimFailure {
    /// The seed that repeats the run.
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
/// let report = lgp_distributed_sim::simulate(7)?;
/// assert!(report.succeeded > 0 && report.faults() > 0);
/// # Ok::<(), lgp_distributed_sim::SimFailure>(())
/// ```
pub fn simulate(seed: u64) -> Result<SimReport, SimFailure> {
    run(|| world::World::new(seed))
}

fn run(world: impl Fn() -> world::World) -> Result<SimReport, SimFailure> {
    // Only a failed run records its events, and it fails again in the same way.
    world().run().or_else(|_| {
        let mut again = world();
        again.watch();
        again.run()
    })
}

/// Plants each known fault in the core, one after another. Returns each fault's name with the
/// failure of the first of `seeds` runs that detects it; `None` if no run does.
#[must_use]
pub fn simulate_mutants(seeds: u64) -> Vec<(String, Option<SimFailure>)> {
    let planted = |seed, fault| run(|| world::World::new(seed).plant(fault)).err();
    let find = |fault: Planted| (0..seeds).find_map(|seed| planted(seed, fault));
    Planted::ALL.iter().map(|planted| (format!("{planted:?}"), find(*planted))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invariants_hold_for_many_seeds_and_every_fault_occurs() {
        const SEEDS: u64 = 200;
        let mut sum = SimReport::default();
        for seed in 0..SEEDS {
            sum.add(&simulate(seed).unwrap_or_else(|failure| panic!("{failure}")));
        }
        for (name, figure) in sum.figures() {
            assert!(figure > 0, "no {name} in any run");
        }
        let means = [
            ("workers", sum.workers, 5),
            ("tasks", sum.tasks, 200),
            ("events", sum.events, 2_000),
            ("faults", sum.faults(), 10),
        ];
        for (name, figure, least) in means {
            assert!(figure >= least * SEEDS, "{name}: {figure} in {SEEDS} runs");
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
    fn every_planted_fault_is_caught() {
        for (name, caught) in simulate_mutants(400) {
            let caught = caught.unwrap_or_else(|| panic!("{name} was not caught"));
            assert!(!caught.trace.is_empty(), "{caught}");
        }
    }
}
