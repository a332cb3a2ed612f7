//! A buffer in the memory of a Vulkan device.

use super::memory::Block;
use super::pool::Home;
use super::shared::Shared;
use crate::buffer::{Buffer, range, refuse_unaligned};
use crate::error::{Error, Result};
use std::any::Any;
use std::sync::Arc;

/// A block of memory, or a part of one.
#[derive(Debug)]
pub(super) struct VkBuffer {
    pub(super) block: Arc<Block>,
    /// The first byte in the block.
    pub(super) start: usize,
    bytes: usize,
}

impl VkBuffer {
    /// Allocates `bytes` bytes.
    pub(super) fn new(shared: &Arc<Shared>, bytes: usize) -> Result<Self> {
        Ok(Self { block: Block::new(shared, Home::Device, bytes)?, start: 0, bytes })
    }

    /// The Vulkan buffer behind `buffer`, if it was made by this opened device.
    pub(super) fn of<'a>(buffer: &'a dyn Buffer, shared: &Arc<Shared>) -> Result<&'a Self> {
        buffer
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| Arc::ptr_eq(&own.block.shared, shared))
            .ok_or(Error::Foreign { what: "buffer", device: shared.id })
    }
}

impl Buffer for VkBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn slice(self: Arc<Self>, offset: usize, bytes: usize) -> Result<Arc<dyn Buffer>> {
        range(offset, bytes, self.bytes)?;
        let start = self.start + offset;
        refuse_unaligned(start, self.block.shared.caps.alignment_bytes as usize)?;
        Ok(Arc::new(Self { block: Arc::clone(&self.block), start, bytes }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
