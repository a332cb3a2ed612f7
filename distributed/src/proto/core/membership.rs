//! Workers: joining, suspicion, loss and leaving.

mod join;

pub use join::Join;

use super::Core;
use crate::executor::DeviceStatus;
use crate::proto::event::Event;
use crate::proto::message::Stint;
use crate::proto::placement::{Seat, Timed, Worker};
use crate::proto::state::{Action, SessionId};
use crate::proto::timers::Timer;
use crate::task::{ModelRef, TaskError, TaskErrorKind};
use crate::worker_info::{DeviceInfo, Transport, WorkerInfo, WorkerState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Most lost workers that stay listed, and for how long.
const LOST_LISTED_MAX: usize = 64;
const LOST_LISTED_FOR: Duration = Duration::from_secs(600);

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// In order: the worker holds nothing.
    Farewell,
    /// The worker's process ended it.
    Ended,
    /// Neither side ended it.
    Broken,
}

impl Core {
    /// A worker connected. Its earlier session, if there is one, ends here: a worker may restart or
    /// reconnect before its silence is noticed. The same process keeps its attempts if it was heard
    /// within the lease and knows the stint that would go on; otherwise its attempts belong to
    /// another stint. A process that was started before the connected one is refused. Returns the
    /// session and its stint, which began earlier if it goes on.
    pub fn join(&mut self, now: Duration, join: Join) -> Option<(SessionId, Stint)> {
        let mut resumed = None;
        if let Some(earlier) = self.placement.fleet().latest(&join.id).map(Worker::session) {
            self.excuse(now, earlier);
        }
        let mut stint = Stint { epoch: self.config.epoch, session: self.next_session() };
        if let Some(earlier) = self.placement.fleet().latest(&join.id) {
            let (old, live) = (earlier.session(), !earlier.is_lost());
            let known = join.stint == Some(earlier.stint());
            let same = earlier.incarnation() == join.incarnation && known;
            let silent = now.saturating_sub(earlier.last_seen());
            if live && earlier.incarnation() > join.incarnation {
                return None;
            }
            if live {
                self.actions.push(Action::Supersede { session: old });
            }
            if same && silent <= self.config.timing.lease {
                stint = earlier.stint();
                resumed = Some((old, self.placement.kept(old)));
            } else if live {
                self.lose(now, old, "it connected anew");
            }
            self.placement.remove(old);
        }
        let worker = join.id.clone();
        let session = self.placement.join(now, join, stint);
        if let Some((old, kept)) = resumed {
            self.resume(now, (old, session), &worker, kept);
        }
        self.tell(Event::WorkerJoined { worker });
        self.load_all_on(now, session);
        self.placement.forget_lost(now, LOST_LISTED_MAX, LOST_LISTED_FOR);
        self.watch(now);
        self.actions.changed();
        self.schedule(now);
        Some((session, stint))
    }

    /// A worker gave a sign of life.
    #[cfg(feature = "planted")]
    pub fn heard(&mut self, session: SessionId, now: Duration) {
        self.placement.heard(session, now);
    }

    /// The session that the next worker gets.
    pub fn next_session(&self) -> SessionId {
        self.placement.next_session()
    }

    /// Whether a session has not ended.
    pub fn is_live(&self, session: SessionId) -> bool {
        self.placement.fleet().live(session).is_some()
    }

    /// How tensors travel to a worker now.
    pub(crate) fn carried_by(&mut self, session: SessionId, transport: Transport) {
        if let Some(worker) = self.placement.live_mut(session) {
            worker.set_transport(transport);
        }
    }

    /// The worker finishes its tasks and gets no more.
    pub fn worker_leaves(&mut self, session: SessionId) {
        if self.set_draining(session) {
            self.actions.changed();
            self.dismiss_if_done(session);
        }
    }

    fn set_draining(&mut self, session: SessionId) -> bool {
        let Some((worker, was_ready)) = self.placement.drain(session) else { return false };
        if was_ready {
            self.tell(Event::WorkerDraining { worker });
        }
        true
    }

