//! Whether an opened device still works. Drivers answer the calls after a loss with whatever
//! comes to their minds; here each gets the same answer.

use crate::error::{Error, Result};
use std::sync::OnceLock;

/// Unset as long as the device lives, then what ended it.
#[derive(Debug, Default)]
pub(crate) struct Life(OnceLock<Error>);

impl Life {
    /// Refuses what a lost device is asked.
    pub(crate) fn check(&self) -> Result<()> {
        self.0.get().map_or(Ok(()), |end| Err(end.clone()))
    }

    /// Ends it, if it has not ended yet; answers what did.
    pub(crate) fn end(&self, with: Error) -> Error {
        self.0.get_or_init(|| with).clone()
    }
}
