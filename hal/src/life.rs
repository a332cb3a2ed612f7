//! Whether an opened device still works. After a loss drivers return arbitrary errors; here every
//! later call returns the error of the loss.

use crate::error::{Error, Result};
use std::sync::OnceLock;

/// Unset while the device works, then the error that ended it.
#[derive(Debug, Default)]
pub(crate) struct Life(OnceLock<Error>);

impl Life {
    /// Fails if the device is lost.
    pub(crate) fn check(&self) -> Result<()> {
        self.0.get().map_or(Ok(()), |end| Err(end.clone()))
    }

    /// Marks the device as lost, unless it is already; returns the error of the first loss.
    pub(crate) fn end(&self, with: Error) -> Error {
        self.0.get_or_init(|| with).clone()
    }
}
