//! Models that devices report, beside those that the core placed there.
//!
//! A worker may hold a model that the books do not have: the worker came back warm to a coordinator
//! that knows nothing of it, an order to unload the model was lost with its connection, or a late
//! attempt loaded it. Such a model takes room all the same. It is taken into the books if it is
//! wanted and fits, and is unloaded otherwise.

use super::Core;
use crate::proto::placement::{ModelState, SeatId};
use crate::proto::state::{Action, SessionId};
use crate::task::ModelRef;
use std::time::Duration;

/// How long a model that the cluster was not asked to have may stay unused, unless its room is
/// needed before: workers by themselves load such models for their tasks, and a starting
/// coordinator is told one by one which models it should have.
const STRAY: Duration = Duration::from_secs(10);

impl Core {
    /// Compares the models that a device reports with the books.
    pub(super) fn take_stock(&mut self, now: Duration, id: SeatId) {
        for model in self.placement.strays(id) {
            self.take_in(now, id, &model);
        }
    }

    /// Takes a model that a device has into the books, or unloads it.
    fn take_in(&mut self, now: Duration, id: SeatId, model: &ModelRef) {
        let Some(seat) = self.placement.fleet().seat(id) else { return };
        let wanted = self.placement.wanted(model).is_some();
        if wanted && self.placement.fits(seat, model) {
            self.set_model(id, model, ModelState::Ready { used: now });
            return self.actions.changed();
        }
        let since = match seat.state_of(model) {
            Some(ModelState::Stray { used }) => *used,
            _ => now,
        };
        // Another model waits for its room, or a person had it unloaded.
        let withdrawn = self.placement.is_withdrawn(model);
        let claimed = wanted || seat.promised().is_some() || withdrawn;
        let waited_for = || self.scheduler.depth(model) > 0;
        if seat.uses(model) || (!claimed && waited_for()) {
            self.set_model(id, model, ModelState::Stray { used: now });
        } else if claimed || now.saturating_sub(since) > STRAY {
            let bytes = wanted.then(|| self.placement.bytes(seat, model));
            self.drop_model(now, id, model, bytes);
        } else {
            self.set_model(id, model, ModelState::Stray { used: since });
        }
    }

    /// Makes a device unload a model, which takes `bytes`, if that is known. Its room is free once
    /// the worker has confirmed that.
    pub(super) fn drop_model(
        &mut self,
        now: Duration,
        id: SeatId,
        model: &ModelRef,
        bytes: Option<u64>,
    ) {
        let Some((session, device)) = self.placement.address(id) else { return };
        self.placement.let_go(now, id, model, bytes);
        self.actions.push(Action::Unload { session, device, model: model.clone() });
    }

    /// A worker reports that one of its devices does not have a model any more: others may have its
    /// room.
    pub fn unloaded(&mut self, now: Duration, session: SessionId, device: u32, model: &ModelRef) {
        let Some((id, _)) = self.placement.device_of(session, device) else { return };
        let told = self.placement.has_let_go(id, model);
        let Some(seat) = self.placement.fleet().seat(id) else { return };
        let (unsure, promised) = (seat.is_unsure(), seat.promised().is_some());
        if !told {
            // The model was not in the books, and may be why a load failed: no list will show it.
            if unsure {
                self.fill(now, id);
            }
            return;
        }
        self.actions.changed();
        if !promised {
            self.fill(now, id);
        }
        self.schedule(now);
    }
}
