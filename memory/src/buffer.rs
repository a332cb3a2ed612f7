//! Host memory aligned for the widest vector loads and for device transfers.

pub(crate) mod block;
pub(crate) mod region;

pub use block::ALIGNMENT;

use crate::error::{Error, Result};
use crate::pool::idle::Shared;
use block::Block;
use region::Region;
use std::fs::File;
use std::ptr::NonNull;
use std::sync::Weak;

/// An owned, initialised, 64-byte-aligned block of host memory.
///
/// A buffer from a [`crate::Pool`] or a [`crate::Arena`] returns there when it is dropped.
#[derive(Debug)]
pub struct Buffer {
    store: Store,
    len: usize,
}

/// The owner of a buffer's bytes.
#[derive(Debug)]
enum Store {
    Empty,
    Block(Block, Weak<Shared>),
    Region(Region),
}

impl Buffer {
    /// Allocates `len` zero bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the host refuses, or has less memory free.
    pub fn zeroed(len: usize) -> Result<Self> {
        if len == 0 {
            return Ok(Self { store: Store::Empty, len });
        }
        Ok(Self { store: Store::Block(Block::zeroed(len)?, Weak::new()), len })
    }

    /// The first `len` bytes of a block that returns to `home`; `len` is at most its capacity.
    pub(crate) fn pooled(block: Block, len: usize, home: Weak<Shared>) -> Self {
        debug_assert!(len <= block.capacity());
        Self { len: len.min(block.capacity()), store: Store::Block(block, home) }
    }

    /// The `len` bytes of a range of an arena.
    pub(crate) fn in_arena(region: Region, len: usize) -> Self {
        Self { store: Store::Region(region), len }
    }

    /// Maps `len` bytes of a file from `offset` on, which is a multiple of the system's page size.
    /// Writes to them do not reach the file.
    ///
    /// # Safety
    /// No program may write to that part of the file, or truncate it, while the buffer lives.
    pub(crate) unsafe fn mapped(file: &File, offset: usize, len: usize) -> Result<Self> {
        if len == 0 {
            return Self::zeroed(0);
        }
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        let mut options = memmap2::MmapOptions::new();
        // SAFETY: the caller promises that the bytes do not change.
        let map = unsafe { options.offset(offset).len(len).map_copy(file) };
        let block = Block::of_map(map.map_err(|error| Error::spill(&error))?);
        Ok(Self { store: Store::Block(block, Weak::new()), len })
    }

    /// Whether the bytes are a range of an arena, which they keep alive.
    pub(crate) fn is_in_arena(&self) -> bool {
        matches!(self.store, Store::Region(_))
    }

    /// The first byte; `None` when there is none.
    fn start(&self) -> Option<NonNull<u8>> {
        match &self.store {
            Store::Empty => None,
            Store::Block(block, _) => Some(block.start()),
            Store::Region(region) => Some(region.start()),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Store::Block(block, home) = std::mem::replace(&mut self.store, Store::Empty)
            && let Some(home) = home.upgrade()
        {
            home.put(block);
        }
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self.start() {
            // SAFETY: a block has `capacity >= len` initialised bytes while it lives. A region has
            // `len` bytes of a block that lives as long, and no other region has them.
            Some(start) => unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len) },
            None => &[],
        }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self.start() {
            // SAFETY: as for `deref`, and `&mut self` makes the access exclusive.
            Some(start) => unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.len) },
            None => &mut [],
        }
    }
}
