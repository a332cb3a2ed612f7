//! What runs where: workers, their devices, and the models that these have or should have.

mod capability;
#[cfg(feature = "planted")]
mod check;
mod device;
mod energy;
mod evict;
mod fleet;
mod hangs;
mod holdings;
mod hot;
mod lanes;
pub(crate) mod models;
mod orders;
mod outlook;
mod roll;
mod room;
mod seat;
mod slots;
mod standing;
mod worker;

pub(super) use device::{devices, unused};
pub(super) use evict::{Eviction, Look};
pub(super) use fleet::Fleet;
pub use hangs::HangTable;
pub(super) use hot::{Hot, SeatId, mib};
pub(super) use models::{ModelState, Wanted, ordered};
pub(super) use orders::Overdue;
pub(super) use outlook::{LoadReport, Outlook};
pub(super) use seat::{Held, Kept, Seat, Timed};
pub(super) use slots::Survey;
pub(super) use standing::{Cause, Standing};
pub(super) use worker::Worker;

use crate::proto::names::Names;
use crate::proto::state::SessionId;
use crate::task::ModelRef;
use capability::Capabilities;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Workers, devices and models.
#[derive(Debug, Default)]
pub(super) struct Placement {
    fleet: Fleet,
    /// Models that the cluster should have.
    models: BTreeMap<ModelRef, Wanted>,
    /// Models whose tasks wait until a caller asks for the model again.
    withdrawn: BTreeSet<ModelRef>,
    /// Devices of ready workers that have a model or are to get it.
    present: HashMap<ModelRef, usize>,
    capabilities: Capabilities,
    names: Names,
    /// Devices on which models leave for another.
    moving: BTreeSet<SeatId>,
    /// The last session that began.
    last_session: SessionId,
    /// Whether a check of silent workers is scheduled.
    watched: bool,
    /// Devices on which runs did not stop.
    hangs: hangs::HangsByDevice,
    #[cfg(feature = "planted")]
    planted: Option<crate::proto::planted::Planted>,
}

impl Placement {
    /// From now on it has this fault.
    #[cfg(feature = "planted")]
    pub(super) fn plant(&mut self, fault: Option<crate::proto::planted::Planted>) {
        self.planted = fault;
    }

    /// Adds names that were shared elsewhere.
    pub(super) fn merge_names(&mut self, names: Names) {
        self.names.merge(names);
    }

    /// The workers and their devices, to be looked at.
    pub(super) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// A model that the cluster should have.
    pub(super) fn wanted(&self, model: &ModelRef) -> Option<&Wanted> {
        self.models.get(model)
    }

    /// The same, to be changed.
    pub(super) fn wanted_mut(&mut self, model: &ModelRef) -> Option<&mut Wanted> {
        self.models.get_mut(model)
    }

    /// Every model that the cluster should have.
    pub(super) fn models(&self) -> impl Iterator<Item = &Wanted> {
        self.models.values()
    }

    /// Lookups of a model's devices that found them known, of all lookups.
    pub(super) fn lookups(&self) -> crate::worker_info::Hits {
        self.capabilities.lookups()
    }
}
