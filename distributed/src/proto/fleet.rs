//! Who may take work: workers, their devices, and a dense summary of them for the scheduler.

use crate::executor::DeviceStatus;
use crate::proto::balance::load;
use crate::proto::breaker::Breaker;
use crate::proto::message::AttemptId;
use crate::proto::models::ModelState;
use crate::proto::recall::{Holdings, Standing, Tally};
use crate::proto::service::{Service, nanos};
use crate::proto::state::SessionId;
use crate::task::ModelRef;
use crate::worker_info::{Transport, WorkerId, WorkerState};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Index of a seat. Used again after its worker is gone.
pub(crate) type SeatId = usize;

/// A worker as the core keeps it.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) id: WorkerId,
    pub(super) session: SessionId,
    /// Tells processes of one name apart: a later one has a larger number.
    pub(super) incarnation: u64,
    pub(super) state: WorkerState,
    pub(super) pid: Option<u32>,
    pub(super) last_seen: Duration,
    pub(super) completed: u64,
    /// A seat per device, in the order of the devices; empty once the worker is lost.
    pub(super) seats: Vec<SeatId>,
    pub(super) breakers: BTreeMap<ModelRef, Breaker>,
    /// What it last said of its devices.
    pub(super) status: Vec<DeviceStatus>,
    pub(super) transport: Transport,
    /// Bytes that the inputs of one task may have.
    pub(super) input_bytes_max: u64,
}

impl Worker {
    pub(super) fn is_ready(&self) -> bool {
        self.state == WorkerState::Ready
    }

    /// Whether it takes inputs of so many bytes.
    pub(super) fn takes(&self, input_bytes: usize) -> bool {
        u64::try_from(input_bytes).is_ok_and(|bytes| bytes <= self.input_bytes_max)
    }
}

/// An attempt that takes a slot.
#[derive(Debug, Clone)]
pub(super) struct Held {
    /// The time of its dispatch or, later, of the last heartbeat that named it.
    pub(super) confirmed: Duration,
    pub(super) model: Arc<ModelRef>,
    pub(super) standing: Standing,
}

/// A device of a worker, which takes tasks.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) session: SessionId,
    pub(super) ordinal: u32,
    /// Attempts that it may hold.
    pub(super) slots: u32,
    pub(super) status: DeviceStatus,
    /// Attempts that take a slot.
    pub(super) held: Holdings,
    pub(super) models: BTreeMap<ModelRef, ModelState>,
    /// The model that others leave for.
    pub(super) promised: Option<Arc<ModelRef>>,
    pub(super) services: BTreeMap<ModelRef, Service>,
    /// Heartbeats to come before it is known what it holds: a model found no room where there
    /// should have been some.
    pub(super) unsure: u8,
}

impl Seat {
    pub(super) fn load(&self) -> f64 {
        let memory = match (self.status.vram_used_bytes, self.status.vram_total_bytes) {
            (Some(used), Some(total)) if total > 0 => mib(used) / mib(total).max(1.0),
            _ => 0.0,
        };
        let utilisation = f64::from(self.status.utilisation.unwrap_or(0.0));
        load(self.held.len(), self.slots, utilisation, memory, self.held.tally().waiting)
    }

    fn free_slots(&self) -> u32 {
        self.slots.saturating_sub(u32::try_from(self.held.len()).unwrap_or(u32::MAX))
    }

    /// Device memory that is free; infinite where nothing is said of it.
    pub(super) fn free_mib(&self) -> f64 {
        match (self.status.vram_used_bytes, self.status.vram_total_bytes) {
            (used, Some(total)) => mib(total.saturating_sub(used.unwrap_or(0))),
            _ => f64::INFINITY,
        }
    }
}

/// Bytes in whole MiB, which `u32` holds up to 4 PiB.
pub(super) fn mib(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 20).unwrap_or(u32::MAX))
}

