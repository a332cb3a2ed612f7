//! Which models are evicted for another one, and where.

use super::{ModelState, Placement, Seat, SeatId};
use crate::executor::ExecErrorKind;
use crate::task::ModelRef;
use std::time::Duration;

/// Models to evict from a device, least recently used first.
#[derive(Debug)]
pub(in crate::proto) struct Eviction {
    pub(in crate::proto) seat: SeatId,
    pub(in crate::proto) victims: Vec<ModelRef>,
    /// When the last of them was last used.
    used: Duration,
}

/// The state of a model over all devices.
#[derive(Debug, Default)]
pub(in crate::proto) struct Look {
    /// A device is about to have it.
    pub(in crate::proto) coming: bool,
    /// A device has it, or a variant that answers in its place.
    pub(in crate::proto) served: bool,
    /// A device without it that has room.
    pub(in crate::proto) free: Option<SeatId>,
}

impl Placement {
    /// Looks once at all devices, for a model whose task finds it on none that is free.
    pub(in crate::proto) fn look(&self, model: &ModelRef, compares: bool) -> Look {
        let answers: Vec<&ModelRef> = self.answers(model, compares).collect();
        let mut look = Look::default();
        for (id, seat) in self.fleet.ready_seats() {
            let state = seat.models.get(model);
            let promised = seat.is_promised(model);
            look.coming |= matches!(state, Some(ModelState::Loading { .. }))
                || promised
                || self.clears_for(seat, model);
            look.served |= answers.iter().any(|model| seat.has(model));
            if look.coming {
                break;
            }
            if look.free.is_none() && state.is_none() && self.fits(seat, model) {
                look.free = Some(id);
            }
        }
        look
    }

    /// The device whose models have been idle for the longest time, among those where enough
    /// of them may go.
    pub(in crate::proto) fn eviction(
        &self,
        model: &ModelRef,
        may_go: impl Fn(&Seat, &ModelRef) -> bool,
    ) -> Option<Eviction> {
        let mut best: Option<Eviction> = None;
        for (id, seat) in self.fleet.ready_seats() {
            let refused = match seat.models.get(model) {
                None => false,
                // The model's size was not known, and more room may help.
                Some(ModelState::Failed(error)) => error.kind != ExecErrorKind::Unavailable,
                Some(_) => true,
            };
            if refused || seat.promised.is_some() || self.never_fits(seat, model).is_some() {
                continue;
            }
            let Some(eviction) = self.victims(id, seat, model, &may_go) else { continue };
            let rank = |e: &Eviction| (e.used, e.victims.len());
            if best.as_ref().is_none_or(|other| rank(&eviction) < rank(other)) {
                best = Some(eviction);
            }
        }
        best
    }

    /// The fewest models of a device that have to go, least recently used first.
    fn victims(
        &self,
        id: SeatId,
        seat: &Seat,
        model: &ModelRef,
        may_go: impl Fn(&Seat, &ModelRef) -> bool,
    ) -> Option<Eviction> {
        let mut others: Vec<(Duration, &ModelRef)> = seat
            .models
            .keys()
            .filter_map(|other| Some((seat.last_used(other)?, other)))
            .filter(|(_, other)| may_go(seat, other))
            .collect();
        others.sort();
        let (mut gone, mut last) = (vec![model], Duration::ZERO);
        for (used, other) in others {
            // Where the size is not known, one has to go, and others if that was not enough.
            if gone.len() > 1 && self.bytes(seat, model) <= self.room(seat, &gone)? {
                break;
            }
            gone.push(other);
            last = used;
        }
        let enough = self.bytes(seat, model) <= self.room(seat, &gone)?;
        let victims: Vec<ModelRef> = gone.into_iter().skip(1).cloned().collect();
        let found = enough && !victims.is_empty();
        found.then_some(Eviction { seat: id, victims, used: last })
    }

    /// Makes the models of an eviction take no more tasks; the new model comes when they have gone.
    pub(in crate::proto) fn evict(&mut self, eviction: &Eviction, model: &ModelRef) {
        let name = self.shared_name(model);
        self.clear(eviction.seat, model);
        self.promise(eviction.seat, Some(name));
        for victim in &eviction.victims {
            self.set(eviction.seat, victim, ModelState::Leaving);
        }
        self.moving.insert(eviction.seat);
    }

    /// Devices on which models leave for another.
    pub(in crate::proto) fn moving(&self) -> Vec<SeatId> {
        self.moving.iter().copied().collect()
    }

    pub(in crate::proto) fn is_moving(&self) -> bool {
        !self.moving.is_empty()
    }

    /// Ends the exchange at a device: the new model has come, or is not wanted any more.
    pub(in crate::proto) fn end_move(&mut self, id: SeatId) {
        self.moving.remove(&id);
        self.promise(id, None);
    }
}
