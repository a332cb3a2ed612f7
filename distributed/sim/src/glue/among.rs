//! Several coordinators of one cluster under seeds, with a lease for the lead, a shared log, and
//! partitions between all of these.

mod authority;
mod away;
mod callers;
mod chaos;
mod cluster;
mod history;
mod log;
mod machine;
mod queue;
mod rest;
mod seat;
mod world;

use crate::SimFailure;
use lgp_distributed::inside::outside::GlueFault;

figures! {
    /// The figures of one run of several coordinators, or of several runs together.
    AmongReport {
        coordinators: "coordinators at once",
        workers: "workers",
        simulated_ms: "simulated milliseconds",
        tasks: "tasks",
        accepted: "of them accepted",
        succeeded: "shown as succeeded",
        failed: "shown as failed",
        cancelled: "shown as cancelled",
        recorded: "ends that were recorded",
        recorded_succeeded: "of them successes",
        runs: "runs of executors",
        calls: "calls about durable tasks",
        leads: "leads",
        commits: "commits",
        lives: "processes of coordinators",
        kills: "coordinators killed",
        stops: "coordinators stopped for a while",
        isolated: "coordinators cut off from all but callers",
        without_authority: "coordinators cut off from the authority",
        without_log: "coordinators cut off from the log",
        worker_kills: "worker crashes",
        worker_ends: "ends of workers",
        faults: "faults",
        partitions: "pairs of machines parted",
        jumps: "times all timers were late",
        slow_logs: "slow logs",
        full_logs: "full logs",
        datagrams: "datagrams",
        lost: "datagrams lost",
        blocked: "datagrams blocked",
    }
}

/// Runs several coordinators under one seed.
///
/// # Errors
/// [`SimFailure`] when an invariant is broken.
pub fn simulate_among(seed: u64) -> Result<AmongReport, SimFailure> {
    run(seed, None)
}

/// Plants each known fault of several coordinators, one after another. Returns each fault's name
/// with the first failure of `seeds` runs; `None` if no run detects it.
#[must_use]
pub fn among_mutants(seeds: u64) -> Vec<(String, Option<SimFailure>)> {
    let find = |fault| (0..seeds).find_map(|seed| run(seed, Some(fault)).err());
    GlueFault::AMONG.iter().map(|fault| (format!("{fault:?}"), find(*fault))).collect()
}

fn run(seed: u64, fault: Option<GlueFault>) -> Result<AmongReport, SimFailure> {
    super::in_scene(seed, fault, async |scene| world::World::new(scene).run().await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_coordinators_keep_the_promises_of_one() {
        let mut sum = AmongReport::default();
        for seed in 0..40 {
            sum.add(&simulate_among(seed).unwrap_or_else(|failure| panic!("{failure}")));
        }
        for (name, figure) in sum.figures() {
            assert!(figure > 0, "no {name} in any run");
        }
    }

    #[test]
    fn every_fault_of_several_coordinators_is_caught() {
        for (name, caught) in among_mutants(200) {
            let caught = caught.unwrap_or_else(|| panic!("{name} was not caught"));
            assert!(!caught.trace.is_empty(), "{caught}");
        }
    }
}
