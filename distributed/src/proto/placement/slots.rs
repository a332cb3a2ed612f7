//! Slots: taken by attempts that are sent, freed as these end, and what their ends say about the
//! device.

use super::holdings::Heard;
use super::seat::{Held, Seat};
use super::{Cause, Fleet, Hot, ModelState, Placement, SeatId, Wanted, Worker};
use crate::proto::balance::{Capable, View};
use crate::proto::message::{AttemptId, Heartbeat};
use crate::proto::state::SessionId;
use crate::task::ModelRef;
use crate::worker_info::WorkerId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Where an attempt was sent.
pub(in crate::proto) struct Taken {
    pub(in crate::proto) session: SessionId,
    pub(in crate::proto) device: u32,
    pub(in crate::proto) worker: WorkerId,
    /// The device's name.
    pub(in crate::proto) name: Arc<str>,
}

/// What the choice of a device for a model looks at.
pub(in crate::proto) struct Survey<'a> {
    /// Devices that can take its tasks, once they have a free slot, in the order of their seats.
    pub(in crate::proto) capable: &'a [Capable],
    hot: &'a [Hot],
    pub(in crate::proto) fleet: &'a Fleet,
    pub(in crate::proto) wanted: Option<&'a Wanted>,
}

impl<'a> Survey<'a> {
    /// What a strategy sees of some of the devices; workers that were last heard before
    /// `heard_since` take nothing.
    pub(in crate::proto) fn view(&self, of: &'a [Capable], heard_since: Duration) -> View<'a> {
        View::new(of, self.hot, heard_since)
    }

    /// The device, and its worker.
    pub(in crate::proto) fn at(&self, id: SeatId) -> Option<(&'a Seat, &'a Worker)> {
        let seat = self.fleet.seat(id)?;
        Some((seat, self.fleet.worker(seat.session())?))
    }
}

impl Placement {
    /// The devices that can take a model's tasks.
    pub(in crate::proto) fn survey(&mut self, model: &ModelRef) -> Survey<'_> {
        let wanted = self.models.get(model);
        let capable = match self.withdrawn.contains(model) {
            true => &[],
            false => self.capabilities.of(&self.fleet, model, wanted),
        };
        Survey { capable, hot: self.fleet.hot(), fleet: &self.fleet, wanted }
    }

    /// An attempt takes a slot of a device; `number` is that of its dispatch. `None` where there is
    /// no such device.
    pub(in crate::proto) fn take_slot(
        &mut self,
        at: SeatId,
        id: AttemptId,
        held: Held,
        number: u64,
    ) -> Option<Taken> {
        let seat = self.fleet.seat_mut(at)?;
        let (session, device) = (seat.session(), seat.ordinal());
        let model = Arc::clone(&held.model);
        let device_name = seat.status().device.as_str().into();
        seat.held.insert(id, held);
        let worker = self.fleet.live_mut(session)?;
        let (worker, probes) = (worker.id().clone(), worker.passed(id, &model));
        if probes {
            self.breaker_changed(session, &model);
        }
        self.fleet.count_dispatch(at, number);
        self.fleet.refresh(at);
        self.places_changed(at, &model);
        Some(Taken { session, device, worker, name: device_name })
    }

    /// An attempt ended without a sign of life from its worker.
    pub(in crate::proto) fn release(&mut self, session: SessionId, id: AttemptId) -> Option<Held> {
        let (at, held) = self.fleet.release(session, id)?;
        self.places_changed(at, &held.model);
        Some(held)
    }

    /// Notes that the number of free places of a model's own changed.
    fn places_changed(&mut self, at: SeatId, model: &ModelRef) {
        if let Some(free) = self.fleet.seat(at).and_then(|seat| seat.own_free(model)) {
            self.capabilities.left(model, at, Some(free));
        }
    }

    /// Gives a model places of its own at a device that has it, if it says how its tasks are batched.
    pub(super) fn set_lane(&mut self, at: SeatId, model: &ModelRef) {
        let needs = self.models.get(model).map(Wanted::needs);
        let batch_max = needs.and_then(|needs| needs.batching.as_ref()).map(|b| b.max.get());
        let Some(seat) = self.fleet.seat_mut(at) else { return };
        let batch_max = batch_max.filter(|_| seat.models.contains_key(model));
        if seat.lanes.set(model, batch_max) {
            self.fleet.refresh(at);
            self.capabilities.update(&self.fleet, at, model, self.models.get(model));
        }
    }

