//! What devices say they hold, beside what was placed there.
//!
//! A worker may hold a model that the books do not have: it came back warm to a coordinator that
//! knows nothing of it, an order to let go of it went with its connection, an attempt that came late
//! loaded it. Such a model takes room all the same. It is taken into the books if it is wanted and
//! fits, and goes otherwise.

use crate::proto::core::Core;
use crate::proto::fleet::{Seat, SeatId};
use crate::proto::models::ModelState;
use crate::proto::state::{Action, Planted, SessionId};
use crate::task::ModelRef;
use std::time::Duration;

/// For how long a model that nobody asked the cluster to have stays unused, unless its room is
/// needed before: workers load by themselves what tasks of such models need, and a coordinator that
/// starts is told one by one which models it is to have.
const STRAY: Duration = Duration::from_secs(10);

impl Core {
    /// Compares what a device says it holds with what was placed there.
    pub(in crate::proto) fn take_stock(&mut self, now: Duration, id: SeatId) {
        let Some(seat) = self.fleet.seats.get_mut(id) else { return };
        if self.planted == Planted::ForgetStrays {
            return;
        }
        seat.unsure = seat.unsure.saturating_sub(1);
        let (listed, models) = (&seat.status.models, &mut seat.models);
        models.retain(|model, state| {
            !matches!(state, ModelState::Stray { .. }) || listed.contains(model)
        });
        let strays = listed.iter().filter(|model| match models.get(model) {
            None | Some(ModelState::Failed(_) | ModelState::Stray { .. }) => true,
            Some(_) => false,
        });
        let strays: Vec<ModelRef> = strays.cloned().collect();
        for model in &strays {
            self.take_in(now, id, model);
        }
    }

    /// Takes a model that a device has into the books, or has it go.
    fn take_in(&mut self, now: Duration, id: SeatId, model: &ModelRef) {
        let Some(seat) = self.fleet.seats.get(id) else { return };
        let wanted = self.models.contains_key(model);
        if wanted && self.fits(seat, model) {
            self.set_model(id, model, ModelState::Ready { used: now });
            return self.actions.push_back(Action::Changed);
        }
        let since = match seat.models.get(model) {
            Some(ModelState::Stray { used }) => *used,
            _ => now,
        };
        // Another one waits for its room.
        let claimed = wanted || seat.promised.is_some();
        if seat.uses(model) || (!claimed && self.queue.head_of(model).is_some()) {
            self.set_model(id, model, ModelState::Stray { used: now });
        } else if claimed || now.saturating_sub(since) > STRAY {
            let bytes = wanted.then(|| self.bytes(seat, model));
            self.drop_model(now, id, model, bytes);
        } else {
            self.set_model(id, model, ModelState::Stray { used: since });
        }
    }

    /// Has a device let go of a model, which takes so many bytes, if that is known. Its room is free
    /// when the worker has said so.
    pub(in crate::proto) fn drop_model(
        &mut self,
        now: Duration,
        id: SeatId,
        model: &ModelRef,
        bytes: Option<u64>,
    ) {
        let Some(seat) = self.fleet.seats.get_mut(id) else { return };
        seat.services.remove(model);
        seat.status.models.retain(|other| other != model);
        let (session, device) = (seat.session, seat.ordinal);
        self.set_model(id, model, ModelState::Going { asked: now, bytes });
        let model = model.clone();
        self.actions.push_back(Action::Unload { session, device, model });
    }

    /// A worker says that one of its devices does not have a model any more: others may have its
    /// room.
    pub(crate) fn unloaded(
        &mut self,
        now: Duration,
        session: SessionId,
        device: u32,
        model: &ModelRef,
    ) {
        let Some((id, _)) = self.device_of(session, device) else { return };
        let Some(seat) = self.fleet.seats.get_mut(id) else { return };
        if !matches!(seat.models.get(model), Some(ModelState::Going { .. })) {
            // It was not in the books, and may be what a load has failed for: no list will show it.
            if seat.unsure > 0 {
                self.fill(now, id);
            }
            return;
        }
        seat.models.remove(model);
        seat.status.models.retain(|other| other != model);
        let promised = seat.promised.is_some();
        self.capabilities.forget(model);
        self.actions.push_back(Action::Changed);
        if !promised {
            self.fill(now, id);
        }
        self.schedule(now);
    }
}

impl Seat {
    /// Corrects a list that was made before the worker heard, or said, what the books have by now: a
    /// heartbeat and the answer to an order overtake one another.
    pub(in crate::proto) fn amend(&self, listed: &mut Vec<ModelRef>) {
        listed.retain(|model| !matches!(self.models.get(model), Some(ModelState::Going { .. })));
        for (model, state) in &self.models {
            if matches!(state, ModelState::Ready { .. }) && !listed.contains(model) {
                listed.push(model.clone());
            }
        }
    }
}
