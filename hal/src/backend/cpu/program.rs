//! The processor runs compiled Rust, no programs, and says so.

use crate::error::Error;
use crate::id::DeviceId;

/// The refusal of every program.
pub(super) fn refusal() -> Error {
    let reason = "the processor runs the operators' Rust bodies".to_owned();
    Error::Unsupported { device: DeviceId::CPU, what: "programs", reason }
}
