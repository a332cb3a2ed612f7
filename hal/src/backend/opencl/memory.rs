//! The driver's memory objects behind buffers and their slices.

use super::shared::Shared;
use opencl3::error_codes::ClError;
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};
use opencl3::types::cl_mem;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The most slices of one buffer that are kept for the next one who asks: more than the planned
/// values of a large model.
const KEPT_MAX: usize = 1024;

/// One memory object.
#[derive(Debug)]
pub(super) struct Memory {
    buffer: Buffer<u8>,
    /// The object's number, which no later object of the opened device gets. A handle may be that
    /// of another object later.
    pub(super) id: u64,
}

impl Memory {
    /// Allocates `bytes` bytes, which must not be 0.
    pub(super) fn allocate(shared: &Shared, bytes: usize) -> Result<Self, ClError> {
        // SAFETY: no host pointer is passed, so the driver refers to no memory of this process.
        let buffer = unsafe {
            Buffer::create(&shared.context, CL_MEM_READ_WRITE, bytes, std::ptr::null_mut())
        }?;
        Ok(Self { buffer, id: shared.next_memory() })
    }

    /// The driver's handle.
    pub(super) fn handle(&self) -> cl_mem {
        self.buffer.get()
    }
}

/// The slices of one buffer that were made, by offset and size: a model asks for the same ones in
/// each run, and to make one takes the driver some time. A slice holds its buffer's memory in the
/// driver and nothing here, so a buffer that keeps its own slices still ends.
#[derive(Debug, Default)]
pub(super) struct Slices(Mutex<HashMap<(usize, usize), Arc<Memory>>>);

impl Slices {
    /// The slice of `of`, which owns these slices, with `bytes` bytes from `start` on.
    ///
    /// # Safety
    /// The range must lie in `of`, must not be empty, and `of` must not be a slice itself.
    pub(super) unsafe fn get(
        &self,
        of: &Memory,
        shared: &Shared,
        start: usize,
        bytes: usize,
    ) -> Result<Arc<Memory>, ClError> {
        // A panic elsewhere leaves whole slices behind.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slice) = kept.get(&(start, bytes)) {
            return Ok(Arc::clone(slice));
        }
        // SAFETY: the caller promises the range. The driver keeps the memory for the slice.
        let buffer = unsafe { of.buffer.create_sub_buffer(CL_MEM_READ_WRITE, start, bytes) }?;
        let slice = Arc::new(Memory { buffer, id: shared.next_memory() });
        if kept.len() >= KEPT_MAX {
            // Those in use live on, and are made anew for the next one who asks.
            kept.clear();
        }
        kept.insert((start, bytes), Arc::clone(&slice));
        Ok(slice)
    }

    /// The number of slices that are kept.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().map_or(0, |kept| kept.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::opened;
    use super::*;
    use crate::device::Device;

    #[test]
    fn the_slices_that_are_kept_have_a_limit() {
        let Some(device) = opened() else { return };
        let step = device.caps().alignment_bytes as usize;
        let root = Memory::allocate(device.shared(), (KEPT_MAX + 1) * step).expect("fits");
        let slices = Slices::default();
        // SAFETY: the slices lie in the buffer.
        let get =
            |at| unsafe { slices.get(&root, device.shared(), at * step, step) }.expect("fits");
        let all: Vec<_> = (0..KEPT_MAX).map(get).collect();
        assert_eq!(slices.len(), KEPT_MAX);
        let last = get(KEPT_MAX);
        assert_eq!((slices.len(), get(KEPT_MAX).id), (1, last.id), "the others made room");
        assert_ne!(get(0).id, all[0].id, "it is made anew");
    }
}
