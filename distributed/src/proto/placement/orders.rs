//! The models at devices, which change here only: the counts and the capabilities follow.

use super::models::ModelNeeds;
use super::{ModelState, Placement, SeatId, Wanted};
use crate::executor::{ExecError, ExecErrorKind};
use crate::task::ModelRef;
use std::sync::Arc;
use std::time::Duration;

/// What has become of an order without an answer, or must be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum Overdue {
    /// The model is there: only the answer was lost.
    Arrived,
    /// The order to load the model, or to unload it, is given again.
    Load,
    Unload,
}

impl Placement {
    /// The shared copy of a model's name.
    pub(in crate::proto) fn shared_name(&mut self, model: &ModelRef) -> Arc<ModelRef> {
        self.names.share(model)
    }

    /// A caller wants the cluster to have a model; the model's measurements stay.
    pub(in crate::proto) fn want(&mut self, model: &ModelRef, needs: ModelNeeds) {
        let variants = self.variants(model, &needs);
        self.withdrawn.remove(model);
        match self.models.get_mut(model) {
            Some(wanted) => wanted.again(needs, variants),
            None => {
                let wanted = Wanted::new(self.names.share(model), needs, variants);
                self.models.insert(model.clone(), wanted);
            }
        }
        self.set_lanes(model);
    }

    /// Replaces a model's needs, if the cluster should have the model.
    pub(in crate::proto) fn set_needs(&mut self, model: &ModelRef, needs: ModelNeeds) {
        let variants = self.variants(model, &needs);
        if let Some(wanted) = self.models.get_mut(model) {
            wanted.set_needs(needs, variants);
        }
        self.set_lanes(model);
        self.capabilities.forget(model);
    }

    /// The variants of a model, by their shared names.
    fn variants(&mut self, model: &ModelRef, needs: &ModelNeeds) -> Vec<Arc<ModelRef>> {
        let others = needs.variants.iter().filter(|variant| *variant != model);
        others.map(|variant| self.shared_name(variant)).collect()
    }

    /// The cluster should not have a model any more.
    pub(in crate::proto) fn unwant(&mut self, model: &ModelRef) -> Option<Wanted> {
        self.withdrawn.remove(model);
        let wanted = self.models.remove(model);
        self.set_lanes(model);
        wanted
    }

    /// Holds back a model's tasks until the cluster should have the model again.
    pub(in crate::proto) fn withdraw(&mut self, model: &ModelRef) {
        self.withdrawn.insert(model.clone());
    }

    /// Whether a model's tasks are held back until the cluster should have the model again.
    pub(in crate::proto) fn is_withdrawn(&self, model: &ModelRef) -> bool {
        self.withdrawn.contains(model)
    }

    /// Forgets the breakers of a model at all devices and workers.
    pub(in crate::proto) fn forget_breakers(&mut self, model: &ModelRef) {
        for worker in self.fleet.workers_mut() {
            worker.forget_breaker(model);
        }
        self.capabilities.forget(model);
    }

    /// The devices that can take a model's tasks must be found anew.
    pub(in crate::proto) fn forget_capable(&mut self, model: &ModelRef) {
        self.capabilities.forget(model);
    }

    /// Devices of ready workers that have a model or are to get it.
    pub(in crate::proto) fn present(&self, model: &ModelRef) -> usize {
        self.present.get(model).copied().unwrap_or_default()
    }

    /// Sets the state of a model at a device.
    pub(in crate::proto) fn set(&mut self, id: SeatId, model: &ModelRef, state: ModelState) {
        if let (ModelState::Ready { .. }, Some(wanted)) = (&state, self.models.get_mut(model)) {
            wanted.is_ready();
        }
        self.put(id, model, Some(state));
    }

    /// Removes the state of a model at a device.
    pub(in crate::proto) fn clear(&mut self, id: SeatId, model: &ModelRef) {
        self.put(id, model, None);
    }

    fn put(&mut self, id: SeatId, model: &ModelRef, state: Option<ModelState>) {
        let Some(seat) = self.fleet.seat_mut(id) else { return };
        let before = seat.has(model);
        match (state, seat.models.get_mut(model)) {
            (Some(state), Some(known)) => *known = state,
            (Some(state), None) => {
                seat.models.insert(model.clone(), state);
            }
            (None, _) => {
                seat.models.remove(model);
            }
        }
        let (after, ready) = (seat.has(model), seat.ready);
        if ready && before != after {
            self.count_present(model, after);
        }
        self.set_lane(id, model);
        self.capabilities.update(&self.fleet, id, model, self.models.get(model));
    }

    /// Reserves a device for a model that others are evicted for; `None` ends that.
    pub(in crate::proto) fn promise(&mut self, id: SeatId, model: Option<Arc<ModelRef>>) {
        let Some(seat) = self.fleet.seat_mut(id) else { return };
        let before = seat.promised.take().filter(|_| seat.ready);
        let before = before.filter(|model| !seat.has(model));
        let after = model.clone().filter(|model| seat.ready && !seat.has(model));
        seat.promised = model;
        if let Some(model) = before {
            self.count_present(&model, false);
        }
        if let Some(model) = after {
            self.count_present(&model, true);
        }
    }

