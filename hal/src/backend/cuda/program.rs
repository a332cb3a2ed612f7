//! The CUDA backend moves bytes and compiles nothing yet, and says so.

use crate::error::Error;
use crate::id::DeviceId;

/// The refusal of every program.
pub(super) fn refusal(device: DeviceId) -> Error {
    let reason = "this version does not compile kernels for CUDA".to_owned();
    Error::Unsupported { device, what: "programs", reason }
}
