//! Submissions: tasks are accepted alone, or as a graph of tasks that depend on one another.

mod order;

pub use order::Order;

use super::Core;
use super::batch::{in_dependency_order, same_key};
use crate::error::{Error, Result};
use crate::proto::state::Digest;
use crate::proto::tasks::{Request, Task};
use crate::proto::timers::Timer;
use crate::task::{TaskId, TaskState};
use std::sync::Arc;
use std::time::Duration;

/// Most tasks that one task may depend on.
pub(crate) const DEPENDENCIES_MAX: usize = 256;

impl Core {
    /// Accepts a task.
    pub fn submit(&mut self, now: Duration, order: Order) -> Result<TaskId> {
        if let Some(existing) = self.existing(&order)? {
            return Ok(existing);
        }
        self.check_dependencies(&order, &[])?;
        self.admit(1, order.queued_bytes)?;
        let durable = order.spec.durable;
        let id = self.accept(now, order, !durable);
        if durable {
            self.save(vec![id.seq]);
        }
        self.schedule(now);
        Ok(id)
    }

    /// What a submission would give: the task that its key stands for already, or a refusal. Later
    /// events may change that.
    pub(crate) fn foresee(&mut self, order: &Order) -> Result<Option<TaskId>> {
        let existing = self.existing(order)?;
        if existing.is_none() {
            self.admit(1, order.queued_bytes)?;
        }
        Ok(existing)
    }

    /// Accepts all tasks or none; returns their ids in the same order.
    pub fn submit_all(&mut self, now: Duration, mut orders: Vec<Order>) -> Result<Vec<TaskId>> {
        let first = same_key(&orders)?;
        for order in &mut orders {
            for other in &mut order.within {
                *other = first.get(*other).copied().unwrap_or(*other);
            }
        }
        let sequence = in_dependency_order(&orders)?;
        let mut ids = vec![None; orders.len()];
        let (mut fresh, mut bytes) = (0usize, 0usize);
        for (at, order) in orders.iter().enumerate() {
            ids[at] = self.existing(order)?;
            if ids[at].is_none() && first[at] == at {
                self.check_dependencies(order, &orders)?;
                fresh += 1;
                bytes = bytes.saturating_add(order.queued_bytes);
            }
        }
        if fresh > 0 {
            self.admit(fresh, bytes)?;
        }
        // Durable tasks are saved together, and all tasks begin together.
        let is_new = |at: usize| ids[at].is_none() && first[at] == at;
        let sequence: Vec<usize> = sequence.into_iter().filter(|at| is_new(*at)).collect();
        let durable = sequence.iter().any(|at| orders[*at].spec.durable);
        let mut new = Vec::with_capacity(sequence.len());
        for at in sequence {
            let mut order = orders[at].clone();
            let within: Vec<TaskId> = order.within.iter().filter_map(|&i| ids[i]).collect();
            if !within.is_empty() {
                Arc::make_mut(&mut order.spec).depends_on.extend(within);
            }
            let id = self.accept(now, order, !durable);
            new.push(id.seq);
            ids[at] = Some(id);
        }
        if durable {
            self.save(new);
        }
        self.schedule(now);
        Ok(first.iter().filter_map(|&at| ids[at]).collect())
    }

    /// The task that an idempotency key stands for, the digest of its request, and whether the task
    /// stays: the journal may yet refuse it.
    pub(crate) fn keyed(&self, key: &str) -> Option<(TaskId, Digest, bool)> {
        let (id, digest) = self.tasks.by_key(key)?;
        let stays = self.tasks.get(id.seq).is_none_or(Task::is_saved);
        Some((id, *digest, stays))
    }

    /// The task that an idempotency key stands for already.
    fn existing(&self, order: &Order) -> Result<Option<TaskId>> {
        let Some(key) = &order.spec.idempotency_key else { return Ok(None) };
        match self.tasks.by_key(key) {
            None => Ok(None),
            Some((existing, digest)) if *digest == order.digest => Ok(Some(existing)),
            Some((existing, _)) => Err(Error::Conflict { key: key.clone(), existing }),
        }
    }

