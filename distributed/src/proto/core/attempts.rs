//! Attempts: begun by the scheduler, ended by an answer or released.

use super::Core;
use crate::executor::{ExecError, ExecErrorKind};
use crate::proto::balance::Choice;
use crate::proto::message::AttemptId;
use crate::proto::placement::{Held, Standing};
use crate::proto::scheduler::{Affinity, Home};
use crate::proto::state::{Action, Completion, SessionId};
use crate::proto::tasks::{Run, TryEnd, What};
use crate::proto::timers::Timer;
use crate::task::{ModelRef, TaskError, TaskErrorKind, TaskState};
use std::sync::Arc;
use std::time::Duration;

impl Core {
    /// Sends the task to a device, which must have a free slot. False when there is no such task or
    /// device.
    pub(super) fn dispatch(
        &mut self,
        now: Duration,
        seq: u64,
        choice: Choice,
        model: &Arc<ModelRef>,
    ) -> bool {
        let Some(mut task) = self.tasks.entry(seq) else { return false };
        let Some(spec) = task.request().spec().cloned() else { return false };
        let attempt = task.attempts() + 1;
        let id = task.attempt_id(attempt);
        let standing = Standing::new(task.request().priority());
        let held = Held { confirmed: now, model: Arc::clone(model), standing };
        let number = self.scheduler.count_dispatch(attempt == 1);
        let Some(taken) = self.placement.take_slot(choice.seat, id, held, number) else {
            return false;
        };
        let (session, device, worker) = (taken.session, taken.device, taken.worker);
        let rival = task.is_running();
        self.scheduler.dequeue(&task);
        let queued = now.saturating_sub(task.request().submitted());
        let variant = (model != task.model()).then(|| Arc::clone(model));
        let run = Run {
            session,
            attempt,
            worker: worker.clone(),
            device: taken.name,
            variant: variant.clone(),
            queued,
        };
        task.begin(run);
        let sent = What::Sent {
            worker: worker.clone(),
            device,
            attempt,
            strategy: self.scheduler.strategy().name(),
            reason: choice.reason,
            score: choice.score,
            rival,
            variant,
        };
        task.note(now, sent);
        let hedge_at = spec.hedge_after.filter(|_| !rival).and_then(|wait| now.checked_add(wait));
        if let Some(at) = hedge_at {
            task.expect_rival(Some((at, attempt)));
            self.timers.set(at, Timer::Hedge(seq, attempt));
        }
        if let Some(key) = &spec.affinity {
            let home = Home { worker, ordinal: device };
            self.scheduler.remember_home(now, Affinity::key(&spec.model.name, key), home);
        }
        let model = Arc::clone(model);
        self.actions.push(Action::Dispatch { session, device, id, model, spec });
        true
    }

    /// Takes an attempt's end. False when it is not a current attempt of its task: such an answer
    /// only frees its slot.
    pub fn complete(
        &mut self,
        now: Duration,
        session: SessionId,
        id: AttemptId,
        completion: Completion,
    ) -> bool {
        // A run that was asked to stop ends its stream without an answer.
        let broken = matches!(completion, Completion::Broken { .. });
        if broken && self.is_current(session, id) && self.stopped_at_limit(now, session, id) {
            self.placement.heard(session, now);
            self.dismiss_if_done(session);
            self.schedule(now);
            return true;
        }
        let finished = matches!(completion, Completion::Done { .. } | Completion::Error { .. });
        self.judge(now, session, id, &completion);
        let held = self.placement.release(session, id);
        self.placement.heard(session, now);
        if held.is_some()
            && finished
            && let Some(worker) = self.placement.live_mut(session)
        {
            worker.count_completed();
        }
        if let (Completion::Done { batch, .. }, Some(_)) = (&completion, &held) {
            self.statistics.count_run(*batch);
        }
        let accepted = held.is_some() && self.is_current(session, id);
        #[cfg(feature = "planted")]
        let accepted = accepted || self.accepts_wrongly(id);
        if accepted {
            let recalled = held.and_then(|held| held.standing.recalled());
            match (recalled, completion) {
                (Some(why), Completion::Refused) => self.came_back(now, id, session, why),
                (_, completion) => self.conclude(now, session, id, completion),
            }
        } else {
            self.statistics.counters.stale += 1;
            self.actions.changed();
        }
        self.dismiss_if_done(session);
        self.schedule(now);
        accepted
    }

