//! Workers: joining, heartbeats, suspicion, loss and leaving.

use crate::executor::ExecutorStatus;
use crate::proto::balance::load;
use crate::proto::core::Core;
use crate::proto::message::{AttemptId, Heartbeat};
use crate::proto::models::ModelState;
use crate::proto::state::{Action, Planted, SessionId, Timer};
use crate::task::{ModelRef, TaskError, TaskErrorKind};
use crate::worker_info::{WorkerId, WorkerInfo, WorkerState};
use std::collections::BTreeMap;
use std::time::Duration;

/// Lost workers that stay listed, and for how long.
const LOST_LISTED_MAX: usize = 64;
const LOST_LISTED_FOR: Duration = Duration::from_secs(600);

/// A worker as the core keeps it.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) id: WorkerId,
    pub(super) session: SessionId,
    pub(super) state: WorkerState,
    pub(super) pid: Option<u32>,
    pub(super) slots: u32,
    pub(super) status: ExecutorStatus,
    pub(super) last_seen: Duration,
    /// Attempts that take a slot, with the time of their dispatch or, later, of the last
    /// heartbeat that named them.
    pub(super) held: BTreeMap<AttemptId, Duration>,
    pub(super) queued: u32,
    pub(super) last_dispatch: u64,
    pub(super) completed: u64,
    pub(super) models: BTreeMap<ModelRef, ModelState>,
}

impl Worker {
    pub(super) fn is_ready(&self) -> bool {
        self.state == WorkerState::Ready
    }

    pub(super) fn has_free_slot(&self) -> bool {
        u32::try_from(self.held.len()).is_ok_and(|held| held < self.slots)
    }

    pub(super) fn load(&self) -> f64 {
        let memory = match (self.status.vram_used_bytes, self.status.vram_total_bytes) {
            (Some(used), Some(total)) if total > 0 => share(used, total),
            _ => 0.0,
        };
        let utilisation = f64::from(self.status.utilisation.unwrap_or(0.0));
        load(self.held.len(), self.slots, utilisation, memory, self.queued)
    }
}

/// `used / total` in whole MiB, which `u32` holds up to 4 PiB.
fn share(used: u64, total: u64) -> f64 {
    let mib = |bytes: u64| f64::from(u32::try_from(bytes >> 20).unwrap_or(u32::MAX));
    mib(used) / mib(total).max(1.0)
}

/// What a worker says when it joins.
#[derive(Debug, Clone)]
pub(crate) struct Join {
    pub(crate) id: WorkerId,
    pub(crate) pid: Option<u32>,
    pub(crate) slots: u32,
    pub(crate) status: ExecutorStatus,
}

impl Core {
    /// A worker connected. Its earlier session, if there is one, ends here: a worker restarts
    /// or reconnects sooner than its silence is noticed.
    pub(crate) fn join(&mut self, now: Duration, join: Join) -> SessionId {
        let session = self.next_session;
        self.next_session += 1;
        let at = self.workers.binary_search_by(|w| w.id.cmp(&join.id));
        if let Ok(index) = at {
            let old = self.workers[index].session;
            if self.workers[index].state != WorkerState::Lost {
                self.actions.push_back(Action::Supersede { session: old });
                self.lose(now, old, "its worker connected anew");
            }
            self.workers.remove(index);
        }
        let (Ok(at) | Err(at)) = at;
        let worker = Worker {
            id: join.id,
            session,
            state: WorkerState::Ready,
            pid: join.pid,
            slots: join.slots.max(1),
            status: join.status,
            last_seen: now,
            held: BTreeMap::new(),
            queued: 0,
            last_dispatch: 0,
            completed: 0,
            models: BTreeMap::new(),
        };
        self.workers.insert(at, worker);
        self.load_all_on(now, at);
        self.forget_lost(now);
        self.watch(now);
        self.actions.push_back(Action::Changed);
        self.schedule(now);
        session
    }

