//! Tensors in a device's memory.

use crate::error::{Error, Result};
use lgp_hal::Buffer;
use lgp_memory::{DType, Shape};
use std::sync::Arc;

/// A tensor in a device's memory. Clones share the memory.
#[derive(Debug, Clone)]
pub struct DeviceTensor {
    dtype: DType,
    shape: Shape,
    buffer: Arc<dyn Buffer>,
}

impl DeviceTensor {
    /// A tensor on a buffer of at least its bytes.
    pub(super) fn new(dtype: DType, shape: Shape, buffer: Arc<dyn Buffer>) -> Self {
        Self { dtype, shape, buffer }
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dimensions.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The memory, which is not handed out again while a handle of it exists.
    pub(crate) fn buffer(&self) -> &Arc<dyn Buffer> {
        &self.buffer
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    /// [`lgp_memory::Error::TooLarge`], or a shape of another number of elements.
    pub fn reshaped(&self, dtype: DType, shape: Shape) -> Result<Self> {
        let bytes = shape.byte_len(dtype)?;
        if bytes != self.shape.byte_len(self.dtype)? {
            let message = format!("{:?} has not the elements of {:?}", shape, self.shape);
            return Err(Error::invalid(message).of("Reshape"));
        }
        Ok(Self { dtype, shape, buffer: Arc::clone(&self.buffer) })
    }
}
