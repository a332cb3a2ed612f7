//! Which models lie in which device's memory: which fit, and which are evicted for others.
//!
//! A model is on every device with room for it. A model that is on no device, or whose tasks wait
//! longer than loading it would take, gets a device where other models are idle: these take no more
//! tasks, finish those that they have, and are unloaded.

use super::Core;
use crate::proto::event::Event;
use crate::proto::placement::{Eviction, Look, ModelState, Seat, SeatId, Wanted, ordered};
use crate::proto::queue::Place;
use crate::proto::tasks::What;
use crate::task::ModelRef;
use std::time::Duration;

/// How long a model's tasks wait for another device, beyond the load times. With less, models that
/// take turns on a device would spend their time with loading.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two looks for room.
const LOOK: Duration = Duration::from_millis(200);

impl Core {
    /// A task finds no device with its model: makes one get the model, unless the devices that have
    /// it are worth waiting for.
    pub(super) fn want_room(&mut self, now: Duration, model: &ModelRef, seq: u64) {
        let Some(wanted) = self.placement.wanted_mut(model) else { return };
        if !wanted.may_look(now, LOOK) {
            return;
        }
        let loads = wanted.load_time();
        let Some(task) = self.tasks.get(seq) else { return };
        let (place, waited) = (task.place(), now.saturating_sub(task.request().submitted()));
        let compares = self.compares_variants();
        let Look { coming, served, free } = self.placement.look(model, compares);
        if coming || (served && waited < loads * 2 + PATIENCE) {
            return;
        }
        if let Some(seat) = free {
            self.load_on(now, seat, model, false);
            return self.note_room(now, seq, seat, 0);
        }
        let chosen = self.placement.eviction(model, |seat, victim| {
            let unused = now.saturating_sub(seat.last_used(victim).unwrap_or(now));
            // The cost of the exchange, and of taking it back.
            let cost = loads + self.load_time(victim);
            let worth = waited > cost + PATIENCE;
            match self.head_for(victim) {
                // A device that has been idle for as long as the task has waited.
                None if served => unused > waited,
                None => worth || unused >= cost,
                // Tasks wait for this model too: the older task has the turn.
                Some(head) => !served && worth && place < head,
            }
        });
        let Some(eviction) = chosen else { return };
        let (seat, count) = (eviction.seat, eviction.victims.len());
        self.clear(now, &eviction, model);
        self.note_room(now, seq, seat, count);
    }

    /// The first waiting task that a model can answer, also in place of other models.
    fn head_for(&self, model: &ModelRef) -> Option<Place> {
        let (compares, queue) = (self.compares_variants(), self.scheduler.queue());
        let others = self.placement.models().filter(|wanted| compares && wanted.may_be(model));
        let others = others.filter_map(|wanted| queue.head_of(wanted.name()));
        queue.head_of(model).into_iter().chain(others).min()
    }

    /// Evicts idle models for one that a caller wants, least recently used first; if none is idle,
    /// busy ones.
    pub(super) fn make_way(&mut self, now: Duration, model: &ModelRef) {
        let idle = |_: &Seat, victim: &ModelRef| self.head_for(victim).is_none();
        let chosen = self.placement.eviction(model, idle);
        let chosen = chosen.or_else(|| self.placement.eviction(model, |_, _| true));
        if let Some(eviction) = chosen {
            self.clear(now, &eviction, model);
        }
    }

    fn clear(&mut self, now: Duration, eviction: &Eviction, model: &ModelRef) {
        self.placement.evict(eviction, model);
        self.settle_moves(now);
    }

    /// Exchanges models where those that leave have finished their tasks.
    pub(super) fn settle_moves(&mut self, now: Duration) {
        for id in self.placement.moving() {
            let Some(seat) = self.placement.fleet().seat(id) else {
                self.placement.end_move(id);
                continue;
            };
            let leaving = seat.leaving();
            let used = seat.held().values().any(|held| leaving.contains(&held.model));
            if used && !planted!(self, EvictBusy) {
                continue;
            }
            let promised = seat.promised().cloned();
            match promised.filter(|model| self.placement.wanted(model).is_some()) {
                Some(model) => self.exchange(now, id, &leaving, &model),
                // The new model was unloaded meanwhile: no model has to go any more.
                None => self.call_off(now, id),
            }
        }
    }

    /// Unloads the models that leave, and loads the one that they leave for once they have gone.
    fn exchange(&mut self, now: Duration, id: SeatId, leaving: &[ModelRef], model: &ModelRef) {
        for other in leaving {
            let Some(seat) = self.placement.fleet().seat(id) else { return };
            let (session, device) = (seat.session(), seat.ordinal());
            let wanted = self.placement.wanted(other).is_some();
            let bytes = wanted.then(|| self.placement.bytes(seat, other));
            self.drop_model(now, id, other, bytes);
            if let Some(worker) = self.placement.fleet().worker(session) {
                let (worker, for_model) = (worker.id().clone(), model.clone());
                let event = Event::ModelEvicted { worker, device, model: other.clone(), for_model };
                self.tell(event);
            }
        }
        let Some(seat) = self.placement.fleet().seat(id) else { return };
        let goes = seat.lets_go();
        if (goes || self.placement.is_overfull(seat)) && !planted!(self, LoadEarly) {
            if !goes {
                // The models that stay, or the new one, take more room than was known before.
                self.call_off(now, id);
                if self.placement.wanted(model).is_some_and(Wanted::insists) {
                    self.make_way(now, model);
                }
            }
            return;
        }
        self.placement.end_move(id);
        self.actions.changed();
        self.set_model(id, model, ordered(now));
    }

    /// A model that others were to leave for is not wanted any more: these stay.
    pub(super) fn break_promise(&mut self, now: Duration, id: SeatId, model: &ModelRef) {
        if self.placement.fleet().seat(id).is_some_and(|seat| seat.is_promised(model)) {
            self.call_off(now, id);
        }
    }

    fn call_off(&mut self, now: Duration, id: SeatId) {
        self.placement.end_move(id);
        let Some(seat) = self.placement.fleet().seat(id) else { return };
        for other in seat.leaving() {
            let wanted = self.placement.wanted(&other).is_some();
            let ready = ModelState::Ready { used: now };
            let state = if wanted { ready } else { ModelState::Stray { used: now } };
            self.set_model(id, &other, state);
        }
        self.actions.changed();
    }

    fn load_time(&self, model: &ModelRef) -> Duration {
        self.placement.wanted(model).map_or(Duration::ZERO, Wanted::load_time)
    }

    fn note_room(&mut self, now: Duration, seq: u64, id: SeatId, evicted: usize) {
        let fleet = self.placement.fleet();
        let (Some(seat), Some(worker)) = (fleet.seat(id), fleet.worker_at(id)) else { return };
        let what = What::Room { worker: worker.id().clone(), device: seat.ordinal(), evicted };
        if let Some(mut task) = self.tasks.entry(seq) {
            task.note(now, what);
        }
    }
}
