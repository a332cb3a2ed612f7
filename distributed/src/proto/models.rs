//! Which models the cluster is to have, and what became of loading them.

use crate::executor::{ExecError, ExecErrorKind};
use crate::proto::core::Core;
use crate::proto::event::Event;
use crate::proto::fleet::{Seat, SeatId};
use crate::proto::service::Service;
use crate::proto::state::{Action, SessionId};
use crate::task::ModelRef;
use crate::worker_info::WorkerId;
use std::collections::BTreeMap;
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

/// Backends whose sizes of a model are remembered: workers name them.
const BACKENDS_MAX: usize = 16;

/// What a model asks of the devices that run it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelNeeds {
    /// Device memory that it takes, on any device. Where it is not said, it is what devices of the
    /// same backend were measured to need; before one has loaded it, what others were.
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
    /// The most memory that devices of a backend said it takes.
    measured_bytes: BTreeMap<String, u64>,
    /// It has been ready somewhere.
    was_ready: bool,
    /// A caller waits for it to be somewhere, for which others may have to go.
    insists: bool,
    /// When room for it may be looked for again.
    pub(super) next_look: Duration,
}

impl Wanted {
    /// Whether a caller waits until it is on some device.
    pub(super) fn insists(&self) -> bool {
        self.insists
    }

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

    /// Device memory that it takes, as far as that is known: the most of all backends.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.needs.memory_bytes.or(self.measured_bytes.values().max().copied())
    }

    /// Device memory that it takes on a backend; where none of its devices has loaded it, what it
    /// takes on others.
    pub(super) fn bytes_on(&self, backend: &str) -> Option<u64> {
        let measured = self.measured_bytes.get(backend).copied();
        self.needs.memory_bytes.or(measured).or_else(|| self.bytes())
    }

    fn measured(&mut self, backend: &str, bytes: u64) {
        let known = self.measured_bytes.len() < BACKENDS_MAX;
        if let Some(most) = self.measured_bytes.get_mut(backend) {
            *most = bytes.max(*most);
        } else if known {
            self.measured_bytes.insert(backend.to_owned(), bytes);
        }
    }
}

/// The state of a model that a device is told to load.
pub(super) fn ordered(now: Duration) -> ModelState {
    ModelState::Loading { asked: now }
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

    /// Compares what a worker has with what it was told to load or to let go of: the order or its
    /// answer may have gone missing.
    pub(super) fn check_orders(&mut self, now: Duration, session: SessionId) {
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
    pub(super) fn device_of(
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
                let promised = seat.promised.as_deref() == Some(model);
                loading || promised || self.clears_for(seat, model)
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
    pub(super) fn outlook(&self, model: &ModelRef, input_bytes: usize) -> Outlook {
        let mut failure = None;
        for model in self.answers(model) {
            for (_, seat) in self.fleet.ready_seats() {
                let worker = self.fleet.workers.get(&seat.session);
                if !worker.is_some_and(|worker| worker.takes(input_bytes)) {
                    continue;
                }
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
