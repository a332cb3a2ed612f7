//! Attempts that ended without an answer: which tasks are retried, when, and which get a rival.

use super::{Core, Errand};
use crate::proto::message::AttemptId;
use crate::proto::state::SessionId;
use crate::proto::tasks::{Task, TryEnd, What};
use crate::proto::timers::Timer;
use crate::task::{TaskError, TaskState};
use std::sync::Arc;
use std::time::Duration;

/// Most workers that may be lost under one task.
const LOSSES_MAX: u32 = 20;

impl Core {
    /// The attempt ended without an answer: retry, unless that happened too often.
    ///
    /// A failed task waits longer and longer before each retry, and for the retry budget, which
    /// keeps retries from making worse what made them necessary.
    pub(super) fn fail_attempt(
        &mut self,
        now: Duration,
        id: AttemptId,
        session: SessionId,
        error: TaskError,
    ) {
        self.try_again(now, id, session, error, false);
    }

    /// The worker of an attempt is lost, which is not the task's fault: the first time the task is
    /// retried at once, and no loss counts as one of the attempts that may fail. A task that ends
    /// its workers would still go on for ever, so losses are bounded.
    pub(super) fn lose_attempt(
        &mut self,
        now: Duration,
        id: AttemptId,
        session: SessionId,
        error: TaskError,
    ) {
        self.try_again(now, id, session, error, true);
    }

    fn try_again(
        &mut self,
        now: Duration,
        id: AttemptId,
        session: SessionId,
        error: TaskError,
        lost: bool,
    ) {
        // Durable tasks wait for the next coordinator, and the others have ended.
        if self.stopped {
            return;
        }
        let Some(mut task) = self.tasks.entry(id.seq) else { return };
        task.end_try(now, id.attempt, TryEnd { error: Some(error.code), ..TryEnd::default() });
        if task.leave_to_rival(session, id.attempt) {
            return task.note(now, What::OneLess { attempt: id.attempt, code: error.code });
        }
        let own = task.request().spec().map_or(1, |spec| spec.max_attempts.max(1));
        let (failures, allowed) = match lost && !planted!(self, CountLosses) {
            true => (task.count_loss(), LOSSES_MAX),
            false => (task.count_failure(), own),
        };
        if failures >= allowed {
            let attempts = task.attempts();
            let plural = if attempts == 1 { "" } else { "s" };
            let message = format!("gave up after {attempts} attempt{plural}: {error}");
            let error = TaskError::new(error.code, message);
            return self.finish(now, id.seq, TaskState::Failed, Err(error), None);
        }
        if planted!(self, ForgetRetry) {
            return;
        }
        self.statistics.counters.retries += 1;
        let at_once = lost && failures == 1;
        let mut wait = Duration::ZERO;
        if !at_once {
            let backoff = task.request().spec().and_then(|spec| spec.backoff);
            wait = self.scheduler.backoff(failures, backoff, &self.config.timing);
        }
        task.note(now, What::Failed { attempt: id.attempt, code: error.code, wait });
        self.wait_again(id.seq, (!at_once).then_some(now + wait));
    }

    /// The attempt was not begun: the task waits again as if it had not been sent.
    pub(super) fn give_back(
        &mut self,
        now: Duration,
        id: AttemptId,
        session: SessionId,
        asked: bool,
    ) {
        let Some(mut task) = self.tasks.entry(id.seq) else { return };
        task.end_try(now, id.attempt, TryEnd::default());
        let rival = task.drop_run(session, id.attempt);
        task.note(now, What::GivenBack { attempt: id.attempt, asked });
        if !rival {
            self.wait_again(id.seq, None);
        }
    }

    /// The task waits: in its old place in the queue, or for its time to come.
    fn wait_again(&mut self, seq: u64, until: Option<Duration>) {
        let Some(mut task) = self.tasks.entry(seq) else { return };
        if let Some((at, timer)) = task.timer() {
            self.timers.clear(at, timer);
        }
        task.wait_again(until);
        match task.timer() {
            Some((at, timer)) => self.timers.set(at, timer),
            None => self.scheduler.enqueue(&task),
        }
    }

    /// The backoff of a task is over: its next attempt may begin, if the budget has a token for it.
    pub(super) fn retry(&mut self, now: Duration, seq: u64) {
        if planted!(self, IgnoreBudget) || self.scheduler.may_retry(now) {
            return self.requeue(seq);
        }
        if let Some(at) = self.scheduler.park(now, seq) {
            self.timers.set(at, Timer::Budget);
        }
        if let Some(mut task) = self.tasks.entry(seq) {
            task.park();
        }
    }

    /// Lets as many parked tasks go as the budget has tokens for, first come first served.
    pub(super) fn release_parked(&mut self, now: Duration) {
        while let Some(seq) = self.scheduler.parked() {
            // A task that has ended meanwhile needs no token.
            let waits = self.tasks.get(seq).is_some_and(Task::is_parked);
            if let Err(at) = self.scheduler.unpark(now, waits) {
                return self.timers.set(at, Timer::Budget);
            }
            if waits {
                self.requeue(seq);
            }
        }
    }

    fn requeue(&mut self, seq: u64) {
        if let Some(mut task) = self.tasks.entry(seq) {
            task.requeue();
            self.scheduler.enqueue(&task);
        }
    }

    /// An attempt has gone without an answer for so long that it gets a rival, if a device of
    /// another worker is free.
    pub(super) fn hedge(&mut self, now: Duration, seq: u64, attempt: u32) {
        let Some(mut task) = self.tasks.entry(seq) else { return };
        task.expect_rival(None);
        let [run] = task.runs() else { return };
        if run.attempt != attempt {
            return;
        }
        let (first, model) = (run.session, Arc::clone(task.model()));
        let input_bytes = task.request().input_bytes();
        let errand = Errand { affinity: None, except: Some(first), input_bytes };
        let after = task.request().spec().and_then(|spec| spec.hedge_after).unwrap_or_default();
        let free = self.placement.fleet().sums().free > 0;
        let choice = free.then(|| self.choose(now, &model, errand)).flatten();
        if let Some((choice, model)) = choice {
            let sent = self.dispatch(now, seq, choice, &model);
            self.statistics.counters.hedges += u64::from(sent);
            return;
        }
        // No other device is free now; one may be later.
        let wait = after.max(self.config.timing.retry_max);
        if let (Some(at), Some(mut task)) = (now.checked_add(wait), self.tasks.entry(seq)) {
            task.expect_rival(Some((at, attempt)));
            self.timers.set(at, Timer::Hedge(seq, attempt));
        }
    }
}
