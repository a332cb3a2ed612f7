//! What devices make of their orders to load models and to let go of them.

use super::ModelState;
use crate::executor::{ExecError, ExecErrorKind};
use crate::proto::core::Core;
use crate::proto::event::Event;
use crate::proto::fleet::SeatId;
use crate::proto::state::{Action, SessionId};
use crate::task::ModelRef;
use crate::worker_info::WorkerId;
use std::time::Duration;

impl Core {
    /// Compares what a worker has with what it was told to load or to let go of: the order or its
    /// answer may have gone missing.
    pub(in crate::proto) fn check_orders(&mut self, now: Duration, session: SessionId) {
        let lease = self.config.timing.lease;
        let seats = self.fleet.live(session).map(|w| w.seats.clone()).unwrap_or_default();
        for id in seats {
            let full = self.fleet.seats.get(id).is_some_and(|seat| self.is_overfull(seat));
            let Some(seat) = self.fleet.seats.get_mut(id) else { continue };
            let device = seat.ordinal;
            for (model, state) in &mut seat.models {
                match state {
                    ModelState::Loading { .. } if seat.status.models.contains(model) => {
                        *state = ModelState::Ready { used: now };
                        if let Some(wanted) = self.models.get_mut(model) {
                            wanted.was_ready = true;
                        }
                        self.capabilities.forget(model);
                        self.actions.push_back(Action::Changed);
                    }
                    // To load what is being loaded is no error, nor to let go of what is gone, so
                    // asking twice does no harm.
                    ModelState::Loading { asked }
                        if !full && now.saturating_sub(*asked) > lease =>
                    {
                        *asked = now;
                        let model = model.clone();
                        self.actions.push_back(Action::Load { session, device, model });
                    }
                    ModelState::Going { asked, .. } if now.saturating_sub(*asked) > lease => {
                        *asked = now;
                        let model = model.clone();
                        self.actions.push_back(Action::Unload { session, device, model });
                    }
                    _ => {}
                }
            }
        }
    }

    /// A worker says what became of a load at one of its devices, what memory the model takes
    /// there, and how long loading alone took, unless it was loaded before.
    pub(crate) fn loaded(
        &mut self,
        now: Duration,
        session: SessionId,
        device: u32,
        model: &ModelRef,
        result: Result<Option<u64>, ExecError>,
        took: Option<Duration>,
    ) {
        let Some((id, name)) = self.device_of(session, device) else { return };
        let fits = self.fleet.seats.get(id).is_some_and(|seat| self.fits(seat, model));
        let Some(seat) = self.fleet.seats.get_mut(id) else { return };
        match seat.models.get(model) {
            // Of one that is ready a heartbeat has told before.
            Some(ModelState::Loading { .. } | ModelState::Ready { .. } | ModelState::Failed(_)) => {
            }
            // Unloaded meanwhile, or about to be: the answer no longer matters.
            _ => return,
        }
        if let (Ok(bytes), Some(wanted)) = (&result, self.models.get_mut(model)) {
            wanted.was_ready = true;
            if let Some(bytes) = bytes {
                wanted.measured(&seat.status.backend, *bytes);
            }
            if let Some(took) = took {
                wanted.load.measure(now, took);
            }
        }
        let error = result.err();
        if fits && error.as_ref().is_some_and(|e| e.kind == ExecErrorKind::Unavailable) {
            // Something may be there that is not in the books. The first heartbeat to come may have
            // been sent before.
            seat.unsure = 2;
        }
        if error.is_none() && !seat.status.models.contains(model) {
            seat.status.models.push(model.clone());
        }
        let ready = ModelState::Ready { used: now };
        let state = error.clone().map_or(ready, ModelState::Failed);
        seat.models.insert(model.clone(), state);
        self.insist(now, id, model, error.as_ref());
        let error = error.map(|error| error.message);
        self.tell(Event::ModelLoaded { worker: name, device, model: model.clone(), error });
        self.capabilities.forget(model);
        self.actions.push_back(Action::Changed);
        self.schedule(now);
    }

    /// The seat of a worker's device, and the worker's name.
    pub(in crate::proto) fn device_of(
        &mut self,
        session: SessionId,
        device: u32,
    ) -> Option<(SeatId, WorkerId)> {
        let worker = self.fleet.live(session)?;
        let seat = *worker.seats.get(usize::try_from(device).ok()?)?;
        Some((seat, worker.id.clone()))
    }

    /// A device answered an order to load a model. Where a caller asked for it and no device had room,
    /// others make some.
    fn insist(&mut self, now: Duration, id: SeatId, model: &ModelRef, error: Option<&ExecError>) {
        let placed = self.is_placed(model);
        let Some(wanted) = self.models.get_mut(model) else { return };
        if error.is_none() {
            wanted.insists = false;
        }
        if !wanted.insists || placed {
            return;
        }
        let seat = self.fleet.seats.get(id);
        let may = seat.zip(error).is_some_and(|(seat, error)| self.may_get_room(seat, error));
        if may {
            self.make_way(now, model);
        }
    }
}
