//! Attempts: begun by the scheduler, ended by an answer, a refusal or a loss.

use crate::executor::{ExecError, ExecErrorKind};
use crate::proto::affinity::{Affinity, Home};
use crate::proto::backoff::full_jitter;
use crate::proto::balance::Choice;
use crate::proto::core::Core;
use crate::proto::fleet::Held;
use crate::proto::message::AttemptId;
use crate::proto::state::{Action, Completion, Planted, Run, SessionId, Timer};
use crate::proto::why::{What, note};
use crate::task::{TaskError, TaskErrorKind, TaskState};
use std::sync::Arc;
use std::time::Duration;

impl Core {
    /// Hands the task to a device, which must have a free slot. False when there is no such
    /// task or device.
    pub(super) fn dispatch(&mut self, now: Duration, seq: u64, choice: Choice) -> bool {
        let (Some(task), Some(seat)) =
            (self.tasks.get_mut(&seq), self.fleet.seats.get_mut(choice.seat))
        else {
            return false;
        };
        let Some(spec) = task.spec.clone() else { return false };
        let Some(worker) = self.fleet.workers.get_mut(&seat.session) else { return false };
        let rival = task.state == TaskState::Running;
        if !rival {
            self.queue.remove(&task.model, task.place(seq));
            task.state = TaskState::Running;
            self.history.running += 1;
            self.queued_bytes = self.queued_bytes.saturating_sub(task.input_bytes);
        }
        if task.attempts == 0 {
            self.budget.deposit();
        }
        task.attempts += 1;
        task.runs.push(Run { session: seat.session, attempt: task.attempts });
        task.worker = Some(worker.id.clone());
        task.queued = Some(now.saturating_sub(task.submitted));
        let id = AttemptId { epoch: self.config.epoch, seq, attempt: task.attempts };
        self.dispatches += 1;
        let held = Held { confirmed: now, model: Arc::clone(&task.model) };
        seat.held.insert(id, held);
        let (session, device) = (seat.session, seat.ordinal);
        let sent = What::Sent {
            worker: worker.id.clone(),
            device,
            attempt: id.attempt,
            strategy: self.config.balancing.name(),
            reason: choice.reason,
            score: choice.score,
            rival,
        };
        note(&mut task.notes, now, sent);
        if let Some(key) = &spec.affinity {
            let home = Home { worker: worker.id.clone(), ordinal: device };
            self.affinity.remember(now, Affinity::key(&spec.model.name, key), home);
        }
        if let Some(after) = spec.hedge_after.filter(|_| !rival) {
            self.timers.insert((now + after, Timer::Hedge(seq, id.attempt)));
        }
        let probes = worker.breakers.get_mut(&spec.model).is_some_and(|b| b.passed());
        if probes {
            self.capabilities.forget(&spec.model);
        }
        if let Some(hot) = self.fleet.hot.get_mut(choice.seat) {
            hot.last_dispatch = self.dispatches;
        }
        self.fleet.refresh(choice.seat);
        self.actions.push_back(Action::Dispatch { session, device, id, spec });
        true
    }

    /// Takes an attempt's end. False when it is not a current attempt of its task: such an answer
    /// changes nothing but the slot that it frees.
    pub(crate) fn complete(
        &mut self,
        now: Duration,
        session: SessionId,
        id: AttemptId,
        completion: Completion,
    ) -> bool {
        let finished = matches!(completion, Completion::Done { .. } | Completion::Error { .. });
        self.judge(now, session, id, &completion);
        let held = self.fleet.release(session, id).is_some();
        self.fleet.heard(session, now);
        if let Some(worker) = self.fleet.live(session) {
            worker.completed += u64::from(held && finished);
        }
        let known = self.is_running(id.seq) && !self.has_ended(id.seq);
        let accepted = (held && self.is_current(session, id))
            || (self.planted == Planted::AcceptStale && known)
            || (self.planted == Planted::IgnoreEpoch && known && id.epoch != self.config.epoch);
        if accepted {
            self.conclude(now, session, id, completion);
        } else {
            self.history.stale += 1;
        }
        self.dismiss_if_done(session);
        self.schedule(now);
        accepted
    }

    fn conclude(
        &mut self,
        now: Duration,
        session: SessionId,
        id: AttemptId,
        completion: Completion,
    ) {
        let seq = id.seq;
        match completion {
            Completion::Done { outputs, model } => {
                self.close_run(now, seq, session, id.attempt);
                self.finish(now, seq, TaskState::Succeeded, Ok(outputs), Some(model));
            }
            Completion::Error { error, .. } if error.kind == ExecErrorKind::Unavailable => {
                self.fail_attempt(now, id, session, task_error(error));
            }
            Completion::Error { error, model } => {
                self.close_run(now, seq, session, id.attempt);
                self.finish(now, seq, TaskState::Failed, Err(task_error(error)), Some(model));
            }
            Completion::Refused => {
                self.give_back(now, id, session);
                // Its message that it leaves may still be under way.
                self.worker_leaves(session);
            }
            Completion::Broken { reason } => {
                let error = TaskError::new(TaskErrorKind::WorkerLost, reason);
                self.fail_attempt(now, id, session, error);
            }
        }
    }