    /// The same at all devices.
    pub(super) fn set_lanes(&mut self, model: &ModelRef) {
        let having = |(_, seat): &(SeatId, &Seat)| seat.models.contains_key(model);
        let seats: Vec<SeatId> = self.fleet.seats().filter(having).map(|(id, _)| id).collect();
        for at in seats {
            self.set_lane(at, model);
        }
    }

    /// Learns from an attempt's end, with the time in the model if it was measured; returns the
    /// model. Ignores an attempt that the worker does not hold.
    pub(in crate::proto) fn learn(
        &mut self,
        now: Duration,
        session: SessionId,
        id: AttemptId,
        took: Option<Duration>,
    ) -> Option<Arc<ModelRef>> {
        let at = self.fleet.holder(session, id)?;
        let seat = self.fleet.seat_mut(at)?;
        let model = seat.held.get(&id).map(|held| Arc::clone(&held.model))?;
        if let Some(ModelState::Ready { used } | ModelState::Stray { used }) =
            seat.models.get_mut(&*model)
        {
            *used = now;
        }
        if let Some(took) = took {
            if !seat.services.contains_key(&*model) {
                seat.services.insert((*model).clone(), Default::default());
            }
            if let Some(service) = seat.services.get_mut(&*model) {
                service.measure(now, took);
                self.capabilities.measured(&model, at, service.mean);
            }
        }
        Some(model)
    }

    /// Notes that an attempt was recalled.
    pub(in crate::proto) fn recall(&mut self, at: SeatId, id: &AttemptId, cause: Cause) {
        if let Some(seat) = self.fleet.seat_mut(at) {
            seat.held.recall(id, cause);
        }
        self.fleet.refresh(at);
    }

    /// Takes what a heartbeat says about a worker's attempts: those that it names are confirmed.
    pub(in crate::proto) fn confirm(
        &mut self,
        now: Duration,
        session: SessionId,
        beat: &Heartbeat,
    ) -> Heard {
        let named: BTreeMap<AttemptId, bool> = beat.held.iter().copied().collect();
        let mut heard = Heard::default();
        for id in self.seats_of(session) {
            if let Some(seat) = self.fleet.seat_mut(id) {
                seat.held.confirm(now, beat, &named, &mut heard);
            }
        }
        heard
    }

    /// A worker failed at a model for a reason of its own. If that opens its breaker, returns until
    /// when.
    pub(in crate::proto) fn failed(
        &mut self,
        now: Duration,
        session: SessionId,
        model: &ModelRef,
    ) -> Option<(Duration, WorkerId)> {
        let worker = self.fleet.live_mut(session)?;
        let until = worker.failed(now, model)?;
        let name = worker.id().clone();
        self.breaker_changed(session, model);
        Some((until, name))
    }

    /// A worker ran a model.
    pub(in crate::proto) fn worked(&mut self, session: SessionId, model: &ModelRef) {
        if self.fleet.live_mut(session).is_some_and(|worker| worker.worked(model)) {
            self.breaker_changed(session, model);
        }
    }

    /// An open breaker has been open for long enough.
    pub(in crate::proto) fn probe(&mut self, now: Duration, session: SessionId, model: &ModelRef) {
        if self.fleet.live_mut(session).is_some_and(|worker| worker.wake(now, model)) {
            self.breaker_changed(session, model);
        }
    }

    /// An attempt ended, but its end says nothing about its worker.
    pub(in crate::proto) fn abandon(
        &mut self,
        session: SessionId,
        id: AttemptId,
        model: &ModelRef,
    ) {
        if self.fleet.live_mut(session).is_some_and(|worker| worker.abandon(id, model)) {
            self.breaker_changed(session, model);
        }
    }

    fn breaker_changed(&mut self, session: SessionId, model: &ModelRef) {
        for id in self.seats_of(session) {
            self.capabilities.update(&self.fleet, id, model, self.models.get(model));
        }
    }
}
