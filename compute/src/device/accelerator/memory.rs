//! The memory of tensors on a device, and the copies between host and device.

use super::Accelerator;
use crate::device::tensor::DeviceTensor;
use crate::error::{Error, Result};
use lgp_hal::{Buffer, Device};
use lgp_memory::{DType, DeviceBlock, DevicePool, Shape, Spill, Tensor, TensorView};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most that is left to the driver, the screen and other programs.
const MARGIN_BYTES_MAX: u64 = 1 << 30;

/// How much of a device's memory to take by default: the free memory, less a margin.
pub(super) fn free_bytes(device: &dyn Device) -> usize {
    // Where the device does not tell, only its refusals limit what is taken.
    let free = device.free_bytes().or(device.caps().memory_bytes).unwrap_or(1 << 40);
    let less = free - (free / 8).min(MARGIN_BYTES_MAX);
    usize::try_from(less).unwrap_or(usize::MAX)
}

/// Bytes that went over the link between host and device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From the host to the device.
    pub to_device_bytes: u64,
    /// From the device to the host.
    pub to_host_bytes: u64,
}

/// The counters that [`Traffic`] is read from.
#[derive(Debug, Default)]
pub(super) struct Counters {
    to_device_bytes: AtomicU64,
    to_host_bytes: AtomicU64,
}

