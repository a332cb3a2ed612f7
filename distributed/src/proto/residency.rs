//! Which models lie in which device's memory: what fits, and what goes for what is waited for.
//!
//! A model is on every device with room for it. One that is nowhere, or whose tasks wait for
//! longer than loading it would take, gets a device where others are idle: these take no more
//! tasks, finish what they have, and leave.

mod stock;
#[cfg(test)]
mod tests;

use crate::executor::{ExecError, ExecErrorKind};
use crate::proto::core::Core;
use crate::proto::event::Event;
use crate::proto::fleet::{Seat, SeatId};
use crate::proto::models::{ModelState, Outlook, Wanted, ordered};
use crate::proto::queue::Place;
use crate::proto::state::{Action, Planted, Task};
use crate::proto::why::{What, note};
use crate::task::ModelRef;
use std::sync::Arc;
use std::time::Duration;

/// What a model's tasks wait for another device, beside the times that loading takes: less, and
/// models that take turns on a device would spend their time with loading.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two looks for room.
const LOOK: Duration = Duration::from_millis(200);

/// Models that make room on a device, the last used last.
#[derive(Debug)]
struct Eviction {
    seat: SeatId,
    victims: Vec<ModelRef>,
    /// When one of them was last used.
    used: Duration,
}

/// What devices have of a model.
#[derive(Debug, Default)]
struct Look {
    /// One is about to have it.
    coming: bool,
    /// One has it, or a variant that answers in its place.
    served: bool,
    /// One without it that has room.
    free: Option<SeatId>,
}

impl Core {
    /// Device memory that is left for other models once some are gone; `None` where nothing limits it.
    fn room(&self, seat: &Seat, gone: &[&ModelRef]) -> Option<u64> {
        let total = seat.status.vram_total_bytes?;
        Some(total.saturating_sub(self.taken(seat, gone)))
    }

    /// Device memory that is taken or promised, but for what some models take.
    fn taken(&self, seat: &Seat, gone: &[&ModelRef]) -> u64 {
        let mut taken = seat.promised.as_ref().map_or(0, |model| self.bytes(seat, model));
        for (model, state) in seat.models.iter().filter(|(model, _)| !gone.contains(model)) {
            let bytes = match state {
                ModelState::Failed(_) => Some(0),
                ModelState::Going { bytes, .. } => *bytes,
                _ => self.models.get(model).map(|_| self.bytes(seat, model)),
            };
            // Beside what may be of any size nothing is known to fit.
            taken = taken.saturating_add(bytes.unwrap_or(u64::MAX));
        }
        taken
    }

    /// Whether what a device has, beside what it is to have, leaves no room for that yet.
    pub(super) fn is_overfull(&self, seat: &Seat) -> bool {
        seat.status.vram_total_bytes.is_some_and(|total| self.taken(seat, &[]) > total)
    }

    /// Memory of a device that a model takes, as far as it is known, which may be 0.
    fn bytes(&self, seat: &Seat, model: &ModelRef) -> u64 {
        let wanted = self.models.get(model);
        wanted.and_then(|wanted| wanted.bytes_on(&seat.status.backend)).unwrap_or(0)
    }

    /// Whether there is room for a model. What is not known to be too large is tried.
    pub(super) fn fits(&self, seat: &Seat, model: &ModelRef) -> bool {
        self.planted == Planted::IgnoreMemory
            || self.room(seat, &[model]).is_none_or(|room| self.bytes(seat, model) <= room)
    }

    /// Whether a device is about to have room for a model, of which it has nothing: others have been
    /// told to go.
    pub(super) fn clears_for(&self, seat: &Seat, model: &ModelRef) -> bool {
        let goes = |state: &ModelState| matches!(state, ModelState::Going { .. });
        let going = seat.models.iter().filter(|(_, state)| goes(state));
        let going: Vec<&ModelRef> = going.map(|(model, _)| model).collect();
        if going.is_empty() || seat.promised.is_some() || !seat.models.get(model).is_none_or(goes) {
            return false;
        }
        self.room(seat, &going).is_none_or(|room| self.bytes(seat, model) <= room)
    }

    /// Whether any device is about to have room for a model.
    pub(super) fn room_comes(&self, model: &ModelRef) -> bool {
        self.fleet.ready_seats().any(|(_, seat)| self.clears_for(seat, model))
    }

    /// Why a device can never hold a model, however empty it is.
    pub(super) fn never_fits(&self, seat: &Seat, model: &ModelRef) -> Option<ExecError> {
        let (total, bytes) = (seat.status.vram_total_bytes?, self.bytes(seat, model));
        let device = &seat.status.device;
        (bytes > total).then(|| {
            let message = format!("it takes {bytes} bytes, device {device} has {total} for models");
            ExecError::unavailable(message)
        })
    }