    /// Dismisses a leaving worker once every answer is there.
    pub(super) fn dismiss_if_done(&mut self, session: SessionId) {
        let fleet = self.placement.fleet();
        let leaving = fleet.live(session).is_some_and(|w| w.state() == WorkerState::Draining);
        if leaving && fleet.is_empty_handed(session) {
            self.tell_left(session);
            self.placement.remove(session);
            self.actions.push(Action::Dismiss { session });
            self.actions.changed();
        }
    }

    /// Asks a worker to leave. False when there is no such worker.
    pub fn drain_worker(&mut self, id: &str) -> bool {
        let named = self.placement.fleet().named(id);
        let Some(session) = named.map(Worker::session) else { return false };
        self.set_draining(session);
        // The worker reports when it begins to leave, and is dismissed when it holds nothing.
        self.actions.push(Action::Drain { session });
        self.actions.changed();
        true
    }

    /// The connection ended. After a farewell the worker is forgotten, and the attempts that it still
    /// held had not begun. If its process ended the connection, the worker is lost and its tasks are
    /// retried. Otherwise it may come back with its attempts, until it has been silent for too long.
    pub fn disconnected(&mut self, now: Duration, session: SessionId, parting: Parting) {
        match parting {
            Parting::Farewell => self.bid_farewell(now, session),
            Parting::Broken if self.placement.part(session) => self.actions.changed(),
            Parting::Broken | Parting::Ended => {
                self.lose(now, session, "its connection was lost");
            }
        }
        self.schedule(now);
    }

    fn bid_farewell(&mut self, now: Duration, session: SessionId) {
        if !self.is_live(session) {
            return;
        }
        self.tell_left(session);
        for id in self.placement.remove(session) {
            if self.is_current(session, id) {
                self.give_back(now, id, session, false);
            }
        }
        self.actions.changed();
    }

    /// A supervisor saw the process of a worker end.
    pub fn worker_exited(&mut self, now: Duration, id: &str) {
        if let Some(session) = self.placement.fleet().named(id).map(Worker::session) {
            self.lose(now, session, "its process ended");
            self.actions.push(Action::Abandon { session });
        }
        self.schedule(now);
    }

    /// A worker's certificates were revoked: it cannot come back with its attempts.
    pub(crate) fn worker_revoked(&mut self, now: Duration, id: &str) {
        if let Some(session) = self.placement.fleet().named(id).map(Worker::session) {
            self.lose(now, session, "it was revoked");
        }
        self.schedule(now);
    }

    pub(super) fn lose(&mut self, now: Duration, session: SessionId, reason: &str) {
        let Some((id, held)) = self.placement.lose(session) else { return };
        self.tell(Event::WorkerLost { worker: id.clone(), reason: reason.to_owned() });
        self.actions.changed();
        if planted!(self, ForgetLost) {
            return;
        }
        for attempt in held {
            if self.is_current(session, attempt) {
                let message = format!("worker {id} was lost: {reason}");
                let error = TaskError::new(TaskErrorKind::WorkerLost, message);
                self.lose_attempt(now, attempt, session, error);
            }
        }
    }

    fn tell_left(&mut self, session: SessionId) {
        if let Some(worker) = self.placement.fleet().worker(session).map(|w| w.id().clone()) {
            self.tell(Event::WorkerLeft { worker });
        }
    }

    /// Ends the sessions of workers that have been silent for too long.
    ///
    /// A late check was delayed by something that delayed the messages of workers, too, such as a
    /// stop of this process: then silence is judged anew from now on.
    pub(super) fn check_membership(&mut self, now: Duration, due: Duration) {
        self.placement.watched();
        if self.is_late(now, due) {
            self.placement.grace_all(now, self.config.timing.lost_after);
        } else if !planted!(self, TrustSilence) {
            for session in self.placement.silent(now, self.config.timing.lost_after) {
                self.lose(now, session, "no heartbeat came from it");
                self.actions.push(Action::Abandon { session });
            }
        }
        self.placement.forget_lost(now, LOST_LISTED_MAX, LOST_LISTED_FOR);
        self.watch(now);
    }

    /// While this process has not caught up after standing still, a worker may have sent its message
    /// before it got an attempt that the message does not name: the worker's time counts from now.
    pub(super) fn excuse(&mut self, now: Duration, session: SessionId) {
        if self.timers.next().is_some_and(|due| self.is_late(now, due)) {
            self.placement.grace(now, session, self.config.timing.lost_after);
        }
    }

