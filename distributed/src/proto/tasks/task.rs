//! A task as the core keeps it, for reading: only [`Entry`](super::Entry) changes its phase.

use super::links::Links;
use super::outcome::{Attempts, Outcome};
use super::why::{Note, What, note};
use super::{Phase, Request, Run};
use crate::proto::histogram::ms;
use crate::proto::image::{End, Image};
use crate::proto::message::AttemptId;
use crate::proto::queue::Place;
use crate::proto::state::SessionId;
use crate::proto::timers::Timer;
use crate::task::{ModelRef, TaskError, TaskId, TaskRecord, TaskState};
use crate::worker_info::WorkerId;
use std::sync::Arc;
use std::time::Duration;

/// A task, from its submission until its record goes.
#[derive(Debug)]
pub(in crate::proto) struct Task {
    /// With the epoch in which it was submitted.
    id: TaskId,
    /// The epoch of its attempts: no other coordinator, nor this one in an earlier lead, made
    /// attempts of the task under it.
    epoch: u64,
    /// The one copy of its model's name.
    model: Arc<ModelRef>,
    pub(super) request: Request,
    pub(super) phase: Phase,
    pub(super) attempts: Attempts,
    pub(super) links: Links,
    pub(super) outcome: Outcome,
    notes: Vec<Note>,
    /// Whether its record may go when its turn comes.
    listed: bool,
}

impl Task {
    pub(in crate::proto) fn new(id: TaskId, request: Request, model: Arc<ModelRef>) -> Self {
        Self::under(id.epoch, id, request, model)
    }

    /// A task whose attempts are made under an epoch, which need not be that of its id.
    pub(in crate::proto) fn under(
        epoch: u64,
        id: TaskId,
        request: Request,
        model: Arc<ModelRef>,
    ) -> Self {
        let depends_on = request.spec().map(|spec| spec.depends_on.clone()).unwrap_or_default();
        Self {
            id,
            epoch,
            model,
            request,
            phase: Phase::Saving,
            attempts: Attempts::default(),
            links: Links::new(depends_on),
            outcome: Outcome::default(),
            notes: Vec::new(),
            listed: false,
        }
    }

    /// An ended task, as the journal has it; `None` where the task has not ended.
    pub(in crate::proto) fn past(image: Image) -> Option<Self> {
        let Image { id, submitted, spec, digest, end, .. } = image;
        let model = Arc::new(spec.model.clone());
        let mut task = Self::new(id, Request::new(submitted, spec, digest, 0, 0), model);
        let mut end = end?;
        let told = std::mem::take(&mut end.story).into_iter();
        task.notes = told.map(|(at, text)| Note { at, what: What::Told(text) }).collect();
        if let (true, Some(worker)) = (task.notes.is_empty(), &end.worker) {
            let text = format!("attempt {} ran on worker {worker}", end.attempts);
            task.note(submitted + end.queued, What::Told(text));
        }
        task.close(end);
        Some(task)
    }

    /// The notes that the journal keeps: none where the only attempt succeeded at once, because the
    /// rest of the end tells that.
    pub(in crate::proto) fn story(&self, end: &End) -> Vec<(Duration, String)> {
        let plain = |note: &Note| matches!(note.what, What::Saved | What::Sent { .. });
        if end.state == TaskState::Succeeded && end.attempts == 1 && self.notes.iter().all(plain) {
            return Vec::new();
        }
        self.notes.iter().map(|note| (note.at, note.what.to_string())).collect()
    }

    /// Enters the last phase, and drops what only running the task takes.
    pub(super) fn close(&mut self, end: End) {
        self.phase = Phase::Ended(end.state);
        self.request.finish();
        self.note(end.finished, What::Ended(end.state));
        self.attempts.tries.end_all(end.finished.saturating_sub(self.request.submitted()));
        self.attempts.worker.clone_from(&end.worker);
        self.attempts.variant.clone_from(&end.variant);
        (self.attempts.begun, self.attempts.queued) = (end.attempts, Some(end.queued));
        self.outcome = Outcome::new(end);
    }