    /// Whether an answer counts that should not.
    #[cfg(feature = "planted")]
    fn accepts_wrongly(&self, id: AttemptId) -> bool {
        (planted!(self, AcceptStale)
            || (planted!(self, IgnoreEpoch) && id.epoch != self.config.epoch))
            && self.tasks.get(id.seq).is_some_and(|task| task.is_running())
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
            Completion::Done { outputs, model, batch, joined } => {
                let end = TryEnd { model: Some(model), batch, joined, error: None };
                self.answered(now, session, id, end);
                self.finish(now, seq, TaskState::Succeeded, Ok(outputs), Some(model));
            }
            Completion::Error { error, .. } if error.kind == ExecErrorKind::Unavailable => {
                self.fail_attempt(now, id, session, task_error(error));
            }
            // Stopped at its limit: runs whose answer counts are stopped for nothing else.
            Completion::Error { error, .. } if error.kind == ExecErrorKind::Stopped => {
                let error = TaskError::new(TaskErrorKind::RunLimit, error.message);
                self.fail_attempt(now, id, session, error);
            }
            Completion::Error { error, model } => {
                let error = task_error(error);
                let code = Some(error.code);
                let end = TryEnd { model: Some(model), error: code, ..TryEnd::default() };
                self.answered(now, session, id, end);
                self.finish(now, seq, TaskState::Failed, Err(error), Some(model));
            }
            Completion::Refused => {
                self.give_back(now, id, session, false);
                // The worker's message that it leaves may still be under way.
                self.worker_leaves(session);
            }
            Completion::Broken { reason } => {
                let error = TaskError::new(TaskErrorKind::WorkerLost, reason);
                self.fail_attempt(now, id, session, error);
            }
            // The memory is not used again, so this does not repeat itself.
            Completion::Unshared => self.give_back(now, id, session, false),
            Completion::NoInputs { reason } => {
                let error = TaskError::new(TaskErrorKind::InputsLost, reason);
                let end = TryEnd { error: Some(error.code), ..TryEnd::default() };
                self.answered(now, session, id, end);
                self.finish(now, seq, TaskState::Failed, Err(error), None);
            }
        }
    }

    /// An attempt answered, and its answer is not waited for any more.
    fn answered(&mut self, now: Duration, session: SessionId, id: AttemptId, end: TryEnd) {
        if let Some(mut task) = self.tasks.entry(id.seq) {
            task.end_try(now, id.attempt, end);
            task.answered(session, id.attempt);
        }
    }

    /// A cancelled attempt has freed its slot.
    pub fn released(&mut self, now: Duration, session: SessionId, id: AttemptId) {
        // Only an attempt that is not current, or was asked to stop, may end without an answer.
        if self.is_current(session, id) {
            if self.stopped_at_limit(now, session, id) {
                self.dismiss_if_done(session);
                self.schedule(now);
            }
            return;
        }
        if let Some(held) = self.placement.release(session, id) {
            self.placement.abandon(session, id, &held.model);
            self.actions.changed();
        }
        self.dismiss_if_done(session);
        self.schedule(now);
    }

    /// Whether an attempt takes a slot of a session.
    pub fn holds(&self, session: SessionId, id: AttemptId) -> bool {
        self.placement.fleet().holder(session, id).is_some()
    }

    /// Whether the attempt is one whose answer the task waits for.
    pub fn is_current(&self, session: SessionId, id: AttemptId) -> bool {
        let task = self.tasks.get(id.seq);
        task.is_some_and(|t| t.attempt_id(id.attempt) == id && t.awaits(session, id.attempt))
    }
}

/// An executor's error as a task's error.
pub(super) fn task_error(error: ExecError) -> TaskError {
    let code = match error.kind {
        ExecErrorKind::BadInput => TaskErrorKind::BadInput,
        ExecErrorKind::ModelNotFound => TaskErrorKind::ModelNotFound,
        ExecErrorKind::Failed | ExecErrorKind::Stopped => TaskErrorKind::ModelFailed,
        ExecErrorKind::Unavailable => TaskErrorKind::Unavailable,
        ExecErrorKind::Operator => TaskErrorKind::OperatorFailed,
    };
    TaskError::new(code, error.message)
}