    /// Whether a model that a device could not hold may find more room there.
    pub(super) fn may_get_room(&self, seat: &Seat, error: &ExecError) -> bool {
        let others = seat.models.values().any(|state| !matches!(state, ModelState::Failed(_)));
        let unavailable = error.kind == ExecErrorKind::Unavailable;
        unavailable && seat.status.vram_total_bytes.is_some() && (others || seat.unsure > 0)
    }

    /// Whether a device has the model or is to get it.
    pub(super) fn is_placed(&self, model: &ModelRef) -> bool {
        self.fleet.ready_seats().any(|(_, seat)| seat.has(model))
    }

    /// Whether a model has been ready, is on no device now, and comes back when a task needs it, or
    /// is about to.
    pub(crate) fn is_parked(&self, model: &ModelRef) -> bool {
        let ready = |seat: &Seat| matches!(seat.models.get(model), Some(ModelState::Ready { .. }));
        self.models.get(model).is_some_and(Wanted::was_ready)
            && self.fleet.ready_seats().next().is_some()
            && !self.fleet.ready_seats().any(|(_, seat)| ready(seat))
            && self.outlook(model, 0) == Outlook::Open
    }

    /// A task finds no device with its model: sees to it that one gets it, unless those that
    /// have it are worth waiting for.
    pub(super) fn want_room(&mut self, now: Duration, model: &ModelRef, seq: u64) {
        let Some(wanted) = self.models.get_mut(model) else { return };
        if now < wanted.next_look {
            return;
        }
        wanted.next_look = now + LOOK;
        let loads = self.load_time(model);
        let Some(task) = self.tasks.get(&seq) else { return };
        let (place, waited) = (task.place(seq), now.saturating_sub(task.submitted));
        let Look { coming, served, free } = self.look(model);
        if coming || (served && waited < loads * 2 + PATIENCE) {
            return;
        }
        if let Some(seat) = free {
            self.load_on(now, seat, model, false);
            return self.note_room(now, seq, seat, 0);
        }
        let chosen = self.eviction(model, |seat, victim| {
            let unused = now.saturating_sub(seat.last_used(victim).unwrap_or(now));
            // What the exchange costs, if it is taken back.
            let cost = loads + self.load_time(victim);
            let worth = waited > cost + PATIENCE;
            match self.head_for(victim) {
                // A device that has been idle for as long as the task has waited.
                None if served => unused > waited,
                None => worth || unused >= cost,
                // Others wait for this one too: the older task has the turn.
                Some(head) => !served && worth && place < head,
            }
        });
        let Some(eviction) = chosen else { return };
        let (seat, count) = (eviction.seat, eviction.victims.len());
        self.clear(now, eviction, model);
        self.note_room(now, seq, seat, count);
    }

