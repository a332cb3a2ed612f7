//! A buffer in the memory of an OpenCL device.

use super::shared::Shared;
use crate::buffer::{Buffer, range, refuse_unaligned};
use crate::error::{Error, Result};
use opencl3::memory::{CL_MEM_READ_WRITE, ClMem};
use opencl3::types::cl_mem;
use std::any::Any;
use std::sync::Arc;

/// OpenCL refuses empty buffers, so an empty buffer gets a few bytes that no command can reach.
const BYTES_MIN: usize = 16;

/// A buffer and its context.
#[derive(Debug)]
pub(super) struct ClBuffer {
    pub(super) shared: Arc<Shared>,
    buffer: opencl3::memory::Buffer<u8>,
    /// For a slice: the buffer that owns the memory, and the slice's offset in it.
    root: Option<(Arc<ClBuffer>, usize)>,
    bytes: usize,
}

impl ClBuffer {
    /// Allocates `bytes` bytes.
    pub(super) fn new(shared: Arc<Shared>, bytes: usize) -> Result<Self> {
        let device = shared.id;
        let limit = shared.caps.allocation_bytes_max;
        if let Some(limit) = limit.filter(|&limit| bytes as u64 > limit) {
            let reason = format!("its largest buffer has {limit} bytes");
            return Err(Error::OutOfMemory { device, bytes, reason });
        }
        // SAFETY: no host pointer is passed, so the driver refers to no memory of this process.
        let buffer = unsafe {
            opencl3::memory::Buffer::create(
                &shared.context,
                CL_MEM_READ_WRITE,
                bytes.max(BYTES_MIN),
                std::ptr::null_mut(),
            )
        };
        let buffer = buffer.map_err(shared.used("clCreateBuffer", bytes))?;
        Ok(Self { shared, buffer, root: None, bytes })
    }

    /// The OpenCL buffer behind `buffer`, if it was made by this opened device.
    pub(super) fn of<'a>(buffer: &'a dyn Buffer, shared: &Arc<Shared>) -> Result<&'a Self> {
        buffer
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| Arc::ptr_eq(&own.shared, shared))
            .ok_or(Error::Foreign { what: "buffer", device: shared.id })
    }

    /// The buffer that owns the memory, and this buffer's offset in it.
    pub(super) fn origin(&self) -> (&Self, usize) {
        self.root.as_ref().map_or((self, 0), |(root, offset)| (root, *offset))
    }

    /// The driver's handle.
    pub(super) fn handle(&self) -> cl_mem {
        self.buffer.get()
    }
}

impl Buffer for ClBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn slice(self: Arc<Self>, offset: usize, bytes: usize) -> Result<Arc<dyn Buffer>> {
        range(offset, bytes, self.bytes)?;
        let (root, start) = match &self.root {
            Some((root, start)) => (Arc::clone(root), start + offset),
            None => (Arc::clone(&self), offset),
        };
        refuse_unaligned(start, self.shared.caps.alignment_bytes as usize)?;
        // Drivers refuse empty slices, so an empty slice takes bytes of the root, unless it is at
        // the root's end.
        let reach = bytes.max(BYTES_MIN).min(root.bytes.max(BYTES_MIN).saturating_sub(start));
        if reach == 0 {
            return Ok(Arc::new(Self::new(Arc::clone(&self.shared), bytes)?));
        }
        // SAFETY: the range lies in the root's memory, which the driver keeps alive for the slice;
        // the root itself is not a slice.
        let buffer = unsafe { root.buffer.create_sub_buffer(CL_MEM_READ_WRITE, start, reach) }
            .map_err(self.shared.used("clCreateSubBuffer", bytes))?;
        let shared = Arc::clone(&self.shared);
        Ok(Arc::new(Self { shared, buffer, root: Some((root, start)), bytes }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