    /// The attempt that answers names the worker and the waiting time of the record.
    fn close_run(&mut self, now: Duration, seq: u64, session: SessionId, attempt: u32) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        let several = task.runs.len() > 1;
        task.runs.retain(|run| *run != Run { session, attempt });
        if several && let Some(worker) = self.fleet.workers.get(&session) {
            task.worker = Some(worker.id.clone());
            let took = task.finished.unwrap_or(now).saturating_sub(task.submitted);
            task.queued = task.queued.map(|queued| queued.min(took));
        }
    }

    /// A cancelled attempt has let go of its slot.
    pub(crate) fn released(&mut self, now: Duration, session: SessionId, id: AttemptId) {
        // Only what nobody waits for may be let go without an answer.
        if self.is_current(session, id) {
            return;
        }
        if let Some(held) = self.fleet.release(session, id) {
            self.abandon_probe(session, &held.model);
        }
        self.dismiss_if_done(session);
        self.schedule(now);
    }

    /// Whether the attempt is one whose answer the task waits for.
    pub(crate) fn is_current(&self, session: SessionId, id: AttemptId) -> bool {
        id.epoch == self.config.epoch
            && self.tasks.get(&id.seq).is_some_and(|t| {
                let run = Run { session, attempt: id.attempt };
                t.state == TaskState::Running && t.ending.is_none() && t.runs.contains(&run)
            })
    }

    fn is_running(&self, seq: u64) -> bool {
        self.tasks.get(&seq).is_some_and(|t| t.state == TaskState::Running)
    }

    fn has_ended(&self, seq: u64) -> bool {
        self.tasks.get(&seq).is_none_or(super::state::Task::has_ended)
    }

    /// The attempt ended without an answer: try again, unless that happened too often.
    ///
    /// The first loss of a worker is redone at once; what fails again waits longer and longer,
    /// and for the budget, which keeps retries from multiplying what made them necessary. Losses
    /// count against `max_attempts` too, else a task that kills its workers would go through the
    /// whole cluster.
    pub(super) fn fail_attempt(
        &mut self,
        now: Duration,
        id: AttemptId,
        session: SessionId,
        error: TaskError,
    ) {
        let Some(task) = self.tasks.get_mut(&id.seq) else { return };
        task.runs.retain(|run| *run != Run { session, attempt: id.attempt });
        if !task.runs.is_empty() {
            let what = What::OneLess { attempt: id.attempt, code: error.code };
            return note(&mut task.notes, now, what);
        }
        task.failures += 1;
        let allowed = task.spec.as_ref().map_or(1, |s| s.max_attempts.max(1));
        if task.failures >= allowed {
            let message = format!("gave up after {} attempts: {error}", task.attempts);
            let error = TaskError::new(error.code, message);
            return self.finish(now, id.seq, TaskState::Failed, Err(error), None);
        }
        if self.planted == Planted::ForgetRetry {
            return;
        }
        self.history.retries += 1;
        let at_once = task.failures == 1 && error.code == TaskErrorKind::WorkerLost;
        let timing = &self.config.timing;
        let (mut wait, mut budget) = (Duration::ZERO, Duration::ZERO);
        if !at_once {
            wait = full_jitter(task.failures, timing.retry_base, timing.retry_max, &mut self.rng);
            self.history.budgeted += 1;
            if self.planted != Planted::IgnoreBudget {
                budget = self.budget.withdraw(now);
            }
        }
        let what = What::Failed { attempt: id.attempt, code: error.code, wait, budget };
        note(&mut task.notes, now, what);
        task.retry_at = (!at_once).then_some(now + wait + budget);
        self.wait_again(id.seq);
    }

    /// The attempt was not begun: the task waits again as if it had not been sent.
    pub(super) fn give_back(&mut self, now: Duration, id: AttemptId, session: SessionId) {
        let Some(task) = self.tasks.get_mut(&id.seq) else { return };
        task.runs.retain(|run| *run != Run { session, attempt: id.attempt });
        note(&mut task.notes, now, What::GivenBack { attempt: id.attempt });
        if task.runs.is_empty() {
            self.wait_again(id.seq);
        }
    }

    /// The task waits: in its old place in the queue, or for its time to come.
    fn wait_again(&mut self, seq: u64) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        if task.state == TaskState::Running {
            self.history.running -= 1;
            self.queued_bytes = self.queued_bytes.saturating_add(task.input_bytes);
        }
        task.state = TaskState::Queued;
        task.queued = None;
        match task.retry_at {
            Some(at) => {
                self.timers.insert((at, Timer::Retry(seq)));
            }
            None => self.enqueue(seq),
        }
    }

    /// The time of a task's next attempt has come.
    pub(super) fn retry(&mut self, seq: u64) {
        if let Some(task) = self.tasks.get_mut(&seq) {
            task.retry_at = None;
        }
        self.enqueue(seq);
    }

    /// An attempt has gone without an answer for so long that it gets a rival, if a device of
    /// another worker is free.
    pub(super) fn hedge(&mut self, now: Duration, seq: u64, attempt: u32) {
        let Some(task) = self.tasks.get(&seq) else { return };
        let [run] = task.runs.as_slice() else { return };
        if task.state != TaskState::Running || task.ending.is_some() || run.attempt != attempt {
            return;
        }
        let (first, model) = (run.session, Arc::clone(&task.model));
        let after = task.spec.as_ref().and_then(|spec| spec.hedge_after).unwrap_or_default();
        if let Some(choice) = self.choose(now, &model, None, Some(first)) {
            self.history.hedges += u64::from(self.dispatch(now, seq, choice));
        } else {
            // Nobody else is free now; someone may be later.
            let again = now + after.max(self.config.timing.retry_base);
            self.timers.insert((again, Timer::Hedge(seq, attempt)));
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
