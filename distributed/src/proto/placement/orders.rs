//! What devices have of models, which changes here alone: the counts and the capabilities follow.

use super::models::ModelNeeds;
use super::{ModelState, Placement, SeatId, Wanted};
use crate::executor::{ExecError, ExecErrorKind};
use crate::task::ModelRef;
use std::sync::Arc;
use std::time::Duration;

/// What has become of an order, or is to become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum Overdue {
    /// The model is there: the answer went missing.
    Arrived,
    /// The order to load it, or to let go of it, is given again.
    Load,
    Unload,
}

impl Placement {
    /// One copy of a model's name for all of its tasks.
    pub(in crate::proto) fn shared_name(&mut self, model: &ModelRef) -> Arc<ModelRef> {
        self.names.share(model)
    }

    /// A caller wants the cluster to have a model; what was measured of it stays.
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

    /// Says anew what a model asks for, if the cluster is to have it.
    pub(in crate::proto) fn set_needs(&mut self, model: &ModelRef, needs: ModelNeeds) {
        let variants = self.variants(model, &needs);
        if let Some(wanted) = self.models.get_mut(model) {
            wanted.set_needs(needs, variants);
        }
        self.set_lanes(model);
        self.capabilities.forget(model);
    }

    /// The variants of a model, each by its one name.
    fn variants(&mut self, model: &ModelRef, needs: &ModelNeeds) -> Vec<Arc<ModelRef>> {
        let others = needs.variants.iter().filter(|variant| *variant != model);
        others.map(|variant| self.shared_name(variant)).collect()
    }

    /// The cluster is to have a model no more.
    pub(in crate::proto) fn unwant(&mut self, model: &ModelRef) -> Option<Wanted> {
        self.withdrawn.remove(model);
        let wanted = self.models.remove(model);
        self.set_lanes(model);
        wanted
    }

    /// No device takes a model's tasks until the cluster is to have it again.
    pub(in crate::proto) fn withdraw(&mut self, model: &ModelRef) {
        self.withdrawn.insert(model.clone());
    }

    /// Whether a model's tasks wait until the cluster is to have it again.
    pub(in crate::proto) fn is_withdrawn(&self, model: &ModelRef) -> bool {
        self.withdrawn.contains(model)
    }

    /// What devices and workers did with a model is past.
    pub(in crate::proto) fn forget_breakers(&mut self, model: &ModelRef) {
        for worker in self.fleet.workers_mut() {
            worker.forget_breaker(model);
        }
        self.capabilities.forget(model);
    }

    /// Who can take a model's tasks is to be found anew.
    pub(in crate::proto) fn forget_capable(&mut self, model: &ModelRef) {
        self.capabilities.forget(model);
    }

    /// Devices of ready workers that have a model or are to get it.
    pub(in crate::proto) fn present(&self, model: &ModelRef) -> usize {
        self.present.get(model).copied().unwrap_or_default()
    }

    /// Changes what a device has of a model.
    pub(in crate::proto) fn set(&mut self, id: SeatId, model: &ModelRef, state: ModelState) {
        if let (ModelState::Ready { .. }, Some(wanted)) = (&state, self.models.get_mut(model)) {
            wanted.is_ready();
        }
        self.put(id, model, Some(state));
    }

    /// A device has nothing of a model any more.
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

    /// Others leave a device for a model, or for none any more.
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

    /// A device lets go of a model, which takes so many bytes, if that is known.
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

    /// A device has let go of a model. False where it had not been told to.
    pub(in crate::proto) fn has_let_go(&mut self, id: SeatId, model: &ModelRef) -> bool {
        let Some(seat) = self.fleet.seat_mut(id) else { return false };
        if !matches!(seat.models.get(model), Some(ModelState::Going { .. })) {
            return false;
        }
        seat.status.models.retain(|other| other != model);
        self.clear(id, model);
        true
    }

    /// Compares what a device says it has with what was placed there. Answers what it has beside
    /// that; of such models it had before and has no more, nothing is left.
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

    /// Orders of a device whose answer went missing, and those that went missing themselves, for they
    /// were given longer ago than that; the time of these is now.
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
                // To load what is being loaded is no error, nor to let go of what is gone, so
                // asking twice does no harm.
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

    /// A device answered an order to load a model: it has it, with the memory that it takes, where
    /// that is known, or an error; loading alone took so long. False where that does not matter any
    /// more.
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
            // Of one that is ready a heartbeat has told before.
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
                    // Something may be there that is not in the books. The first heartbeat to come
                    // may have been sent before.
                    seat.unsure = 2;
                }
                ModelState::Failed(error.clone())
            }
        };
        self.set(id, model, state);
        true
    }
}
