//! Which seats can take a model's tasks: found once, and again when workers or models change.

use crate::proto::balance::Capable;
use crate::proto::fleet::{Fleet, Seat, SeatId, Worker};
use crate::proto::models::{ModelState, Wanted};
use crate::proto::service::Service;
use crate::task::ModelRef;
use std::collections::HashMap;

/// Models whose candidates are remembered. Names come from callers, so there is an end.
const MODELS_MAX: usize = 256;

/// Candidates by model.
#[derive(Debug, Default)]
pub(super) struct Capabilities {
    known: HashMap<ModelRef, Known>,
    /// Lookups that found what was known, and all of them.
    pub(super) hits: u64,
    pub(super) lookups: u64,
}

#[derive(Debug)]
struct Known {
    generation: u64,
    /// By seat, in rising order.
    capable: Vec<Capable>,
}

impl Capabilities {
    /// Seats that can take the model's tasks, once they have a free slot.
    pub(super) fn of(
        &mut self,
        fleet: &Fleet,
        model: &ModelRef,
        wanted: Option<&Wanted>,
    ) -> &[Capable] {
        self.lookups += 1;
        let fresh = self.known.get(model).is_some_and(|k| k.generation == fleet.generation);
        self.hits += u64::from(fresh);
        if !fresh {
            if self.known.len() >= MODELS_MAX {
                self.known.clear();
            }
            let capable = fleet
                .ready_seats()
                .filter(|(_, seat)| {
                    let worker = fleet.workers.get(&seat.session);
                    worker.is_some_and(|worker| is_capable(worker, seat, model, wanted))
                })
                .map(|(id, seat)| Capable {
                    seat: id,
                    service: seat.services.get(model).copied().unwrap_or_default(),
                    resident: seat.status.models.contains(model),
                    fit: wanted.map_or(1.0, |wanted| fit(seat, wanted)),
                })
                .collect();
            let known = Known { generation: fleet.generation, capable };
            self.known.insert(model.clone(), known);
        }
        self.known.get(model).map_or(&[], |known| &known.capable)
    }

    /// What was known of the model is no longer so.
    pub(super) fn forget(&mut self, model: &ModelRef) {
        self.known.remove(model);
    }

    /// A task of the model was measured at a seat.
    pub(super) fn measured(&mut self, model: &ModelRef, seat: SeatId, service: Service) {
        let Some(known) = self.known.get_mut(model) else { return };
        if let Ok(at) = known.capable.binary_search_by_key(&seat, |c| c.seat)
            && let Some(capable) = known.capable.get_mut(at)
        {
            capable.service = service;
        }
    }
}

fn is_capable(worker: &Worker, seat: &Seat, model: &ModelRef, wanted: Option<&Wanted>) -> bool {
    let passes = worker.breakers.get(model).is_none_or(|breaker| breaker.passes());
    let has_it = match seat.models.get(model) {
        Some(ModelState::Ready { .. }) => true,
        // A model that nobody asked the cluster to have, workers load by themselves.
        None | Some(ModelState::Stray { .. }) => wanted.is_none(),
        Some(
            ModelState::Loading { .. }
            | ModelState::Leaving
            | ModelState::Going { .. }
            | ModelState::Failed(_),
        ) => false,
    };
    passes && has_it
}

/// How much of what the model wants a device is, 0 to 1: half for the backend, half for the
/// family. Who wants nothing is content with everything.
fn fit(seat: &Seat, wanted: &Wanted) -> f64 {
    let is = |want: &Option<String>, have: &str| match want {
        None => 0.5,
        Some(want) if want.eq_ignore_ascii_case(have) => 0.5,
        // Better than none: it can run there all the same.
        Some(_) => 0.05,
    };
    is(&wanted.needs.backend, &seat.status.backend) + is(&wanted.needs.family, &seat.status.family)
}