    /// Enters the first phase.
    pub(super) fn enter(&mut self, saved: bool) {
        self.phase = if saved { self.begins() } else { Phase::Saving };
    }

    /// The phase of a task that the journal has, or need not have.
    pub(super) fn begins(&self) -> Phase {
        if self.links.waits() > 0 { Phase::Waiting } else { Phase::Ready }
    }

    pub(in crate::proto) fn id(&self) -> TaskId {
        self.id
    }

    /// The id of one of its attempts.
    pub(in crate::proto) fn attempt_id(&self, attempt: u32) -> AttemptId {
        AttemptId { epoch: self.epoch, seq: self.id.seq, attempt }
    }

    pub(in crate::proto) fn model(&self) -> &Arc<ModelRef> {
        &self.model
    }

    pub(in crate::proto) fn request(&self) -> &Request {
        &self.request
    }

    pub(in crate::proto) fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Its state, as callers see it.
    pub(in crate::proto) fn state(&self) -> TaskState {
        self.phase.state()
    }

    pub(in crate::proto) fn place(&self) -> Place {
        self.request.place(self.id.seq)
    }

    /// Whether it is acknowledged: the journal has it, or need not.
    pub(in crate::proto) fn is_saved(&self) -> bool {
        self.phase.is_saved()
    }

