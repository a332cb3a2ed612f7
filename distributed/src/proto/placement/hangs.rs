//! Devices on which runs did not stop though they were asked to: such hangs are counted over all
//! lives of the workers' processes, and a device with too many is taken out.

use super::{Placement, SeatId};
use crate::proto::message::AttemptId;
use crate::proto::state::SessionId;
use crate::task::ModelRef;
use crate::worker_info::WorkerId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Hangs after which a device is taken out.
const OUT_AFTER: u32 = 3;
/// Time after which a device's hangs are forgotten, unless it is out by then.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// Most devices that are remembered: their names come from workers.
const DEVICES_MAX: usize = 4_096;

/// A device, whichever worker uses it: the machine, and the device's name there.
pub(crate) type DeviceKey = (String, String);

/// How often runs on a device did not stop, and when last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hangs {
    pub(crate) count: u32,
    pub(crate) last: Duration,
    pub(crate) reason: String,
}

impl Hangs {
    fn is_out(&self) -> bool {
        self.count >= OUT_AFTER
    }
}

/// The hangs of devices, as they are kept.
pub type HangTable = Vec<(DeviceKey, Hangs)>;

/// The same by device.
pub(super) type HangsByDevice = BTreeMap<DeviceKey, Hangs>;

/// An attempt whose run hangs.
pub(in crate::proto) struct Hanging {
    pub(in crate::proto) worker: WorkerId,
    pub(in crate::proto) device: String,
    pub(in crate::proto) model: Arc<ModelRef>,
    at: SeatId,
}

impl Placement {
    /// Takes the hangs of devices from an earlier life of the coordinator.
    pub(in crate::proto) fn remember_hangs(&mut self, table: HangTable) {
        self.hangs = table.into_iter().take(DEVICES_MAX).collect();
    }

    /// The hangs of devices, to be kept.
    pub(in crate::proto) fn hangs(&self) -> HangTable {
        self.hangs.iter().map(|(key, hangs)| (key.clone(), hangs.clone())).collect()
    }

    fn key(&self, id: SeatId) -> Option<DeviceKey> {
        let device = self.fleet.seat(id)?.status().device.clone();
        Some((self.fleet.worker_at(id)?.machine().to_owned(), device))
    }

    /// Where an attempt's run hangs, and whether that is new.
    pub(in crate::proto) fn hanging(
        &mut self,
        session: SessionId,
        id: AttemptId,
    ) -> Option<(Hanging, bool)> {
        let at = self.fleet.holder(session, id)?;
        let worker = self.fleet.worker_at(at)?.id().clone();
        let seat = self.fleet.seat_mut(at)?;
        let model = Arc::clone(&seat.held().get(&id)?.model);
        let is_new = seat.held.hang(&id);
        Some((Hanging { worker, device: seat.status().device.clone(), model, at }, is_new))
    }

    /// Counts a run that did not stop. True when its device takes no tasks from now on.
    pub(in crate::proto) fn hung(&mut self, now: Duration, run: &Hanging, reason: &str) -> bool {
        let Some(key) = self.key(run.at) else { return false };
        self.hangs.retain(|_, hangs| hangs.is_out() || now.saturating_sub(hangs.last) < REMEMBERED);
        if !self.hangs.contains_key(&key) && self.hangs.len() >= DEVICES_MAX {
            return false;
        }
        let new = || Hangs { count: 0, last: now, reason: String::new() };
        let hangs = self.hangs.entry(key.clone()).or_insert_with(new);
        (hangs.count, hangs.last) = (hangs.count.saturating_add(1), now);
        reason.clone_into(&mut hangs.reason);
        if hangs.count != OUT_AFTER {
            return false;
        }
        let seats: Vec<SeatId> = self.fleet.seats().map(|(id, _)| id).collect();
        for id in seats {
            if self.key(id).as_ref() == Some(&key) {
                self.take_out_known(id);
            }
        }
        true
    }