    /// Goes through the devices once for a model that a task finds on none that is free.
    fn look(&self, model: &ModelRef) -> Look {
        let answers: Vec<&ModelRef> = self.answers(model).collect();
        let mut look = Look::default();
        for (id, seat) in self.fleet.ready_seats() {
            let state = seat.models.get(model);
            let promised = seat.promised.as_deref() == Some(model);
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

    /// The first in line of those that a model answers, in place of others too.
    fn head_for(&self, model: &ModelRef) -> Option<Place> {
        let compares = self.config.balancing.compares_variants();
        let others = self.models.values().filter(|wanted| compares && wanted.may_be(model));
        let others = others.filter_map(|wanted| self.queue.head_of(&wanted.model));
        self.queue.head_of(model).into_iter().chain(others).min()
    }

    /// Has idle models go for one that a caller wants, those first that nobody has used for the
    /// longest time; where none is idle, busy ones.
    pub(super) fn make_way(&mut self, now: Duration, model: &ModelRef) {
        let idle = |_: &Seat, victim: &ModelRef| self.head_for(victim).is_none();
        let chosen = self.eviction(model, idle).or_else(|| self.eviction(model, |_, _| true));
        if let Some(eviction) = chosen {
            self.clear(now, eviction, model);
        }
    }

    /// The device whose models have been idle for the longest time, among those where enough
    /// of them may go.
    fn eviction(
        &self,
        model: &ModelRef,
        may_go: impl Fn(&Seat, &ModelRef) -> bool,
    ) -> Option<Eviction> {
        let mut best: Option<Eviction> = None;
        for (id, seat) in self.fleet.ready_seats() {
            let refused = match seat.models.get(model) {
                None => false,
                // Its size was not known, and more room may do.
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

    /// The fewest models of a device that have to go, the longest unused first.
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

    fn clear(&mut self, now: Duration, eviction: Eviction, model: &ModelRef) {
        let name = self.shared_model(model);
        let Some(seat) = self.fleet.seats.get_mut(eviction.seat) else { return };
        seat.models.remove(model);
        seat.promised = Some(name);
        for victim in &eviction.victims {
            seat.models.insert(victim.clone(), ModelState::Leaving);
            self.capabilities.forget(victim);
        }
        self.moving.insert(eviction.seat);
        self.settle_moves(now);
    }

    /// Exchanges models where those that leave have finished their tasks.
    pub(super) fn settle_moves(&mut self, now: Duration) {
        let moving: Vec<SeatId> = self.moving.iter().copied().collect();
        for id in moving {
            let Some(seat) = self.fleet.seats.get(id) else {
                self.moving.remove(&id);
                continue;
            };
            let leaving = seat.leaving();
            let used = seat.held.values().any(|held| leaving.contains(&held.model));
            if used && self.planted != Planted::EvictBusy {
                continue;
            }
            let promised = seat.promised.clone();
            match promised.filter(|model| self.models.contains_key(&**model)) {
                Some(model) => self.exchange(now, id, &leaving, &model),
                // Unloaded meanwhile: nobody has to go any more.
                None => self.call_off(now, id),
            }
        }
    }

    /// Has those that leave go, and the one that they go for come once they have.
    fn exchange(&mut self, now: Duration, id: SeatId, leaving: &[ModelRef], model: &ModelRef) {
        for other in leaving {
            let Some(seat) = self.fleet.seats.get(id) else { return };
            let (session, device) = (seat.session, seat.ordinal);
            let bytes = self.models.get(other).map(|_| self.bytes(seat, other));
            self.drop_model(now, id, other, bytes);
            if let Some(worker) = self.fleet.workers.get(&session) {
                let (worker, for_model) = (worker.id.clone(), model.clone());
                let event = Event::ModelEvicted { worker, device, model: other.clone(), for_model };
                self.tell(event);
            }
        }
        let Some(seat) = self.fleet.seats.get(id) else { return };
        let goes = |state: &ModelState| matches!(state, ModelState::Going { .. });
        let goes = seat.models.values().any(goes);
        if self.planted != Planted::LoadEarly && (goes || self.is_overfull(seat)) {
            if !goes {
                // What stays, or what is to come, takes more than was known when this was chosen.
                self.call_off(now, id);
                if self.models.get(model).is_some_and(Wanted::insists) {
                    self.make_way(now, model);
                }
            }
            return;
        }
        let Some(seat) = self.fleet.seats.get_mut(id) else { return };
        seat.promised = None;
        self.moving.remove(&id);
        self.actions.push_back(Action::Changed);
        self.set_model(id, model, ordered(now));
    }

    /// A model that others were to leave for is not wanted any more: they stay.
    pub(super) fn break_promise(&mut self, now: Duration, id: SeatId, model: &ModelRef) {
        let seat = self.fleet.seats.get(id);
        if seat.is_some_and(|seat| seat.promised.as_deref() == Some(model)) {
            self.call_off(now, id);
        }
    }

    fn call_off(&mut self, now: Duration, id: SeatId) {
        self.moving.remove(&id);
        let Some(seat) = self.fleet.seats.get_mut(id) else { return };
        seat.promised = None;
        for other in seat.leaving() {
            let wanted = self.models.contains_key(&other);
            let ready = ModelState::Ready { used: now };
            let state = if wanted { ready } else { ModelState::Stray { used: now } };
            self.set_model(id, &other, state);
        }
        self.actions.push_back(Action::Changed);
    }

    fn load_time(&self, model: &ModelRef) -> Duration {
        let ms = self.models.get(model).map_or(0.0, Wanted::load_ms);
        Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
    }

    fn note_room(&mut self, now: Duration, seq: u64, id: SeatId, evicted: usize) {
        let Some(seat) = self.fleet.seats.get(id) else { return };
        let Some(worker) = self.fleet.workers.get(&seat.session) else { return };
        let what = What::Room { worker: worker.id.clone(), device: seat.ordinal, evicted };
        if let Some(task) = self.tasks.get_mut(&seq) {
            let task: &mut Task = task;
            note(&mut task.notes, now, what);
        }
    }
}

impl Seat {
    /// Whether the model is here or is to come.
    pub(super) fn has(&self, model: &ModelRef) -> bool {
        let here = matches!(
            self.models.get(model),
            Some(ModelState::Ready { .. } | ModelState::Loading { .. })
        );
        here || self.promised.as_ref().map(Arc::as_ref) == Some(model)
    }

    /// Models that take no more tasks here and finish those that they have.
    fn leaving(&self) -> Vec<ModelRef> {
        let leaving = self.models.iter().filter(|(_, state)| **state == ModelState::Leaving);
        leaving.map(|(model, _)| model.clone()).collect()
    }

    fn uses(&self, model: &ModelRef) -> bool {
        self.held.values().any(|held| *held.model == *model)
    }

    /// When a model was last used here or, after that, loaded; later than anything while it is used;
    /// `None` where it is not ready to go.
    fn last_used(&self, model: &ModelRef) -> Option<Duration> {
        match self.models.get(model)? {
            ModelState::Ready { .. } | ModelState::Stray { .. } if self.uses(model) => {
                Some(Duration::MAX)
            }
            ModelState::Ready { used } | ModelState::Stray { used } => Some(*used),
            _ => None,
        }
    }
}
