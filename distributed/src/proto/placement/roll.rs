//! The roll of workers: joining, signs of life, draining, loss and leaving.

use super::device::{devices, unused};
use super::{Held, Kept, Placement, Seat, SeatId, Worker};
use crate::executor::DeviceStatus;
use crate::proto::membership::Join;
use crate::proto::message::{AttemptId, Stint};
use crate::proto::state::SessionId;
use crate::task::ModelRef;
use crate::worker_info::{WorkerId, WorkerState};
use std::sync::Arc;
use std::time::Duration;

impl Placement {
    /// The session that the next worker gets.
    pub(in crate::proto) fn next_session(&self) -> SessionId {
        self.last_session + 1
    }

    /// Adds a worker, whose name no other one has; returns its session.
    pub(in crate::proto) fn join(
        &mut self,
        now: Duration,
        mut join: Join,
        stint: Stint,
    ) -> SessionId {
        self.last_session += 1;
        let session = self.last_session;
        let status = std::mem::take(&mut join.status);
        let mut worker = Worker::new((session, stint), now, &join, devices(status.devices));
        worker.set_unused(unused(status.unused));
        self.fleet.add(worker, join.slots, join.threads);
        for id in self.seats_of(session) {
            self.capabilities.update_all(&self.fleet, id, &self.models);
            self.take_out_known(id);
        }
        session
    }

    /// The seats of a worker.
    pub(in crate::proto) fn seats_of(&self, session: SessionId) -> Vec<SeatId> {
        self.fleet.worker(session).map(|worker| worker.seats.clone()).unwrap_or_default()
    }

    /// The seats of all ready workers.
    pub(in crate::proto) fn ready_seats(&self) -> Vec<SeatId> {
        self.fleet.ready_seats().map(|(id, _)| id).collect()
    }

    /// The seat of a live worker's device, and the worker's name.
    pub(in crate::proto) fn device_of(
        &self,
        session: SessionId,
        device: u32,
    ) -> Option<(SeatId, WorkerId)> {
        let worker = self.fleet.live(session)?;
        let seat = *worker.seats.get(usize::try_from(device).ok()?)?;
        Some((seat, worker.id().clone()))
    }

    /// A worker of a session that has not ended, to be changed.
    pub(in crate::proto) fn live_mut(&mut self, session: SessionId) -> Option<&mut Worker> {
        self.fleet.live_mut(session)
    }

    /// Notes a sign of life of a worker.
    pub(in crate::proto) fn heard(&mut self, session: SessionId, now: Duration) {
        self.fleet.heard(session, now);
    }

    /// Takes a worker's new report on one of its devices.
    pub(in crate::proto) fn set_status(&mut self, id: SeatId, mut status: DeviceStatus) {
        let Some(seat) = self.fleet.seat_mut(id) else { return };
        seat.amend(&mut status.models);
        let is_same = seat.status.models == status.models
            && seat.status.backend == status.backend
            && seat.status.family == status.family;
        seat.status = status;
        if !is_same {
            self.capabilities.update_all(&self.fleet, id, &self.models);
        }
    }

    /// Brings the summaries of a worker's devices up to date.
    pub(in crate::proto) fn refresh(&mut self, session: SessionId) {
        self.fleet.refresh_all(session);
    }

    /// A worker takes no more tasks. Returns its name, and whether it took tasks before; `None`
    /// where it is lost.
    pub(in crate::proto) fn drain(&mut self, session: SessionId) -> Option<(WorkerId, bool)> {
        let worker = self.fleet.live(session)?;
        let (name, was_ready) = (worker.id().clone(), worker.is_ready());
        self.close(session, WorkerState::Draining);
        self.fleet.refresh_all(session);
        Some((name, was_ready))
    }

    /// A worker is lost. Returns its name, and the attempts that it held.
    pub(in crate::proto) fn lose(
        &mut self,
        session: SessionId,
    ) -> Option<(WorkerId, Vec<AttemptId>)> {
        let name = self.fleet.live(session)?.id().clone();
        let kept = self.kept(session);
        self.close(session, WorkerState::Lost);
        if let Some(worker) = self.fleet.worker_mut(session) {
            worker.kept = kept;
        }
        Some((name, self.fleet.vacate(session)))
    }

    /// The attempts that a worker holds, or held when it was lost.
    pub(in crate::proto) fn kept(&self, session: SessionId) -> Vec<Kept> {
        let Some(worker) = self.fleet.worker(session) else { return Vec::new() };
        if worker.is_lost() {
            return worker.kept.clone();
        }
        let seats = self.fleet.seats_of(worker);
        let at = |seat: &Seat| {
            let device = seat.ordinal();
            let kept = move |(id, held): (&AttemptId, &Held)| {
                let (model, standing) = (Arc::clone(&held.model), &held.standing);
                let (begun, hung) = (standing.begun(), standing.has_hung());
                Kept { id: *id, device, model, begun, hung }
            };
            seat.held().iter().map(kept).collect::<Vec<_>>()
        };
        seats.flat_map(at).collect()
    }

