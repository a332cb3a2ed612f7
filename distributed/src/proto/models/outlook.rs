//! What became of loading a model, and whether its tasks can run now or later.

use super::ModelState;
use crate::executor::ExecError;
use crate::proto::core::Core;
use crate::proto::fleet::Seat;
use crate::task::ModelRef;
use crate::worker_info::WorkerId;

/// What became of a model at each worker.
pub(crate) type LoadReport = Vec<(WorkerId, Result<(), ExecError>)>;

/// Whether a task of a model can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::proto) enum Outlook {
    /// Now or later.
    Open,
    /// Every ready worker failed to load it.
    Hopeless(ExecError),
}

impl Core {
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
    pub(in crate::proto) fn answers<'a>(
        &'a self,
        model: &'a ModelRef,
    ) -> impl Iterator<Item = &'a ModelRef> {
        let compares = self.config.balancing.compares_variants();
        let variants = self.models.get(model).filter(|_| compares);
        let variants = variants.into_iter().flat_map(|wanted| &wanted.variants);
        // One that was unloaded since answers for nobody.
        let variants = variants.map(|name| &**name).filter(|name| self.models.contains_key(name));
        std::iter::once(model).chain(variants)
    }

    /// Why no ready worker can load a model, nor could with more room; `None` where one may.
    pub(crate) fn load_failure(&self, model: &ModelRef) -> Option<ExecError> {
        match self.outlook(model, 0) {
            Outlook::Hopeless(error) => Some(error),
            Outlook::Open => None,
        }
    }

    /// Whether any worker can or may come to take the model's tasks.
    pub(in crate::proto) fn outlook(&self, model: &ModelRef, input_bytes: usize) -> Outlook {
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
