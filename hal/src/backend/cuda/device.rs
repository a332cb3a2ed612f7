//! An opened NVIDIA device.

use super::buffer::CudaBuffer;
use super::driver;
use super::program::refusal;
use super::queue::CudaQueue;
use crate::backend::Found;
use crate::buffer::Buffer;
use crate::caps::Caps;
use crate::device::Device;
use crate::error::Result;
use crate::id::DeviceId;
use crate::program::Program;
use crate::queue::Queue;
use crate::self_test::{Operands, Outcomes};
use cudarc::driver::CudaContext;
use std::sync::Arc;

/// What buffers and queues of one opened device have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: DeviceId,
    pub(super) caps: Caps,
    pub(super) context: Arc<CudaContext>,
}

/// An NVIDIA device with its primary context.
#[derive(Debug)]
pub(super) struct CudaDevice {
    name: String,
    shared: Arc<Shared>,
}

impl CudaDevice {
    /// Retains the primary context of the device.
    pub(super) fn open(id: DeviceId, found: Found) -> Result<Self> {
        let ordinal = usize::try_from(id.ordinal).unwrap_or(usize::MAX);
        let context = CudaContext::new(ordinal).map_err(driver(id, "cuDevicePrimaryCtxRetain"))?;
        let shared = Arc::new(Shared { id, caps: found.caps, context });
        Ok(Self { name: found.name, shared })
    }
}

impl Device for CudaDevice {
    fn id(&self) -> DeviceId {
        self.shared.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Buffer>> {
        Ok(Arc::new(CudaBuffer::new(Arc::clone(&self.shared), bytes)?))
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(CudaQueue::new(Arc::clone(&self.shared))?))
    }

    fn compile(&self, _source: &str, _options: &str) -> Result<Arc<dyn Program>> {
        Err(refusal(self.shared.id))
    }

    fn arithmetic(&self, _operands: &Operands) -> Result<Outcomes> {
        Ok(Outcomes::new())
    }
}
