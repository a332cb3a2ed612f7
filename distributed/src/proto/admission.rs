//! Submissions: what is accepted, alone or as a graph of tasks that depend on one another.

use crate::error::{Error, Result};
use crate::proto::core::Core;
use crate::proto::state::{Digest, Planted, Task, Timer};
use crate::proto::why::{What, note};
use crate::task::{ModelRef, TaskError, TaskErrorKind, TaskId, TaskSpec, TaskState};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Tasks that one task may depend on.
pub(crate) const DEPENDENCIES_MAX: usize = 256;

/// A task that was checked and may be submitted.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) spec: Arc<TaskSpec>,
    /// Bytes of its inputs.
    pub(crate) input_bytes: usize,
    /// Bytes that it takes in the queue: none where its inputs lie on the disk.
    pub(crate) queued_bytes: usize,
    /// What tells its body from another one, if it has an idempotency key.
    pub(crate) digest: Digest,
    /// Tasks of the same submission that it depends on, by their position.
    pub(crate) within: Vec<usize>,
}

impl Core {
    /// Accepts a task.
    pub(crate) fn submit(&mut self, now: Duration, order: Order) -> Result<TaskId> {
        if let Some(existing) = self.existing(&order)? {
            return Ok(existing);
        }
        self.check_dependencies(&order, &[])?;
        self.admit(1, order.queued_bytes, usize::from(order.spec.idempotency_key.is_some()))?;
        let id = self.accept(now, order);
        self.schedule(now);
        Ok(id)
    }

    /// What would become of a task: the one that its key stands for already, or a refusal. What comes
    /// meanwhile may change that.
    pub(crate) fn foresee(&mut self, order: &Order) -> Result<Option<TaskId>> {
        let existing = self.existing(order)?;
        if existing.is_none() {
            self.admit(1, order.queued_bytes, usize::from(order.spec.idempotency_key.is_some()))?;
        }
        Ok(existing)
    }

    /// The number of the next task that is accepted.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Accepts all tasks or none. Answers their ids in the same order.
    pub(crate) fn submit_all(
        &mut self,
        now: Duration,
        mut orders: Vec<Order>,
    ) -> Result<Vec<TaskId>> {
        let first = same_key(&orders)?;
        for order in &mut orders {
            for other in &mut order.within {
                *other = first.get(*other).copied().unwrap_or(*other);
            }
        }
        let sequence = in_dependency_order(&orders)?;
        let mut ids = vec![None; orders.len()];
        let (mut fresh, mut bytes, mut keyed) = (0usize, 0usize, 0usize);
        for (at, order) in orders.iter().enumerate() {
            ids[at] = self.existing(order)?;
            if ids[at].is_none() && first[at] == at {
                self.check_dependencies(order, &orders)?;
                fresh += 1;
                bytes = bytes.saturating_add(order.queued_bytes);
                keyed += usize::from(order.spec.idempotency_key.is_some());
            }
        }
        if fresh > 0 {
            self.admit(fresh, bytes, keyed)?;
        }
        for at in sequence {
            if ids[at].is_some() || first[at] != at {
                continue;
            }
            let mut order = orders[at].clone();
            let within: Vec<TaskId> = order.within.iter().filter_map(|&i| ids[i]).collect();
            if !within.is_empty() {
                Arc::make_mut(&mut order.spec).depends_on.extend(within);
            }
            ids[at] = Some(self.accept(now, order));
        }
        self.schedule(now);
        Ok(first.iter().filter_map(|&at| ids[at]).collect())
    }

    /// The task that an idempotency key stands for already.
    fn existing(&self, order: &Order) -> Result<Option<TaskId>> {
        let Some(key) = &order.spec.idempotency_key else { return Ok(None) };
        let Some(&(seq, known)) = self.keys.get(key) else { return Ok(None) };
        let Some(task) = self.tasks.get(&seq) else { return Ok(None) };
        let existing = TaskId { epoch: task.epoch, seq };
        if known == order.digest {
            Ok(Some(existing))
        } else {
            Err(Error::Conflict { key: key.clone(), existing })
        }
    }

