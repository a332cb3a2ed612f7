//! A block of memory whose ranges belong to different buffers.

use super::{ALIGNMENT, Buffer};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A buffer that is read and written only in parts, each part by its owner.
#[derive(Debug)]
struct Memory(Buffer);

impl Memory {
    /// The length in bytes, read without a reference to the bytes, which regions may be writing.
    fn len(&self) -> usize {
        self.0.len
    }

    /// A pointer to the byte at `offset`, which is less than the length: dangling for an empty
    /// buffer.
    fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.0.len);
        match self.0.start() {
            // SAFETY: the buffer has `len` bytes from its start on, and the offset is within them.
            Some(start) => unsafe { start.add(offset.min(self.0.len)) },
            None => NonNull::dangling(),
        }
    }
}

/// A block of memory and its live ranges, of which no two overlap.
#[derive(Debug)]
pub(crate) struct Regions {
    block: Memory,
    /// Start and end of each live range.
    taken: Mutex<BTreeMap<usize, usize>>,
}

impl Regions {
    /// The memory of a buffer, without live ranges.
    pub(crate) fn new(block: Buffer) -> Self {
        Self { block: Memory(block), taken: Mutex::default() }
    }

    /// The `len` bytes from `offset` on, unless they are outside the block, unaligned, or partly in
    /// use.
    pub(crate) fn take(self: &Arc<Self>, offset: usize, len: usize) -> Option<Region> {
        let end = offset.checked_add(len).filter(|&end| end <= self.block.len())?;
        if len == 0 || !offset.is_multiple_of(ALIGNMENT) {
            return None;
        }
        let mut taken = self.lock();
        // Ranges do not overlap, so the last that begins before `end` ends last.
        if taken.range(..end).next_back().is_some_and(|(_, &busy)| busy > offset) {
            return None;
        }
        taken.insert(offset, end);
        drop(taken);
        Some(Region { all: Arc::clone(self), offset })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A range that belongs to one buffer.
#[derive(Debug)]
pub(crate) struct Region {
    all: Arc<Regions>,
    offset: usize,
}

impl Region {
    /// The start of the range. The bytes of the range belong only to this region until it is
    /// dropped.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.all.block.at(self.offset)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.all.lock().remove(&self.offset);
    }
}
