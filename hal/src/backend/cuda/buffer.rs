//! A buffer in the memory of an NVIDIA device.

use super::driver::is;
use super::library::done;
use super::shared::Shared;
use crate::buffer::{Buffer, range, refuse_unaligned};
use crate::error::{Error, Result};
use cudarc::driver::sys::{CUdeviceptr, CUresult};
use std::any::Any;
use std::sync::Arc;

/// CUDA refuses empty buffers, so an empty buffer gets a few bytes that no command can reach.
const BYTES_MIN: usize = 16;

/// A buffer and its context.
#[derive(Debug)]
pub(super) struct CudaBuffer {
    shared: Arc<Shared>,
    address: CUdeviceptr,
    /// For a slice: the buffer that owns the memory.
    root: Option<Arc<CudaBuffer>>,
    bytes: usize,
}

impl CudaBuffer {
    /// Allocates `bytes` bytes.
    pub(super) fn new(shared: Arc<Shared>, bytes: usize) -> Result<Self> {
        let device = shared.id;
        let refuse = |reason: String| Error::OutOfMemory { device, bytes, reason };
        let limit = shared.caps.allocation_bytes_max;
        if let Some(limit) = limit.filter(|&limit| bytes as u64 > limit) {
            return Err(refuse(format!("it has {limit} bytes")));
        }
        shared.bind()?;
        let mut address = 0;
        // SAFETY: the context is current; the address is freed once, in `drop`.
        match done(unsafe { (shared.driver.cuMemAlloc_v2)(&raw mut address, bytes.max(BYTES_MIN)) })
        {
            Ok(()) => Ok(Self { shared, address, root: None, bytes }),
            Err(status) if is(status, CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
                Err(refuse(shared.driver.code(status)))
            }
            Err(status) => Err(shared.failed("cuMemAlloc")(status)),
        }
    }

    /// The CUDA buffer behind `buffer`, if it was made by this opened device.
    pub(super) fn of<'a>(buffer: &'a dyn Buffer, shared: &Arc<Shared>) -> Result<&'a Self> {
        buffer
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| Arc::ptr_eq(&own.shared, shared))
            .ok_or(Error::Foreign { what: "buffer", device: shared.id })
    }

    /// The address of the buffer's first byte.
    pub(super) fn address(&self) -> CUdeviceptr {
        self.address
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        if self.root.is_some() {
            return;
        }
        // A context that cannot be bound is lost, together with its memory.
        if self.shared.bind().is_ok() {
            // SAFETY: the address came from `cuMemAlloc` and is not used again. The call waits for
            // the commands that still use it.
            let status = unsafe { (self.shared.driver.cuMemFree_v2)(self.address) };
            self.shared.dropped("cuMemFree", status);
        }
    }
}

impl Buffer for CudaBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn slice(self: Arc<Self>, offset: usize, bytes: usize) -> Result<Arc<dyn Buffer>> {
        range(offset, bytes, self.bytes)?;
        let address = self.address + offset as u64;
        let root = self.root.clone().unwrap_or_else(|| Arc::clone(&self));
        let start = usize::try_from(address - root.address).unwrap_or(usize::MAX);
        refuse_unaligned(start, self.shared.caps.alignment_bytes as usize)?;
        let shared = Arc::clone(&self.shared);
        Ok(Arc::new(Self { shared, address, root: Some(root), bytes }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
