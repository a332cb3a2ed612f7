//! The answers of devices to orders to load and to unload models.

use super::Core;
use crate::executor::ExecError;
use crate::proto::event::Event;
use crate::proto::placement::{Overdue, SeatId};
use crate::proto::state::{Action, SessionId};
use crate::task::ModelRef;
use std::time::Duration;

impl Core {
    /// Compares the models that a worker has with its orders to load and to unload: an order or its
    /// answer may have been lost.
    pub(super) fn check_orders(&mut self, now: Duration, session: SessionId) {
        for id in self.placement.seats_of(session) {
            let Some((_, device)) = self.placement.address(id) else { continue };
            for (model, what) in self.placement.overdue(now, id, self.config.timing.lease) {
                self.actions.push(match what {
                    Overdue::Arrived => Action::Changed,
                    Overdue::Load => Action::Load { session, device, model },
                    Overdue::Unload => Action::Unload { session, device, model },
                });
            }
        }
    }

    /// A worker reports the result of a load at one of its devices, the memory that the model takes
    /// there, and how long loading alone took, unless the model was loaded before.
    pub fn loaded(
        &mut self,
        now: Duration,
        session: SessionId,
        device: u32,
        model: &ModelRef,
        result: Result<Option<u64>, ExecError>,
        took: Option<Duration>,
    ) {
        let Some((id, worker)) = self.placement.device_of(session, device) else { return };
        if !self.placement.loaded(now, id, model, &result, took) {
            return;
        }
        let error = result.err();
        self.insist(now, id, model, error.as_ref());
        let error = error.map(|error| error.message);
        self.tell(Event::ModelLoaded { worker, device, model: model.clone(), error });
        self.actions.changed();
        self.schedule(now);
    }

    /// A device answered an order to load a model. Where a caller asked for it and no device had
    /// room, other models are evicted.
    fn insist(&mut self, now: Duration, id: SeatId, model: &ModelRef, error: Option<&ExecError>) {
        let placed = self.placement.present(model) > 0;
        let Some(wanted) = self.placement.wanted_mut(model) else { return };
        if error.is_none() {
            wanted.arrived();
        }
        if !wanted.insists() || placed {
            return;
        }
        let seat = self.placement.fleet().seat(id);
        let may = seat.zip(error).is_some_and(|(s, error)| self.placement.may_get_room(s, error));
        if may {
            self.make_way(now, model);
        }
    }
}
