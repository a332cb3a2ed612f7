//! Bytes in host memory behind the traits, for the backends whose memory that is. Their queues do
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
    /// Where it begins in the lines: a slice shares them with the buffer it was taken of.
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

    // Bytes have no broken state, so a panic of another thread while it held the lock is no
    // reason to refuse them.
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

/// The lines of a block, which are freed with this.
struct Lines(NonNull<[Line]>);

// SAFETY: it owns the lines as a `Box` would.
unsafe impl Send for Lines {}
// SAFETY: as above; nothing is done through a shared reference.
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
    // SAFETY: there are lines for that many bytes, which live as long as their owner, and nothing
    // else refers to them.
    Ok(unsafe { Pinned::new(start, bytes, Box::new(owner)) })
}

/// The first `bytes` bytes of a block.
pub(crate) fn part(block: &mut Pinned, bytes: usize) -> Result<&mut [u8]> {
    let part = range(0, bytes, block.len())?;
    Ok(&mut block[part])
}

/// A point in a queue that does everything at once: it is in the past.
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

    /// A transfer of `block` that is over.
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
