//! Blocks of a device pool: fixed and relocatable ones.

use super::Shared;
use crate::error::{Error, Result};
use crate::log::MemoryEvent;
use crate::segments::RangeId;
use lgp_hal::Buffer;
use std::any::Any;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A range that returns to its pool when the lease is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) pool: Arc<Shared>,
    pub(super) id: RangeId,
    pub(super) bytes: usize,
}

impl Lease {
    /// The range as a buffer of its own, and its offset in the segment.
    fn slice(&self) -> Result<(Arc<dyn Buffer>, usize)> {
        let state = self.pool.lock();
        let place = state.segments.place(self.id)?;
        let segment = state.segments.segment(place.segment);
        let segment = segment.ok_or(Error::NoSuchRange { serial: self.id.serial() })?;
        Ok((Arc::clone(segment).slice(place.offset, self.bytes)?, place.offset))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.relocatable.remove(&self.id);
        // Only the lease frees its range, and only once.
        if state.segments.free(self.id).is_ok() {
            state.note(MemoryEvent::Freed { range: self.id.serial() });
        }
    }
}

/// A block of a device's memory. Dropping it returns it to its pool.
#[derive(Debug)]
pub struct DeviceBlock {
    // Dropped before the lease: the buffer must be released before the range is handed out again.
    buffer: Arc<dyn Buffer>,
    offset: usize,
    lease: Lease,
}

impl DeviceBlock {
    pub(super) fn new(lease: Lease) -> Result<Self> {
        let (buffer, offset) = lease.slice()?;
        Ok(Self { buffer, offset, lease })
    }

    /// The block as a buffer of its own, of [`Self::bytes`] bytes from byte 0 on.
    #[must_use]
    pub fn buffer(&self) -> &dyn Buffer {
        &*self.buffer
    }

    /// The block as a buffer that frees the block with its last handle; slices are handles too.
    #[must_use]
    pub fn into_buffer(self) -> Arc<dyn Buffer> {
        let buffer = Arc::clone(&self.buffer);
        Arc::new(Leased { buffer, block: Arc::new(self) })
    }

    /// The block's offset in its segment.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The requested size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lease.bytes
    }

    /// Lets [`super::DevicePool::defragment`] move the block whenever it is not pinned.
    #[must_use]
    pub fn relocatable(self) -> RelocatableBlock {
        let Self { buffer, offset, lease } = self;
        let (pool, id, bytes) = (Arc::clone(&lease.pool), lease.id, lease.bytes);
        let block = Arc::new(RwLock::new(Movable { buffer: Some((buffer, offset)), lease }));
        pool.lock().relocatable.insert(id, Arc::downgrade(&block));
        RelocatableBlock { block, bytes }
    }
}

/// A buffer, or a slice of one, that keeps its block alive.
#[derive(Debug)]
struct Leased {
    buffer: Arc<dyn Buffer>,
    block: Arc<DeviceBlock>,
}

impl Buffer for Leased {
    fn bytes(&self) -> usize {
        self.buffer.bytes()
    }

    fn slice(self: Arc<Self>, offset: usize, bytes: usize) -> lgp_hal::Result<Arc<dyn Buffer>> {
        let buffer = Arc::clone(&self.buffer).slice(offset, bytes)?;
        Ok(Arc::new(Self { buffer, block: Arc::clone(&self.block) }))
    }

    fn as_any(&self) -> &dyn Any {
        // Backends downcast to their own type.
        self.buffer.as_any()
    }
}

/// A block and its current place.
#[derive(Debug)]
pub(super) struct Movable {
    /// `None` after it may have moved, until the next pin.
    buffer: Option<(Arc<dyn Buffer>, usize)>,
    lease: Lease,
}

impl Movable {
    pub(super) fn forget_place(&mut self) {
        self.buffer = None;
    }
}

/// A block of a device's memory that may be moved while it is not pinned.
#[derive(Debug)]
pub struct RelocatableBlock {
    block: Arc<RwLock<Movable>>,
    bytes: usize,
}

impl RelocatableBlock {
    /// Pins the block to its current place until the result is dropped. Waits while blocks are
    /// being moved. Several users may pin it at once.
    ///
    /// # Errors
    /// [`Error::Device`] when the device refuses a slice.
    pub fn pin(&self) -> Result<PinnedBlock<'_>> {
        let block = self.block.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((buffer, offset)) = block.buffer.clone() {
            return Ok(PinnedBlock { buffer, offset, _block: block });
        }
        drop(block);
        let mut block = self.block.write().unwrap_or_else(PoisonError::into_inner);
        let (buffer, offset) = match block.buffer.clone() {
            Some(place) => place,
            None => block.lease.slice()?,
        };
        block.buffer = Some((Arc::clone(&buffer), offset));
        Ok(PinnedBlock { buffer, offset, _block: RwLockWriteGuard::downgrade(block) })
    }

    /// The requested size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A [`RelocatableBlock`] that cannot move.
#[derive(Debug)]
pub struct PinnedBlock<'a> {
    buffer: Arc<dyn Buffer>,
    offset: usize,
    _block: RwLockReadGuard<'a, Movable>,
}

impl PinnedBlock<'_> {
    /// As [`DeviceBlock::buffer`].
    #[must_use]
    pub fn buffer(&self) -> &dyn Buffer {
        &*self.buffer
    }

    /// Like [`Self::buffer`], as a handle. The caller must keep the pin too: the block may be moved
    /// as soon as the pin is dropped.
    #[must_use]
    pub fn handle(&self) -> Arc<dyn Buffer> {
        Arc::clone(&self.buffer)
    }

    /// As [`DeviceBlock::offset`].
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }
}
