//! Attempts: begun by the scheduler, ended by an answer, a refusal or a loss.

use crate::executor::{ExecError, ExecErrorKind};
use crate::proto::affinity::{Affinity, Home};
use crate::proto::backoff::full_jitter;
use crate::proto::balance::Choice;
use crate::proto::core::Core;
use crate::proto::fleet::Held;
use crate::proto::message::AttemptId;
use crate::proto::recall::Standing;
use crate::proto::schedule::Errand;
use crate::proto::state::{Action, Completion, Planted, Run, SessionId, Timer};
use crate::proto::why::{What, note};
use crate::task::{ModelRef, TaskError, TaskErrorKind, TaskState};
use std::sync::Arc;
use std::time::Duration;

impl Core {
    /// Hands the task to a device, which must have a free slot. False when there is no such
    /// task or device.
    pub(super) fn dispatch(
        &mut self,
        now: Duration,
        seq: u64,
        choice: Choice,
        model: &Arc<ModelRef>,
    ) -> bool {
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
            self.queued_bytes = self.queued_bytes.saturating_sub(task.queued_bytes);
        }
        if task.attempts == 0 {
            self.budget.deposit();
        }
        task.attempts += 1;
        task.away_from = None;
        let queued = now.saturating_sub(task.submitted);
        let (session, attempt) = (seat.session, task.attempts);
        let variant = (*model != task.model).then(|| Arc::clone(model));
        let name = worker.id.clone();
        let run = Run { session, attempt, worker: name, variant: variant.clone(), queued };
        task.runs.push(run);
        task.worker = Some(worker.id.clone());
        task.variant = variant.clone();
        task.queued = Some(queued);
        let id = AttemptId { epoch: self.config.epoch, seq, attempt: task.attempts };
        self.dispatches += 1;
        let standing = Standing::new(task.priority);
        let held = Held { confirmed: now, model: Arc::clone(model), standing };
        seat.held.insert(id, held);
        let device = seat.ordinal;
        let sent = What::Sent {
            worker: worker.id.clone(),
            device,
            attempt: id.attempt,
            strategy: self.config.balancing.name(),
            reason: choice.reason,
            score: choice.score,
            rival,
            variant,
        };
        note(&mut task.notes, now, sent);
        if let Some(key) = &spec.affinity {
            let home = Home { worker: worker.id.clone(), ordinal: device };
            self.affinity.remember(now, Affinity::key(&spec.model.name, key), home);
        }
        let hedge_at = spec.hedge_after.filter(|_| !rival).and_then(|wait| now.checked_add(wait));
        if let Some(at) = hedge_at {
            task.hedge_at = Some((at, id.attempt));
            self.timers.insert((at, Timer::Hedge(seq, id.attempt)));
        }
        let probes = worker.breakers.get_mut(&**model).is_some_and(|b| b.passed(id));
        if probes {
            self.capabilities.forget(model);
        }
        if let Some(hot) = self.fleet.hot.get_mut(choice.seat) {
            hot.last_dispatch = self.dispatches;
        }
        self.fleet.refresh(choice.seat);
        self.actions.push_back(Action::Dispatch {
            session,
            device,
            id,
            model: Arc::clone(model),
            spec,
        });
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
        let held = self.fleet.release(session, id);
        self.fleet.heard(session, now);
        if let Some(worker) = self.fleet.live(session) {
            worker.completed += u64::from(held.is_some() && finished);
        }
        if let (Completion::Done { batch, .. }, Some(_)) = (&completion, &held) {
            self.history.count_run(*batch);
        }
        let known = self.is_running(id.seq) && !self.has_ended(id.seq);
        let accepted = (held.is_some() && self.is_current(session, id))
            || (self.planted == Planted::AcceptStale && known)
            || (self.planted == Planted::IgnoreEpoch && known && id.epoch != self.config.epoch);
        if accepted {
            let recalled = held.and_then(|held| held.standing.recalled);
            match (recalled, completion) {
                (Some(why), Completion::Refused) => self.came_back(now, id, session, why),
                (_, completion) => self.conclude(now, session, id, completion),
            }
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
            Completion::Done { outputs, model, .. } => {
                self.close_run(seq, session, id.attempt);
                self.finish(now, seq, TaskState::Succeeded, Ok(outputs), Some(model));
            }
            Completion::Error { error, .. } if error.kind == ExecErrorKind::Unavailable => {
                self.fail_attempt(now, id, session, task_error(error));
            }
            Completion::Error { error, model } => {
                self.close_run(seq, session, id.attempt);
                self.finish(now, seq, TaskState::Failed, Err(task_error(error)), Some(model));
            }
            Completion::Refused => {
                self.give_back(now, id, session, false);
                // Its message that it leaves may still be under way.
                self.worker_leaves(session);
            }
            Completion::Broken { reason } => {
                let error = TaskError::new(TaskErrorKind::WorkerLost, reason);
                self.fail_attempt(now, id, session, error);
            }
            // The memory is not used again, so this does not repeat itself.
            Completion::Unshared => self.give_back(now, id, session, false),
            Completion::NoInputs { reason } => {
                self.close_run(seq, session, id.attempt);
                let error = TaskError::new(TaskErrorKind::InputsLost, reason);
                self.finish(now, seq, TaskState::Failed, Err(error), None);
            }
        }
    }

    /// The attempt that answers names the worker and the waiting time of the record.
    fn close_run(&mut self, seq: u64, session: SessionId, attempt: u32) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        if let Some(run) = task.run(session, attempt) {
            let Run { worker, variant, queued, .. } = run.clone();
            (task.worker, task.variant, task.queued) = (Some(worker), variant, Some(queued));
        }
        task.drop_run(session, attempt);
    }

    /// A cancelled attempt has let go of its slot.
    pub(crate) fn released(&mut self, now: Duration, session: SessionId, id: AttemptId) {
        // Only what nobody waits for may be let go without an answer.
        if self.is_current(session, id) {
            return;
        }
        if let Some(held) = self.fleet.release(session, id) {
            self.abandon_probe(session, id, &held.model);
        }
        self.dismiss_if_done(session);
        self.schedule(now);
    }

    /// Whether the attempt is one whose answer the task waits for.
    pub(crate) fn is_current(&self, session: SessionId, id: AttemptId) -> bool {
        let task = self.tasks.get(&id.seq);
        id.epoch == self.config.epoch && task.is_some_and(|t| t.awaits(session, id.attempt))
    }

    fn is_running(&self, seq: u64) -> bool {
        self.tasks.get(&seq).is_some_and(|t| t.state == TaskState::Running)
    }

    fn has_ended(&self, seq: u64) -> bool {
        self.tasks.get(&seq).is_none_or(|task| task.has_ended())
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
        // What is durable waits for the next coordinator, and the others have ended.
        if self.stopped {
            return;
        }
        let Some(task) = self.tasks.get_mut(&id.seq) else { return };
        task.drop_run(session, id.attempt);
        if let Some(other) = task.runs.first() {
            let Run { worker, variant, queued, .. } = other.clone();
            (task.worker, task.variant, task.queued) = (Some(worker), variant, Some(queued));
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
        let mut wait = Duration::ZERO;
        if !at_once {
            wait = full_jitter(task.failures, timing.retry_base, timing.retry_max, &mut self.rng);
        }
        let what = What::Failed { attempt: id.attempt, code: error.code, wait };
        note(&mut task.notes, now, what);
        task.budgeted = !at_once && self.planted != Planted::IgnoreBudget;
        task.retry_at = (!at_once).then_some(now + wait);
        self.wait_again(id.seq);
    }

    /// The attempt was not begun: the task waits again as if it had not been sent.
    pub(super) fn give_back(
        &mut self,
        now: Duration,
        id: AttemptId,
        session: SessionId,
        asked: bool,
    ) {
        let Some(task) = self.tasks.get_mut(&id.seq) else { return };
        task.drop_run(session, id.attempt);
        note(&mut task.notes, now, What::GivenBack { attempt: id.attempt, asked });
        if task.runs.is_empty() {
            self.wait_again(id.seq);
        }
    }

    /// The task waits: in its old place in the queue, or for its time to come.
    fn wait_again(&mut self, seq: u64) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        if task.state == TaskState::Running {
            self.history.running -= 1;
            self.queued_bytes = self.queued_bytes.saturating_add(task.queued_bytes);
        }
        task.state = TaskState::Queued;
        task.queued = None;
        if let Some((at, attempt)) = task.hedge_at.take() {
            self.timers.remove(&(at, Timer::Hedge(seq, attempt)));
        }
        match task.retry_at {
            Some(at) => {
                self.timers.insert((at, Timer::Retry(seq)));
            }
            None => self.enqueue(seq),
        }
    }

    /// The time of a task's next attempt has come, if the budget has a token for it.
    pub(super) fn retry(&mut self, now: Duration, seq: u64) {
        let budgeted = self.tasks.get(&seq).is_some_and(|task| task.budgeted);
        if !budgeted || (self.parked.is_empty() && self.budget.take(now)) {
            return self.requeue(seq);
        }
        if self.parked.is_empty() {
            self.timers.insert((now + self.budget.next(now), Timer::Budget));
        }
        self.parked.push_back(seq);
    }

    /// Lets as many parked tasks go as the budget has tokens for, in the order of their coming.
    pub(super) fn release_parked(&mut self, now: Duration) {
        while let Some(&seq) = self.parked.front() {
            // One that has ended meanwhile needs none.
            let waits = self.tasks.get(&seq).is_some_and(|task| task.retry_at.is_some());
            if waits && !self.budget.take(now) {
                self.timers.insert((now + self.budget.next(now), Timer::Budget));
                return;
            }
            self.parked.pop_front();
            if waits {
                self.requeue(seq);
            }
        }
    }

    fn requeue(&mut self, seq: u64) {
        if let Some(task) = self.tasks.get_mut(&seq) {
            task.retry_at = None;
        }
        self.enqueue(seq);
    }

    /// An attempt has gone without an answer for so long that it gets a rival, if a device of
    /// another worker is free.
    pub(super) fn hedge(&mut self, now: Duration, seq: u64, attempt: u32) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        task.hedge_at = None;
        let [run] = task.runs.as_slice() else { return };
        if task.state != TaskState::Running || task.ending.is_some() || run.attempt != attempt {
            return;
        }
        let (first, model) = (run.session, Arc::clone(&task.model));
        let errand = Errand { affinity: None, except: Some(first), input_bytes: task.input_bytes };
        let after = task.spec.as_ref().and_then(|spec| spec.hedge_after).unwrap_or_default();
        let free = self.fleet.free > 0;
        let choice = free.then(|| self.choose(now, &model, errand)).flatten();
        if let Some((choice, model)) = choice {
            self.history.hedges += u64::from(self.dispatch(now, seq, choice, &model));
            return;
        }
        // Nobody else is free now; someone may be later.
        let wait = after.max(self.config.timing.retry_max);
        if let (Some(at), Some(task)) = (now.checked_add(wait), self.tasks.get_mut(&seq)) {
            task.hedge_at = Some((at, attempt));
            self.timers.insert((at, Timer::Hedge(seq, attempt)));
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