    /// Checks the dependencies of a task of a submission.
    fn check_dependencies(&self, order: &Order, orders: &[Order]) -> Result<()> {
        let spec = &order.spec;
        let count = spec.depends_on.len() + order.within.len();
        if count > DEPENDENCIES_MAX {
            let message = format!("it depends on {count} tasks, at most {DEPENDENCIES_MAX} may be");
            return Err(Error::InvalidTask { message });
        }
        if spec.durable && !self.config.durable {
            return Err(Error::NoJournal);
        }
        let fleeting = |at: &&usize| orders.get(**at).is_some_and(|other| !other.spec.durable);
        if let Some(at) = order.within.iter().find(fleeting).filter(|_| spec.durable) {
            let message = format!("a durable task cannot depend on task {at}, which is not");
            return Err(Error::InvalidTask { message });
        }
        for id in &spec.depends_on {
            let other = self.standing(*id).ok_or_else(|| self.missing(*id))?;
            if spec.durable && !other.durable && !other.state.is_terminal() {
                let message = format!("a durable task cannot depend on task {id}, which is not");
                return Err(Error::InvalidTask { message });
            }
        }
        Ok(())
    }

    fn admit(&mut self, tasks: usize, bytes: usize) -> Result<()> {
        if self.stopped {
            return Err(Error::Stopped);
        }
        if self.draining {
            return Err(Error::Draining);
        }
        let queued = usize::try_from(self.tasks.counts().queued).unwrap_or(usize::MAX);
        let queued_bytes = self.tasks.queued_bytes();
        let full = queued.saturating_add(tasks) > self.config.queue_tasks_max
            || queued_bytes.saturating_add(bytes) > self.config.queue_bytes_max;
        // An empty queue accepts a task of any size: otherwise such a task would never run.
        let no_room = full && (queued > 0 || tasks > 1);
        if no_room {
            self.statistics.counters.overloaded += 1;
            let retry_after = self.statistics.time_for(queued);
            return Err(Error::Overloaded { queued, queued_bytes, retry_after });
        }
        Ok(())
    }

    /// Accepts a task, which waits for the journal unless it is `saved`.
    fn accept(&mut self, now: Duration, order: Order, saved: bool) -> TaskId {
        let Order { mut spec, input_bytes, queued_bytes, digest, .. } = order;
        if spec.durable {
            // A task that succeeded already and is not durable would be missing after a restart.
            let done = |id: &TaskId| {
                let other = self.standing(*id);
                other.is_some_and(|it| !it.durable && it.state == TaskState::Succeeded)
            };
            if spec.depends_on.iter().any(done) {
                Arc::make_mut(&mut spec).depends_on.retain(|id| !done(id));
            }
        }
        let id = TaskId { epoch: self.config.epoch, seq: self.tasks.take_seq() };
        let model = self.placement.shared_name(&spec.model);
        let request = Request::new(now, spec, digest, input_bytes, queued_bytes);
        #[cfg(feature = "planted")]
        let request = if planted!(self, Starve) { request.starved(now) } else { request };
        let mut task = Task::new(id, request, model);
        let failed = self.depend(&mut task);
        self.insert(task, saved);
        if let Some(dependency) = failed {
            self.fail_dependant(now, id.seq, dependency);
        }
        self.enqueue(id.seq);
        id
    }

    /// Adds a task that is new to this coordinator, and which the journal has, or is yet to get.
    pub(super) fn insert(&mut self, task: Task, saved: bool) {
        if let Some(deadline) = task.request().deadline() {
            self.timers.set(deadline, Timer::Deadline(task.id().seq));
        }
        self.tasks.insert(task, saved);
    }

    /// Puts a task into the queue, if it waits only for a free device.
    pub(super) fn enqueue(&mut self, seq: u64) {
        if let Some(task) = self.tasks.get(seq) {
            self.scheduler.enqueue(task);
        }
    }
}