    /// The worker of a session that has not ended.
    pub(super) fn live(&mut self, session: SessionId) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|w| w.session == session && w.state != WorkerState::Lost)
    }

    /// Whether a session has not ended.
    pub(crate) fn is_live(&self, session: SessionId) -> bool {
        self.workers.iter().any(|w| w.session == session && w.state != WorkerState::Lost)
    }

    /// A worker is alive and says what it holds.
    pub(crate) fn heartbeat(&mut self, now: Duration, session: SessionId, heartbeat: Heartbeat) {
        let Some(worker) = self.live(session) else { return };
        worker.last_seen = now;
        worker.queued = heartbeat.queued;
        worker.status = heartbeat.status;
        for id in &heartbeat.held {
            if let Some(confirmed) = worker.held.get_mut(id) {
                *confirmed = now;
            }
        }
        let missing: Vec<(AttemptId, Duration)> = worker
            .held
            .iter()
            .filter(|(id, _)| !heartbeat.held.contains(id))
            .map(|(id, confirmed)| (*id, now.saturating_sub(*confirmed)))
            .collect();
        let timing = self.config.timing;
        for (id, age) in missing {
            let current = self.is_current(session, id);
            // The request or the answer may still be under way, and the answer may be long. Of
            // an attempt that nobody waits for, only the request matters.
            if age <= if current { timing.lease } else { timing.heartbeat } {
                continue;
            }
            if let Some(worker) = self.live(session) {
                worker.held.remove(&id);
            }
            if current {
                let reason = "the worker no longer holds the task and sent no answer";
                let error = TaskError::new(TaskErrorKind::WorkerLost, reason);
                self.fail_attempt(now, id.seq, error);
            }
        }
        self.check_loads(now, session);
        self.dismiss_if_done(session);
        self.schedule(now);
    }

    /// The worker finishes what it holds and gets no more.
    pub(crate) fn worker_leaves(&mut self, session: SessionId) {
        if let Some(worker) = self.live(session) {
            worker.state = WorkerState::Draining;
            self.actions.push_back(Action::Changed);
            self.dismiss_if_done(session);
        }
    }

    /// Lets a leaving worker go once every answer is there.
    pub(super) fn dismiss_if_done(&mut self, session: SessionId) {
        let done = |w: &Worker| {
            w.session == session && w.state == WorkerState::Draining && w.held.is_empty()
        };
        if let Some(index) = self.workers.iter().position(done) {
            self.workers.remove(index);
            self.actions.push_back(Action::Dismiss { session });
            self.actions.push_back(Action::Changed);
        }
    }

    /// Asks a worker to leave. False when there is no such worker.
    pub(crate) fn drain_worker(&mut self, id: &str) -> bool {
        let found = self.workers.iter().find(|w| w.id.as_str() == id);
        let Some(worker) = found.filter(|w| w.state != WorkerState::Lost) else { return false };
        let session = worker.session;
        if let Some(worker) = self.live(session) {
            worker.state = WorkerState::Draining;
        }
        // It says itself when it begins to leave, and is let go when it holds nothing.
        self.actions.push_back(Action::Drain { session });
        self.actions.push_back(Action::Changed);
        true
    }

    /// The connection ended. After a farewell the worker is forgotten, and what it still held
    /// was never begun; else it is lost and its tasks are redone.
    pub(crate) fn disconnected(&mut self, now: Duration, session: SessionId, farewell: bool) {
        if farewell {
            let Some(worker) = self.live(session) else { return };
            let held = std::mem::take(&mut worker.held);
            for id in held.into_keys() {
                if self.is_current(session, id) {
                    self.give_back(id.seq);
                }
            }
            self.workers.retain(|w| w.session != session);
            self.actions.push_back(Action::Changed);
        } else {
            self.lose(now, session, "the connection to its worker was lost");
        }
        self.schedule(now);
    }

    /// A supervisor saw the process of a worker end.
    pub(crate) fn worker_exited(&mut self, now: Duration, id: &str) {
        let Some(worker) = self.workers.iter().find(|w| w.id.as_str() == id) else { return };
        let session = worker.session;
        if self.live(session).is_some() {
            self.lose(now, session, "the process of its worker ended");
            self.actions.push_back(Action::Abandon { session });
        }
        self.schedule(now);
    }

    fn lose(&mut self, now: Duration, session: SessionId, reason: &str) {
        let Some(worker) = self.live(session) else { return };
        worker.state = WorkerState::Lost;
        worker.queued = 0;
        let id = worker.id.clone();
        let held = std::mem::take(&mut worker.held);
        self.actions.push_back(Action::Changed);
        if self.planted == Planted::ForgetLost {
            return;
        }
        for attempt in held.into_keys() {
            if self.is_current(session, attempt) {
                let error = TaskError::new(TaskErrorKind::WorkerLost, format!("{reason} {id}"));
                self.fail_attempt(now, attempt.seq, error);
            }
        }
    }

    /// Ends the sessions of workers that have been silent for too long.
    pub(super) fn check_membership(&mut self, now: Duration) {
        let lost_after = self.config.timing.lost_after;
        let silent: Vec<SessionId> = self
            .workers
            .iter()
            .filter(|w| w.state != WorkerState::Lost)
            .filter(|w| now.saturating_sub(w.last_seen) > lost_after)
            .map(|w| w.session)
            .collect();
        for session in silent {
            self.lose(now, session, "no heartbeat came from its worker");
            self.actions.push_back(Action::Abandon { session });
        }
        self.forget_lost(now);
        self.watch(now);
    }

    /// Sees that silence is checked again, as long as there is someone to listen to.
    fn watch(&mut self, now: Duration) {
        let watched = self.timers.iter().any(|(_, t)| *t == Timer::Membership);
        if !watched && self.workers.iter().any(|w| w.state != WorkerState::Lost) {
            self.timers.insert((now + self.config.timing.heartbeat / 2, Timer::Membership));
        }
    }

    fn forget_lost(&mut self, now: Duration) {
        let mut lost = self.workers.iter().filter(|w| w.state == WorkerState::Lost).count();
        self.workers.retain(|w| {
            let old = now.saturating_sub(w.last_seen) > LOST_LISTED_FOR || lost > LOST_LISTED_MAX;
            let forget = old && w.state == WorkerState::Lost;
            lost -= usize::from(forget);
            !forget
        });
    }

    /// Every listed worker, by name.
    pub(crate) fn workers(&self, now: Duration) -> Vec<WorkerInfo> {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let info = |w: &Worker| WorkerInfo {
            id: w.id.clone(),
            pid: w.pid,
            state: w.state,
            device: w.status.device.clone(),
            backend: w.status.backend.clone(),
            models: w.status.models.iter().map(ToString::to_string).collect(),
            running: count(w.held.len()),
            queued: w.queued,
            vram_used_bytes: w.status.vram_used_bytes,
            vram_total_bytes: w.status.vram_total_bytes,
            slots: w.slots,
            load: w.load(),
            completed: w.completed,
            last_seen_ms: u64::try_from(now.saturating_sub(w.last_seen).as_millis())
                .unwrap_or(u64::MAX),
        };
        self.workers.iter().map(info).collect()
    }
}