/// What choosing among thousands of seats reads of each, worked out when the seat changes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Hot {
    /// When its worker was last heard of, in nanoseconds, 1 at least; 0 while the seat takes
    /// nothing: every slot is taken, or the worker takes no tasks.
    pub(crate) heard_ns: u64,
    /// Number of the dispatch that last went to it; 0 for none.
    pub(crate) last_dispatch: u64,
    pub(crate) load: f64,
    /// Service times until a task that came now would be done: those before it in its slot, and
    /// its own.
    pub(crate) turns: f64,
    pub(crate) free_mib: f64,
    pub(crate) power_w: f32,
    /// Slots that are free; none where the worker takes no tasks.
    pub(crate) free: u32,
    pub(crate) slots: u32,
    /// Background attempts that may have to wait there and can be asked back, and attempts that
    /// were asked back to make room and may still come.
    pub(crate) yielding: u32,
    pub(crate) yields: u32,
    /// Attempts that were asked back to be done sooner elsewhere and may still come.
    pub(crate) moves: u32,
}

/// As [`Hot::heard_ns`] has it.
fn heard_ns(free: u32, last_seen: Duration) -> u64 {
    if free == 0 { 0 } else { nanos(last_seen).max(1) }
}

/// All workers and their seats.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    pub(super) workers: BTreeMap<SessionId, Worker>,
    /// The latest session of each name.
    pub(super) names: BTreeMap<WorkerId, SessionId>,
    pub(super) seats: Slab<Seat>,
    /// The same indices as `seats`.
    pub(super) hot: Vec<Hot>,
    /// Free slots of all ready workers.
    pub(super) free: u64,
    /// The sums of what [`Hot`] calls so.
    pub(super) yielding: u64,
    pub(super) yields: u64,
    pub(super) moves: u64,
    /// Seats of ready workers that hold nothing.
    pub(super) idle: BTreeSet<SeatId>,
    /// No worker that is or was here takes inputs of fewer bytes at most; `None` before the first.
    pub(super) input_bytes_least: Option<u64>,
    /// Whether a look at silent workers is due.
    pub(super) watched: bool,
    /// Changes whenever another set of seats may take some model.
    pub(super) generation: u64,
}

impl Fleet {
    /// The worker of a session that has not ended.
    pub(super) fn live(&mut self, session: SessionId) -> Option<&mut Worker> {
        self.workers.get_mut(&session).filter(|w| w.state != WorkerState::Lost)
    }

    /// The session under a name, if it has not ended.
    pub(super) fn named(&self, id: &str) -> Option<SessionId> {
        // A name that is none is nobody's.
        let id: WorkerId = id.parse().ok()?;
        let session = *self.names.get(&id)?;
        let live = self.workers.get(&session).is_some_and(|w| w.state != WorkerState::Lost);
        live.then_some(session)
    }

    /// Adds a worker with a seat for each of its devices.
    pub(super) fn add(&mut self, mut worker: Worker, slots: u32, threads: u32) {
        let session = worker.session;
        let least = self.input_bytes_least.unwrap_or(u64::MAX);
        self.input_bytes_least = Some(least.min(worker.input_bytes_max));
        for (ordinal, status) in (0u32..).zip(&worker.status) {
            let seat = self.seats.insert(Seat {
                session,
                ordinal,
                slots: slots.max(1),
                status: status.clone(),
                held: Holdings::new(slots.max(1) > threads.max(1)),
                models: BTreeMap::new(),
                promised: None,
                services: BTreeMap::new(),
                unsure: 0,
            });
            worker.seats.push(seat);
            if self.hot.len() <= seat {
                self.hot.resize(seat + 1, Hot::default());
            }
            self.hot[seat] = Hot::default();
        }
        let seats = worker.seats.clone();
        self.names.insert(worker.id.clone(), session);
        self.workers.insert(session, worker);
        self.generation += 1;
        for seat in seats {
            self.refresh(seat);
        }
    }

