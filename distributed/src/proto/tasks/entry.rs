//! The ways in which a task changes its phase, each of which keeps the counts.

use super::{Phase, Run, Task, TryEnd, What};
use crate::proto::image::{Apart, End};
use crate::proto::state::SessionId;
use crate::task::{TaskId, TaskState};
use crate::worker_info::TaskCounts;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A task with the counts that it is part of.
pub(in crate::proto) struct Entry<'a> {
    task: &'a mut Task,
    counts: &'a mut Counts,
}

impl Deref for Entry<'_> {
    type Target = Task;

    fn deref(&self) -> &Task {
        self.task
    }
}

impl DerefMut for Entry<'_> {
    fn deref_mut(&mut self) -> &mut Task {
        self.task
    }
}

impl<'a> Entry<'a> {
    pub(super) fn new(task: &'a mut Task, counts: &'a mut Counts) -> Self {
        Self { task, counts }
    }

    /// The journal has the task.
    pub(in crate::proto) fn saved(&mut self) {
        match &mut self.task.phase {
            Phase::Saving => self.task.phase = self.task.begins(),
            Phase::Ending { saved, .. } => *saved = true,
            _ => {}
        }
    }

    /// One of the tasks that it waits for succeeded.
    pub(in crate::proto) fn dependency_done(&mut self, now: Duration, id: TaskId) {
        self.task.links.wait_for_one_less();
        self.task.note(now, What::DependencyDone(id));
        if matches!(self.task.phase, Phase::Waiting) {
            self.task.phase = self.task.begins();
        }
    }

    /// An attempt begins: the only one, or a rival of the one that is under way.
    pub(in crate::proto) fn begin(&mut self, run: Run) {
        let attempts = &mut self.task.attempts;
        attempts.begun = run.attempt;
        attempts.away_from = None;
        attempts.show(&run);
        attempts.tries.begin(&run);
        if let Phase::Running { runs, .. } = &mut self.task.phase {
            return runs.push(run);
        }
        self.task.phase = Phase::Running { runs: vec![run], rival_at: None };
        self.counts.begin(self.task.request.queued_bytes());
    }

    /// An attempt goes on in another session of its worker: it was current, or no other followed it.
    pub(in crate::proto) fn resume(&mut self, old: SessionId, run: Run) {
        if let Phase::Running { runs, .. } = &mut self.task.phase {
            let own = runs.iter_mut().find(|other| other.is(old, run.attempt));
            return own.into_iter().for_each(|own| own.session = run.session);
        }
        let losses = &mut self.task.attempts.losses;
        *losses = losses.saturating_sub(1);
        self.begin(run);
    }

    /// Sets when its attempt may get a rival, if it runs.
    pub(in crate::proto) fn expect_rival(&mut self, at: Option<(Duration, u32)>) {
        if let Phase::Running { rival_at, .. } = &mut self.task.phase {
            *rival_at = at;
        }
    }

    /// An attempt is not current any more; true if another one still is.
    pub(in crate::proto) fn drop_run(&mut self, session: SessionId, attempt: u32) -> bool {
        let Phase::Running { runs, .. } = &mut self.task.phase else { return false };
        runs.retain(|run| !run.is(session, attempt));
        !runs.is_empty()
    }

    /// As [`Self::drop_run`]; the record then names the other attempt.
    pub(in crate::proto) fn leave_to_rival(&mut self, session: SessionId, attempt: u32) -> bool {
        let other = self.drop_run(session, attempt);
        if let Phase::Running { runs, .. } = &self.task.phase
            && let Some(run) = runs.first()
        {
            self.task.attempts.show(run);
        }
        other
    }

    /// An attempt is over, whatever came of it.
    pub(in crate::proto) fn end_try(&mut self, now: Duration, attempt: u32, end: TryEnd) {
        let at = now.saturating_sub(self.task.request.submitted());
        self.task.attempts.tries.end(at, attempt, end);
    }

    /// The attempt answered: the record names it.
    pub(in crate::proto) fn answered(&mut self, session: SessionId, attempt: u32) {
        if let Phase::Running { runs, .. } = &self.task.phase
            && let Some(run) = runs.iter().find(|run| run.is(session, attempt))
        {
            self.task.attempts.show(run);
        }
        self.drop_run(session, attempt);
    }

    /// Counts an attempt that ended without an answer; returns how many did.
    pub(in crate::proto) fn count_failure(&mut self) -> u32 {
        self.task.attempts.failures += 1;
        self.task.attempts.lost = false;
        self.task.attempts.failures
    }

    /// Counts an attempt whose worker was lost; returns how many there were.
    pub(in crate::proto) fn count_loss(&mut self) -> u32 {
        self.task.attempts.losses += 1;
        self.task.attempts.lost = true;
        self.task.attempts.losses
    }

    /// It was moved off a worker, to which it goes back only if no other is free.
    pub(in crate::proto) fn move_away(&mut self, from: SessionId) {
        self.task.attempts.moved = true;
        self.task.attempts.away_from = Some(from);
    }

