//! The result of loading a model, and whether its tasks can run now or later.

use super::{ModelState, Placement, Seat, Wanted};
use crate::executor::ExecError;
use crate::task::ModelRef;
use crate::worker_info::WorkerId;

/// The result of loading a model at each worker.
pub(crate) type LoadReport = Vec<(WorkerId, Result<(), ExecError>)>;

/// Whether a task of a model can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::proto) enum Outlook {
    /// Now or later.
    Open,
    /// Every ready worker failed to load it.
    Hopeless(ExecError),
}

impl Placement {
    /// The result of a load, once every device that was to load the model has answered. A worker
    /// has failed if all of its devices failed, or if none can ever hold the model; workers without
    /// room for it now are left out.
    pub(in crate::proto) fn load_report(&self, model: &ModelRef) -> Option<LoadReport> {
        let mut report = Vec::new();
        if !self.models.contains_key(model) {
            // The model was unloaded meanwhile.
            return Some(report);
        }
        for worker in self.fleet.by_name().filter(|worker| worker.is_ready()) {
            let seats = || self.fleet.seats_of(worker);
            let pending = |seat: &Seat| {
                let loading = matches!(seat.state_of(model), Some(ModelState::Loading { .. }));
                loading || seat.is_promised(model) || self.clears_for(seat, model)
            };
            if seats().any(pending) {
                return None;
            }
            let mut failure = None;
            let mut ready = false;
            for seat in seats() {
                match seat.state_of(model) {
                    Some(ModelState::Failed(error)) => failure = failure.or(Some(error.clone())),
                    Some(ModelState::Ready { .. }) => ready = true,
                    Some(_) => {}
                    None => failure = failure.or_else(|| self.never_fits(seat, model)),
                }
            }
            match failure {
                _ if ready => report.push((worker.id().clone(), Ok(()))),
                Some(error) => report.push((worker.id().clone(), Err(error))),
                None => {}
            }
        }
        Some(report)
    }

    /// The models that may answer a model's tasks, itself first; its variants only where the
    /// strategy compares them.
    pub(in crate::proto) fn answers<'a>(
        &'a self,
        model: &'a ModelRef,
        compares: bool,
    ) -> impl Iterator<Item = &'a ModelRef> {
        let variants = self.models.get(model).filter(|_| compares);
        let variants = variants.into_iter().flat_map(Wanted::variants);
        // A variant that was unloaded since does not answer.
        let variants = variants.map(|name| &**name).filter(|name| self.models.contains_key(name));
        std::iter::once(model).chain(variants)
    }

    /// Whether any worker can take the model's tasks, or may be able to later.
    pub(in crate::proto) fn outlook(
        &self,
        model: &ModelRef,
        input_bytes: usize,
        compares: bool,
    ) -> Outlook {
        if self.is_withdrawn(model) {
            return Outlook::Open;
        }
        let mut failure = None;
        for model in self.answers(model, compares) {
            for (_, seat) in self.fleet.ready_seats() {
                let worker = self.fleet.worker(seat.session());
                if !worker.is_some_and(|worker| worker.takes(input_bytes)) {
                    continue;
                }
                let error = match seat.state_of(model) {
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

    /// Whether a model has been ready, and is on no device now although some are ready.
    pub(in crate::proto) fn is_away(&self, model: &ModelRef) -> bool {
        let ready = |seat: &Seat| matches!(seat.state_of(model), Some(ModelState::Ready { .. }));
        self.models.get(model).is_some_and(Wanted::was_ready)
            && self.fleet.ready_seats().next().is_some()
            && !self.fleet.ready_seats().any(|(_, seat)| ready(seat))
    }
}
