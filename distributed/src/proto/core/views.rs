//! What callers see of tasks and workers.

use super::Core;
use super::membership::info;
use crate::proto::placement::Seat;
use crate::proto::tasks::Task;
use crate::task::{ModelRef, TaskId, TaskRecord};
use crate::worker_info::{TaskCounts, WorkerInfo};
use std::time::Duration;

impl Core {
    /// Whether a worker of that name is connected, or was and may come back.
    pub(crate) fn is_known(&self, worker: &str) -> bool {
        self.placement.fleet().named(worker).is_some()
    }

    /// Whether a task is known and not terminal.
    pub(crate) fn is_open(&self, id: TaskId) -> bool {
        self.tasks.of(id).is_some_and(|task| !task.is_terminal())
    }

    /// Whether a task is acknowledged: the journal has it, or need not.
    pub(crate) fn is_saved(&self, id: TaskId) -> bool {
        self.tasks.get(id.seq).is_none_or(Task::is_saved)
    }

    /// Whether a task's end is known and waits for the journal.
    #[cfg(feature = "planted")]
    pub fn is_ending(&self, id: TaskId) -> bool {
        self.tasks.get(id.seq).is_some_and(Task::is_ending)
    }

    /// Whether every task is terminal.
    pub fn is_idle(&self) -> bool {
        self.tasks.open() == 0
    }

    /// A task's record as it is now, where its whole record is in memory.
    #[cfg(test)]
    pub(crate) fn record(&self, now: Duration, id: TaskId) -> crate::error::Result<TaskRecord> {
        Ok(*self.find(now, id)?.here())
    }

    /// The same by number, for tasks that are known to be there.
    pub fn record_of(&self, now: Duration, seq: u64) -> Option<TaskRecord> {
        Some(self.tasks.get(seq)?.record(now))
    }

    /// Tasks that have not ended and end with the coordinator.
    pub(crate) fn fleeting(&self) -> usize {
        let fleeting = |task: &&Task| !task.is_terminal() && !task.request().is_durable();
        self.tasks.iter().filter(fleeting).count()
    }

    /// Tasks whose whole records are in memory.
    #[cfg(any(test, feature = "planted"))]
    pub fn known(&self) -> usize {
        self.tasks.iter().count()
    }

    /// The task that a key stands for.
    #[cfg(feature = "planted")]
    pub fn by_key(&self, key: &str) -> Option<TaskId> {
        self.tasks.by_key(key).map(|(id, _)| id)
    }

    /// Tasks by state.
    pub fn counts(&self) -> TaskCounts {
        self.tasks.counts()
    }

    pub(crate) fn balancing(&self) -> &'static str {
        self.scheduler.strategy().name()
    }

    /// Whether no device of a worker is about to get a model.
    pub(crate) fn is_settled(&self, id: &str) -> bool {
        let fleet = self.placement.fleet();
        let worker = fleet.named(id);
        worker.is_some_and(|worker| !fleet.seats_of(worker).any(Seat::is_moving))
    }

    /// Every listed worker, by name.
    pub(crate) fn workers(&self, now: Duration) -> Vec<WorkerInfo> {
        let fleet = self.placement.fleet();
        let described = fleet.by_name().map(|worker| {
            let hangs = |device: &str| self.placement.hangs_of(worker.machine(), device);
            let bytes = |seat: &Seat, model: &ModelRef| self.placement.bytes(seat, model);
            info(now, worker, fleet.seats_of(worker).collect(), (hangs, bytes))
        });
        described.collect()
    }
}
