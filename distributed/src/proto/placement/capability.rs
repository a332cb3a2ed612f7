//! Which seats can take a model's tasks: found once for a model, and kept as workers come and go and
//! as what they have changes, each time for the seat that it is about.

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

/// Models whose candidates are remembered. Names come from callers, so there is an end.
const MODELS_MAX: usize = 256;

/// Candidates by model.
#[derive(Debug, Default)]
pub(super) struct Capabilities {
    /// By seat, in rising order.
    known: HashMap<ModelRef, Vec<Capable>>,
    /// Lookups that found what was known, and all of them.
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

    /// What was known of the model is no longer so.
    pub(super) fn forget(&mut self, model: &ModelRef) {
        self.known.remove(model);
    }

    /// What a seat has of a model changed, or whether its worker may run it.
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

    /// A seat came, went, or is another one.
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

    /// A seat has so many slots left of those that are the model's own.
    pub(super) fn left(&mut self, model: &ModelRef, seat: SeatId, own_free: Option<u32>) {
        let Some(known) = self.known.get_mut(model) else { return };
        if let Ok(at) = known.binary_search_by_key(&seat, |c| c.seat)
            && let Some(capable) = known.get_mut(at)
        {
            capable.own_free = own_free;
        }
    }

    /// Panics where what is known is not what a look at all seats finds.
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

/// Has a seat be what it is now among those that can take a model's tasks.
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
        // A model that nobody asked the cluster to have, workers load by themselves.
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

/// How much of what the model wants a device is, 0 to 1: half for the backend, half for the
/// family. Who wants nothing is content with everything.
fn fit(seat: &Seat, wanted: &Wanted) -> f64 {
    let is = |want: &Option<String>, have: &str| match want {
        None => 0.5,
        Some(want) if want.eq_ignore_ascii_case(have) => 0.5,
        // Better than none: it can run there all the same.
        Some(_) => 0.05,
    };
    is(&wanted.needs().backend, &seat.status.backend)
        + is(&wanted.needs().family, &seat.status.family)
}
