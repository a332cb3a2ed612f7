//! A device of a worker, which takes tasks.

mod held;

pub(in crate::proto) use held::Held;

use super::holdings::{Holdings, Tally};
use super::hot::{Hot, heard_ns, mib};
use super::lanes::Lanes;
use super::models::ModelState;
use crate::executor::DeviceStatus;
use crate::proto::balance::load;
use crate::proto::message::AttemptId;
use crate::proto::scheduler::service::Service;
use crate::proto::state::SessionId;
use crate::task::ModelRef;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An attempt that a worker may still hold when it comes back.
#[derive(Debug, Clone)]
pub(in crate::proto) struct Kept {
    pub(in crate::proto) id: AttemptId,
    /// The device's number at its worker.
    pub(in crate::proto) device: u32,
    pub(in crate::proto) model: Arc<ModelRef>,
    /// When the coordinator heard that its run had begun.
    pub(in crate::proto) begun: Option<Duration>,
    /// It was asked to stop, and did not.
    pub(in crate::proto) hung: bool,
}

/// The measured times of a model at a device.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::proto) struct Timed {
    pub(in crate::proto) mean: Service,
    pub(in crate::proto) longest: Duration,
}

impl Timed {
    pub(super) fn measure(&mut self, now: Duration, took: Duration) {
        self.mean.measure(now, took);
        self.longest = self.longest.max(took);
    }
}

#[derive(Debug)]
pub(in crate::proto) struct Seat {
    session: SessionId,
    ordinal: u32,
    /// Attempts that it may hold.
    pub(super) lanes: Lanes,
    /// Whether its worker takes tasks.
    pub(super) ready: bool,
    pub(super) status: DeviceStatus,
    /// Attempts that take a slot.
    pub(super) held: Holdings,
    pub(super) models: BTreeMap<ModelRef, ModelState>,
    /// The model for which others are being evicted.
    pub(super) promised: Option<Arc<ModelRef>>,
    pub(super) services: BTreeMap<ModelRef, Timed>,
    /// Heartbeats to wait until its models are known: a model found no room where there should have
    /// been some.
    pub(super) unsure: u8,
    /// What the sums over all seats contain of this one.
    pub(super) counted: Counted,
    /// Why it was taken out: it takes no tasks until a person enables it.
    pub(super) out: Option<String>,
}

/// Free slots, and attempts by kind; zero where the worker takes no tasks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted {
    pub(super) free: u32,
    pub(super) tally: Tally,
}

impl Seat {
    /// A device of a ready worker, which holds nothing.
    pub(super) fn new(
        session: SessionId,
        ordinal: u32,
        slots: u32,
        threads: u32,
        status: DeviceStatus,
    ) -> Self {
        let (slots, threads) = (slots.max(1), threads.max(1));
        Self {
            session,
            ordinal,
            lanes: Lanes::new(slots, threads),
            ready: true,
            status,
            held: Holdings::new(slots > threads),
            models: BTreeMap::new(),
            promised: None,
            services: BTreeMap::new(),
            unsure: 0,
            counted: Counted::default(),
            out: None,
        }
    }

    pub(in crate::proto) fn session(&self) -> SessionId {
        self.session
    }

    /// Its number among the devices of its worker.
    pub(in crate::proto) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Attempts that it may hold; a model's own places count only while it has attempts here.
    pub(in crate::proto) fn slots(&self) -> u32 {
        self.lanes.used(&self.held)
    }

    /// Attempts that it may hold of a model, together with those of the models that share its places.
    pub(in crate::proto) fn places(&self, model: &ModelRef) -> u32 {
        self.lanes.of(model)
    }

    /// Whether two models share their places.
    pub(in crate::proto) fn share_places(&self, one: &ModelRef, other: &ModelRef) -> bool {
        self.lanes.share(one, other)
    }

    /// Free places of a model's own; `None` where the model shares the places of the device.
    pub(in crate::proto) fn own_free(&self, model: &ModelRef) -> Option<u32> {
        self.lanes.own_free(&self.held, model)
    }

    /// Places that are free for a model.
    pub(in crate::proto) fn free_for(&self, model: &ModelRef) -> u32 {
        self.own_free(model).unwrap_or_else(|| self.lanes.shared_free(&self.held))
    }

    pub(in crate::proto) fn status(&self) -> &DeviceStatus {
        &self.status
    }

    pub(in crate::proto) fn held(&self) -> &Holdings {
        &self.held
    }

    /// Why it was taken out and takes no tasks, if so.
    pub(in crate::proto) fn out(&self) -> Option<&str> {
        self.out.as_deref()
    }

    /// The state of a model here.
    pub(in crate::proto) fn state_of(&self, model: &ModelRef) -> Option<&ModelState> {
        self.models.get(model)
    }

