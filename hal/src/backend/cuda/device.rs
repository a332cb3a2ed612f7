//! An opened NVIDIA device.

use super::blas::CudaBlas;
use super::buffer::CudaBuffer;
use super::driver::Driver;
use super::program::CudaProgram;
use super::queue::CudaQueue;
use super::shared::Shared;
use super::{Entry, pinned};
use crate::backend::Found;
use crate::blas::Blas;
use crate::buffer::Buffer;
use crate::caps::Caps;
use crate::device::Device;
use crate::error::Result;
use crate::id::DeviceId;
use crate::pinned::Pinned;
use crate::program::Program;
use crate::queue::Queue;
use crate::self_test::{Operands, Outcomes, arithmetic_by_program};
use std::sync::Arc;

/// An NVIDIA device with its primary context.
#[derive(Debug)]
pub(super) struct CudaDevice {
    name: String,
    shared: Arc<Shared>,
    blas: Option<Arc<CudaBlas>>,
}

impl CudaDevice {
    /// Retains the primary context of the device.
    pub(super) fn open(id: DeviceId, driver: Driver, entry: Entry) -> Result<Self> {
        let Entry { device, libraries, found: Found { name, caps } } = entry;
        let shared = Arc::new(Shared::retain(id, device, driver, caps, libraries)?);
        Ok(Self { name, blas: CudaBlas::of(&shared), shared })
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

    fn free_bytes(&self) -> Option<u64> {
        self.shared.bind().ok()?;
        u64::try_from(self.shared.free_bytes().ok()?).ok()
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Buffer>> {
        Ok(Arc::new(CudaBuffer::new(Arc::clone(&self.shared), bytes)?))
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(CudaQueue::new(Arc::clone(&self.shared), false)?))
    }

    fn timed_queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(CudaQueue::new(Arc::clone(&self.shared), true)?))
    }

    fn blas(&self) -> Option<Arc<dyn Blas>> {
        self.blas.clone().map(|blas| blas as Arc<dyn Blas>)
    }

    fn pinned(&self, bytes: usize) -> Result<Pinned> {
        pinned::new(&self.shared, bytes)
    }

    fn compile(&self, source: &str, options: &str) -> Result<Arc<dyn Program>> {
        Ok(Arc::new(CudaProgram::build(Arc::clone(&self.shared), source, options)?))
    }

    unsafe fn load(&self, binary: &[u8]) -> Result<Arc<dyn Program>> {
        // SAFETY: the caller's promise is passed on.
        Ok(Arc::new(unsafe { CudaProgram::load(Arc::clone(&self.shared), binary) }?))
    }

    fn arithmetic(&self, operands: &Operands) -> Result<Outcomes> {
        match self.shared.caps.programs {
            true => arithmetic_by_program(self, operands),
            false => Ok(Outcomes::new()),
        }
    }
}
