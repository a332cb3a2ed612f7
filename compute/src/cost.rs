//! The work and the memory traffic of an operator, the two sides of a roofline.

use crate::op::ValueInfo;

/// Work and traffic of one run of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Multiply-adds: half as many as floating-point operations.
    pub multiply_adds: u64,
    /// Bytes of the inputs, each read once, and of the weights that the operator holds.
    pub bytes_read: u64,
    /// Bytes of the outputs.
    pub bytes_written: u64,
}

impl Cost {
    /// The least time in seconds on a machine that multiplies and adds `rate` times and moves
    /// `bandwidth` bytes a second.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn seconds(&self, rate: f64, bandwidth: f64) -> f64 {
        let bytes = (self.bytes_read + self.bytes_written) as f64;
        (self.multiply_adds as f64 / rate).max(bytes / bandwidth)
    }
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            multiply_adds: self.multiply_adds.saturating_add(other.multiply_adds),
            bytes_read: self.bytes_read.saturating_add(other.bytes_read),
            bytes_written: self.bytes_written.saturating_add(other.bytes_written),
        }
    }
}

/// Elements of a value; 0 while its shape is unknown.
pub(crate) fn elements(info: &ValueInfo) -> u64 {
    let shape = info.ty.concrete_shape();
    shape.and_then(|shape| shape.elements().ok()).map_or(0, |n| n as u64)
}
