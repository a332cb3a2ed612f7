//! Runs that take too long: each run has a limit and is asked to stop there; if it does not stop, its
//! worker's process is replaced. Runs of tasks that are not wanted any more are stopped the same way.

use super::Core;
use crate::proto::event::Event;
use crate::proto::message::AttemptId;
use crate::proto::placement::{HangTable, Worker};
use crate::proto::state::{Action, SessionId};
use crate::proto::tasks::What;
use crate::proto::timers::Timer;
use crate::task::{ModelRef, TaskError, TaskErrorKind, TaskId};
use std::time::Duration;

/// A run may take so many times as long as the longest run of its model on its device, and at least
/// [`LIMIT_MIN`]; where nothing was measured, [`LIMIT_UNMEASURED`].
const TIMES_LONGEST: u32 = 10;
const LIMIT_MIN: Duration = Duration::from_secs(60);
const LIMIT_UNMEASURED: Duration = Duration::from_secs(600);

impl Core {
    /// Threads have taken these attempts: their time runs from then on, over connections too.
    pub(super) fn begun(&mut self, now: Duration, session: SessionId, ids: Vec<AttemptId>) {
        for id in ids {
            let limit = self.run_limit(session, id);
            let began = self.placement.run_began(session, id).unwrap_or(now);
            if let Some(at) = began.checked_add(limit) {
                self.timers.set(at, Timer::RunLimit(session, id));
            }
        }
    }

    /// An attempt's answer is on its way, which may take long: its run is over and has no limit any more.
    pub(crate) fn answering(&mut self, session: SessionId, id: AttemptId) {
        self.placement.answering(session, id);
    }

    /// Whether an attempt is current and only its answer is still on the way.
    fn is_only_answering(&self, session: SessionId, id: AttemptId) -> bool {
        self.placement.is_answering(session, id) && self.is_current(session, id)
    }

    /// How long an attempt's run may take: as its task says, or else its model, the settings, or
    /// the measurements.
    fn run_limit(&self, session: SessionId, id: AttemptId) -> Duration {
        let task = self.tasks.get(id.seq);
        let own = task.and_then(|task| task.request().spec()?.run_limit);
        let said = task.map(|task| self.said_limit(task.model(), own));
        said.unwrap_or(self.config.run_limit).unwrap_or_else(|| {
            let longest = self.placement.longest(session, id).filter(|time| !time.is_zero());
            longest.map_or(LIMIT_UNMEASURED, |time| (time * TIMES_LONGEST).max(LIMIT_MIN))
        })
    }

    /// How long a run of a model may take where its task, its model or the settings say so.
    pub(crate) fn said_limit(&self, model: &ModelRef, own: Option<Duration>) -> Option<Duration> {
        let of_model = || self.placement.wanted(model)?.run_limit();
        own.or_else(of_model).or(self.config.run_limit)
    }

    /// A run reaches its limit.
    pub(super) fn overran(&mut self, now: Duration, session: SessionId, id: AttemptId) {
        if !self.holds(session, id)
            || self.is_only_answering(session, id)
            || planted!(self, IgnoreHangs)
        {
            return;
        }
        let limit = self.run_limit(session, id);
        if let Some(mut task) = self.tasks.entry(id.seq) {
            task.note(now, What::Overran { attempt: id.attempt, limit });
        }
        self.statistics.counters.overran += 1;
        self.stop_run(now, session, id);
    }

    /// Asks a run to stop, and looks a while later whether it has.
    pub(super) fn stop_run(&mut self, now: Duration, session: SessionId, id: AttemptId) {
        if self.placement.ask_to_stop(session, id).is_some() {
            self.actions.push(Action::Stop { session, id });
            self.timers.set(now + self.config.timing.stop_grace, Timer::Hang(session, id));
        }
    }

