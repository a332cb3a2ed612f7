//! Blocks of the device's memory, and of the host's for the device.

use super::hazards::Access;
use super::pool::{Chunk, Home};
use super::shared::Shared;
use crate::error::{Error, Result};
use ash::vk;
use std::ptr::NonNull;
use std::sync::Arc;

/// A part of a chunk, or a whole one. Commands in flight keep their blocks.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) shared: Arc<Shared>,
    home: Home,
    chunk: Chunk,
    is_owner: bool,
    /// The first byte in the driver's buffer.
    offset: u64,
    bytes: u64,
}

impl Block {
    /// Allocates `bytes` bytes, and a few more.
    pub(super) fn new(shared: &Arc<Shared>, home: Home, bytes: usize) -> Result<Arc<Self>> {
        let refuse = |reason: String| Error::OutOfMemory { device: shared.id, bytes, reason };
        let limit = shared.caps.allocation_bytes_max;
        if let Some(limit) = limit.filter(|&limit| bytes as u64 > limit) {
            return Err(refuse(format!("its largest buffer has {limit} bytes")));
        }
        let pool = shared.pool(home);
        let whole = (bytes.max(1) as u64)
            .checked_next_multiple_of(pool.grain)
            .ok_or_else(|| refuse("no device has so many".to_owned()))?;
        let (chunk, offset, is_owner) =
            pool.take(&shared.device, whole).map_err(shared.refused("vkAllocateMemory", bytes))?;
        let shared = Arc::clone(shared);
        Ok(Arc::new(Self { shared, home, chunk, is_owner, offset, bytes: whole }))
    }

    /// The driver's buffer.
    pub(super) fn buffer(&self) -> vk::Buffer {
        self.chunk.buffer
    }

    /// The place of the block's byte `at` in the driver's buffer.
    pub(super) fn place(&self, at: usize) -> u64 {
        self.offset + at as u64
    }

    /// The host's view of the block's first byte, if it has one.
    pub(super) fn start(&self) -> Option<NonNull<u8>> {
        let offset = usize::try_from(self.offset).ok()?;
        // SAFETY: the block lies in the chunk, all of which is mapped.
        Some(unsafe { self.chunk.start?.add(offset) })
    }

    /// The access of a command to `bytes` bytes from `at` on.
    pub(super) fn access(&self, at: usize, bytes: usize, writes: bool) -> Access {
        let start = self.place(at);
        let buffer = vk::Handle::as_raw(self.chunk.buffer);
        Access { buffer, start, end: start + bytes as u64, writes }
    }

    /// The part of the block from `at` on, as a kernel sees it: whole words, and one at least.
    pub(super) fn descriptor(&self, at: usize, bytes: usize) -> vk::DescriptorBufferInfo {
        // Nothing lies behind an end, so an empty part is bound to the block's first bytes.
        let at = if bytes == 0 { 0 } else { at };
        let range = bytes.max(4).next_multiple_of(4) as u64;
        vk::DescriptorBufferInfo { buffer: self.chunk.buffer, offset: self.place(at), range }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if !self.shared.may_free() {
            return;
        }
        match self.is_owner {
            true => self.chunk.destroy(&self.shared.device),
            false => {
                let (pool, device) = (self.shared.pool(self.home), &self.shared.device);
                pool.give(device, self.chunk.buffer, self.offset, self.bytes);
            }
        }
    }
}