    /// Takes a worker's seats away; answers the attempts that they held.
    pub(super) fn vacate(&mut self, session: SessionId) -> Vec<AttemptId> {
        let Some(worker) = self.workers.get_mut(&session) else { return Vec::new() };
        let mut held = Vec::new();
        for seat in std::mem::take(&mut worker.seats) {
            if let Some(gone) = self.seats.try_remove(seat) {
                held.extend(gone.held.keys());
            }
            self.idle.remove(&seat);
            if let Some(hot) = self.hot.get_mut(seat) {
                self.free -= u64::from(hot.free);
                self.yielding -= u64::from(hot.yielding);
                self.yields -= u64::from(hot.yields);
                self.moves -= u64::from(hot.moves);
                *hot = Hot::default();
            }
        }
        self.generation += 1;
        held
    }

    /// Forgets a worker, whose seats are vacated if they are not yet.
    pub(super) fn remove(&mut self, session: SessionId) -> Vec<AttemptId> {
        let held = self.vacate(session);
        if let Some(worker) = self.workers.remove(&session)
            && self.names.get(&worker.id) == Some(&session)
        {
            self.names.remove(&worker.id);
        }
        held
    }

    /// Brings the summary of a seat up to date.
    pub(super) fn refresh(&mut self, id: SeatId) {
        let (Some(seat), Some(hot)) = (self.seats.get(id), self.hot.get_mut(id)) else { return };
        let Some(worker) = self.workers.get(&seat.session) else { return };
        let free = if worker.is_ready() { seat.free_slots() } else { 0 };
        let tally = if worker.is_ready() { seat.held.tally() } else { Tally::default() };
        let Tally { yielding, yields, moves, .. } = tally;
        match worker.is_ready() && seat.held.is_empty() {
            true => self.idle.insert(id),
            false => self.idle.remove(&id),
        };
        self.free = self.free + u64::from(free) - u64::from(hot.free);
        self.yielding = self.yielding + u64::from(yielding) - u64::from(hot.yielding);
        self.yields = self.yields + u64::from(yields) - u64::from(hot.yields);
        self.moves = self.moves + u64::from(moves) - u64::from(hot.moves);
        *hot = Hot {
            heard_ns: heard_ns(free, worker.last_seen),
            last_dispatch: hot.last_dispatch,
            load: seat.load(),
            turns: f64::from(seat.slots.saturating_sub(free)) / f64::from(seat.slots.max(1)) + 1.0,
            free_mib: seat.free_mib(),
            power_w: seat.status.power_w.unwrap_or(0.0),
            free,
            slots: seat.slots,
            yielding,
            yields,
            moves,
        };
    }

    pub(super) fn refresh_all(&mut self, session: SessionId) {
        let seats = self.workers.get(&session).map(|w| w.seats.clone()).unwrap_or_default();
        for seat in seats {
            self.refresh(seat);
        }
    }

    /// A sign of life.
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
    pub(super) fn holder(&self, session: SessionId, id: AttemptId) -> Option<SeatId> {
        let worker = self.workers.get(&session)?;
        let holds =
            |seat: &&SeatId| self.seats.get(**seat).is_some_and(|s| s.held.contains_key(&id));
        worker.seats.iter().find(holds).copied()
    }

    /// Frees the slot of an attempt of a live worker; nothing where none was taken.
    pub(super) fn release(&mut self, session: SessionId, id: AttemptId) -> Option<Held> {
        let seat = self.holder(session, id)?;
        let held = self.seats.get_mut(seat)?.held.remove(&id);
        self.refresh(seat);
        held
    }

    /// Whether a worker holds no attempt.
    pub(super) fn is_empty_handed(&self, session: SessionId) -> bool {
        let worker = self.workers.get(&session);
        worker.is_some_and(|w| {
            w.seats.iter().all(|&seat| self.seats.get(seat).is_none_or(|s| s.held.is_empty()))
        })
    }

    /// Seats of ready workers.
    pub(super) fn ready_seats(&self) -> impl Iterator<Item = (SeatId, &Seat)> {
        let ready = |seat: &Seat| self.workers.get(&seat.session).is_some_and(Worker::is_ready);
        self.seats.iter().filter(move |(_, seat)| ready(seat))
    }
}
