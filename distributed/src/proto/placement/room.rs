//! The memory of devices: what is taken, what fits, and what never will.

use super::{ModelState, Placement, Seat};
use crate::executor::{ExecError, ExecErrorKind};
use crate::task::ModelRef;

impl Placement {
    /// Device memory that is left for other models without `gone`; `None` where nothing limits it.
    pub(super) fn room(&self, seat: &Seat, gone: &[&ModelRef]) -> Option<u64> {
        let total = seat.status.vram_total_bytes?;
        Some(total.saturating_sub(self.taken(seat, gone)))
    }

    /// Device memory that is taken or promised, without the models `gone`.
    fn taken(&self, seat: &Seat, gone: &[&ModelRef]) -> u64 {
        let mut taken = seat.promised.as_ref().map_or(0, |model| self.bytes(seat, model));
        for (model, state) in seat.models.iter().filter(|(model, _)| !gone.contains(model)) {
            let bytes = match state {
                ModelState::Failed(_) => Some(0),
                ModelState::Going { bytes, .. } => *bytes,
                _ => self.models.get(model).map(|_| self.bytes(seat, model)),
            };
            // Beside a model of unknown size, no other one is known to fit.
            taken = taken.saturating_add(bytes.unwrap_or(u64::MAX));
        }
        taken
    }

    /// Whether a device's models leave no room yet for the model that it is to get.
    pub(in crate::proto) fn is_overfull(&self, seat: &Seat) -> bool {
        seat.status.vram_total_bytes.is_some_and(|total| self.taken(seat, &[]) > total)
    }

    /// Memory of a device that a model takes, as far as it is known, which may be 0.
    pub(in crate::proto) fn bytes(&self, seat: &Seat, model: &ModelRef) -> u64 {
        let wanted = self.models.get(model);
        wanted.and_then(|wanted| wanted.bytes_on(&seat.status.backend)).unwrap_or(0)
    }

    /// Whether there is room for a model. A model that is not known to be too large is tried.
    pub(in crate::proto) fn fits(&self, seat: &Seat, model: &ModelRef) -> bool {
        planted!(self, IgnoreMemory)
            || self.room(seat, &[model]).is_none_or(|room| self.bytes(seat, model) <= room)
    }

    /// Whether a device is about to have room for a model that it does not have: other models have
    /// been told to go.
    pub(in crate::proto) fn clears_for(&self, seat: &Seat, model: &ModelRef) -> bool {
        let goes = |state: &ModelState| matches!(state, ModelState::Going { .. });
        let going = seat.models.iter().filter(|(_, state)| goes(state));
        let going: Vec<&ModelRef> = going.map(|(model, _)| model).collect();
        if going.is_empty() || seat.promised.is_some() || !seat.models.get(model).is_none_or(goes) {
            return false;
        }
        self.room(seat, &going).is_none_or(|room| self.bytes(seat, model) <= room)
    }

    /// Whether any device is about to have room for a model.
    pub(in crate::proto) fn room_comes(&self, model: &ModelRef) -> bool {
        self.fleet.ready_seats().any(|(_, seat)| self.clears_for(seat, model))
    }

    /// Why a device can never hold a model, however empty it is.
    pub(in crate::proto) fn never_fits(&self, seat: &Seat, model: &ModelRef) -> Option<ExecError> {
        let (total, bytes) = (seat.status.vram_total_bytes?, self.bytes(seat, model));
        let device = &seat.status.device;
        (bytes > total).then(|| {
            let message = format!("it takes {bytes} bytes, device {device} has {total} for models");
            ExecError::unavailable(message)
        })
    }

    /// Whether a model that a device could not hold may get more room there.
    pub(in crate::proto) fn may_get_room(&self, seat: &Seat, error: &ExecError) -> bool {
        let others = seat.models.values().any(|state| !matches!(state, ModelState::Failed(_)));
        let unavailable = error.kind == ExecErrorKind::Unavailable;
        unavailable && seat.status.vram_total_bytes.is_some() && (others || seat.unsure > 0)
    }
}
