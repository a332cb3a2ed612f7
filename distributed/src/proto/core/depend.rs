//! Tasks that depend on others: they wait for them, and end with those that do not succeed.

use super::Core;
use crate::proto::tasks::Task;
use crate::task::{TaskError, TaskErrorKind, TaskId, TaskState};
use std::time::Duration;

impl Core {
    /// Notes the tasks that a new task waits for; returns a dependency that did not succeed.
    pub(super) fn depend(&mut self, task: &mut Task) -> Option<TaskId> {
        let mut failed = None;
        for id in task.dependencies() {
            let Some(standing) = self.standing(id) else {
                // Records that other tasks need stay, so this one was never accepted.
                failed = Some(id);
                continue;
            };
            if !planted!(self, ForgetPins) {
                self.pin(id.seq);
            }
            if planted!(self, IgnoreDependencies) {
                continue;
            }
            match standing.state {
                TaskState::Queued | TaskState::Running => {
                    if let Some(mut other) = self.tasks.entry(id.seq) {
                        other.add_dependant(task.id().seq);
                        task.wait_for_one();
                    }
                }
                TaskState::Succeeded => {}
                TaskState::Failed | TaskState::Cancelled => failed = Some(id),
            }
        }
        failed
    }

    /// Keeps the record of a task for one more task that depends on it.
    fn pin(&mut self, seq: u64) {
        if let Some(mut task) = self.tasks.entry(seq) {
            task.pin();
        }
        self.ledger.records_mut().pin(seq);
    }

    /// A task is terminal: it does not need the records of its dependencies any more.
    pub(super) fn unpin(&mut self, seq: u64) {
        for id in self.tasks.get(seq).map(Task::dependencies).unwrap_or_default() {
            self.ledger.records_mut().unpin(id.seq);
            let Some(mut task) = self.tasks.entry(id.seq) else { continue };
            task.unpin(seq);
            if !task.is_pinned() && task.is_terminal() {
                self.retain(id.seq);
            }
        }
    }

    /// A task ended: the tasks that depend on it run, or end with it.
    pub(super) fn settle_dependants(&mut self, now: Duration, seq: u64) {
        let Some(mut task) = self.tasks.entry(seq) else { return };
        let id = task.id();
        let succeeded = task.state() == TaskState::Succeeded || planted!(self, KeepDependants);
        for dependant in task.take_dependants() {
            if !succeeded {
                self.fail_dependant(now, dependant, id);
            } else if let Some(mut task) = self.tasks.entry(dependant) {
                task.dependency_done(now, id);
                self.enqueue(dependant);
            }
        }
    }

    pub(super) fn fail_dependant(&mut self, now: Duration, seq: u64, id: TaskId) {
        let task = self.tasks.get(id.seq);
        let message = match task.map(|task| (task.state(), task.error())) {
            // Down a long chain the first failure is the one that matters.
            Some((_, Some(error))) if error.code == TaskErrorKind::DependencyFailed => {
                error.message.clone()
            }
            Some((state, Some(error))) => {
                let why = error.told();
                format!(
                    "it depends, directly or through others, on task {id}, which ended: {state}: {why}"
                )
            }
            Some((state, None)) => format!("task {id}, on which it depends, ended: {state}"),
            None => match self.standing(id) {
                Some(known) => format!("task {id}, on which it depends, ended: {}", known.state),
                None => format!("task {id}, on which it depends, is not known"),
            },
        };
        let error = TaskError::new(TaskErrorKind::DependencyFailed, message);
        self.abort(now, seq, TaskState::Failed, error);
    }
}
