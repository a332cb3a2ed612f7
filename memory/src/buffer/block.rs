//! Raw blocks of host memory, and how the host grants them.

use crate::error::{Error, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Alignment of every [`crate::Buffer`] in bytes: a cache line, and an AVX-512 register.
pub const ALIGNMENT: usize = 64;

/// Blocks of at least this size get their own mapping, which huge pages can back. Kernels stride
/// through weights and activations and miss page tables as well as caches, and a fresh block costs
/// one fault per page.
const MAPPED_BYTES_MIN: usize = 2 * HUGE_PAGE;
/// The huge pages of x86-64, and of AArch64 with pages of 4 KiB. On other systems this alignment is
/// harmless.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes that blocks may take before the system is asked again for its free memory. A block must
/// leave as many bytes free as it takes, up to this number.
const STEP: usize = 64 << 20;
/// Bytes that may still be taken before the system is asked again.
static GRANTED: AtomicUsize = AtomicUsize::new(0);

/// Whether `bytes` more bytes fit into the free memory. The system promises more memory than it
/// has, and kills a process that uses it; a request can determine how large a value becomes. Memory
/// that was promised but is not used yet counts as free.
fn is_free(bytes: usize) -> bool {
    let take = |granted: usize| granted.checked_sub(bytes);
    if GRANTED.fetch_update(Relaxed, Relaxed, take).is_ok() {
        return true;
    }
    let free = lgp_hal::host_free_bytes().unwrap_or(u64::MAX);
    let free = usize::try_from(free).unwrap_or(usize::MAX);
    let fits = free >= bytes.saturating_add(bytes.min(STEP));
    if fits {
        GRANTED.store(STEP.min(free / 2).saturating_sub(bytes), Relaxed);
    }
    fits
}

/// A raw allocation of initialised bytes.
#[derive(Debug)]
pub(crate) struct Block {
    /// The first aligned byte of the allocation.
    ptr: NonNull<u8>,
    source: Source,
    capacity: usize,
}

/// Where a block's memory comes from.
#[derive(Debug)]
enum Source {
    /// The allocator's pointer.
    Heap(NonNull<u8>),
    /// Kept only for its `Drop`.
    Mapped { _map: memmap2::MmapMut },
}

// SAFETY: a Block owns its memory exclusively, like a Box<[u8]>.
unsafe impl Send for Block {}
// SAFETY: a shared Block only gives its address and size. Its users make sure that accesses behind
// the address are exclusive: a Buffer by borrowing, an arena by handing out no byte twice.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates zero bytes; `capacity` is not 0.
    pub(crate) fn zeroed(capacity: usize) -> Result<Self> {
        if !is_free(capacity) {
            return Err(Error::OutOfMemory { bytes: capacity });
        }
        if cfg!(target_os = "linux") && capacity >= MAPPED_BYTES_MIN {
            Self::mapped(capacity)
        } else {
            Self::on_heap(capacity)
        }
    }

    fn on_heap(capacity: usize) -> Result<Self> {
        let oom = Error::OutOfMemory { bytes: capacity };
        let Some(layout) = Self::layout(capacity) else { return Err(oom) };
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(oom)?;
        let skip = base.align_offset(ALIGNMENT).min(ALIGNMENT);
        // SAFETY: the allocation is longer than the capacity by `ALIGNMENT`.
        let ptr = unsafe { base.add(skip) };
        Ok(Self { ptr, source: Source::Heap(base), capacity })
    }

    /// Maps pages, and requests huge pages for the whole ones inside. The bytes after the last huge
    /// page take memory only when they are used.
    fn mapped(capacity: usize) -> Result<Self> {
        let oom = || Error::OutOfMemory { bytes: capacity };
        let room = capacity.checked_add(HUGE_PAGE).ok_or_else(oom)?;
        let mut map = memmap2::MmapMut::map_anon(room).map_err(|_| oom())?;
        let start = NonNull::from(&mut map[..]).cast::<u8>();
        let skip = start.align_offset(HUGE_PAGE).min(HUGE_PAGE);
        #[cfg(target_os = "linux")]
        {
            let whole = capacity - capacity % HUGE_PAGE;
            // A system without huge pages refuses, and the block works with small ones.
            let _ = map.advise_range(memmap2::Advice::HugePage, skip, whole);
        }
        // SAFETY: the mapping is longer than the capacity by a huge page.
        let ptr = unsafe { start.add(skip) };
        Ok(Self { ptr, source: Source::Mapped { _map: map }, capacity })
    }

    /// The bytes of a mapping.
    pub(super) fn of_map(mut map: memmap2::MmapMut) -> Self {
        let ptr = NonNull::from(&mut map[..]).cast();
        let capacity = map.len();
        Self { ptr, source: Source::Mapped { _map: map }, capacity }
    }

    /// The first aligned byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Bytes that this block can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// More than the needed size, at an alignment that the allocator has anyway. For a larger
    /// alignment the allocator would write the zeros itself, while fresh pages of the system are
    /// zero already and take no memory before they are used.
    fn layout(capacity: usize) -> Option<Layout> {
        let size = capacity.checked_add(ALIGNMENT).filter(|_| capacity > 0)?;
        Layout::from_size_align(size, 8).ok()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let (Source::Heap(base), Some(layout)) = (&self.source, Self::layout(self.capacity)) {
            // SAFETY: `base` came from `alloc_zeroed` with this same layout.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;

    #[test]
    fn blocks_are_zero_aligned_and_as_large_as_asked() {
        for len in [1, 64, MAPPED_BYTES_MIN - 1, MAPPED_BYTES_MIN, 5 * HUGE_PAGE / 2 + 7] {
            let mut buffer = Buffer::zeroed(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert!(buffer.as_ptr().addr().is_multiple_of(ALIGNMENT), "{len}");
            assert!(buffer.iter().all(|&byte| byte == 0), "{len}");
            buffer.fill(7);
            assert!(buffer.iter().all(|&byte| byte == 7), "{len}");
        }
        assert_eq!(
            Buffer::zeroed(usize::MAX).err(),
            Some(Error::OutOfMemory { bytes: usize::MAX })
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn more_than_is_free_is_refused_although_the_system_would_promise_it() {
        let free = lgp_hal::host_free_bytes().expect("the system says it");
        let bytes = usize::try_from(free).unwrap() / 4 * 5;
        assert_eq!(Buffer::zeroed(bytes).err(), Some(Error::OutOfMemory { bytes }));
        assert_eq!(Buffer::zeroed(1 << 20).map(|buffer| buffer.len()), Ok(1 << 20));
    }
}