    /// It waits again: for its time to come, or in its old place in the queue.
    pub(in crate::proto) fn wait_again(&mut self, until: Option<Duration>) {
        if self.task.is_running() {
            self.counts.pause(self.task.request.queued_bytes());
        }
        self.task.attempts.queued = None;
        self.task.phase = until.map_or(Phase::Ready, |until| Phase::Backoff { until });
    }

    /// It loses its place in the queue.
    #[cfg(feature = "planted")]
    pub(in crate::proto) fn delay(&mut self, by: Duration) {
        self.task.request.delay(by);
    }

    /// Its backoff is over, but the retry budget has no token for it.
    pub(in crate::proto) fn park(&mut self) {
        if matches!(self.task.phase, Phase::Backoff { .. }) {
            self.task.phase = Phase::Parked;
        }
    }

    /// Its next attempt may begin.
    pub(in crate::proto) fn requeue(&mut self) {
        if matches!(self.task.phase, Phase::Backoff { .. } | Phase::Parked) {
            self.task.phase = Phase::Ready;
        }
    }

    /// Its end is known; the journal must have it before callers see it.
    pub(in crate::proto) fn end(&mut self, end: End) {
        let (was_running, saved) = (self.task.is_running(), self.task.is_saved());
        self.task.phase = Phase::Ending { end: Box::new(end), was_running, saved };
    }

    /// Sets where its outputs lie, while its end waits for the journal. False if it does not wait.
    pub(in crate::proto) fn lie_apart(&mut self, at: Option<Apart>) -> bool {
        let Phase::Ending { end, .. } = &mut self.task.phase else { return false };
        end.apart = at;
        true
    }

    /// Callers see its end from now on.
    pub(in crate::proto) fn settle(&mut self, end: End) {
        let before = self.task.state();
        self.finish(before, end);
    }

    /// The journal has its end, which callers see from now on. False if it had none.
    pub(in crate::proto) fn settle_ending(&mut self) -> bool {
        let before = self.task.state();
        if !self.task.is_ending() {
            return false;
        }
        if let Phase::Ending { end, .. } = std::mem::replace(&mut self.task.phase, Phase::Parked) {
            self.finish(before, *end);
        }
        true
    }

    fn finish(&mut self, before: TaskState, end: End) {
        self.counts.leave(before, self.task.request.queued_bytes());
        self.counts.end(end.state);
        self.task.close(end);
    }

    /// A task that is new depends on this one, and waits for it if this one is open.
    pub(in crate::proto) fn add_dependant(&mut self, seq: u64) {
        self.task.links.add_dependant(seq);
    }

    /// Its record stays for one more task.
    pub(in crate::proto) fn pin(&mut self) {
        self.task.links.pin();
    }

    /// A task that depends on it has ended.
    pub(in crate::proto) fn unpin(&mut self, dependant: u64) {
        self.task.links.unpin(dependant);
    }

    /// Takes the open tasks that wait for it, to tell them that it has ended.
    pub(in crate::proto) fn take_dependants(&mut self) -> BTreeSet<u64> {
        self.task.links.take_dependants()
    }
}

/// Tasks by state since the start, and the bytes of those that wait.
#[derive(Debug, Default)]
pub(in crate::proto) struct Counts {
    submitted: u64,
    running: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    queued_bytes: usize,
}

impl Counts {
    pub(super) fn submit(&mut self, bytes: usize) {
        self.submitted += 1;
        self.queued_bytes = self.queued_bytes.saturating_add(bytes);
    }

    /// Uncounts a task as if it had never been submitted.
    pub(super) fn retract(&mut self, task: &Task) {
        self.submitted -= 1;
        self.leave(task.state(), task.request().queued_bytes());
    }

    /// Counts a task that was submitted and ended before.
    pub(super) fn past(&mut self, state: TaskState) {
        self.submitted += 1;
        self.end(state);
    }

    /// Uncounts an ended task that is not known any more.
    pub(super) fn forget(&mut self, state: TaskState) {
        self.submitted -= 1;
        match state {
            TaskState::Succeeded => self.succeeded -= 1,
            TaskState::Cancelled => self.cancelled -= 1,
            _ => self.failed -= 1,
        }
    }

    fn begin(&mut self, bytes: usize) {
        self.running += 1;
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
    }

    fn pause(&mut self, bytes: usize) {
        self.running -= 1;
        self.queued_bytes = self.queued_bytes.saturating_add(bytes);
    }

    fn leave(&mut self, state: TaskState, bytes: usize) {
        match state {
            TaskState::Running => self.running -= 1,
            _ => self.queued_bytes = self.queued_bytes.saturating_sub(bytes),
        }
    }

    fn end(&mut self, state: TaskState) {
        match state {
            TaskState::Succeeded => self.succeeded += 1,
            TaskState::Cancelled => self.cancelled += 1,
            _ => self.failed += 1,
        }
    }

    pub(super) fn open(&self) -> u64 {
        self.submitted - self.succeeded - self.failed - self.cancelled
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(super) fn by_state(&self) -> TaskCounts {
        TaskCounts {
            submitted: self.submitted,
            queued: self.open() - self.running,
            running: self.running,
            succeeded: self.succeeded,
            failed: self.failed,
            cancelled: self.cancelled,
        }
    }
}
