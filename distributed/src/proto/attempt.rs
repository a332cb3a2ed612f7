//! Attempts: begun by the scheduler, ended by an answer, a refusal or a loss.

use crate::executor::{ExecError, ExecErrorKind};
use crate::proto::backoff::full_jitter;
use crate::proto::core::Core;
use crate::proto::message::AttemptId;
use crate::proto::state::{Action, Completion, Planted, SessionId, Timer};
use crate::task::{TaskError, TaskErrorKind, TaskState};
use std::time::Duration;

impl Core {
    /// Hands the task to a worker, which must have a free slot.
    pub(super) fn dispatch(&mut self, now: Duration, seq: u64, worker: usize) {
        let (Some(task), Some(worker)) = (self.tasks.get_mut(&seq), self.workers.get_mut(worker))
        else {
            return;
        };
        let Some(spec) = task.spec.clone() else { return };
        let place = task.place(seq);
        self.queue.remove(&task.model, place);
        task.state = TaskState::Running;
        task.attempts += 1;
        task.session = Some(worker.session);
        task.worker = Some(worker.id.clone());
        task.queued = Some(now.saturating_sub(task.submitted));
        let id = AttemptId { epoch: self.config.epoch, seq, attempt: task.attempts };
        self.history.running += 1;
        self.dispatches += 1;
        worker.last_dispatch = self.dispatches;
        worker.held.insert(id, now);
        self.actions.push_back(Action::Dispatch { session: worker.session, id, spec });
    }

    /// Takes an attempt's end. False when it is not the task's current attempt: such an answer
    /// changes nothing but the slot that it frees.
    pub(crate) fn complete(
        &mut self,
        now: Duration,
        session: SessionId,
        id: AttemptId,
        completion: Completion,
    ) -> bool {
        let finished = matches!(completion, Completion::Done { .. } | Completion::Error { .. });
        let mut held = false;
        if let Some(worker) = self.live(session) {
            worker.last_seen = now;
            held = worker.held.remove(&id).is_some();
            worker.completed += u64::from(held && finished);
        }
        let accepted = (held && self.is_current(session, id))
            || (self.planted == Planted::AcceptStale && self.is_running(id.seq));
        if accepted {
            self.conclude(now, session, id.seq, completion);
        } else {
            self.history.stale += 1;
        }
        self.dismiss_if_done(session);
        self.schedule(now);
        accepted
    }

    fn conclude(&mut self, now: Duration, session: SessionId, seq: u64, completion: Completion) {
        match completion {
            Completion::Done { outputs, model } => {
                self.finish(now, seq, TaskState::Succeeded, Ok(outputs), Some(model));
            }
            Completion::Error { error, .. } if error.kind == ExecErrorKind::Unavailable => {
                self.fail_attempt(now, seq, task_error(error));
            }
            Completion::Error { error, model } => {
                self.finish(now, seq, TaskState::Failed, Err(task_error(error)), Some(model));
            }
            Completion::Refused => {
                // Its message that it leaves may still be under way.
                self.give_back(seq);
                self.worker_leaves(session);
            }
            Completion::Broken { reason } => {
                let error = TaskError::new(TaskErrorKind::WorkerLost, reason);
                self.fail_attempt(now, seq, error);
            }
        }
    }

    /// A cancelled attempt has let go of its slot.
    pub(crate) fn released(&mut self, now: Duration, session: SessionId, id: AttemptId) {
        // Only what nobody waits for may be let go without an answer.
        if self.is_current(session, id) {
            return;
        }
        if let Some(worker) = self.live(session) {
            worker.held.remove(&id);
        }
        self.dismiss_if_done(session);
        self.schedule(now);
    }

    /// Whether the attempt is the one whose answer the task waits for.
    pub(crate) fn is_current(&self, session: SessionId, id: AttemptId) -> bool {
        id.epoch == self.config.epoch
            && self.tasks.get(&id.seq).is_some_and(|t| {
                t.state == TaskState::Running
                    && t.session == Some(session)
                    && t.attempts == id.attempt
            })
    }

    fn is_running(&self, seq: u64) -> bool {
        self.tasks.get(&seq).is_some_and(|t| t.state == TaskState::Running)
    }

    /// The attempt ended without an answer: try again, unless that happened too often.
    ///
    /// The first loss of a worker is redone at once; what fails again waits longer and longer.
    /// Losses count against `max_attempts` too, else a task that kills its workers would go
    /// through the whole cluster.
    pub(super) fn fail_attempt(&mut self, now: Duration, seq: u64, error: TaskError) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        task.failures += 1;
        let allowed = task.spec.as_ref().map_or(1, |s| s.max_attempts.max(1));
        if task.failures >= allowed {
            let message = format!("gave up after {} attempts: {error}", task.attempts);
            let error = TaskError::new(error.code, message);
            self.finish(now, seq, TaskState::Failed, Err(error), None);
            return;
        }
        self.history.retries += 1;
        let at_once = task.failures == 1 && error.code == TaskErrorKind::WorkerLost;
        let timing = &self.config.timing;
        let wait = if at_once {
            Duration::ZERO
        } else {
            full_jitter(task.failures, timing.retry_base, timing.retry_max, &mut self.rng)
        };
        let at = now + wait;
        task.retry_at = (!at_once).then_some(at);
        self.give_back(seq);
    }

    /// The task waits again: in its old place in the queue, or for its time to come.
    pub(super) fn give_back(&mut self, seq: u64) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        if task.state == TaskState::Running {
            self.history.running -= 1;
        }
        task.state = TaskState::Queued;
        task.session = None;
        task.queued = None;
        match task.retry_at {
            Some(at) => {
                self.timers.insert((at, Timer::Retry(seq)));
            }
            None => self.requeue(seq),
        }
    }

    /// Puts a waiting task into the queue.
    pub(super) fn requeue(&mut self, seq: u64) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        task.retry_at = None;
        if task.state == TaskState::Queued {
            let place = task.place(seq);
            self.queue.push(&task.model, place, task.input_bytes);
        }
    }
}

/// An executor's error as a task's error.
pub(super) fn task_error(error: ExecError) -> TaskError {
    let code = match error.kind {
        ExecErrorKind::BadInput => TaskErrorKind::BadInput,
        ExecErrorKind::ModelNotFound => TaskErrorKind::ModelNotFound,
        ExecErrorKind::Failed => TaskErrorKind::ModelFailed,
        ExecErrorKind::Unavailable => TaskErrorKind::Unavailable,
    };
    TaskError::new(code, error.message)
}
