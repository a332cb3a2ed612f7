//! All workers and their seats, with sums over them. The sums are kept as workers come and go, so
//! that no operation looks at all of them.

use super::holdings::Tally;
use super::hot::{Hot, SeatId, heard_ns};
use super::seat::{Counted, Held, Seat};
use super::worker::Worker;
use crate::proto::message::AttemptId;
use crate::proto::state::SessionId;
use crate::worker_info::WorkerId;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// All workers and their seats.
#[derive(Debug, Default)]
pub(in crate::proto) struct Fleet {
    workers: BTreeMap<SessionId, Worker>,
    /// The latest session of each name.
    names: BTreeMap<WorkerId, SessionId>,
    seats: Slab<Seat>,
    /// The same indices as `seats`.
    hot: Vec<Hot>,
    sums: Sums,
    /// Seats of ready workers that hold nothing.
    idle: BTreeSet<SeatId>,
    /// Lost workers that are still listed.
    lost: BTreeSet<SessionId>,
    /// How many listed workers have each limit of input bytes.
    limits: BTreeMap<u64, usize>,
    /// The lowest limit of input bytes of all workers that are or were here; `None` before the first.
    input_bytes_least: Option<u64>,
}

/// Sums over all seats of ready workers.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::proto) struct Sums {
    /// Free slots.
    pub(in crate::proto) free: u64,
    /// As [`Tally`] defines them.
    pub(in crate::proto) yielding: u64,
    pub(in crate::proto) yields: u64,
    pub(in crate::proto) moves: u64,
}

impl Sums {
    fn add(&mut self, Counted { free, tally }: Counted) {
        let Tally { yielding, yields, moves, .. } = tally;
        self.free += u64::from(free);
        self.yielding += u64::from(yielding);
        self.yields += u64::from(yields);
        self.moves += u64::from(moves);
    }

    fn subtract(&mut self, Counted { free, tally }: Counted) {
        let Tally { yielding, yields, moves, .. } = tally;
        self.free -= u64::from(free);
        self.yielding -= u64::from(yielding);
        self.yields -= u64::from(yields);
        self.moves -= u64::from(moves);
    }
}