    /// Whether this process handles a due timer so late that it must have stood still.
    fn is_late(&self, now: Duration, due: Duration) -> bool {
        now.saturating_sub(due) > self.config.timing.heartbeat && !planted!(self, NoGrace)
    }

    /// Schedules the next check of silence, as long as there are workers to hear.
    fn watch(&mut self, now: Duration) {
        if self.placement.watch() {
            self.timers.set(now + self.config.timing.heartbeat / 2, Timer::Membership);
        }
    }
}

/// What callers see of a worker and its devices.
pub(super) fn info(
    now: Duration,
    worker: &Worker,
    seats: Vec<&Seat>,
    (hangs, bytes): (impl Fn(&str) -> u32, impl Fn(&Seat, &ModelRef) -> u64),
) -> WorkerInfo {
    let devices: Vec<DeviceInfo> = worker
        .status()
        .iter()
        .enumerate()
        .map(|(at, status)| {
            let seat = seats.get(at).copied();
            let info = device_info(status, seat, hangs(&status.device));
            let sizes = info.models.iter().zip(
                seat.into_iter()
                    .flat_map(|seat| seat.status().models.iter().map(|model| bytes(seat, model))),
            );
            let known = sizes.filter(|(_, bytes)| *bytes > 0);
            let model_bytes = known.map(|(model, bytes)| (model.clone(), bytes)).collect();
            DeviceInfo { energy_j: worker.energy_j(at), model_bytes, ..info }
        })
        .collect();
    let first = devices.first().cloned().unwrap_or_default();
    let sum = |of: fn(&DeviceInfo) -> u32| devices.iter().map(of).fold(0, u32::saturating_add);
    let models: BTreeSet<String> = devices.iter().flat_map(|d| &d.models).cloned().collect();
    let silent = now.saturating_sub(worker.last_seen());
    WorkerInfo {
        id: worker.id().clone(),
        pid: worker.pid(),
        state: worker.state(),
        device: first.device,
        backend: first.backend,
        models: models.into_iter().collect(),
        running: sum(|d| d.running),
        queued: sum(|d| d.queued),
        vram_used_bytes: first.vram_used_bytes,
        vram_total_bytes: first.vram_total_bytes,
        slots: sum(|d| d.slots),
        load: devices.iter().map(|d| d.load).fold(0.0, f64::max),
        completed: worker.completed(),
        last_seen_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
        breakers: worker
            .open_breakers()
            .map(|(model, breaker)| (model.to_string(), breaker.name().into()))
            .collect(),
        hangs: sum(|d| d.hangs),
        devices,
        transport: worker.transport(),
        version: worker.version().to_owned(),
        unused: worker.unused().to_vec(),
    }
}

fn device_info(status: &DeviceStatus, seat: Option<&Seat>, hangs: u32) -> DeviceInfo {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    // A model may have been loaded since the last heartbeat.
    let status = seat.map_or(status, Seat::status);
    DeviceInfo {
        device: status.device.clone(),
        name: status.name.clone(),
        driver: status.driver.clone(),
        backend: status.backend.clone(),
        models: status.models.iter().map(ToString::to_string).collect(),
        running: seat.map_or(0, |seat| count(seat.held().len())),
        queued: seat.map_or(0, |seat| seat.held().tally().waiting),
        slots: seat.map_or(0, Seat::slots),
        load: seat.map_or(0.0, Seat::load),
        vram_used_bytes: status.vram_used_bytes,
        vram_total_bytes: status.vram_total_bytes,
        utilisation: status.utilisation,
        power_w: status.power_w,
        temperature_c: status.temperature_c,
        energy_j: None,
        hangs,
        taken_out: seat.and_then(Seat::out).map(str::to_owned),
        service_ms: seat.map(measured).unwrap_or_default(),
        model_bytes: BTreeMap::new(),
    }
}

/// What was measured at a seat, by model.
fn measured(seat: &Seat) -> BTreeMap<String, f64> {
    let mean = |(model, timed): (&ModelRef, &Timed)| (model.to_string(), timed.mean.mean_ms());
    seat.services().iter().map(mean).collect()
}