    /// The model for which others are being evicted.
    pub(in crate::proto) fn promised(&self) -> Option<&Arc<ModelRef>> {
        self.promised.as_ref()
    }

    /// Whether others are being evicted for a model.
    pub(in crate::proto) fn is_promised(&self, model: &ModelRef) -> bool {
        self.promised.as_deref() == Some(model)
    }

    /// Whether a model is about to come.
    pub(in crate::proto) fn is_moving(&self) -> bool {
        let moves = |state: &ModelState| {
            matches!(state, ModelState::Loading { .. } | ModelState::Going { .. })
        };
        self.promised.is_some() || self.models.values().any(moves)
    }

    /// Whether the worker has yet to confirm that it unloaded a model.
    pub(in crate::proto) fn lets_go(&self) -> bool {
        self.models.values().any(|state| matches!(state, ModelState::Going { .. }))
    }

    /// Whether it is unknown which models it has.
    pub(in crate::proto) fn is_unsure(&self) -> bool {
        self.unsure > 0
    }

    /// The measured times of each model.
    pub(in crate::proto) fn services(&self) -> &BTreeMap<ModelRef, Timed> {
        &self.services
    }

    /// Whether the model is here or is to come.
    pub(in crate::proto) fn has(&self, model: &ModelRef) -> bool {
        let here = matches!(
            self.models.get(model),
            Some(ModelState::Ready { .. } | ModelState::Loading { .. })
        );
        here || self.is_promised(model)
    }

    /// The models that are here or are to come.
    pub(super) fn present(&self) -> Vec<ModelRef> {
        let here = self.models.keys().filter(|model| self.has(model)).cloned();
        let promised = self.promised.iter().filter(|model| !self.models.contains_key(&***model));
        here.chain(promised.map(|model| (**model).clone())).collect()
    }

    /// Models that take no more tasks here and finish those that they have.
    pub(in crate::proto) fn leaving(&self) -> Vec<ModelRef> {
        let leaving = self.models.iter().filter(|(_, state)| **state == ModelState::Leaving);
        leaving.map(|(model, _)| model.clone()).collect()
    }

    /// Whether an attempt takes a slot for a model.
    pub(in crate::proto) fn uses(&self, model: &ModelRef) -> bool {
        self.held.values().any(|held| *held.model == *model)
    }

    /// When a model was last used or loaded here; `Duration::MAX` while it is used; `None` where it
    /// cannot be evicted.
    pub(in crate::proto) fn last_used(&self, model: &ModelRef) -> Option<Duration> {
        match self.models.get(model)? {
            ModelState::Ready { .. } | ModelState::Stray { .. } if self.uses(model) => {
                Some(Duration::MAX)
            }
            ModelState::Ready { used } | ModelState::Stray { used } => Some(*used),
            _ => None,
        }
    }

    /// Corrects a worker's list of models by the core's books: a heartbeat and the answer to an
    /// order overtake one another, so the list may be older.
    pub(super) fn amend(&self, listed: &mut Vec<ModelRef>) {
        listed.retain(|model| !matches!(self.models.get(model), Some(ModelState::Going { .. })));
        for (model, state) in &self.models {
            if matches!(state, ModelState::Ready { .. }) && !listed.contains(model) {
                listed.push(model.clone());
            }
        }
    }

    pub(in crate::proto) fn load(&self) -> f64 {
        let memory = match (self.status.vram_used_bytes, self.status.vram_total_bytes) {
            (Some(used), Some(total)) if total > 0 => mib(used) / mib(total).max(1.0),
            _ => 0.0,
        };
        let utilisation = f64::from(self.status.utilisation.unwrap_or(0.0));
        load(self.lanes.taken(&self.held), utilisation, memory, self.held.tally().waiting)
    }

    /// Free device memory, in MiB; infinite where the device does not report it.
    fn free_mib(&self) -> f64 {
        match (self.status.vram_used_bytes, self.status.vram_total_bytes) {
            (used, Some(total)) => mib(total.saturating_sub(used.unwrap_or(0))),
            _ => f64::INFINITY,
        }
    }

    /// What the sums over all seats should contain of this one.
    pub(super) fn counts(&self) -> Counted {
        if !self.ready {
            return Counted::default();
        }
        Counted { free: self.lanes.free(&self.held), tally: self.held.tally() }
    }

    /// Its summary, with `free` free slots.
    pub(super) fn hot(&self, free: u32, last_seen: Duration, last_dispatch: u64) -> Hot {
        Hot {
            heard_ns: heard_ns(free, last_seen),
            last_dispatch,
            load: self.load(),
            turns: self.lanes.taken(&self.held) + 1.0,
            free_mib: self.free_mib(),
            power_w: self.status.power_w.unwrap_or(0.0),
            free,
            shared_free: if free > 0 { self.lanes.shared_free(&self.held) } else { 0 },
            idle: self.held.is_empty(),
        }
    }
}
