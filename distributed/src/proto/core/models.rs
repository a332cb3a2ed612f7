//! Which models the cluster should have, and which of them each device is told to load.

use super::Core;
use crate::batching::{Batching, ZeroInput};
use crate::executor::ExecError;
use crate::proto::message::TensorMeta;
use crate::proto::models::ModelNeeds;
use crate::proto::placement::{LoadReport, ModelState, Outlook, SeatId, Wanted, ordered};
use crate::proto::state::{Action, SessionId};
use crate::proto::tensors::code_of;
use crate::task::ModelRef;
use std::sync::Arc;
use std::time::Duration;

impl Core {
    /// Makes all devices with room load the model, also those where it failed before. Where no
    /// device has room, idle models are evicted from one.
    pub fn load(&mut self, now: Duration, model: &ModelRef, needs: ModelNeeds) {
        self.placement.want(model, needs);
        for seat in self.placement.ready_seats() {
            self.load_on(now, seat, model, true);
        }
        if self.placement.present(model) == 0 && !self.placement.room_comes(model) {
            self.make_way(now, model);
        }
        self.placement.forget_capable(model);
        self.schedule(now);
    }

    /// Replaces a model's needs, if the cluster should have the model. The model stays where it is.
    pub(crate) fn set_needs(&mut self, now: Duration, model: &ModelRef, needs: ModelNeeds) {
        self.placement.set_needs(model, needs);
        self.schedule(now);
    }

    /// How tasks of a model are batched, if the model says so.
    pub(crate) fn batching(&self, model: &ModelRef) -> Option<&Batching> {
        self.placement.wanted(model)?.needs().batching.as_ref()
    }

    /// The inputs of a model's warm-up runs, and the milliseconds that each of them may take.
    pub(crate) fn warm_up(&self, model: &ModelRef) -> (Vec<Vec<TensorMeta>>, Option<u64>) {
        let Some(wanted) = self.placement.wanted(model) else { return (Vec::new(), None) };
        let limit = wanted.run_limit();
        let limit_ms = limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        let meta = |input: &ZeroInput| TensorMeta {
            name: input.name.clone(),
            dtype: code_of(input.dtype),
            shape: input.shape.clone(),
        };
        let runs = wanted.needs().warm_up.iter();
        (runs.map(|run| run.iter().map(meta).collect()).collect(), limit_ms)
    }

    /// Makes a worker that just joined load models that it lacks, as far as there is room.
    pub(super) fn load_all_on(&mut self, now: Duration, session: SessionId) {
        for id in self.placement.seats_of(session) {
            // Models that the worker brings along take room first.
            self.take_stock(now, id);
            self.fill(now, id);
        }
    }

    /// Makes a device load models that fit: first those that the fewest devices have.
    pub(super) fn fill(&mut self, now: Duration, id: SeatId) {
        let models = self.placement.models().map(Wanted::name);
        let mut models: Vec<(usize, Arc<ModelRef>)> =
            models.map(|model| (self.placement.present(model), Arc::clone(model))).collect();
        models.sort();
        for (_, model) in models {
            self.load_on(now, id, &model, false);
        }
    }

    /// Makes a device load a model that fits. A model that is there already is ordered again only
    /// for a caller, because the worker itself answers that order.
    pub(super) fn load_on(&mut self, now: Duration, id: SeatId, model: &ModelRef, anew: bool) {
        let Some(seat) = self.placement.fleet().seat(id) else { return };
        let there = match seat.state_of(model) {
            None | Some(ModelState::Failed(_)) => false,
            Some(ModelState::Stray { .. }) => true,
            Some(_) => return,
        };
        if self.placement.fits(seat, model) {
            let ready = there && !anew;
            let state = if ready { ModelState::Ready { used: now } } else { ordered(now) };
            self.set_model(id, model, state);
        } else if anew && !there {
            // The reason of the failure is past: the model is tried again once it has room.
            self.placement.clear(id, model);
        }
    }

    /// Changes the state of a model at a device, with the order that belongs to it.
    pub(super) fn set_model(&mut self, id: SeatId, model: &ModelRef, state: ModelState) {
        let Some((session, device)) = self.placement.address(id) else { return };
        if matches!(state, ModelState::Loading { .. }) {
            self.actions.push(Action::Load { session, device, model: model.clone() });
        }
        self.placement.set(id, model, state);
    }

    /// Makes all workers unload the model; other models may have its room once it is gone. Waiting
    /// tasks make workers load the model again.
    pub fn unload(&mut self, now: Duration, model: &ModelRef) {
        let before = self.placement.unwant(model);
        self.clear_out(now, model, before.as_ref());
    }

    /// The same, but its tasks wait until the cluster should have the model again.
    pub fn withdraw(&mut self, now: Duration, model: &ModelRef) {
        let before = self.placement.unwant(model);
        self.placement.withdraw(model);
        self.clear_out(now, model, before.as_ref());
    }

    /// Whether a model's tasks wait until the cluster should have the model again.
    pub(crate) fn is_withdrawn(&self, model: &ModelRef) -> bool {
        self.placement.is_withdrawn(model)
    }

    fn clear_out(&mut self, now: Duration, model: &ModelRef, before: Option<&Wanted>) {
        for id in self.placement.ready_seats() {
            let seat = self.placement.fleet().seat(id);
            let backend = seat.map(|seat| seat.status().backend.as_str());
            let bytes = before.zip(backend).map(|(w, on)| w.bytes_on(on).unwrap_or(0));
            self.drop_model(now, id, model, bytes);
            self.break_promise(now, id, model);
        }
        self.placement.forget_breakers(model);
        self.actions.changed();
        self.schedule(now);
    }

    /// Models that the cluster should have.
    pub fn models(&self) -> Vec<ModelRef> {
        self.placement.models().map(|wanted| (**wanted.name()).clone()).collect()
    }

    /// The result of a load, once every device that was to load the model has answered. A worker
    /// has failed if all of its devices failed, or if none can ever hold the model; workers without
    /// room for it now are left out.
    pub(crate) fn load_report(&self, model: &ModelRef) -> Option<LoadReport> {
        self.placement.load_report(model)
    }

    /// Why no ready worker can load a model, nor could with more room; `None` where one may.
    pub(crate) fn load_failure(&self, model: &ModelRef) -> Option<ExecError> {
        match self.outlook(model, 0) {
            Outlook::Hopeless(error) => Some(error),
            Outlook::Open => None,
        }
    }

    /// Whether a model has been ready and is on no device now, but is about to come back, or will
    /// when a task needs it.
    pub(crate) fn is_parked(&self, model: &ModelRef) -> bool {
        self.placement.is_away(model) && self.outlook(model, 0) == Outlook::Open
    }
}