impl Fleet {
    /// Every listed worker, in the order of their sessions.
    pub(in crate::proto) fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.workers.values()
    }

    pub(super) fn workers_mut(&mut self) -> impl Iterator<Item = &mut Worker> {
        self.workers.values_mut()
    }

    /// The latest worker of each name, in the order of the names.
    pub(in crate::proto) fn by_name(&self) -> impl Iterator<Item = &Worker> {
        self.names.values().filter_map(|session| self.workers.get(session))
    }

    pub(in crate::proto) fn worker(&self, session: SessionId) -> Option<&Worker> {
        self.workers.get(&session)
    }

    pub(super) fn worker_mut(&mut self, session: SessionId) -> Option<&mut Worker> {
        self.workers.get_mut(&session)
    }

    /// The worker of a session that has not ended.
    pub(in crate::proto) fn live(&self, session: SessionId) -> Option<&Worker> {
        self.workers.get(&session).filter(|worker| !worker.is_lost())
    }

    pub(super) fn live_mut(&mut self, session: SessionId) -> Option<&mut Worker> {
        self.workers.get_mut(&session).filter(|worker| !worker.is_lost())
    }

    /// The latest session under a name, ended or not.
    pub(in crate::proto) fn latest(&self, id: &WorkerId) -> Option<&Worker> {
        self.workers.get(self.names.get(id)?)
    }

    /// The worker of a name whose session has not ended.
    pub(in crate::proto) fn named(&self, id: &str) -> Option<&Worker> {
        // No worker has an invalid name.
        let id: WorkerId = id.parse().ok()?;
        self.latest(&id).filter(|worker| !worker.is_lost())
    }

    /// Whether any session has not ended.
    pub(in crate::proto) fn has_live(&self) -> bool {
        self.workers.len() > self.lost.len()
    }

    /// Lost workers that are still listed, in the order of their sessions.
    pub(in crate::proto) fn lost(&self) -> impl ExactSizeIterator<Item = SessionId> {
        self.lost.iter().copied()
    }

    /// Every seat, of workers that take tasks or not.
    pub(in crate::proto) fn seats(&self) -> impl Iterator<Item = (SeatId, &Seat)> {
        self.seats.iter()
    }

    pub(in crate::proto) fn seat(&self, id: SeatId) -> Option<&Seat> {
        self.seats.get(id)
    }

    pub(super) fn seat_mut(&mut self, id: SeatId) -> Option<&mut Seat> {
        self.seats.get_mut(id)
    }

    /// The seats of a worker.
    pub(in crate::proto) fn seats_of(&self, worker: &Worker) -> impl Iterator<Item = &Seat> {
        worker.seats().iter().filter_map(|&id| self.seats.get(id))
    }

    /// The worker of a seat.
    pub(in crate::proto) fn worker_at(&self, id: SeatId) -> Option<&Worker> {
        self.workers.get(&self.seats.get(id)?.session())
    }

    /// Seats of ready workers.
    pub(in crate::proto) fn ready_seats(&self) -> impl Iterator<Item = (SeatId, &Seat)> {
        self.seats.iter().filter(|(_, seat)| seat.ready)
    }

    /// Seats of ready workers that hold nothing.
    pub(in crate::proto) fn idle(&self) -> &BTreeSet<SeatId> {
        &self.idle
    }

    pub(in crate::proto) fn sums(&self) -> Sums {
        self.sums
    }

    pub(super) fn hot(&self) -> &[Hot] {
        &self.hot
    }

    /// Whether some worker's limit of input bytes is lower.
    pub(in crate::proto) fn is_large(&self, input_bytes: usize) -> bool {
        u64::try_from(input_bytes)
            .is_ok_and(|bytes| self.input_bytes_least.is_some_and(|least| bytes > least))
    }

    /// The most bytes of inputs that a listed worker takes, also one that is lost.
    pub(in crate::proto) fn input_bytes_most(&self) -> Option<u64> {
        self.limits.last_key_value().map(|(bytes, _)| *bytes)
    }

    /// Adds a worker with a seat for each of its devices.
    pub(super) fn add(&mut self, mut worker: Worker, slots: u32, threads: u32) {
        let (session, limit) = (worker.session(), worker.input_bytes_max());
        let least = self.input_bytes_least.unwrap_or(u64::MAX);
        self.input_bytes_least = Some(least.min(limit));
        *self.limits.entry(limit).or_default() += 1;
        let mut seats = Vec::with_capacity(worker.status().len());
        for (ordinal, status) in (0u32..).zip(worker.status()) {
            let seat = Seat::new(session, ordinal, slots, threads, status.clone());
            let seat = self.seats.insert(seat);
            seats.push(seat);
            if self.hot.len() <= seat {
                self.hot.resize(seat + 1, Hot::default());
            }
            self.hot[seat] = Hot::default();
        }
        worker.seats.clone_from(&seats);
        self.names.insert(worker.id().clone(), session);
        self.workers.insert(session, worker);
        for seat in seats {
            self.refresh(seat);
        }
    }

    /// Removes a worker's seats; returns the attempts that they held.
    pub(super) fn vacate(&mut self, session: SessionId) -> Vec<AttemptId> {
        let Some(worker) = self.workers.get_mut(&session) else { return Vec::new() };
        let mut held = Vec::new();
        for id in std::mem::take(&mut worker.seats) {
            if let Some(gone) = self.seats.try_remove(id) {
                held.extend(gone.held.keys());
                self.sums.subtract(gone.counted);
            }
            self.idle.remove(&id);
            if let Some(hot) = self.hot.get_mut(id) {
                *hot = Hot::default();
            }
        }
        if worker.is_lost() {
            self.lost.insert(session);
        }
        held
    }

    /// Forgets a worker, and removes its seats if it still has any.
    pub(super) fn remove(&mut self, session: SessionId) -> Vec<AttemptId> {
        let held = self.vacate(session);
        self.lost.remove(&session);
        let Some(worker) = self.workers.remove(&session) else { return held };
        if self.names.get(worker.id()) == Some(&session) {
            self.names.remove(worker.id());
        }
        if let Some(count) = self.limits.get_mut(&worker.input_bytes_max()) {
            *count -= 1;
            if *count == 0 {
                self.limits.remove(&worker.input_bytes_max());
            }
        }
        held
    }

    /// Brings the summary of a seat up to date.
    pub(super) fn refresh(&mut self, id: SeatId) {
        let (Some(seat), Some(hot)) = (self.seats.get_mut(id), self.hot.get_mut(id)) else {
            return;
        };
        let Some(worker) = self.workers.get(&seat.session()) else { return };
        match seat.ready && seat.held.is_empty() {
            true => self.idle.insert(id),
            false => self.idle.remove(&id),
        };
        let counted = seat.counts();
        self.sums.add(counted);
        self.sums.subtract(std::mem::replace(&mut seat.counted, counted));
        *hot = seat.hot(counted.free, worker.last_seen, hot.last_dispatch);
    }

    pub(super) fn refresh_all(&mut self, session: SessionId) {
        let seats = self.workers.get(&session).map(|w| w.seats.clone()).unwrap_or_default();
        for seat in seats {
            self.refresh(seat);
        }
    }

    /// Notes that the latest task was sent to a seat.
    pub(super) fn count_dispatch(&mut self, id: SeatId, number: u64) {
        if let Some(hot) = self.hot.get_mut(id) {
            hot.last_dispatch = number;
        }
    }

    /// Notes a sign of life of a worker.
    pub(super) fn heard(&mut self, session: SessionId, now: Duration) {
        let Some(worker) = self.workers.get_mut(&session) else { return };
        worker.last_seen = now;
        for &seat in &worker.seats {
            if let Some(hot) = self.hot.get_mut(seat) {
                hot.heard_ns = heard_ns(hot.free, now);
            }
        }
    }

    /// The seat of a worker that holds an attempt.
    pub(in crate::proto) fn holder(&self, session: SessionId, id: AttemptId) -> Option<SeatId> {
        let worker = self.workers.get(&session)?;
        let holds =
            |seat: &&SeatId| self.seats.get(**seat).is_some_and(|s| s.held.contains_key(&id));
        worker.seats.iter().find(holds).copied()
    }

    /// Frees the slot of an attempt of a live worker; returns the seat, or `None` if no slot was taken.
    pub(super) fn release(&mut self, session: SessionId, id: AttemptId) -> Option<(SeatId, Held)> {
        let seat = self.holder(session, id)?;
        let held = self.seats.get_mut(seat)?.held.remove(&id)?;
        self.refresh(seat);
        Some((seat, held))
    }

    /// Whether a worker holds no attempt.
    pub(in crate::proto) fn is_empty_handed(&self, session: SessionId) -> bool {
        let worker = self.workers.get(&session);
        worker.is_some_and(|worker| self.seats_of(worker).all(|seat| seat.held.is_empty()))
    }
}