    /// Checks what a task of a submission depends on.
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
            let task = self.tasks.get(&self.find(*id)?);
            if spec.durable && task.is_some_and(|t| !t.durable && !t.state.is_terminal()) {
                let message = format!("a durable task cannot depend on task {id}, which is not");
                return Err(Error::InvalidTask { message });
            }
        }
        Ok(())
    }

    fn admit(&mut self, tasks: usize, bytes: usize, keyed: usize) -> Result<()> {
        if self.stopped {
            return Err(Error::Stopped);
        }
        if self.draining {
            return Err(Error::Draining);
        }
        let queued = usize::try_from(self.history.open() - self.history.running);
        let queued = queued.unwrap_or(usize::MAX);
        let full = queued.saturating_add(tasks) > self.config.queue_tasks_max
            || self.queued_bytes.saturating_add(bytes) > self.config.queue_bytes_max;
        // Whatever its size, a task is accepted by an empty queue: else it never would be.
        let no_room = full && (queued > 0 || tasks > 1);
        // What a key stands for must stay for its time, so no more come than can be kept.
        let many = self.keys.len().saturating_add(keyed) > self.config.keys_max
            || self.history.keyed_bytes() > self.config.retained_bytes_max;
        let no_keys = keyed > 0 && many;
        if no_room || no_keys {
            self.history.overloaded += 1;
            let retry_after = self.history.time_for(queued);
            let queued_bytes = self.queued_bytes;
            return Err(Error::Overloaded { queued, queued_bytes, retry_after });
        }
        Ok(())
    }

    fn accept(&mut self, now: Duration, order: Order) -> TaskId {
        let Order { mut spec, input_bytes, queued_bytes, digest, .. } = order;
        if spec.durable {
            // What succeeded already and is not durable would be missed after a restart.
            let done = |id: &TaskId| {
                let task = self.tasks.get(&id.seq);
                task.is_some_and(|t| !t.durable && t.state == TaskState::Succeeded)
            };
            if spec.depends_on.iter().any(done) {
                Arc::make_mut(&mut spec).depends_on.retain(|id| !done(id));
            }
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        let model = self.shared_model(&spec.model);
        let mut task = Task::new(self.config.epoch, now, spec, model, digest);
        (task.input_bytes, task.queued_bytes) = (input_bytes, queued_bytes);
        if self.planted == Planted::Starve {
            task.due += 10 * task.due.saturating_sub(now);
        }
        let failed = self.depend(seq, &mut task);
        self.insert(seq, task);
        self.history.submitted += 1;
        if self.is_durable(seq) {
            self.save(seq);
        }
        if let Some(id) = failed {
            self.fail_dependant(now, seq, id);
        }
        self.enqueue(seq);
        TaskId { epoch: self.config.epoch, seq }
    }

    /// Adds a task that is new to this coordinator.
    pub(super) fn insert(&mut self, seq: u64, task: Task) {
        if let Some((key, digest)) = &task.key {
            self.keys.insert(key.clone(), (seq, *digest));
        }
        if let Some(deadline) = task.deadline {
            self.timers.insert((deadline, Timer::Deadline(seq)));
        }
        if task.state == TaskState::Queued {
            self.queued_bytes = self.queued_bytes.saturating_add(task.queued_bytes);
        }
        self.tasks.insert(seq, Box::new(task));
    }

    /// Puts a task into the queue, if nothing but a free device is missing.
    pub(super) fn enqueue(&mut self, seq: u64) {
        if let Some(task) = self.tasks.get(&seq).filter(|task| task.may_run()) {
            self.queue.push(&task.model, task.place(seq), task.priority);
        }
    }

    /// One copy of a model's name for all of its tasks.
    pub(super) fn shared_model(&self, model: &ModelRef) -> Arc<ModelRef> {
        match self.models.get_key_value(model) {
            Some((_, wanted)) => Arc::clone(&wanted.model),
            None => Arc::new(model.clone()),
        }
    }

    /// Notes what a task waits for; answers a dependency that did not succeed.
    pub(super) fn depend(&mut self, seq: u64, task: &mut Task) -> Option<TaskId> {
        let mut failed = None;
        let mut ids = task.depends_on.clone();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let known = self.tasks.get_mut(&id.seq).filter(|other| other.epoch == id.epoch);
            let Some(other) = known else {
                // Records stay while others need them: this one was never accepted.
                failed = Some(id);
                continue;
            };
            if self.planted != Planted::ForgetPins {
                other.pins += 1;
            }
            if self.planted == Planted::IgnoreDependencies {
                continue;
            }
            if !other.state.is_terminal() {
                other.dependants.push(seq);
                task.waits += 1;
            } else if other.state != TaskState::Succeeded {
                failed = Some(id);
            }
        }
        failed
    }

    /// A task is terminal: nobody needs those that it depended on for its sake.
    pub(super) fn unpin(&mut self, seq: u64) {
        let mut ids = self.tasks.get(&seq).map(|t| t.depends_on.clone()).unwrap_or_default();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let Some(task) = self.tasks.get_mut(&id.seq) else { continue };
            task.pins = task.pins.saturating_sub(1);
            task.dependants.retain(|dependant| *dependant != seq);
            if task.pins == 0 && task.state.is_terminal() {
                self.retain(id.seq);
            }
        }
    }

    /// A task ended: those that depend on it run, or end with it.
    pub(super) fn settle_dependants(&mut self, now: Duration, seq: u64) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        let id = TaskId { epoch: task.epoch, seq };
        let succeeded =
            task.state == TaskState::Succeeded || self.planted == Planted::KeepDependants;
        let dependants = std::mem::take(&mut task.dependants);
        for dependant in dependants {
            if !succeeded {
                self.fail_dependant(now, dependant, id);
                continue;
            }
            let Some(task) = self.tasks.get_mut(&dependant) else { continue };
            task.waits = task.waits.saturating_sub(1);
            note(&mut task.notes, now, What::DependencyDone(id));
            self.enqueue(dependant);
        }
    }

    pub(super) fn fail_dependant(&mut self, now: Duration, seq: u64, id: TaskId) {
        let task = self.tasks.get(&id.seq);
        let message = match task.map(|task| (task.state, &task.error)) {
            // Down a long chain the first failure is the one that matters.
            Some((_, Some(error))) if error.code == TaskErrorKind::DependencyFailed => {
                error.message.clone()
            }
            Some((state, Some(error))) => {
                format!("task {id}, on which it depends, ended: {state}: {error}")
            }
            Some((state, None)) => format!("task {id}, on which it depends, ended: {state}"),
            None => format!("task {id}, on which it depends, is not known"),
        };
        let error = TaskError::new(TaskErrorKind::DependencyFailed, message);
        self.abort(now, seq, TaskState::Failed, error);
    }
}

