//! Buffers in host memory, for backends whose device memory is the host's. Their queues execute
//! each command at once.

mod queue;
mod record;

pub(crate) use queue::Host;
pub use record::Command;

use crate::buffer::{Buffer, range, refuse_overlap, refuse_unaligned};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::id::DeviceId;
use crate::pinned::{Pinned, Transfer};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// A cache line, so that buffers start on one.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; HostBuffer::ALIGNMENT]);

/// Enough zeroed lines for `bytes` bytes.
fn lines(device: DeviceId, bytes: usize) -> Result<Vec<Line>> {
    let count = bytes.div_ceil(HostBuffer::ALIGNMENT);
    let mut lines = Vec::new();
    lines.try_reserve_exact(count).map_err(|error| {
        let reason = error.to_string();
        Error::OutOfMemory { device, bytes, reason }
    })?;
    lines.resize(count, bytemuck::Zeroable::zeroed());
    Ok(lines)
}

/// Zeroed bytes in host memory, on a cache line.
pub(crate) struct HostBuffer {
    device: DeviceId,
    /// The offset in the lines, which slices share with the buffer that they come from.
    start: usize,
    bytes: usize,
    lines: Arc<RwLock<Vec<Line>>>,
}

impl HostBuffer {
    /// The alignment in bytes.
    pub(crate) const ALIGNMENT: usize = 64;

    /// Allocates `bytes` bytes for `device`, at most `bytes_max`.
    fn new(device: DeviceId, bytes: usize, bytes_max: Option<u64>) -> Result<Self> {
        let refuse = |reason: String| Error::OutOfMemory { device, bytes, reason };
        if let Some(limit) = bytes_max.filter(|&limit| bytes as u64 > limit) {
            return Err(refuse(format!("the host has {limit} bytes")));
        }
        let lines = lines(device, bytes)?;
        Ok(Self { device, start: 0, bytes, lines: Arc::new(RwLock::new(lines)) })
    }

    /// The host buffer behind `buffer`, if it is one of `device`.
    fn of(buffer: &dyn Buffer, device: DeviceId) -> Result<&Self> {
        buffer
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| own.device == device)
            .ok_or(Error::Foreign { what: "buffer", device })
    }

    // Bytes have no invalid state, so a panic of another thread that held the lock does not matter.
    fn shared(&self) -> RwLockReadGuard<'_, Vec<Line>> {
        self.lines.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, Vec<Line>> {
        self.lines.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The range of the lines that is `bytes` bytes from `offset` on.
    fn at(&self, offset: usize, bytes: usize) -> Result<std::ops::Range<usize>> {
        let own = range(offset, bytes, self.bytes)?;
        Ok(self.start + own.start..self.start + own.end)
    }

    /// Stores `data` at `offset`.
    pub(crate) fn write(&self, offset: usize, data: &[u8]) -> Result<()> {
        let at = self.at(offset, data.len())?;
        bytemuck::cast_slice_mut::<_, u8>(&mut self.exclusive())[at].copy_from_slice(data);
        Ok(())
    }

    /// Fills `out` from `offset` on.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let at = self.at(offset, out.len())?;
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
        let source = self.at(offset, bytes)?;
        let destination = target.at(target_offset, bytes)?;
        if Arc::ptr_eq(&self.lines, &target.lines) {
            refuse_overlap(source.start, destination.start, bytes)?;
            bytemuck::cast_slice_mut::<_, u8>(&mut self.exclusive())
                .copy_within(source, destination.start);
            return Ok(());
        }
        // Copies through a temporary: two threads that copy in opposite directions must not each
        // hold the lock that the other needs.
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

    fn slice(self: Arc<Self>, offset: usize, bytes: usize) -> Result<Arc<dyn Buffer>> {
        refuse_unaligned(offset, Self::ALIGNMENT)?;
        let start = self.at(offset, bytes)?.start;
        Ok(Arc::new(Self { device: self.device, start, bytes, lines: Arc::clone(&self.lines) }))
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

/// The lines of a block; dropping this frees them.
struct Lines(NonNull<[Line]>);

// SAFETY: `Lines` owns its memory, as a `Box` does.
unsafe impl Send for Lines {}
// SAFETY: as above; a shared reference gives no access.
unsafe impl Sync for Lines {}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box and is not used again.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A block of plain host memory.
pub(crate) fn pinned(device: DeviceId, bytes: usize) -> Result<Pinned> {
    let lines = Box::leak(lines(device, bytes)?.into_boxed_slice());
    let owner = Lines(NonNull::from(lines));
    let start = owner.0.cast();
    // SAFETY: the lines have at least `bytes` bytes, live as long as their owner, and have no other
    // references.
    Ok(unsafe { Pinned::new(start, bytes, Box::new(owner)) })
}

/// The first `bytes` bytes of a block.
pub(crate) fn part(block: &mut Pinned, bytes: usize) -> Result<&mut [u8]> {
    let part = range(0, bytes, block.len())?;
    Ok(&mut block[part])
}

/// A point in a queue that executes each command at once: the point has always passed.
#[derive(Debug)]
pub(crate) struct HostEvent {
    device: DeviceId,
    at: Instant,
}

impl HostEvent {
    /// The present.
    pub(crate) fn now(device: DeviceId) -> Self {
        Self { device, at: Instant::now() }
    }

    /// A finished transfer of `block`.
    pub(crate) fn over(device: DeviceId, block: Pinned) -> Transfer {
        Transfer::new(block, Arc::new(Self::now(device)))
    }

    /// The host event behind `event`, if it is one of `device`.
    pub(crate) fn of(event: &dyn Event, device: DeviceId) -> Result<&Self> {
        event
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| own.device == device)
            .ok_or(Error::Foreign { what: "event", device })
    }
}

impl Event for HostEvent {
    fn is_done(&self) -> Result<bool> {
        Ok(true)
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn since(&self, earlier: &dyn Event) -> Result<Option<Duration>> {
        let earlier = Self::of(earlier, self.device)?;
        Ok(Some(self.at.saturating_duration_since(earlier.at)))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