    /// Whether it is in the queue.
    pub(in crate::proto) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    pub(in crate::proto) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    /// Whether an attempt of it may begin, now or later.
    pub(in crate::proto) fn waits_to_run(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::Backoff { .. } | Phase::Parked)
    }

    pub(in crate::proto) fn is_parked(&self) -> bool {
        matches!(self.phase, Phase::Parked)
    }

    pub(in crate::proto) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. })
    }

    /// Its end, while the end waits for the journal.
    pub(in crate::proto) fn ending(&self) -> Option<&End> {
        match &self.phase {
            Phase::Ending { end, .. } => Some(end),
            _ => None,
        }
    }

    /// Whether callers can see its end.
    pub(in crate::proto) fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Whether it will change no more, even if the journal does not have its end yet.
    pub(in crate::proto) fn has_ended(&self) -> bool {
        self.is_terminal() || self.is_ending()
    }

    /// The timer of its phase, and when it is due.
    pub(in crate::proto) fn timer(&self) -> Option<(Duration, Timer)> {
        match self.phase {
            Phase::Backoff { until } => Some((until, Timer::Retry(self.id.seq))),
            Phase::Running { rival_at: Some((at, attempt)), .. } => {
                Some((at, Timer::Hedge(self.id.seq, attempt)))
            }
            _ => None,
        }
    }

    /// Attempts whose answers it waits for.
    pub(in crate::proto) fn runs(&self) -> &[Run] {
        match &self.phase {
            Phase::Running { runs, .. } => runs,
            _ => &[],
        }
    }

    /// Whether it waits for the answer of an attempt by a session.
    pub(in crate::proto) fn awaits(&self, session: SessionId, attempt: u32) -> bool {
        self.runs().iter().any(|run| run.is(session, attempt))
    }

    /// Whether the last attempt ended with its worker.
    pub(in crate::proto) fn was_lost(&self) -> bool {
        self.attempts.lost
    }

    /// Attempts begun.
    pub(in crate::proto) fn attempts(&self) -> u32 {
        self.attempts.begun
    }

    /// A session whose devices its next attempt avoids, while others are free.
    pub(in crate::proto) fn away_from(&self) -> Option<SessionId> {
        self.attempts.away_from
    }

    /// Whether it was moved off a worker where it would have waited for long.
    pub(in crate::proto) fn has_moved(&self) -> bool {
        self.attempts.moved
    }

    /// The worker of the last attempt.
    pub(in crate::proto) fn worker(&self) -> Option<&WorkerId> {
        self.attempts.worker.as_ref()
    }

    pub(in crate::proto) fn depends_on(&self) -> &[TaskId] {
        self.links.depends_on()
    }

    /// Each task that it depends on, once.
    pub(in crate::proto) fn dependencies(&self) -> Vec<TaskId> {
        let mut ids = self.links.depends_on().to_vec();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Open tasks that it waits for.
    pub(in crate::proto) fn waits(&self) -> usize {
        self.links.waits()
    }

    /// Counts one more task that it waits for; only before it is inserted.
    pub(in crate::proto) fn wait_for_one(&mut self) {
        self.links.wait_for_one();
    }

    /// Whether its record is needed to understand other records.
    pub(in crate::proto) fn is_pinned(&self) -> bool {
        self.links.is_pinned()
    }

    /// Open tasks that depend on it.
    pub(in crate::proto) fn pins(&self) -> usize {
        self.links.pins()
    }

    /// The variant of its model that the last attempt ran.
    pub(in crate::proto) fn variant(&self) -> Option<&Arc<ModelRef>> {
        self.attempts.variant.as_ref()
    }

    /// Sets whether its record may go when its turn comes; returns the value before.
    pub(in crate::proto) fn list(&mut self, listed: bool) -> bool {
        std::mem::replace(&mut self.listed, listed)
    }

    pub(in crate::proto) fn note(&mut self, at: Duration, what: What) {
        note(&mut self.notes, at, what);
    }

    pub(in crate::proto) fn notes(&self) -> &[Note] {
        &self.notes
    }

    pub(in crate::proto) fn error(&self) -> Option<&TaskError> {
        self.outcome.error.as_ref()
    }

    /// When it ended.
    pub(in crate::proto) fn finished(&self) -> Option<Duration> {
        self.outcome.finished
    }

    /// Time inside the executor, once it succeeded.
    pub(in crate::proto) fn model_time(&self) -> Option<Duration> {
        self.outcome.model_time
    }

    /// Bytes that its record keeps alive.
    pub(in crate::proto) fn retained_bytes(&self) -> usize {
        let key = self.request.key().map_or(0, |(key, _)| key.len());
        self.outcome.bytes().saturating_add(key)
    }

    /// Latency less waiting and model time, once both are known.
    pub(in crate::proto) fn overhead(&self) -> Option<Duration> {
        let latency = self.outcome.finished?.saturating_sub(self.request.submitted());
        let rest = latency.saturating_sub(self.attempts.queued?);
        Some(rest.saturating_sub(self.outcome.model_time?))
    }

    /// Time from submission to the last dispatch, or to now while it waits.
    pub(in crate::proto) fn queued(&self, now: Duration) -> Duration {
        let so_far = || now.saturating_sub(self.request.submitted());
        self.attempts.queued.unwrap_or_else(so_far)
    }

    /// What callers see, without the outputs.
    pub(in crate::proto) fn summary(&self, now: Duration) -> TaskRecord {
        TaskRecord {
            task_id: self.id,
            model: (*self.model).clone(),
            priority: self.request.priority(),
            durable: self.request.is_durable(),
            depends_on: self.links.depends_on().to_vec(),
            state: self.state(),
            attempts: self.attempts.begun,
            worker: self.attempts.worker.clone(),
            device: self.attempts.device.clone(),
            tries: self.attempts.tries.records(),
            variant: self.attempts.variant.as_deref().cloned(),
            outputs: None,
            error: self.outcome.error.clone(),
            queued_ms: ms(self.queued(now)),
            model_ms: self.outcome.model_time.map(ms),
            overhead_ms: self.overhead().map(ms),
        }
    }

    /// What callers see.
    pub(in crate::proto) fn record(&self, now: Duration) -> TaskRecord {
        TaskRecord { outputs: self.outcome.outputs.clone(), ..self.summary(now) }
    }
}
