//! Bytes in host memory behind the buffer trait, for the backends whose memory that is.

use crate::buffer::{Buffer, range, refuse_overlap};
use crate::error::{Error, Result};
use crate::id::DeviceId;
use std::any::Any;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A cache line, so that buffers start on one.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; HostBuffer::ALIGNMENT]);

/// Zeroed bytes in host memory, on a cache line.
pub(crate) struct HostBuffer {
    device: DeviceId,
    bytes: usize,
    lines: RwLock<Vec<Line>>,
}

impl HostBuffer {
    /// The alignment in bytes.
    pub(crate) const ALIGNMENT: usize = 64;

    /// Allocates `bytes` bytes for `device`, at most `bytes_max`.
    pub(crate) fn new(device: DeviceId, bytes: usize, bytes_max: Option<u64>) -> Result<Self> {
        let refuse = |reason: String| Error::OutOfMemory { device, bytes, reason };
        if let Some(limit) = bytes_max.filter(|&limit| bytes as u64 > limit) {
            return Err(refuse(format!("the host has {limit} bytes")));
        }
        let count = bytes.div_ceil(Self::ALIGNMENT);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).map_err(|error| refuse(error.to_string()))?;
        lines.resize(count, bytemuck::Zeroable::zeroed());
        Ok(Self { device, bytes, lines: RwLock::new(lines) })
    }

    /// The host buffer behind `buffer`, if it is one of `device`.
    pub(crate) fn of(buffer: &dyn Buffer, device: DeviceId) -> Result<&Self> {
        buffer
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| own.device == device)
            .ok_or(Error::Foreign { what: "buffer", device })
    }

    // Bytes have no broken state, so a panic of another thread while it held the lock is no
    // reason to refuse them.
    fn shared(&self) -> RwLockReadGuard<'_, Vec<Line>> {
        self.lines.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, Vec<Line>> {
        self.lines.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores `data` at `offset`.
    pub(crate) fn write(&self, offset: usize, data: &[u8]) -> Result<()> {
        let at = range(offset, data.len(), self.bytes)?;
        bytemuck::cast_slice_mut::<_, u8>(&mut self.exclusive())[at].copy_from_slice(data);
        Ok(())
    }

    /// Fills `out` from `offset` on.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let at = range(offset, out.len(), self.bytes)?;
        out.copy_from_slice(&bytemuck::cast_slice::<_, u8>(&self.shared())[at]);
        Ok(())
    }

    /// Copies to `target`, which may be this buffer.
    pub(crate) fn copy(
        &self,
        offset: usize,
        target: &Self,
        target_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let source = range(offset, bytes, self.bytes)?;
        let destination = range(target_offset, bytes, target.bytes)?;
        if std::ptr::eq(self, target) {
            refuse_overlap(offset, target_offset, bytes)?;
            bytemuck::cast_slice_mut::<_, u8>(&mut self.exclusive())
                .copy_within(source, target_offset);
            return Ok(());
        }
        // Through a copy of the bytes: two threads that copy in opposite directions must not
        // each hold the lock that the other needs.
        let data = bytemuck::cast_slice::<_, u8>(&self.shared())[source].to_vec();
        bytemuck::cast_slice_mut::<_, u8>(&mut target.exclusive())[destination]
            .copy_from_slice(&data);
        Ok(())
    }
}

impl Buffer for HostBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl std::fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostBuffer")
            .field("device", &self.device)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
