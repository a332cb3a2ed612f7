//! Host memory that the driver allocates, and transfers from without an extra copy.

use super::shared::Shared;
use crate::error::{Error, Result};
use crate::pinned::Pinned;
use opencl3::command_queue::CommandQueue;
use opencl3::memory::{
    Buffer, CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE, ClMem,
};
use opencl3::types::CL_BLOCKING;
use std::ptr::NonNull;
use std::sync::Arc;

/// A buffer in host memory that is mapped during its whole life: OpenCL 1.2 has no other pinned
/// memory.
struct Mapped {
    // Dropped in this order.
    queue: CommandQueue,
    buffer: Buffer<u8>,
    start: NonNull<u8>,
    _shared: Arc<Shared>,
}

// SAFETY: the handles are the driver's, which any thread may use. The pointer is only given back to
// the driver.
unsafe impl Send for Mapped {}
// SAFETY: as above; a shared reference gives no access.
unsafe impl Sync for Mapped {}

/// Makes a block of `bytes` bytes.
pub(super) fn new(shared: &Arc<Shared>, bytes: usize) -> Result<Pinned> {
    let device = shared.id;
    let refuse = |reason: String| Error::OutOfMemory { device, bytes, reason };
    let limit = shared.caps.allocation_bytes_max;
    if let Some(limit) = limit.filter(|&limit| bytes as u64 > limit) {
        return Err(refuse(format!("its largest buffer has {limit} bytes")));
    }
    // Mapping is the first command of its queue, so it waits for no command that may have failed.
    let failed = |call| shared.used(call, bytes);
    let queue =
        CommandQueue::create_default(&shared.context, 0).map_err(failed("clCreateCommandQueue"))?;
    let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
    // SAFETY: no host pointer is passed, so the driver refers to no memory of this process.
    let buffer =
        unsafe { Buffer::<u8>::create(&shared.context, flags, bytes.max(1), std::ptr::null_mut()) }
            .map_err(failed("clCreateBuffer"))?;
    let (mut start, mode) = (std::ptr::null_mut(), CL_MAP_READ | CL_MAP_WRITE);
    // SAFETY: the whole buffer is mapped, and a blocking call has written the pointer.
    unsafe {
        queue.enqueue_map_buffer(&buffer, CL_BLOCKING, mode, 0, bytes.max(1), &mut start, &[])
    }
    .map_err(failed("clEnqueueMapBuffer"))?;
    let start = NonNull::new(start.cast::<u8>())
        .ok_or_else(|| refuse("the driver maps it nowhere".to_owned()))?;
    let owner = Mapped { queue, buffer, start, _shared: Arc::clone(shared) };
    // SAFETY: the driver provides `bytes` bytes until the owner unmaps the buffer. Only a transfer,
    // which owns the block, gives the pointer to the driver.
    Ok(unsafe { Pinned::new(start, bytes, Box::new(owner)) })
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let start = self.start.as_ptr().cast();
        // SAFETY: the pointer came from mapping this buffer and is not used again. If unmapping
        // fails, the device is lost, together with its memory.
        let unmapped =
            unsafe { self.queue.enqueue_unmap_mem_object(self.buffer.get_mut(), start, &[]) };
        let _ = unmapped.and_then(|_| self.queue.finish());
    }
}
