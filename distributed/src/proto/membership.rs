//! Workers: joining, heartbeats, suspicion, loss and leaving.

use crate::executor::{DeviceStatus, ExecutorStatus};
use crate::proto::core::Core;
use crate::proto::event::Event;
use crate::proto::fleet::{Seat, SeatId, Worker};
use crate::proto::message::{AttemptId, Heartbeat};
use crate::proto::models::ModelState;
use crate::proto::state::{Action, Planted, SessionId, Timer};
use crate::task::{TaskError, TaskErrorKind};
use crate::worker_info::{DeviceInfo, Transport, WorkerId, WorkerInfo, WorkerState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Lost workers that stay listed, and for how long.
const LOST_LISTED_MAX: usize = 64;
const LOST_LISTED_FOR: Duration = Duration::from_secs(600);
/// Devices that are believed of a worker.
const DEVICES_MAX: usize = 64;

/// What a worker says when it joins.
#[derive(Debug, Clone)]
pub(crate) struct Join {
    pub(crate) id: WorkerId,
    /// Tells processes of one name apart: a later one has a larger number.
    pub(crate) incarnation: u64,
    pub(crate) pid: Option<u32>,
    /// Tasks that each device may hold, and threads that it runs them with.
    pub(crate) slots: u32,
    pub(crate) threads: u32,
    pub(crate) status: ExecutorStatus,
    /// Bytes that the inputs of one task may have.
    pub(crate) input_bytes_max: u64,
}

/// The devices of a status; one that names none has one.
fn devices(status: ExecutorStatus) -> Vec<DeviceStatus> {
    let mut devices = status.devices;
    devices.truncate(DEVICES_MAX);
    if devices.is_empty() {
        devices.push(DeviceStatus::default());
    }
    for device in &mut devices {
        // What is no number cannot be compared.
        device.utilisation = device.utilisation.filter(|share| share.is_finite());
        device.power_w = device.power_w.filter(|watts| watts.is_finite());
    }
    devices
}

impl Core {
    /// A worker connected. Its earlier session, if there is one, ends here: a worker restarts
    /// or reconnects sooner than its silence is noticed. A process that was started before the
    /// one that is connected is refused.
    pub(crate) fn join(&mut self, now: Duration, join: Join) -> Option<SessionId> {
        if let Some(old) = self.fleet.names.get(&join.id).copied() {
            let known = self.fleet.live(old).map(|worker| worker.incarnation);
            if known.is_some_and(|known| known > join.incarnation) {
                return None;
            }
            if known.is_some() {
                self.actions.push_back(Action::Supersede { session: old });
                self.lose(now, old, "its worker connected anew");
            }
            self.fleet.remove(old);
        }
        let session = self.next_session;
        self.next_session += 1;
        let worker = Worker {
            id: join.id,
            session,
            incarnation: join.incarnation,
            state: WorkerState::Ready,
            pid: join.pid,
            last_seen: now,
            completed: 0,
            seats: Vec::new(),
            breakers: BTreeMap::new(),
            status: devices(join.status),
            transport: Transport::default(),
            input_bytes_max: join.input_bytes_max,
        };
        let worker_id = worker.id.clone();
        self.fleet.add(worker, join.slots, join.threads);
        self.tell(Event::WorkerJoined { worker: worker_id });
        self.load_all_on(now, session);
        self.forget_lost(now);
        self.watch(now);
        self.actions.push_back(Action::Changed);
        self.schedule(now);
        Some(session)
    }

    /// A worker gave a sign of life.
    pub(crate) fn heard(&mut self, session: SessionId, now: Duration) {
        self.fleet.heard(session, now);
    }

    /// The session that the next worker gets.
    pub(crate) fn next_session(&self) -> SessionId {
        self.next_session
    }

    /// Whether an attempt takes a slot of a session.
    pub(crate) fn holds(&self, session: SessionId, id: AttemptId) -> bool {
        self.fleet.holder(session, id).is_some()
    }

    /// Whether a session has not ended.
    pub(crate) fn is_live(&self, session: SessionId) -> bool {
        self.fleet.workers.get(&session).is_some_and(|w| w.state != WorkerState::Lost)
    }

    /// How tensors travel to a worker now.
    pub(crate) fn carried_by(&mut self, session: SessionId, transport: Transport) {
        if let Some(worker) = self.fleet.live(session) {
            worker.transport = transport;
        }
    }

    /// A worker is alive and says what it holds.
    pub(crate) fn heartbeat(&mut self, now: Duration, session: SessionId, heartbeat: Heartbeat) {
        let Some(worker) = self.fleet.live(session) else { return };
        let seats = worker.seats.clone();
        let status = heartbeat.status.clone().map(devices);
        if let Some(status) = &status {
            worker.status.clone_from(status);
        }
        self.fleet.heard(session, now);
        let named: BTreeMap<AttemptId, bool> = heartbeat.held.iter().copied().collect();
        let mut missing = Vec::new();
        for &id in &seats {
            let Some(seat) = self.fleet.seats.get_mut(id) else { continue };
            missing.extend(seat.held.confirm(now, &heartbeat, &named));
        }
        for (&id, mut status) in seats.iter().zip(status.unwrap_or_default()) {
            let Some(seat) = self.fleet.seats.get_mut(id) else { continue };
            seat.amend(&mut status.models);
            let moved = seat.status.models != status.models;
            seat.status = status;
            if moved {
                self.fleet.generation += 1;
            }
            self.take_stock(now, id);
        }
        self.fleet.refresh_all(session);
        self.expire(now, session, missing);
        self.check_orders(now, session);
        self.dismiss_if_done(session);
        self.schedule(now);
        self.relieve(now, session);
    }

    /// Frees the slots of attempts that their worker has not named for too long.
    fn expire(&mut self, now: Duration, session: SessionId, missing: Vec<(AttemptId, Duration)>) {
        let timing = self.config.timing;
        for (id, age) in missing {
            let current = self.is_current(session, id);
            // The request or the answer may still be under way, and the answer may be long. Of
            // an attempt that nobody waits for, only the request matters.
            if age <= if current { timing.lease } else { timing.heartbeat } {
                continue;
            }
            let Some(held) = self.fleet.release(session, id) else { continue };
            if current {
                self.worker_failed(now, session, &held.model);
                let reason = "the worker no longer holds the task and sent no answer";
                let error = TaskError::new(TaskErrorKind::WorkerLost, reason);
                self.fail_attempt(now, id, session, error);
            } else {
                self.abandon_probe(session, id, &held.model);
            }
        }
    }

    /// The worker finishes what it holds and gets no more.
    pub(crate) fn worker_leaves(&mut self, session: SessionId) {
        if self.set_draining(session) {
            self.actions.push_back(Action::Changed);
            self.dismiss_if_done(session);
        }
    }

    fn set_draining(&mut self, session: SessionId) -> bool {
        let Some(worker) = self.fleet.live(session) else { return false };
        let before = std::mem::replace(&mut worker.state, WorkerState::Draining);
        let worker = worker.id.clone();
        if before != WorkerState::Draining {
            self.tell(Event::WorkerDraining { worker });
        }
        self.fleet.generation += 1;
        self.fleet.refresh_all(session);
        true
    }

    /// Lets a leaving worker go once every answer is there.
    pub(super) fn dismiss_if_done(&mut self, session: SessionId) {
        let leaving = self.fleet.live(session).is_some_and(|w| w.state == WorkerState::Draining);
        if leaving && self.fleet.is_empty_handed(session) {
            self.tell_left(session);
            self.fleet.remove(session);
            self.actions.push_back(Action::Dismiss { session });
            self.actions.push_back(Action::Changed);
        }
    }

    /// Asks a worker to leave. False when there is no such worker.
    pub(crate) fn drain_worker(&mut self, id: &str) -> bool {
        let Some(session) = self.fleet.named(id) else { return false };
        self.set_draining(session);
        // It says itself when it begins to leave, and is let go when it holds nothing.
        self.actions.push_back(Action::Drain { session });
        self.actions.push_back(Action::Changed);
        true
    }

    /// The connection ended. After a farewell the worker is forgotten, and what it still held
    /// was never begun; else it is lost and its tasks are redone.
    pub(crate) fn disconnected(&mut self, now: Duration, session: SessionId, farewell: bool) {
        if farewell {
            if self.fleet.live(session).is_none() {
                return;
            }
            self.tell_left(session);
            for id in self.fleet.remove(session) {
                if self.is_current(session, id) {
                    self.give_back(now, id, session, false);
                }
            }
            self.actions.push_back(Action::Changed);
        } else {
            self.lose(now, session, "the connection to its worker was lost");
        }
        self.schedule(now);
    }

    /// A supervisor saw the process of a worker end.
    pub(crate) fn worker_exited(&mut self, now: Duration, id: &str) {
        if let Some(session) = self.fleet.named(id) {
            self.lose(now, session, "the process of its worker ended");
            self.actions.push_back(Action::Abandon { session });
        }
        self.schedule(now);
    }

    fn lose(&mut self, now: Duration, session: SessionId, reason: &str) {
        let Some(worker) = self.fleet.live(session) else { return };
        worker.state = WorkerState::Lost;
        let id = worker.id.clone();
        let held = self.fleet.vacate(session);
        self.tell(Event::WorkerLost { worker: id.clone(), reason: reason.to_owned() });
        self.actions.push_back(Action::Changed);
        if self.planted == Planted::ForgetLost {
            return;
        }
        for attempt in held {
            if self.is_current(session, attempt) {
                let error = TaskError::new(TaskErrorKind::WorkerLost, format!("{reason} {id}"));
                self.fail_attempt(now, attempt, session, error);
            }
        }
    }

    fn tell_left(&mut self, session: SessionId) {
        if let Some(worker) = self.fleet.workers.get(&session).map(|worker| worker.id.clone()) {
            self.tell(Event::WorkerLeft { worker });
        }
    }

    /// Ends the sessions of workers that have been silent for too long.
    pub(super) fn check_membership(&mut self, now: Duration) {
        self.fleet.watched = false;
        let lost_after = self.config.timing.lost_after;
        let silent: Vec<SessionId> = self
            .fleet
            .workers
            .values()
            .filter(|w| w.state != WorkerState::Lost)
            .filter(|w| now.saturating_sub(w.last_seen) > lost_after)
            .filter(|_| self.planted != Planted::TrustSilence)
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
        let anyone = self.fleet.workers.values().any(|w| w.state != WorkerState::Lost);
        if anyone && !std::mem::replace(&mut self.fleet.watched, true) {
            self.timers.insert((now + self.config.timing.heartbeat / 2, Timer::Membership));
        }
    }

    fn forget_lost(&mut self, now: Duration) {
        let lost = |w: &&Worker| w.state == WorkerState::Lost;
        let workers = &self.fleet.workers;
        let mut count = workers.values().filter(lost).count();
        let mut gone = Vec::new();
        // Sessions are numbered in their order, so the oldest come first.
        for worker in workers.values().filter(lost) {
            let old = now.saturating_sub(worker.last_seen) > LOST_LISTED_FOR;
            if old || count > LOST_LISTED_MAX {
                gone.push(worker.session);
                count -= 1;
            }
        }
        for session in gone {
            self.fleet.remove(session);
        }
    }

    /// Whether no device of a worker is about to get a model.
    pub(crate) fn is_settled(&self, id: &str) -> bool {
        let worker = self.fleet.named(id).and_then(|session| self.fleet.workers.get(&session));
        let seats = worker.map(|worker| worker.seats.as_slice()).unwrap_or_default();
        let moves = |state: &ModelState| {
            matches!(state, ModelState::Loading { .. } | ModelState::Going { .. })
        };
        let loading = |seat: &Seat| seat.promised.is_some() || seat.models.values().any(moves);
        worker.is_some() && !seats.iter().filter_map(|&id| self.fleet.seats.get(id)).any(loading)
    }

    /// Every listed worker, by name.
    pub(crate) fn workers(&self, now: Duration) -> Vec<WorkerInfo> {
        let listed = self.fleet.names.values().filter_map(|s| self.fleet.workers.get(s));
        listed.map(|worker| self.worker_info(now, worker)).collect()
    }

    fn worker_info(&self, now: Duration, worker: &Worker) -> WorkerInfo {
        let seats: Vec<&Seat> =
            worker.seats.iter().filter_map(|&id: &SeatId| self.fleet.seats.get(id)).collect();
        let devices: Vec<DeviceInfo> = worker
            .status
            .iter()
            .enumerate()
            .map(|(at, status)| device_info(status, seats.get(at).copied()))
            .collect();
        let first = devices.first().cloned().unwrap_or_default();
        let sum = |of: fn(&DeviceInfo) -> u32| devices.iter().map(of).fold(0, u32::saturating_add);
        let breakers = worker.breakers.iter();
        WorkerInfo {
            id: worker.id.clone(),
            pid: worker.pid,
            state: worker.state,
            device: first.device,
            backend: first.backend,
            models: devices
                .iter()
                .flat_map(|d| &d.models)
                .cloned()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            running: sum(|d| d.running),
            queued: sum(|d| d.queued),
            vram_used_bytes: first.vram_used_bytes,
            vram_total_bytes: first.vram_total_bytes,
            slots: sum(|d| d.slots),
            load: devices.iter().map(|d| d.load).fold(0.0, f64::max),
            completed: worker.completed,
            last_seen_ms: u64::try_from(now.saturating_sub(worker.last_seen).as_millis())
                .unwrap_or(u64::MAX),
            breakers: breakers
                .filter(|(_, breaker)| !breaker.passes())
                .map(|(model, breaker)| (model.to_string(), breaker.name().into()))
                .collect(),
            devices,
            transport: worker.transport,
        }
    }
}

fn device_info(status: &DeviceStatus, seat: Option<&Seat>) -> DeviceInfo {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    // A model may have been loaded since the last heartbeat.
    let status = seat.map_or(status, |seat| &seat.status);
    DeviceInfo {
        device: status.device.clone(),
        backend: status.backend.clone(),
        models: status.models.iter().map(ToString::to_string).collect(),
        running: seat.map_or(0, |seat| count(seat.held.len())),
        queued: seat.map_or(0, |seat| seat.held.tally().waiting),
        slots: seat.map_or(0, |seat| seat.slots),
        load: seat.map_or(0.0, Seat::load),
        vram_used_bytes: status.vram_used_bytes,
        vram_total_bytes: status.vram_total_bytes,
        utilisation: status.utilisation,
        power_w: status.power_w,
        service_ms: seat.map(measured).unwrap_or_default(),
    }
}

/// What was measured at a seat, by model.
fn measured(seat: &Seat) -> BTreeMap<String, f64> {
    let last = |service: &crate::proto::service::Service| service.mean_ms();
    seat.services.iter().map(|(model, service)| (model.to_string(), last(service))).collect()
}
