//! Which models workers are to have, and what became of loading them.

use crate::executor::ExecError;
use crate::proto::core::Core;
use crate::proto::membership::Worker;
use crate::proto::state::{Action, SessionId};
use crate::task::ModelRef;
use crate::worker_info::WorkerId;
use std::time::Duration;

/// A model at one worker. Of models without a state the worker decides itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModelState {
    /// Ordered at that time.
    Loading(Duration),
    Ready,
    Failed(ExecError),
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

impl Worker {
    /// Whether tasks of the model may go to this worker.
    pub(super) fn takes(&self, model: &ModelRef) -> bool {
        matches!(self.models.get(model), None | Some(ModelState::Ready))
    }
}

impl Core {
    /// Has all workers load the model, those that failed before included.
    pub(crate) fn load(&mut self, now: Duration, model: &ModelRef) {
        self.models.insert(model.clone());
        for worker in self.workers.iter_mut().filter(|w| w.is_ready()) {
            if matches!(worker.models.get(model), None | Some(ModelState::Failed(_))) {
                worker.models.insert(model.clone(), ModelState::Loading(now));
                let (session, model) = (worker.session, model.clone());
                self.actions.push_back(Action::Load { session, model });
            }
        }
    }

    /// Has a worker that just joined load what it lacks.
    pub(super) fn load_all_on(&mut self, now: Duration, index: usize) {
        let Some(worker) = self.workers.get_mut(index) else { return };
        for model in &self.models {
            let loaded = worker.status.models.contains(model);
            let state = if loaded { ModelState::Ready } else { ModelState::Loading(now) };
            worker.models.insert(model.clone(), state);
            if !loaded {
                let (session, model) = (worker.session, model.clone());
                self.actions.push_back(Action::Load { session, model });
            }
        }
    }

    /// Compares what a worker has with what it was told to load: the order or its answer may
    /// have gone missing.
    pub(super) fn check_loads(&mut self, now: Duration, session: SessionId) {
        let lease = self.config.timing.lease;
        let Some(worker) = self.live(session) else { return };
        let mut orders = Vec::new();
        for (model, state) in &mut worker.models {
            let ModelState::Loading(since) = state else { continue };
            if worker.status.models.contains(model) {
                *state = ModelState::Ready;
            } else if now.saturating_sub(*since) > lease {
                // To load what is being loaded is no error, so asking twice does no harm.
                *since = now;
                orders.push(Action::Load { session, model: model.clone() });
            }
        }
        self.actions.extend(orders);
    }

    /// A worker says what became of a load.
    pub(crate) fn loaded(
        &mut self,
        now: Duration,
        session: SessionId,
        model: &ModelRef,
        result: Result<(), ExecError>,
    ) {
        let Some(worker) = self.live(session) else { return };
        // Unloaded meanwhile: the answer no longer matters.
        let Some(state) = worker.models.get_mut(model) else { return };
        *state = match result {
            Ok(()) => ModelState::Ready,
            Err(error) => ModelState::Failed(error),
        };
        if *state == ModelState::Ready && !worker.status.models.contains(model) {
            worker.status.models.push(model.clone());
        }
        self.actions.push_back(Action::Changed);
        self.schedule(now);
    }

    /// Has all workers let go of the model.
    pub(crate) fn unload(&mut self, model: &ModelRef) {
        self.models.remove(model);
        for worker in self.workers.iter_mut().filter(|w| w.is_ready()) {
            worker.models.remove(model);
            worker.status.models.retain(|m| m != model);
            let (session, model) = (worker.session, model.clone());
            self.actions.push_back(Action::Unload { session, model });
        }
    }

    /// Models that every worker is to have.
    pub(crate) fn models(&self) -> Vec<ModelRef> {
        self.models.iter().cloned().collect()
    }

    /// What became of a load, once every ready worker has answered.
    pub(crate) fn load_report(&self, model: &ModelRef) -> Option<LoadReport> {
        let mut report = Vec::new();
        for worker in self.workers.iter().filter(|w| w.is_ready()) {
            let result = match worker.models.get(model) {
                Some(ModelState::Loading(_)) => return None,
                Some(ModelState::Failed(error)) => Err(error.clone()),
                Some(ModelState::Ready) | None => Ok(()),
            };
            report.push((worker.id.clone(), result));
        }
        Some(report)
    }

    /// Whether any worker can or may come to take the model's tasks.
    pub(super) fn outlook(&self, model: &ModelRef) -> Outlook {
        let mut failure = None;
        for worker in self.workers.iter().filter(|w| w.is_ready()) {
            match worker.models.get(model) {
                Some(ModelState::Failed(error)) => failure = Some(error.clone()),
                _ => return Outlook::Open,
            }
        }
        failure.map_or(Outlook::Open, Outlook::Hopeless)
    }
}
