//! Host memory aligned for the widest vector loads and for device transfers.

use crate::error::{Error, Result};
use crate::pool::Shared;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Weak;

/// Alignment of every [`Buffer`] in bytes: a cache line, and an AVX-512 register.
pub const ALIGNMENT: usize = 64;

/// An owned, initialised, 64-byte-aligned block of host memory.
///
/// A buffer that came from a [`crate::Pool`] goes back there when it is dropped.
#[derive(Debug)]
pub struct Buffer {
    /// `None` only for an empty buffer.
    block: Option<Block>,
    len: usize,
    home: Weak<Shared>,
}

impl Buffer {
    /// Allocates `len` zero bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the host refuses.
    pub fn zeroed(len: usize) -> Result<Self> {
        let block = if len == 0 { None } else { Some(Block::zeroed(len)?) };
        Ok(Self { block, len, home: Weak::new() })
    }

    /// The first `len` bytes of a block that returns to `home`; `len` is at most its capacity.
    pub(crate) fn pooled(block: Block, len: usize, home: Weak<Shared>) -> Self {
        debug_assert!(len <= block.capacity);
        Self { len: len.min(block.capacity), block: Some(block), home }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take()
            && let Some(home) = self.home.upgrade()
        {
            home.put(block);
        }
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.block {
            // SAFETY: a block has `capacity >= len` initialised bytes for as long as it lives.
            Some(block) => unsafe { std::slice::from_raw_parts(block.ptr.as_ptr(), self.len) },
            None => &[],
        }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &self.block {
            // SAFETY: as for `deref`, and `&mut self` makes the access exclusive.
            Some(block) => unsafe { std::slice::from_raw_parts_mut(block.ptr.as_ptr(), self.len) },
            None => &mut [],
        }
    }
}

/// A raw allocation of initialised bytes.
#[derive(Debug)]
pub(crate) struct Block {
    ptr: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a Block owns its memory exclusively, like a Box<[u8]>.
unsafe impl Send for Block {}
// SAFETY: shared access only reads.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates zero bytes; `capacity` is not 0.
    pub(crate) fn zeroed(capacity: usize) -> Result<Self> {
        let oom = Error::OutOfMemory { bytes: capacity };
        let Some(layout) = Self::layout(capacity) else { return Err(oom) };
        // SAFETY: the layout's size is not zero.
        let ptr = unsafe { alloc_zeroed(layout) };
        Ok(Self { ptr: NonNull::new(ptr).ok_or(oom)?, capacity })
    }

    /// Bytes that this block can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    fn layout(capacity: usize) -> Option<Layout> {
        if capacity == 0 { None } else { Layout::from_size_align(capacity, ALIGNMENT).ok() }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.capacity) {
            // SAFETY: `ptr` came from `alloc_zeroed` with this same layout.
            unsafe { dealloc(self.ptr.as_ptr(), layout) };
        }
    }
}
