//! The fate of a message: delayed, lost, repeated, reordered, or cut off by a partition.

use super::SimReport;
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest delay of a message. Failure detection allows for it.
pub(super) const DELAY_MAX: Duration = Duration::from_millis(250);

/// Directions of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    ToCoordinator,
    ToWorker,
}

/// The links between the coordinator and each worker.
pub(super) struct Network {
    loss: f64,
    duplication: f64,
    /// Share of messages that take much longer than others.
    spikes: f64,
    partitions: BTreeMap<usize, Duration>,
    latest: BTreeMap<(usize, Way), Duration>,
}

impl Network {
    /// A network whose faults depend on the seed.
    pub(super) fn new(rng: &mut Xoshiro256PlusPlus) -> Self {
        let reliable = rng.random_bool(0.3);
        let up_to = |max: f64, rng: &mut Xoshiro256PlusPlus| rng.random_range(0.0..max);
        Self {
            loss: if reliable { 0.0 } else { up_to(0.15, rng) },
            duplication: if reliable { 0.0 } else { up_to(0.1, rng) },
            spikes: up_to(0.2, rng),
            partitions: BTreeMap::new(),
            latest: BTreeMap::new(),
        }
    }

    /// From now on every message arrives once and soon.
    pub(super) fn heal(&mut self) {
        (self.loss, self.duplication, self.spikes) = (0.0, 0.0, 0.0);
        self.partitions.clear();
    }

    /// Cuts a worker off until a time.
    pub(super) fn partition(&mut self, worker: usize, until: Duration) {
        self.partitions.insert(worker, until);
    }

    /// Arrival times of a message that is sent now: none, one or two.
    pub(super) fn send(
        &mut self,
        now: Duration,
        worker: usize,
        way: Way,
        rng: &mut Xoshiro256PlusPlus,
        report: &mut SimReport,
    ) -> Vec<Duration> {
        report.messages += 1;
        let cut = self.partitions.get(&worker).is_some_and(|until| now < *until);
        if cut || rng.random_bool(self.loss) {
            report.lost += 1;
            return Vec::new();
        }
        let copies = if rng.random_bool(self.duplication) { 2 } else { 1 };
        report.duplicated += copies - 1;
        (0..copies)
            .map(|_| {
                let max = if rng.random_bool(self.spikes) { DELAY_MAX } else { DELAY_MAX / 50 };
                let arrival = now + max.mul_f64(rng.random_range(0.01..1.0));
                let latest = self.latest.entry((worker, way)).or_default();
                report.reordered += u64::from(arrival < *latest);
                *latest = arrival.max(*latest);
                arrival
            })
            .collect()
    }
}
