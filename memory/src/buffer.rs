//! Host memory aligned for the widest vector loads and for device transfers.

use crate::error::{Error, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment of every [`Buffer`] in bytes: a cache line, and an AVX-512 register.
pub const ALIGNMENT: usize = 64;

/// An owned, initialised, 64-byte-aligned block of host memory.
#[derive(Debug)]
pub struct Buffer {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: a Buffer owns its memory exclusively, like a Box<[u8]>.
unsafe impl Send for Buffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `len` zero bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the host refuses.
    pub fn zeroed(len: usize) -> Result<Self> {
        if len == 0 {
            return Ok(Self { ptr: NonNull::<Line>::dangling().cast(), len });
        }
        let layout = Self::layout(len)?;
        // SAFETY: the layout's size is not zero.
        let ptr = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(ptr).ok_or(Error::OutOfMemory { bytes: len })?;
        Ok(Self { ptr, len })
    }

    fn layout(len: usize) -> Result<Layout> {
        Layout::from_size_align(len, ALIGNMENT).map_err(|_| Error::OutOfMemory { bytes: len })
    }
}

/// Gives an empty buffer a dangling pointer of the promised alignment.
#[repr(align(64))]
struct Line;

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.len > 0
            && let Ok(layout) = Self::layout(self.len)
        {
            // SAFETY: `ptr` came from `alloc_zeroed` with this same layout.
            unsafe { dealloc(self.ptr.as_ptr(), layout) };
        }
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` is valid for `len` initialised bytes for as long as self lives.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}
