//! Which models workers are to have, and what became of loading them.

use crate::executor::ExecError;
use crate::proto::core::Core;
use crate::proto::fleet::Worker;
use crate::proto::service::Service;
use crate::proto::state::{Action, SessionId};
use crate::task::ModelRef;
use crate::worker_info::WorkerId;
use std::sync::Arc;
use std::time::Duration;

/// A model at one device. Of models without a state the worker decides itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModelState {
    /// Ordered at that time.
    Loading(Duration),
    Ready,
    Failed(ExecError),
}

/// What a model asks of the devices that run it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelNeeds {
    /// Device memory that it takes, for the strategies that look at memory.
    pub memory_bytes: Option<u64>,
    /// The backend that it runs best on, for example `opencl`.
    pub backend: Option<String>,
    /// The family of chips that it runs best on, for example `Polaris`.
    pub family: Option<String>,
}

/// A model that every worker is to have.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The one copy of its name.
    pub(super) model: Arc<ModelRef>,
    pub(super) needs: ModelNeeds,
    load: Service,
}

impl Wanted {
    /// Milliseconds that loading it takes, as measured; 0 before the first time.
    pub(super) fn load_ms(&self) -> f64 {
        self.load.mean_ms()
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
    /// Has all devices load the model, those that failed before included.
    pub(crate) fn load(&mut self, now: Duration, model: &ModelRef, needs: ModelNeeds) {
        let name = Arc::new(model.clone());
        let wanted = Wanted { model: name, needs, load: Service::default() };
        self.models.insert(model.clone(), wanted);
        let sessions: Vec<SessionId> =
            self.fleet.workers.values().filter(|w| w.is_ready()).map(|w| w.session).collect();
        for session in sessions {
            self.load_on(now, session, model, true);
        }
        self.capabilities.forget(model);
    }

    /// Has a worker that just joined load what it lacks.
    pub(super) fn load_all_on(&mut self, now: Duration, session: SessionId) {
        let models: Vec<ModelRef> = self.models.keys().cloned().collect();
        for model in models {
            self.load_on(now, session, &model, false);
        }
    }

    /// Has a worker's devices load a model. One that is there already is ordered again only by a
    /// caller, whose order is then answered by the worker itself.
    fn load_on(&mut self, now: Duration, session: SessionId, model: &ModelRef, anew: bool) {
        let seats = self.fleet.live(session).map(|w| w.seats.clone()).unwrap_or_default();
        for id in seats {
            let Some(seat) = self.fleet.seats.get_mut(id) else { continue };
            let there = seat.status.models.contains(model);
            let state = match seat.models.get(model) {
                None | Some(ModelState::Failed(_)) if anew || !there => ModelState::Loading(now),
                None => ModelState::Ready,
                Some(_) => continue,
            };
            if state != ModelState::Ready {
                let (device, model) = (seat.ordinal, model.clone());
                self.actions.push_back(Action::Load { session, device, model });
            }
            seat.models.insert(model.clone(), state);
        }
    }

    /// Compares what a worker has with what it was told to load: the order or its answer may
    /// have gone missing.
    pub(super) fn check_loads(&mut self, now: Duration, session: SessionId) {
        let lease = self.config.timing.lease;
        let seats = self.fleet.live(session).map(|w| w.seats.clone()).unwrap_or_default();
        for id in seats {
            let Some(seat) = self.fleet.seats.get_mut(id) else { continue };
            for (model, state) in &mut seat.models {
                let ModelState::Loading(since) = state else { continue };
                if seat.status.models.contains(model) {
                    *state = ModelState::Ready;
                    self.fleet.generation += 1;
                } else if now.saturating_sub(*since) > lease {
                    // To load what is being loaded is no error, so asking twice does no harm.
                    *since = now;
                    let (device, model) = (seat.ordinal, model.clone());
                    self.actions.push_back(Action::Load { session, device, model });
                }
            }
        }
    }

    /// A worker says what became of a load at one of its devices.
    pub(crate) fn loaded(
        &mut self,
        now: Duration,
        session: SessionId,
        device: u32,
        model: &ModelRef,
        result: Result<(), ExecError>,
    ) {
        let Some(worker) = self.fleet.live(session) else { return };
        let at = usize::try_from(device).ok().and_then(|at| worker.seats.get(at)).copied();
        let Some(seat) = at.and_then(|id| self.fleet.seats.get_mut(id)) else { return };
        // Unloaded meanwhile: the answer no longer matters.
        let Some(state) = seat.models.get_mut(model) else { return };
        if let (ModelState::Loading(since), Ok(()), Some(wanted)) =
            (&*state, &result, self.models.get_mut(model))
        {
            wanted.load.measure(now, now.saturating_sub(*since));
        }
        *state = match result {
            Ok(()) => ModelState::Ready,
            Err(error) => ModelState::Failed(error),
        };
        if *state == ModelState::Ready && !seat.status.models.contains(model) {
            seat.status.models.push(model.clone());
        }
        self.capabilities.forget(model);
        self.actions.push_back(Action::Changed);
        self.schedule(now);
    }

    /// Has all workers let go of the model.
    pub(crate) fn unload(&mut self, model: &ModelRef) {
        self.models.remove(model);
        let ready: Vec<&Worker> = self.fleet.workers.values().filter(|w| w.is_ready()).collect();
        for worker in ready {
            for &id in &worker.seats {
                let Some(seat) = self.fleet.seats.get_mut(id) else { continue };
                seat.models.remove(model);
                seat.status.models.retain(|m| m != model);
            }
            let (session, model) = (worker.session, model.clone());
            self.actions.push_back(Action::Unload { session, model });
        }
        self.capabilities.forget(model);
    }

    /// Models that every worker is to have.
    pub(crate) fn models(&self) -> Vec<ModelRef> {
        self.models.keys().cloned().collect()
    }

    /// What became of a load, once every device of every ready worker has answered. A worker
    /// has failed where all of its devices did.
    pub(crate) fn load_report(&self, model: &ModelRef) -> Option<LoadReport> {
        let mut report = Vec::new();
        let names = self.fleet.names.values();
        for worker in names.filter_map(|s| self.fleet.workers.get(s)).filter(|w| w.is_ready()) {
            let mut result = Ok(());
            for seat in worker.seats.iter().filter_map(|&id| self.fleet.seats.get(id)) {
                match seat.models.get(model) {
                    Some(ModelState::Loading(_)) => return None,
                    Some(ModelState::Failed(error)) if result.is_ok() => {
                        result = Err(error.clone());
                    }
                    _ => {}
                }
            }
            let takes = |id: &usize| {
                let state = self.fleet.seats.get(*id).map(|seat| seat.models.get(model));
                matches!(state, Some(None | Some(ModelState::Ready)))
            };
            let any = worker.seats.iter().any(takes);
            report.push((worker.id.clone(), if any { Ok(()) } else { result }));
        }
        Some(report)
    }

    /// Whether any worker can or may come to take the model's tasks.
    pub(super) fn outlook(&self, model: &ModelRef) -> Outlook {
        let mut failure = None;
        for (_, seat) in self.fleet.ready_seats() {
            match seat.models.get(model) {
                Some(ModelState::Failed(error)) => failure = Some(error.clone()),
                _ => return Outlook::Open,
            }
        }
        failure.map_or(Outlook::Open, Outlook::Hopeless)
    }
}
