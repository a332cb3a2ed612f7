//! The places of a device: those that models share, and those of a model's own, if the model says
//! how its tasks are batched.

use super::holdings::Holdings;
use crate::task::ModelRef;
use std::collections::BTreeMap;

/// Most places of one model at a device: as many as a worker may say that a device has.
const LANE_MAX: u32 = 4_096;

/// How many attempts a device may hold.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Places of all models without places of their own.
    shared: u32,
    /// Batches that it runs at the same time.
    threads: u32,
    /// Places of models that have a batching of their own.
    own: BTreeMap<ModelRef, u32>,
}

impl Lanes {
    pub(super) fn new(shared: u32, threads: u32) -> Self {
        Self { shared, threads, own: BTreeMap::new() }
    }

    /// All places; a model's own places count only while it has attempts here.
    pub(super) fn used(&self, held: &Holdings) -> u32 {
        let used = self.own.iter().filter(|(model, _)| held.of(model) > 0);
        used.fold(self.shared, |sum, (_, places)| sum.saturating_add(*places))
    }

    /// Places of a model, together with the models that share them.
    pub(super) fn of(&self, model: &ModelRef) -> u32 {
        self.own.get(model).copied().unwrap_or(self.shared)
    }

    /// Whether two models share their places.
    pub(super) fn share(&self, one: &ModelRef, other: &ModelRef) -> bool {
        one == other || !(self.own.contains_key(one) || self.own.contains_key(other))
    }

    /// Free places of a model's own; `None` where it has none of its own.
    pub(super) fn own_free(&self, held: &Holdings, model: &ModelRef) -> Option<u32> {
        self.own.get(model).map(|places| places.saturating_sub(held.of(model)))
    }

    /// Attempts of models that share their places.
    fn sharing(&self, held: &Holdings) -> u32 {
        let all = u32::try_from(held.len()).unwrap_or(u32::MAX);
        self.own.keys().fold(all, |rest, model| rest.saturating_sub(held.of(model)))
    }

    /// Places that are free for models that have none of their own.
    pub(super) fn shared_free(&self, held: &Holdings) -> u32 {
        self.shared.saturating_sub(self.sharing(held))
    }

    /// Places that are free, also those of one model alone.
    pub(super) fn free(&self, held: &Holdings) -> u32 {
        let own = self.own.iter().map(|(model, places)| places.saturating_sub(held.of(model)));
        own.fold(self.shared_free(held), u32::saturating_add)
    }

    /// The share of places that are taken, where that share is largest.
    pub(super) fn taken(&self, held: &Holdings) -> f64 {
        let share = |held: u32, places: u32| f64::from(held.min(places)) / f64::from(places.max(1));
        let own = self.own.iter().map(|(model, places)| share(held.of(model), *places));
        own.fold(share(self.sharing(held), self.shared), f64::max)
    }

    /// Gives a model places of its own for batches of `batch_max`, or none; false if it has these.
    pub(super) fn set(&mut self, model: &ModelRef, batch_max: Option<u32>) -> bool {
        let places = batch_max.map(|max| self.threads.saturating_mul(max).min(LANE_MAX));
        if self.own.get(model).copied() == places {
            return false;
        }
        match places {
            Some(places) => self.own.insert(model.clone(), places),
            None => self.own.remove(model),
        };
        true
    }
}
