//! The recording device has no programs, and says so.

use crate::error::Error;
use crate::id::DeviceId;

/// The refusal of every program.
pub(super) fn refusal() -> Error {
    let reason = "the recording device calculates nothing".to_owned();
    Error::Unsupported { device: DeviceId::NULL, what: "programs", reason }
}
