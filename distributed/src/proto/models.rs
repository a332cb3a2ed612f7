//! Which models the cluster is to have, and what became of loading them.

use crate::executor::ExecError;
use crate::proto::core::Core;
use crate::proto::event::Event;
use crate::proto::fleet::{Seat, SeatId};
use crate::proto::service::Service;
use crate::proto::state::{Action, SessionId};
use crate::task::ModelRef;
use crate::worker_info::WorkerId;
use std::sync::Arc;
use std::time::Duration;

/// A model at one device. Of models without a state the worker decides itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModelState {
    /// First ordered at that time, and last.
    Loading {
        since: Duration,
        asked: Duration,
    },
    Ready {
        /// When it was loaded or a task of it last ended.
        used: Duration,
    },
    /// Takes no more tasks, and goes once it has none: another model needs its room.
    Leaving,
    Failed(ExecError),
}

impl ModelState {
    pub(super) fn ordered(now: Duration) -> Self {
        Self::Loading { since: now, asked: now }
    }
}

/// What a model asks of the devices that run it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelNeeds {
    /// Device memory that it takes. Unknown until the first device has loaded it, unless its
    /// executor cannot tell either.
    pub memory_bytes: Option<u64>,
    /// The backend that it runs best on, for example `opencl`.
    pub backend: Option<String>,
    /// The family of chips that it runs best on, for example `Polaris`.
    pub family: Option<String>,
    /// Other models that may answer in its place, such as a quantised one: the strategy
    /// `adaptive` takes the one that is expected to be done first. Each is to be loaded too.
    pub variants: Vec<ModelRef>,
}

/// A model that the cluster is to have.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The one copy of its name.
    pub(super) model: Arc<ModelRef>,
    pub(super) needs: ModelNeeds,
    /// What may answer in its place.
    pub(super) variants: Vec<Arc<ModelRef>>,
    load: Service,
    /// The most memory that a device said it takes.
    measured_bytes: Option<u64>,
    /// It has been ready somewhere.
    was_ready: bool,
    /// A caller waits for it to be somewhere, for which others may have to go.
    insists: bool,
    /// When room for it may be looked for again.
    pub(super) next_look: Duration,
}

impl Wanted {
    /// Milliseconds that loading it takes, as measured; 0 before the first time.
    pub(super) fn load_ms(&self) -> f64 {
        self.load.mean_ms()
    }

    /// Whether another model may answer in its place.
    pub(super) fn may_be(&self, other: &ModelRef) -> bool {
        self.variants.iter().any(|variant| **variant == *other)
    }

    /// Whether it has been ready on any device.
    pub(super) fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// Device memory that it takes, as far as that is known.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.needs.memory_bytes.or(self.measured_bytes)
    }
}

/// What became of a model at each worker.
pub(crate) type LoadReport = Vec<(WorkerId, Result<(), ExecError>)>;