    /// The connection to a worker is lost: the worker takes no tasks until it comes back. False if
    /// it took none before.
    pub(in crate::proto) fn part(&mut self, session: SessionId) -> bool {
        let ready = self.fleet.live(session).is_some_and(Worker::is_ready);
        if ready {
            self.close(session, WorkerState::Away);
            self.fleet.refresh_all(session);
        }
        ready
    }

    /// Whether the connection to a worker is lost.
    pub(in crate::proto) fn has_parted(&self, session: SessionId) -> bool {
        self.fleet.worker(session).is_some_and(|worker| worker.state() == WorkerState::Away)
    }

    /// When the run of an attempt was first heard to have begun.
    pub(in crate::proto) fn run_began(
        &self,
        session: SessionId,
        id: AttemptId,
    ) -> Option<Duration> {
        let seat = self.fleet.seat(self.fleet.holder(session, id)?)?;
        seat.held().get(&id)?.standing.begun()
    }

    /// Whether an attempt's worker came back and has not named the attempt yet.
    pub(in crate::proto) fn is_resumed(&self, session: SessionId, id: AttemptId) -> bool {
        let seat = self.fleet.holder(session, id).and_then(|seat| self.fleet.seat(seat));
        seat.and_then(|seat| seat.held().get(&id)).is_some_and(|held| held.standing.is_resumed())
    }

    /// Forgets a worker; returns the attempts that it held.
    pub(in crate::proto) fn remove(&mut self, session: SessionId) -> Vec<AttemptId> {
        self.close(session, WorkerState::Lost);
        self.fleet.remove(session)
    }

    /// Puts a worker into a state in which its devices take no more tasks.
    fn close(&mut self, session: SessionId, state: WorkerState) {
        let seats = self.seats_of(session);
        if let Some(worker) = self.fleet.worker_mut(session) {
            worker.state = state;
        }
        for id in seats {
            self.shut(id);
        }
    }

    /// A device takes no more tasks.
    pub(super) fn shut(&mut self, id: SeatId) {
        let Some(seat) = self.fleet.seat_mut(id).filter(|seat| seat.ready) else { return };
        seat.ready = false;
        for model in seat.present() {
            self.count_present(&model, false);
        }
        self.capabilities.update_all(&self.fleet, id, &self.models);
    }

    /// A device takes tasks again.
    pub(super) fn open(&mut self, id: SeatId) {
        let Some(seat) = self.fleet.seat_mut(id).filter(|seat| !seat.ready) else { return };
        seat.ready = true;
        for model in seat.present() {
            self.count_present(&model, true);
        }
        self.capabilities.update_all(&self.fleet, id, &self.models);
    }

    /// Counts one device of a ready worker more, or less, that has a model or is to get it.
    pub(super) fn count_present(&mut self, model: &ModelRef, more: bool) {
        if more {
            return *self.present.entry(model.clone()).or_default() += 1;
        }
        if let Some(count) = self.present.get_mut(model) {
            *count -= 1;
            if *count == 0 {
                self.present.remove(model);
            }
        }
    }

    /// Gives every worker [grace](Self::grace).
    pub(in crate::proto) fn grace_all(&mut self, now: Duration, silence: Duration) {
        let live = self.fleet.workers().filter(|worker| !worker.is_lost());
        let sessions: Vec<SessionId> = live.map(Worker::session).collect();
        for session in sessions {
            self.grace(now, session, silence);
        }
    }

    /// A worker counts as heard at `now + silence`, if not later, and its attempts as named now.
    pub(in crate::proto) fn grace(&mut self, now: Duration, session: SessionId, silence: Duration) {
        let Some(worker) = self.fleet.live_mut(session) else { return };
        worker.last_seen = worker.last_seen.max(now + silence);
        for id in self.seats_of(session) {
            if let Some(seat) = self.fleet.seat_mut(id) {
                seat.held.grace(now);
            }
        }
    }

    /// Workers whose sessions have not ended and that were silent for longer than `than`.
    pub(in crate::proto) fn silent(&self, now: Duration, than: Duration) -> Vec<SessionId> {
        let live = self.fleet.workers().filter(|worker| !worker.is_lost());
        let silent = live.filter(|worker| now.saturating_sub(worker.last_seen()) > than);
        silent.map(Worker::session).collect()
    }

    /// Forgets lost workers: the oldest of more than `max`, and those that were silent for longer
    /// than `after`.
    pub(in crate::proto) fn forget_lost(&mut self, now: Duration, max: usize, after: Duration) {
        let mut count = self.fleet.lost().len();
        let mut gone = Vec::new();
        // Sessions are numbered in their order, so the oldest come first.
        for session in self.fleet.lost() {
            let seen = self.fleet.worker(session).map_or(Duration::ZERO, Worker::last_seen);
            if now.saturating_sub(seen) > after || count > max {
                gone.push(session);
                count -= 1;
            }
        }
        for session in gone {
            self.remove(session);
        }
    }

    /// Notes that silent workers are looked for, if there are live workers. True when that was not
    /// so before: then the caller schedules a check.
    pub(in crate::proto) fn watch(&mut self) -> bool {
        self.fleet.has_live() && !std::mem::replace(&mut self.watched, true)
    }

    /// The check of silent workers was made.
    pub(in crate::proto) fn watched(&mut self) {
        self.watched = false;
    }
}
