//! Checks of a launch that every backend makes before its driver sees it.

use crate::error::{Error, Result};
use crate::program::Launch;

impl Launch<'_> {
    /// The refusal of this launch.
    pub(crate) fn refusal(&self, reason: impl Into<String>) -> Error {
        Error::Launch { kernel: self.kernel.to_owned(), reason: reason.into() }
    }

    /// Refuses a grid that is empty, that its work-groups do not divide, or whose work-groups have
    /// more than `most` work-items.
    pub(crate) fn check_grid(&self, most: usize) -> Result<()> {
        let Self { global, local, .. } = self;
        if global.contains(&0) {
            return Err(self.refusal(format!("the grid {global:?} is empty in a dimension")));
        }
        let Some(local) = local else { return Ok(()) };
        let divides = local
            .iter()
            .zip(global)
            .all(|(&local, &global)| local > 0 && global.is_multiple_of(local));
        if !divides {
            let reason = format!("work-groups of {local:?} do not divide the grid {global:?}");
            return Err(self.refusal(reason));
        }
        let items = local.iter().try_fold(1usize, |items, &side| items.checked_mul(side));
        if items.is_none_or(|items| items > most) {
            let reason = format!("work-groups of {local:?} exceed the device's {most} items");
            return Err(self.refusal(reason));
        }
        Ok(())
    }
}