/// Whether a task of a model can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outlook {
    /// Now or later.
    Open,
    /// Every ready worker failed to load it.
    Hopeless(ExecError),
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
            measured_bytes: before.as_ref().and_then(|w| w.measured_bytes),
            was_ready: before.as_ref().is_some_and(|w| w.was_ready),
            insists: true,
            next_look: Duration::ZERO,
        };
        self.models.insert(model.clone(), wanted);
        let seats: Vec<SeatId> = self.fleet.ready_seats().map(|(id, _)| id).collect();
        for seat in seats {
            self.load_on(now, seat, model, true);
        }
        if !self.is_placed(model) {
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

    /// Has a worker that just joined load what it lacks, as far as there is room: first what
    /// the fewest devices have.
    pub(super) fn load_all_on(&mut self, now: Duration, session: SessionId) {
        let mut models: Vec<(usize, ModelRef)> = self
            .models
            .keys()
            .map(|model| (self.fleet.ready_seats().filter(|(_, s)| s.has(model)).count(), model))
            .map(|(count, model)| (count, model.clone()))
            .collect();
        models.sort();
        let seats = self.fleet.live(session).map(|w| w.seats.clone()).unwrap_or_default();
        for id in seats {
            // What it brings along takes room before anything else does.
            let there = self.fleet.seats.get(id).map(|seat| seat.status.models.clone());
            for model in there.unwrap_or_default() {
                if self.models.contains_key(&model) {
                    self.load_on(now, id, &model, false);
                }
            }
            for (_, model) in &models {
                self.load_on(now, id, model, false);
            }
        }
    }

    /// Has a device load a model that fits. One that is there already is ordered again only by a
    /// caller, whose order is then answered by the worker itself.
    pub(super) fn load_on(&mut self, now: Duration, id: SeatId, model: &ModelRef, anew: bool) {
        let Some(seat) = self.fleet.seats.get(id) else { return };
        let there = seat.status.models.contains(model);
        let state = match seat.models.get(model) {
            None if !there && !self.fits(seat, model) => return,
            None | Some(ModelState::Failed(_)) if anew || !there => ModelState::ordered(now),
            None => ModelState::Ready { used: now },
            Some(_) => return,
        };
        self.set_model(id, model, state);
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

    /// Compares what a worker has with what it was told to load: the order or its answer may
    /// have gone missing.
    pub(super) fn check_loads(&mut self, now: Duration, session: SessionId) {
        let lease = self.config.timing.lease;
        let seats = self.fleet.live(session).map(|w| w.seats.clone()).unwrap_or_default();
        for id in seats {
            let Some(seat) = self.fleet.seats.get_mut(id) else { continue };
            for (model, state) in &mut seat.models {
                let ModelState::Loading { asked, .. } = state else { continue };
                if seat.status.models.contains(model) {
                    *state = ModelState::Ready { used: now };
                    if let Some(wanted) = self.models.get_mut(model) {
                        wanted.was_ready = true;
                    }
                    self.capabilities.forget(model);
                    self.actions.push_back(Action::Changed);
                } else if now.saturating_sub(*asked) > lease {
                    // To load what is being loaded is no error, so asking twice does no harm.
                    *asked = now;
                    let (device, model) = (seat.ordinal, model.clone());
                    self.actions.push_back(Action::Load { session, device, model });
                }
            }
        }
    }

    /// A worker says what became of a load at one of its devices, and what memory the model takes
    /// there.
    pub(crate) fn loaded(
        &mut self,
        now: Duration,
        session: SessionId,
        device: u32,
        model: &ModelRef,
        result: Result<Option<u64>, ExecError>,
    ) {
        let Some(worker) = self.fleet.live(session) else { return };
        let name = worker.id.clone();
        let at = usize::try_from(device).ok().and_then(|at| worker.seats.get(at)).copied();
        let Some(id) = at else { return };
        let Some(seat) = self.fleet.seats.get_mut(id) else { return };
        let since = match seat.models.get(model) {
            Some(ModelState::Loading { since, .. }) => Some(*since),
            // A heartbeat has told it before.
            Some(ModelState::Ready { .. } | ModelState::Failed(_)) => None,
            // Unloaded meanwhile, or about to be: the answer no longer matters.
            None | Some(ModelState::Leaving) => return,
        };
        if let (Ok(bytes), Some(wanted)) = (&result, self.models.get_mut(model)) {
            wanted.was_ready = true;
            wanted.measured_bytes = wanted.measured_bytes.max(*bytes);
            if let Some(since) = since {
                wanted.load.measure(now, now.saturating_sub(since));
            }
        }
        let error = result.err();
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

    /// Has all workers let go of the model; others may have its room.
    pub(crate) fn unload(&mut self, now: Duration, model: &ModelRef) {
        self.models.remove(model);
        let seats: Vec<SeatId> = self.fleet.ready_seats().map(|(id, _)| id).collect();
        for &id in &seats {
            self.drop_model(id, model);
            self.break_promise(now, id, model);
        }
        for worker in self.fleet.workers.values_mut() {
            worker.breakers.remove(model);
        }
        self.capabilities.forget(model);
        self.actions.push_back(Action::Changed);
        let others: Vec<ModelRef> = self.models.keys().cloned().collect();
        for id in seats {
            for other in &others {
                self.load_on(now, id, other, false);
            }
        }
        self.schedule(now);
    }

    /// Has a device let go of a model.
    pub(super) fn drop_model(&mut self, id: SeatId, model: &ModelRef) {
        let Some(seat) = self.fleet.seats.get_mut(id) else { return };
        seat.models.remove(model);
        seat.services.remove(model);
        seat.status.models.retain(|m| m != model);
        let (session, device, model) = (seat.session, seat.ordinal, model.clone());
        self.capabilities.forget(&model);
        self.actions.push_back(Action::Unload { session, device, model });
    }

    /// Models that the cluster is to have.
    pub(crate) fn models(&self) -> Vec<ModelRef> {
        self.models.keys().cloned().collect()
    }

    /// What became of a load, once every device that was to load the model has answered. A
    /// worker has failed where all of these did, or where none can ever hold it; workers that have
    /// no room for it now are left out.
    pub(crate) fn load_report(&self, model: &ModelRef) -> Option<LoadReport> {
        let mut report = Vec::new();
        if !self.models.contains_key(model) {
            // Unloaded meanwhile.
            return Some(report);
        }
        let names = self.fleet.names.values();
        for worker in names.filter_map(|s| self.fleet.workers.get(s)).filter(|w| w.is_ready()) {
            let seats = || worker.seats.iter().filter_map(|&id| self.fleet.seats.get(id));
            let pending = |seat: &Seat| {
                let loading = matches!(seat.models.get(model), Some(ModelState::Loading { .. }));
                loading || seat.promised.as_deref() == Some(model)
            };
            if seats().any(pending) {
                return None;
            }
            let mut failure = None;
            let mut ready = false;
            for seat in seats() {
                match seat.models.get(model) {
                    Some(ModelState::Failed(error)) => failure = failure.or(Some(error.clone())),
                    Some(ModelState::Ready { .. }) => ready = true,
                    Some(_) => {}
                    None => failure = failure.or_else(|| self.never_fits(seat, model)),
                }
            }
            match failure {
                _ if ready => report.push((worker.id.clone(), Ok(()))),
                Some(error) => report.push((worker.id.clone(), Err(error))),
                None => {}
            }
        }
        Some(report)
    }

    /// The models that may answer a model's tasks, itself first.
    pub(super) fn answers<'a>(&'a self, model: &'a ModelRef) -> impl Iterator<Item = &'a ModelRef> {
        let compares = self.config.balancing.compares_variants();
        let variants = self.models.get(model).filter(|_| compares);
        let variants = variants.into_iter().flat_map(|wanted| &wanted.variants);
        // One that was unloaded since answers for nobody.
        let variants = variants.map(|name| &**name).filter(|name| self.models.contains_key(name));
        std::iter::once(model).chain(variants)
    }

    /// Whether any worker can or may come to take the model's tasks.
    pub(super) fn outlook(&self, model: &ModelRef) -> Outlook {
        let mut failure = None;
        for model in self.answers(model) {
            for (_, seat) in self.fleet.ready_seats() {
                let error = match seat.models.get(model) {
                    // With more room it may load.
                    Some(ModelState::Failed(error)) => {
                        Some(error.clone()).filter(|error| !self.may_get_room(seat, error))
                    }
                    None => self.never_fits(seat, model),
                    Some(_) => None,
                };
                match error {
                    Some(error) => failure = failure.or(Some(error)),
                    None => return Outlook::Open,
                }
            }
        }
        failure.map_or(Outlook::Open, Outlook::Hopeless)
    }
}
