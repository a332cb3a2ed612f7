//! The network code under seeds: a real coordinator, workers and clients in one thread, with
//! simulated network, clock and log.
//!
//! A seed determines the load, the faults, and the fate of each datagram by its direction and
//! number. Keys, signatures and the iteration order of maps are not seeded, so a repeated run is
//! similar, but not always identical.

mod among;
mod behaviour;
mod callers;
mod chaos;
mod cluster;
mod disk;
mod executor;
mod ledger;
mod log;
mod net;
mod scene;
mod threads;
mod world;

use crate::SimFailure;
pub use among::{AmongReport, among_mutants, simulate_among};
use lgp_distributed::inside::outside::GlueFault;
use scene::Scene;
use std::sync::Arc;

figures! {
    /// The figures of one run of the network code, or of several together.
    GlueReport {
        workers: "workers",
        simulated_ms: "simulated milliseconds",
        tasks: "tasks",
        accepted: "of them accepted",
        succeeded: "shown as succeeded",
        failed: "shown as failed",
        cancelled: "shown as cancelled",
        runs: "runs of executors",
        real_journals: "journals on redb",
        coordinators: "coordinators",
        coordinator_crashes: "coordinator crashes",
        worker_crashes: "worker crashes",
        worker_ends: "ends of workers",
        replaced: "workers replaced",
        faults: "faults",
        partitions: "directions blocked",
        holds: "machines held up",
        jumps: "times all timers were late",
        slow_logs: "slow logs",
        full_logs: "full logs",
        broken_logs: "broken logs",
        datagrams: "datagrams",
        lost: "datagrams lost",
        doubled: "datagrams doubled",
        late: "datagrams late",
        blocked: "datagrams blocked",
    }
}

/// Runs the network code under one seed.
///
/// # Errors
/// [`SimFailure`] when an invariant is broken.
pub fn simulate_glue(seed: u64) -> Result<GlueReport, SimFailure> {
    run(seed, None)
}

/// Plants each known fault in the network code, one after another. Returns each fault's name with
/// the first failure of `seeds` runs; `None` if no run detects it.
#[must_use]
pub fn glue_mutants(seeds: u64) -> Vec<(String, Option<SimFailure>)> {
    let find = |fault| (0..seeds).find_map(|seed| run(seed, Some(fault)).err());
    GlueFault::ALL.iter().map(|fault| (format!("{fault:?}"), find(*fault))).collect()
}

fn run(seed: u64, fault: Option<GlueFault>) -> Result<GlueReport, SimFailure> {
    in_scene(seed, fault, async |scene| world::World::new(scene).run().await)
}

/// Runs `run` in simulated time.
fn in_scene<R>(
    seed: u64,
    fault: Option<GlueFault>,
    run: impl AsyncFnOnce(&Arc<Scene>) -> R,
) -> Result<R, SimFailure> {
    let failed = |what: String| SimFailure { seed, at: <_>::default(), what, trace: Vec::new() };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| failed(error.to_string()))?;
    let scene = {
        let _within = runtime.enter();
        Scene::new(seed, fault)
    };
    let _entered = scene::enter(&scene);
    let report = runtime.block_on(run(&scene));
    drop(runtime);
    scene.join();
    match scene.failure() {
        None => Ok(report),
        Some((at, what)) => Err(SimFailure { seed, at, what, trace: scene.trace() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_code_keeps_its_promises_for_many_seeds() {
        let mut sum = GlueReport::default();
        for seed in 0..50 {
            sum.add(&simulate_glue(seed).unwrap_or_else(|failure| panic!("{failure}")));
        }
        for (name, figure) in sum.figures() {
            assert!(figure > 0, "no {name} in any run");
        }
    }

    #[test]
    fn a_seed_repeats_its_load_and_its_faults() {
        let planned = |seed| {
            let report = simulate_glue(seed).unwrap_or_else(|failure| panic!("{failure}"));
            (report.workers, report.tasks, report.faults, report.partitions, report.jumps)
        };
        assert_eq!(planned(3), planned(3));
        assert_ne!(planned(3), planned(4));
    }

    #[test]
    fn every_fault_planted_in_the_network_code_is_caught() {
        for (name, caught) in glue_mutants(300) {
            let caught = caught.unwrap_or_else(|| panic!("{name} was not caught"));
            assert!(!caught.trace.is_empty(), "{caught}");
        }
    }
}
