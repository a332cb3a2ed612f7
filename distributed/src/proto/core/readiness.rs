//! Whether a model can be used now: each request asks this, about one model alone.

use super::Core;
use crate::executor::ExecError;
use crate::task::ModelRef;
use crate::worker_info::WorkerId;

/// Whether a model can be used now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelReadiness {
    /// A ready worker has it.
    Ready,
    /// It was evicted for others, and comes back when a task asks for it.
    Parked,
    /// Workers should have it, but none has it yet.
    Loading,
    /// No ready worker can load it.
    Failed(ExecError),
    /// No caller asked for it.
    Unwanted,
}

impl Core {
    /// Whether a model can be used now.
    pub(crate) fn readiness(&self, model: &ModelRef) -> ModelReadiness {
        let mut seats = self.placement.fleet().ready_seats();
        if seats.any(|(_, seat)| seat.status().models.contains(model)) {
            return ModelReadiness::Ready;
        }
        if self.placement.wanted(model).is_none() {
            return ModelReadiness::Unwanted;
        }
        if self.is_parked(model) {
            return ModelReadiness::Parked;
        }
        self.load_failure(model).map_or(ModelReadiness::Loading, ModelReadiness::Failed)
    }

    /// Ready workers that have a model.
    pub(crate) fn workers_with(&self, model: &ModelRef) -> Vec<WorkerId> {
        let fleet = self.placement.fleet();
        let with = fleet.ready_seats().filter(|(_, seat)| seat.status().models.contains(model));
        let workers = with.filter_map(|(id, _)| fleet.worker_at(id));
        let mut ids: Vec<WorkerId> = workers.map(|worker| worker.id().clone()).collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// Whether a worker is ready and, if the cluster should have models, a ready worker has one.
    pub(crate) fn is_serving(&self) -> bool {
        let idle = self.placement.models().next().is_none();
        let mut seats = self.placement.fleet().ready_seats();
        seats.any(|(_, seat)| idle || !seat.status().models.is_empty())
    }
}
