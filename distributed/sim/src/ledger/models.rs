//! The models on each device: there is room for each, and none is unloaded while in use.

use super::Ledger;
use crate::workload::MODEL_BYTES;
use lgp_distributed::inside::core::Core;
use lgp_distributed::inside::state::SessionId;
use lgp_distributed::{DeviceStatus, ModelRef};
use std::collections::BTreeSet;

impl Ledger {
    /// A worker lists the models of its devices; returns how many it was not told to load.
    pub(crate) fn listed<'a>(
        &mut self,
        session: SessionId,
        devices: impl Iterator<Item = &'a DeviceStatus>,
    ) -> u64 {
        let mut strays = 0;
        for (device, status) in (0u32..).zip(devices) {
            let models: BTreeSet<ModelRef> = status.models.iter().cloned().collect();
            let placed = self.placed.get(&(session, device));
            let stray = |model: &&ModelRef| placed.is_none_or(|placed| !placed.contains(*model));
            strays += u64::try_from(models.iter().filter(stray).count()).unwrap_or(u64::MAX);
            self.told.insert((session, device), models);
        }
        strays
    }

    /// A device is told to load a model, for which there must be room.
    pub(crate) fn loads(
        &mut self,
        session: SessionId,
        device: u32,
        model: &ModelRef,
        memory: Option<u64>,
    ) -> Result<(), String> {
        let placed = self.placed.entry((session, device)).or_default();
        placed.insert(model.clone());
        let told = self.told.get(&(session, device)).into_iter().flatten();
        let others = told.filter(|model| !placed.contains(*model)).count();
        let bytes = MODEL_BYTES * u64::try_from(placed.len() + others).unwrap_or(u64::MAX);
        match memory {
            Some(memory) if bytes > memory => {
                Err(format!("session {session}, device {device}: {bytes} of {memory} bytes"))
            }
            _ => Ok(()),
        }
    }

    /// A device is told to unload a model; a wanted model must not be in use.
    pub(crate) fn unloads(
        &mut self,
        session: SessionId,
        device: u32,
        model: &ModelRef,
        core: &Core,
    ) -> Result<(), String> {
        // A model that callers no longer want is unloaded even while in use.
        let wanted = core.models().contains(model);
        // A repeated order takes nothing away.
        let first = self.going.insert((session, device, model.clone()));
        let held = self.held.get(&session).filter(|_| wanted && first).into_iter().flatten();
        for (id, (at, of)) in held {
            if (*at, of) == (device, model) && core.is_current(session, *id) {
                return Err(format!("model {model} was taken away from attempt {id:?}"));
            }
        }
        Ok(())
    }

    /// The core learns that a device does not have a model.
    pub(crate) fn failed_to_load(&mut self, session: SessionId, device: u32, model: &ModelRef) {
        for models in [&mut self.placed, &mut self.told] {
            if let Some(models) = models.get_mut(&(session, device)) {
                models.remove(model);
            }
        }
    }

    /// A caller no longer wants a model.
    pub(crate) fn unwanted(&mut self, model: &str) {
        self.laws.unloaded(model);
    }

    /// A device confirms that it has unloaded a model.
    pub(crate) fn unloaded(&mut self, session: SessionId, device: u32, model: &ModelRef) {
        self.going.remove(&(session, device, model.clone()));
        self.failed_to_load(session, device, model);
    }
}