impl Counters {
    pub(super) fn to_device(&self, bytes: usize) {
        self.to_device_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The blocks in which all tensors of a run have planned places.
#[derive(Debug)]
pub struct DeviceArena(Vec<Arc<dyn Buffer>>);

impl DeviceArena {
    pub(super) fn new(blocks: Vec<Arc<dyn Buffer>>) -> Self {
        Self(blocks)
    }

    /// The tensor at `offset` of a block. The caller's plan ensures that no other tensor uses this
    /// place between the first and the last command on this tensor.
    ///
    /// # Errors
    /// A place that is not in the arena, or that the device does not take.
    pub fn tensor(
        &self,
        (block, offset): (usize, usize),
        dtype: DType,
        shape: impl Into<Shape>,
    ) -> Result<DeviceTensor> {
        let shape = shape.into();
        let count = self.0.len();
        let missing = || Error::invalid(format!("it has no block {block} of {count}")).of("arena");
        let block = self.0.get(block).ok_or_else(missing)?;
        let buffer = Arc::clone(block).slice(offset, shape.byte_len(dtype)?)?;
        Ok(DeviceTensor::new(dtype, shape, buffer))
    }
}

/// How much of the host's RAM the weights of a model may take, and the file of the other weights.
#[derive(Debug)]
pub struct HostLimit {
    /// The most bytes of weights that stay in RAM.
    pub bytes: usize,
    /// The file of the other weights.
    pub spill: Spill,
}

impl Accelerator {
    /// Limits the host's RAM that the weights of each model take, for models that are compiled from
    /// now on. Weights beyond `bytes` lie in a file in `folder`, and are read from it when the
    /// device needs them. The file is deleted once the accelerator and all these weights are
    /// dropped. Only the first call sets a limit.
    ///
    /// # Errors
    /// A folder in which no file can be made.
    pub fn limit_host(&self, bytes: usize, folder: &Path) -> Result<()> {
        let spill = Spill::new(folder)?;
        // Models that are compiled already rely on the first limit.
        let _ = self.0.host.set(HostLimit { bytes, spill });
        Ok(())
    }

    /// The limit for the host's RAM, if there is one.
    #[must_use]
    pub fn host_limit(&self) -> Option<&HostLimit> {
        self.0.host.get()
    }

    /// The pool that tensors come from, with limits, statistics, the owners of memory, and a log.
    #[must_use]
    pub fn pool(&self) -> &DevicePool {
        &self.0.pool
    }

    /// Bytes of the largest buffer that the device allocates.
    #[must_use]
    pub fn buffer_bytes_max(&self) -> usize {
        let bytes = self.device().caps().allocation_bytes_max;
        bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
    }

    /// The bytes that went over the link so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let counters = &self.0.traffic;
        Traffic {
            to_device_bytes: counters.to_device_bytes.load(Ordering::Relaxed),
            to_host_bytes: counters.to_host_bytes.load(Ordering::Relaxed),
        }
    }

    /// Memory for a tensor; its contents are undefined.
    ///
    /// # Errors
    /// Out of memory, with the owners of the memory; or a shape that cannot be addressed.
    pub fn alloc(&self, dtype: DType, shape: impl Into<Shape>) -> Result<DeviceTensor> {
        self.alloc_for("tensors", dtype, shape)
    }

    /// As [`Accelerator::alloc`], for an `owner`: messages and profiles add memory up by owner.
    ///
    /// # Errors
    /// As [`Accelerator::alloc`].
    pub fn alloc_for(
        &self,
        owner: &str,
        dtype: DType,
        shape: impl Into<Shape>,
    ) -> Result<DeviceTensor> {
        let shape = shape.into();
        let block = self.take(shape.byte_len(dtype)?, owner)?;
        Ok(DeviceTensor::new(dtype, shape, block.into_buffer()))
    }

    /// A block of the pool. If the free memory is in several pieces, movable blocks are moved
    /// together first. Blocks that a run uses are pinned, and never move. The copies go through the
    /// queue of the kernels, so earlier kernels have read their inputs by then.
    pub(super) fn take(&self, bytes: usize, owner: &str) -> Result<DeviceBlock> {
        match self.pool().allocate(bytes, owner) {
            Err(lgp_memory::Error::Shortage { ref shortage, .. })
                if shortage.is_fragmentation() =>
            {
                self.pool().defragment(&mut **self.queue())?;
                Ok(self.pool().allocate(bytes, owner)?)
            }
            other => Ok(other?),
        }
    }

    /// Copies a tensor to the device.
    ///
    /// # Errors
    /// As [`Accelerator::alloc`].
    pub fn upload(&self, tensor: &TensorView<'_>) -> Result<DeviceTensor> {
        let on_device = self.alloc(tensor.dtype(), tensor.shape().clone())?;
        self.write(&on_device, tensor.as_bytes())?;
        Ok(on_device)
    }

    /// Copies bytes into a tensor, after all work launched before.
    ///
    /// # Errors
    /// More bytes than the tensor has; out of memory, which some drivers notice only now.
    pub fn write(&self, to: &DeviceTensor, bytes: &[u8]) -> Result<()> {
        let written = self.queue().write(&**to.buffer(), 0, bytes);
        written.map_err(|error| self.told(error, bytes.len(), "transfer"))?;
        self.0.traffic.to_device(bytes.len());
        Ok(())
    }

    /// Copies a tensor from the device, once all work launched before is done.
    ///
    /// # Errors
    /// A failure of an earlier launch, or out of host memory.
    pub fn download(&self, tensor: &DeviceTensor) -> Result<Tensor> {
        let mut bytes = vec![0; tensor.shape().byte_len(tensor.dtype())?];
        let read = self.queue().read(&**tensor.buffer(), 0, &mut bytes);
        read.map_err(|error| self.told(error, bytes.len(), "transfer"))?;
        self.0.traffic.to_host_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(Tensor::from_bytes(tensor.dtype(), tensor.shape().clone(), &bytes)?)
    }

    /// A driver's error; one of missing memory becomes a shortage with the owners of the memory.
    pub(super) fn told(&self, error: lgp_hal::Error, bytes: usize, owner: &str) -> Error {
        match error {
            lgp_hal::Error::OutOfMemory { .. } => {
                let shortage = Box::new(self.pool().shortage(bytes, owner));
                let refusal = Some(Box::new(error.into()));
                lgp_memory::Error::Shortage { shortage, refusal }.into()
            }
            error => error.into(),
        }
    }
}