    /// An attempt was asked to stop, and its time to do so is over.
    pub(super) fn hang(&mut self, now: Duration, due: Duration, session: SessionId, id: AttemptId) {
        let grace = self.config.timing.stop_grace;
        // A worker that is away cannot hear; it is lost soon, or comes back in another session.
        if self.placement.has_parted(session) || self.is_only_answering(session, id) {
            return;
        }
        let Some(begun) = self.placement.ask_to_stop(session, id) else { return };
        // Not begun: the attempt ends by itself. If this check is late, a run's end may be late, too.
        if !begun || now.saturating_sub(due) > self.config.timing.heartbeat {
            return self.stop_run(now, session, id);
        }
        let Some((run, is_new)) = self.placement.hanging(session, id) else { return };
        let (model, device) = (&run.model, &run.device);
        let reason =
            format!("a run of model {model} on device {device:?} did not stop within {grace:?}");
        // A worker that does not hear that it is replaced comes back with the same run.
        self.statistics.counters.hangs += u64::from(is_new);
        if let Some(mut task) = self.tasks.entry(id.seq) {
            task.note(now, What::Replaced { attempt: id.attempt, worker: run.worker.clone() });
        }
        self.worker_failed(now, session, &run.model);
        if self.is_current(session, id) {
            let message = format!("{reason}; its worker was replaced");
            self.fail_attempt(now, id, session, TaskError::new(TaskErrorKind::RunLimit, message));
        }
        if is_new && self.placement.hung(now, &run, &reason) {
            let (worker, device) = (run.worker.clone(), run.device.clone());
            self.tell(Event::DeviceTakenOut { worker, device, reason: reason.clone() });
        }
        self.actions.push(Action::Hangs(self.placement.hangs()));
        self.tell(Event::WorkerReplaced { worker: run.worker.clone(), reason: reason.clone() });
        self.lose(now, session, &format!("{reason}, so another process takes its place"));
        self.actions.push(Action::Replace { session, worker: run.worker });
    }

    /// An attempt that was asked to stop at its limit has stopped. False where it was not asked.
    pub(super) fn stopped_at_limit(
        &mut self,
        now: Duration,
        session: SessionId,
        id: AttemptId,
    ) -> bool {
        let at = self.placement.fleet().holder(session, id);
        let seat = at.and_then(|at| self.placement.fleet().seat(at));
        let held = seat.and_then(|seat| seat.held().get(&id));
        if !held.is_some_and(|held| held.standing.is_stopping()) {
            return false;
        }
        let limit = self.run_limit(session, id);
        if let Some(held) = self.placement.release(session, id) {
            self.placement.abandon(session, id, &held.model);
        }
        let message = format!("its run took longer than its limit of {limit:?}, and was stopped");
        self.fail_attempt(now, id, session, TaskError::new(TaskErrorKind::RunLimit, message));
        true
    }

    /// Takes a worker's attempts back, so that they are done elsewhere; returns their tasks.
    pub(crate) fn end_work(&mut self, now: Duration, worker: &str) -> Vec<TaskId> {
        let named = self.placement.fleet().named(worker);
        let Some(session) = named.map(Worker::session) else { return Vec::new() };
        let held = self.placement.held_by(session);
        self.take_back(now, held.into_iter().map(|id| (session, id)).collect())
    }

    /// Ends the runs of a model that was withdrawn; returns their tasks, which wait for the model.
    pub(crate) fn end_runs_of(&mut self, now: Duration, model: &ModelRef) -> Vec<TaskId> {
        let runs = self.placement.runs_of(model);
        self.take_back(now, runs)
    }

    /// Stops runs whose tasks then wait again; returns these tasks.
    fn take_back(&mut self, now: Duration, runs: Vec<(SessionId, AttemptId)>) -> Vec<TaskId> {
        let mut ended = Vec::new();
        for (session, id) in runs {
            if self.is_current(session, id) {
                ended.extend(self.tasks.get(id.seq).map(|task| task.id()));
                self.give_back(now, id, session, true);
            }
            self.stop_run(now, session, id);
        }
        self.schedule(now);
        ended
    }

    /// Attempts that run a model.
    pub(crate) fn count_runs_of(&self, model: &ModelRef) -> usize {
        self.placement.runs_of(model).len()
    }

    /// Takes the hangs of devices from an earlier life of the coordinator.
    pub fn remember_hangs(&mut self, table: HangTable) {
        self.placement.remember_hangs(table);
    }

    /// A person puts the devices of a worker back to work. Returns those that were taken out;
    /// `None` for an unknown worker.
    pub fn enable_worker(&mut self, now: Duration, worker: &str) -> Option<Vec<String>> {
        let session = self.placement.fleet().named(worker)?.session();
        let name = self.placement.fleet().live(session)?.id().clone();
        let devices = self.placement.enable(session);
        for device in &devices {
            self.tell(Event::DeviceEnabled { worker: name.clone(), device: device.clone() });
        }
        self.actions.push(Action::Hangs(self.placement.hangs()));
        self.load_all_on(now, session);
        self.actions.changed();
        self.schedule(now);
        Some(devices)
    }
}
