//! Which models the cluster is to have, and which of them each device is told to load.

mod orders;
mod outlook;
mod wanted;

pub(super) use outlook::Outlook;
pub use wanted::ModelNeeds;
pub(super) use wanted::Wanted;

use crate::executor::ExecError;
use crate::proto::core::Core;
use crate::proto::fleet::SeatId;
use crate::proto::state::{Action, SessionId};
use crate::task::ModelRef;
use std::sync::Arc;
use std::time::Duration;

/// A model at one device. All but those that failed take their room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModelState {
    Loading {
        /// When it was last ordered.
        asked: Duration,
    },
    Ready {
        /// When it was loaded or a task of it last ended.
        used: Duration,
    },
    /// Takes no more tasks, and goes once it has none: another model needs its room.
    Leaving,
    /// The worker was told to let go of it and has not said that it has.
    Going {
        /// When it was last told.
        asked: Duration,
        /// What it takes, where that is known.
        bytes: Option<u64>,
    },
    /// It is there and was not placed there: nobody asked the cluster to have it, or there is no
    /// room for it.
    Stray {
        /// When it was first seen or a task of it was last there.
        used: Duration,
    },
    Failed(ExecError),
}

/// The state of a model that a device is told to load.
pub(super) fn ordered(now: Duration) -> ModelState {
    ModelState::Loading { asked: now }
}

impl Core {
    /// Has all devices with room for the model load it, those that failed before included. Where
    /// none has, idle models make room for it on one.
    pub(crate) fn load(&mut self, now: Duration, model: &ModelRef, needs: ModelNeeds) {
        let before = self.models.remove(model);
        let wanted = Wanted {
            model: before
                .as_ref()
                .map_or_else(|| Arc::new(model.clone()), |w| Arc::clone(&w.model)),
            variants: self.variants(model, &needs),
            needs,
            load: before.as_ref().map(|w| w.load).unwrap_or_default(),
            measured_bytes: before.as_ref().map(|w| w.measured_bytes.clone()).unwrap_or_default(),
            was_ready: before.as_ref().is_some_and(|w| w.was_ready),
            insists: true,
            next_look: Duration::ZERO,
        };
        self.models.insert(model.clone(), wanted);
        let seats: Vec<SeatId> = self.fleet.ready_seats().map(|(id, _)| id).collect();
        for seat in seats {
            self.load_on(now, seat, model, true);
        }
        if !self.is_placed(model) && !self.room_comes(model) {
            self.make_way(now, model);
        }
        self.capabilities.forget(model);
        self.schedule(now);
    }

    /// Says anew what a model asks for, if it is one that the cluster is to have. Where it lies
    /// stays as it is.
    pub(crate) fn set_needs(&mut self, now: Duration, model: &ModelRef, needs: ModelNeeds) {
        let variants = self.variants(model, &needs);
        if let Some(wanted) = self.models.get_mut(model) {
            (wanted.needs, wanted.variants) = (needs, variants);
        }
        self.capabilities.forget(model);
        self.schedule(now);
    }

    /// The variants of a model, each by its one name.
    fn variants(&self, model: &ModelRef, needs: &ModelNeeds) -> Vec<Arc<ModelRef>> {
        let others = needs.variants.iter().filter(|variant| *variant != model);
        others.map(|variant| self.shared_model(variant)).collect()
    }

    /// Has a worker that just joined load what it lacks, as far as there is room.
    pub(super) fn load_all_on(&mut self, now: Duration, session: SessionId) {
        let seats = self.fleet.live(session).map(|w| w.seats.clone()).unwrap_or_default();
        for id in seats {
            // What it brings along takes room before anything else does.
            self.take_stock(now, id);
            self.fill(now, id);
        }
    }

    /// Has a device load what fits: first what the fewest devices have.
    pub(super) fn fill(&mut self, now: Duration, id: SeatId) {
        let mut models: Vec<(usize, ModelRef)> = self
            .models
            .keys()
            .map(|model| (self.fleet.ready_seats().filter(|(_, s)| s.has(model)).count(), model))
            .map(|(count, model)| (count, model.clone()))
            .collect();
        models.sort();
        for (_, model) in models {
            self.load_on(now, id, &model, false);
        }
    }

    /// Has a device load a model that fits. One that is there already is ordered again only by a
    /// caller, whose order is then answered by the worker itself.
    pub(super) fn load_on(&mut self, now: Duration, id: SeatId, model: &ModelRef, anew: bool) {
        let Some(seat) = self.fleet.seats.get(id) else { return };
        let known = seat.models.get(model);
        match known {
            None | Some(ModelState::Failed(_) | ModelState::Stray { .. }) => {}
            Some(_) => return,
        }
        let there = matches!(known, Some(ModelState::Stray { .. }));
        if self.fits(seat, model) {
            let ready = there && !anew;
            let state = if ready { ModelState::Ready { used: now } } else { ordered(now) };
            self.set_model(id, model, state);
        } else if anew && !there {
            // Why it failed is past: it is tried where it gets room.
            self.set_aside(id, model);
        }
    }

    fn set_aside(&mut self, id: SeatId, model: &ModelRef) {
        if let Some(seat) = self.fleet.seats.get_mut(id) {
            seat.models.remove(model);
        }
    }

    /// Changes the state of a model at a device, with the order that belongs to it.
    pub(super) fn set_model(&mut self, id: SeatId, model: &ModelRef, state: ModelState) {
        let Some(seat) = self.fleet.seats.get_mut(id) else { return };
        if let (ModelState::Ready { .. }, Some(wanted)) = (&state, self.models.get_mut(model)) {
            wanted.was_ready = true;
        }
        if matches!(state, ModelState::Loading { .. }) {
            let (session, device, model) = (seat.session, seat.ordinal, model.clone());
            self.actions.push_back(Action::Load { session, device, model });
        }
        seat.models.insert(model.clone(), state);
        self.capabilities.forget(model);
    }

    /// Has all workers let go of the model; others may have its room once it is gone.
    pub(crate) fn unload(&mut self, now: Duration, model: &ModelRef) {
        let before = self.models.remove(model);
        let seats: Vec<SeatId> = self.fleet.ready_seats().map(|(id, _)| id).collect();
        for &id in &seats {
            let backend = self.fleet.seats.get(id).map(|seat| seat.status.backend.as_str());
            let bytes = before.as_ref().zip(backend).map(|(w, on)| w.bytes_on(on).unwrap_or(0));
            self.drop_model(now, id, model, bytes);
            self.break_promise(now, id, model);
        }
        for worker in self.fleet.workers.values_mut() {
            worker.breakers.remove(model);
        }
        self.capabilities.forget(model);
        self.actions.push_back(Action::Changed);
        self.schedule(now);
    }

    /// Models that the cluster is to have.
    pub(crate) fn models(&self) -> Vec<ModelRef> {
        self.models.keys().cloned().collect()
    }
}