    /// How often runs on a device did not stop.
    pub(in crate::proto) fn hangs_of(&self, machine: &str, device: &str) -> u32 {
        let key = (machine.to_owned(), device.to_owned());
        self.hangs.get(&key).map_or(0, |hangs| hangs.count)
    }

    /// Takes a device out if it was taken out before.
    pub(super) fn take_out_known(&mut self, id: SeatId) {
        let Some(key) = self.key(id) else { return };
        let Some(hangs) = self.hangs.get(&key).filter(|hangs| hangs.is_out()) else { return };
        let reason =
            format!("{} runs on it did not stop, the last one: {}", hangs.count, hangs.reason);
        self.shut(id);
        if let Some(seat) = self.fleet.seat_mut(id) {
            seat.out = Some(reason);
        }
        self.fleet.refresh(id);
    }

    /// A person puts the devices of a worker back to work; returns those that were taken out.
    pub(in crate::proto) fn enable(&mut self, session: SessionId) -> Vec<String> {
        let ready = self.fleet.live(session).is_some_and(|worker| worker.is_ready());
        let mut enabled = Vec::new();
        for id in self.seats_of(session) {
            if let Some(key) = self.key(id) {
                self.hangs.remove(&key);
            }
            let Some(seat) = self.fleet.seat_mut(id) else { continue };
            if seat.out.take().is_some() {
                enabled.push(seat.status.device.clone());
                if ready {
                    self.open(id);
                }
            }
            self.fleet.refresh(id);
        }
        enabled
    }

    /// Notes that an attempt's run is asked to stop; returns whether a thread had taken it, as far
    /// as is known. `None` where the attempt takes no slot.
    pub(in crate::proto) fn ask_to_stop(
        &mut self,
        session: SessionId,
        id: AttemptId,
    ) -> Option<bool> {
        let at = self.fleet.holder(session, id)?;
        let seat = self.fleet.seat_mut(at)?;
        seat.held.stop(&id);
        Some(seat.held.get(&id)?.standing.has_begun())
    }

    /// The run of an attempt is over, and its answer on the way.
    pub(in crate::proto) fn answering(&mut self, session: SessionId, id: AttemptId) {
        let at = self.fleet.holder(session, id);
        if let Some(seat) = at.and_then(|at| self.fleet.seat_mut(at)) {
            seat.held.answer(&id);
        }
    }

    /// Whether the run of an attempt is known to be over.
    pub(in crate::proto) fn is_answering(&self, session: SessionId, id: AttemptId) -> bool {
        let seat = self.fleet.holder(session, id).and_then(|at| self.fleet.seat(at));
        seat.and_then(|seat| seat.held().get(&id)).is_some_and(|held| held.standing.is_answering())
    }

    /// The longest that a run of the model took on the device that holds an attempt.
    pub(in crate::proto) fn longest(&self, session: SessionId, id: AttemptId) -> Option<Duration> {
        let seat = self.fleet.seat(self.fleet.holder(session, id)?)?;
        let model = &seat.held().get(&id)?.model;
        seat.services().get(&**model).map(|timed| timed.longest)
    }

    /// Attempts that a worker holds.
    pub(in crate::proto) fn held_by(&self, session: SessionId) -> Vec<AttemptId> {
        let Some(worker) = self.fleet.live(session) else { return Vec::new() };
        self.fleet.seats_of(worker).flat_map(|seat| seat.held().keys().copied()).collect()
    }

    /// Attempts at a model, with their sessions.
    pub(in crate::proto) fn runs_of(&self, model: &ModelRef) -> Vec<(SessionId, AttemptId)> {
        let seats = self.fleet.seats();
        let runs = seats.flat_map(|(_, seat)| {
            let of = seat.held().iter().filter(|(_, held)| *held.model == *model);
            of.map(|(id, _)| (seat.session(), *id))
        });
        runs.collect()
    }
}