/// Positions in an order in which each comes after those that it depends on.
fn in_dependency_order(orders: &[Order]) -> Result<Vec<usize>> {
    let invalid = |message: String| Err(Error::InvalidTask { message });
    let mut missing = vec![0usize; orders.len()];
    let mut dependants = vec![Vec::new(); orders.len()];
    for (at, order) in orders.iter().enumerate() {
        for &other in &order.within {
            let Some(list) = dependants.get_mut(other) else {
                let last = orders.len() - 1;
                return invalid(format!("task {at} depends on task {other} of 0 to {last}"));
            };
            list.push(at);
            missing[at] += 1;
        }
    }
    // Kahn's algorithm: what waits for nothing comes first.
    let mut sequence: Vec<usize> = (0..orders.len()).filter(|&at| missing[at] == 0).collect();
    let mut next = 0;
    while let Some(&at) = sequence.get(next) {
        next += 1;
        for &dependant in &dependants[at] {
            missing[dependant] -= 1;
            if missing[dependant] == 0 {
                sequence.push(dependant);
            }
        }
    }
    if sequence.len() < orders.len() {
        let cycle: Vec<String> =
            (0..orders.len()).filter(|&at| missing[at] > 0).map(|at| at.to_string()).collect();
        let cycle = cycle.join(", ");
        return invalid(format!("tasks {cycle} of the batch depend on one another in a circle"));
    }
    Ok(sequence)
}

/// For each position the first with the same idempotency key: they are one task.
fn same_key(orders: &[Order]) -> Result<Vec<usize>> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut first = Vec::with_capacity(orders.len());
    for (at, order) in orders.iter().enumerate() {
        let Some(key) = order.spec.idempotency_key.as_deref() else {
            first.push(at);
            continue;
        };
        let known = *seen.entry(key).or_insert(at);
        if orders[known].digest != order.digest {
            let message =
                format!("tasks {known} and {at} of the batch have the key {key:?} and differ");
            return Err(Error::InvalidTask { message });
        }
        first.push(known);
    }
    Ok(first)
}
