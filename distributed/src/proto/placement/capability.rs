//! Which seats can take a model's tasks: found once for a model, and then kept up to date seat by
//! seat, as workers come and go and their models change.

use super::fleet::Fleet;
use super::hot::SeatId;
use super::models::{ModelState, Wanted};
use super::seat::Seat;
use super::worker::Worker;
use crate::proto::balance::Capable;
use crate::proto::scheduler::service::Service;
use crate::task::ModelRef;
use crate::worker_info::Hits;
use std::collections::{BTreeMap, HashMap};

/// Most models whose candidates are remembered: their names come from callers.
const MODELS_MAX: usize = 256;

/// Candidates by model.
#[derive(Debug, Default)]
pub(super) struct Capabilities {
    /// Sorted by seat.
    known: HashMap<ModelRef, Vec<Capable>>,
    /// Lookups that found a model's seats known, and all lookups.
    hits: u64,
    lookups: u64,
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
        if self.known.contains_key(model) {
            self.hits += 1;
        } else {
            if self.known.len() >= MODELS_MAX {
                self.known.clear();
            }
            let seats = fleet.ready_seats();
            let capable = seats.filter_map(|(id, seat)| capable(fleet, id, seat, model, wanted));
            self.known.insert(model.clone(), capable.collect());
        }
        self.known.get(model).map_or(&[], Vec::as_slice)
    }

    /// Forgets the seats of a model, which may be others now.
    pub(super) fn forget(&mut self, model: &ModelRef) {
        self.known.remove(model);
    }

    /// The state of a model at a seat changed, or whether the seat's worker may run it.
    pub(super) fn update(
        &mut self,
        fleet: &Fleet,
        id: SeatId,
        model: &ModelRef,
        wanted: Option<&Wanted>,
    ) {
        if let Some(known) = self.known.get_mut(model) {
            put(known, id, now_capable(fleet, id, model, wanted));
        }
    }

    /// A seat came, went, or changed.
    pub(super) fn update_all(
        &mut self,
        fleet: &Fleet,
        id: SeatId,
        models: &BTreeMap<ModelRef, Wanted>,
    ) {
        for (model, known) in &mut self.known {
            put(known, id, now_capable(fleet, id, model, models.get(model)));
        }
    }

    /// A task of the model was measured at a seat.
    pub(super) fn measured(&mut self, model: &ModelRef, seat: SeatId, service: Service) {
        let Some(known) = self.known.get_mut(model) else { return };
        if let Ok(at) = known.binary_search_by_key(&seat, |c| c.seat)
            && let Some(capable) = known.get_mut(at)
        {
            capable.service = service;
        }
    }

    /// A seat has `own_free` slots left of the model's own.
    pub(super) fn left(&mut self, model: &ModelRef, seat: SeatId, own_free: Option<u32>) {
        let Some(known) = self.known.get_mut(model) else { return };
        if let Ok(at) = known.binary_search_by_key(&seat, |c| c.seat)
            && let Some(capable) = known.get_mut(at)
        {
            capable.own_free = own_free;
        }
    }

    /// Panics where the known seats are not those that a look at all seats finds.
    #[cfg(feature = "planted")]
    pub(super) fn check(&self, fleet: &Fleet, models: &BTreeMap<ModelRef, Wanted>) {
        for (model, known) in &self.known {
            let wanted = models.get(model);
            let seats = fleet.ready_seats();
            let found = seats.filter_map(|(id, seat)| capable(fleet, id, seat, model, wanted));
            assert_eq!(*known, found.collect::<Vec<_>>(), "{model}");
        }
    }

    pub(super) fn lookups(&self) -> Hits {
        Hits { hits: self.hits, of: self.lookups }
    }
}

/// Sets or removes the entry of a seat among those that can take a model's tasks.
fn put(known: &mut Vec<Capable>, id: SeatId, now: Option<Capable>) {
    match (known.binary_search_by_key(&id, |c| c.seat), now) {
        (Ok(at), Some(capable)) => known[at] = capable,
        (Err(at), Some(capable)) => known.insert(at, capable),
        (Ok(at), None) => {
            known.remove(at);
        }
        (Err(_), None) => {}
    }
}

fn now_capable(
    fleet: &Fleet,
    id: SeatId,
    model: &ModelRef,
    wanted: Option<&Wanted>,
) -> Option<Capable> {
    let seat = fleet.seat(id).filter(|seat| seat.ready)?;
    capable(fleet, id, seat, model, wanted)
}

/// A seat of a ready worker, if it can take a model's tasks.
fn capable(
    fleet: &Fleet,
    id: SeatId,
    seat: &Seat,
    model: &ModelRef,
    wanted: Option<&Wanted>,
) -> Option<Capable> {
    let worker = fleet.worker(seat.session())?;
    is_capable(worker, seat, model, wanted).then(|| Capable {
        seat: id,
        service: seat.services.get(model).map(|timed| timed.mean).unwrap_or_default(),
        resident: seat.status.models.contains(model),
        fit: wanted.map_or(1.0, |wanted| fit(seat, wanted)),
        own_free: seat.own_free(model),
    })
}

fn is_capable(worker: &Worker, seat: &Seat, model: &ModelRef, wanted: Option<&Wanted>) -> bool {
    let has_it = match seat.state_of(model) {
        Some(ModelState::Ready { .. }) => true,
        // Workers load a model by themselves that the cluster was not asked to have.
        None | Some(ModelState::Stray { .. }) => wanted.is_none(),
        Some(
            ModelState::Loading { .. }
            | ModelState::Leaving
            | ModelState::Going { .. }
            | ModelState::Failed(_),
        ) => false,
    };
    has_it && worker.passes(model)
}

/// How well a device fits what the model wants, 0 to 1: half for the backend, half for the family.
/// A model that wants nothing fits every device.
fn fit(seat: &Seat, wanted: &Wanted) -> f64 {
    let is = |want: &Option<String>, have: &str| match want {
        None => 0.5,
        Some(want) if want.eq_ignore_ascii_case(have) => 0.5,
        // More than nothing: the model can run there all the same.
        Some(_) => 0.05,
    };
    is(&wanted.needs().backend, &seat.status.backend)
        + is(&wanted.needs().family, &seat.status.family)
}