    /// The session and the number of a device.
    pub(in crate::proto) fn address(&self, id: SeatId) -> Option<(u64, u32)> {
        self.fleet.seat(id).map(|seat| (seat.session(), seat.ordinal()))
    }

    /// A device is told to unload a model, which takes `bytes`, if that is known.
    pub(in crate::proto) fn let_go(
        &mut self,
        now: Duration,
        id: SeatId,
        model: &ModelRef,
        bytes: Option<u64>,
    ) {
        let Some(seat) = self.fleet.seat_mut(id) else { return };
        seat.services.remove(model);
        seat.status.models.retain(|other| other != model);
        self.set(id, model, ModelState::Going { asked: now, bytes });
    }

    /// A device has unloaded a model. False where it had not been told to.
    pub(in crate::proto) fn has_let_go(&mut self, id: SeatId, model: &ModelRef) -> bool {
        let Some(seat) = self.fleet.seat_mut(id) else { return false };
        if !matches!(seat.models.get(model), Some(ModelState::Going { .. })) {
            return false;
        }
        seat.status.models.retain(|other| other != model);
        self.clear(id, model);
        true
    }

    /// Compares the models that a device reports with the core's books. Returns the models that are
    /// not in the books, and forgets such models that are gone.
    pub(in crate::proto) fn strays(&mut self, id: SeatId) -> Vec<ModelRef> {
        if planted!(self, ForgetStrays) {
            return Vec::new();
        }
        let Some(seat) = self.fleet.seat_mut(id) else { return Vec::new() };
        seat.unsure = seat.unsure.saturating_sub(1);
        let (listed, models) = (&seat.status.models, &mut seat.models);
        models.retain(|model, state| {
            !matches!(state, ModelState::Stray { .. }) || listed.contains(model)
        });
        let strays = listed.iter().filter(|model| match models.get(model) {
            None | Some(ModelState::Failed(_) | ModelState::Stray { .. }) => true,
            Some(_) => false,
        });
        strays.cloned().collect()
    }

    /// Orders of a device whose answers were lost, and orders that were lost themselves, because
    /// they are older than `lease`: these count as given now.
    pub(in crate::proto) fn overdue(
        &mut self,
        now: Duration,
        id: SeatId,
        lease: Duration,
    ) -> Vec<(ModelRef, Overdue)> {
        let Some(seat) = self.fleet.seat(id) else { return Vec::new() };
        let full = self.is_overfull(seat);
        let Some(seat) = self.fleet.seat_mut(id) else { return Vec::new() };
        let mut overdue = Vec::new();
        for (model, state) in &mut seat.models {
            let what = match state {
                ModelState::Loading { .. } if seat.status.models.contains(model) => {
                    Overdue::Arrived
                }
                // Loading a model that is being loaded is no error, nor is unloading one that is
                // gone, so a repeated order does no harm.
                ModelState::Loading { asked } if !full && now.saturating_sub(*asked) > lease => {
                    *asked = now;
                    Overdue::Load
                }
                ModelState::Going { asked, .. } if now.saturating_sub(*asked) > lease => {
                    *asked = now;
                    Overdue::Unload
                }
                _ => continue,
            };
            overdue.push((model.clone(), what));
        }
        for (model, what) in &overdue {
            if *what == Overdue::Arrived {
                self.set(id, model, ModelState::Ready { used: now });
            }
        }
        overdue
    }

    /// A device answered an order to load a model: with the memory that the model takes, where
    /// known, or with an error. `took` is the time of loading alone. False where the answer does
    /// not matter any more.
    pub(in crate::proto) fn loaded(
        &mut self,
        now: Duration,
        id: SeatId,
        model: &ModelRef,
        result: &Result<Option<u64>, ExecError>,
        took: Option<Duration>,
    ) -> bool {
        let Some(seat) = self.fleet.seat(id) else { return false };
        let fits = self.fits(seat, model);
        let Some(seat) = self.fleet.seat_mut(id) else { return false };
        match seat.models.get(model) {
            // A heartbeat may have said before that the model is ready.
            Some(ModelState::Loading { .. } | ModelState::Ready { .. } | ModelState::Failed(_)) => {
            }
            // Unloaded meanwhile, or about to be: the answer no longer matters.
            _ => return false,
        }
        if let (Ok(bytes), Some(wanted)) = (result, self.models.get_mut(model)) {
            if let Some(bytes) = bytes {
                wanted.measured(&seat.status.backend, *bytes);
            }
            if let Some(took) = took {
                wanted.measure_load(now, took);
            }
        }
        let state = match result {
            Ok(_) => {
                if !seat.status.models.contains(model) {
                    seat.status.models.push(model.clone());
                }
                ModelState::Ready { used: now }
            }
            Err(error) => {
                if fits && error.kind == ExecErrorKind::Unavailable {
                    // The device may have models that are not in the books. The next heartbeat may
                    // have been sent before this answer.
                    seat.unsure = 2;
                }
                ModelState::Failed(error.clone())
            }
        };
        self.set(id, model, state);
        true
    }
}
