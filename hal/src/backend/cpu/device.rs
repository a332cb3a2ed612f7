//! The processor as a device.

use super::buffer::CpuBuffer;
use super::facts::{self, CpuFacts};
use super::program::refusal;
use super::queue::CpuQueue;
use super::simd::SimdLevel;
use crate::backend::host;
use crate::buffer::Buffer;
use crate::caps::Caps;
use crate::device::Device;
use crate::error::Result;
use crate::id::DeviceId;
use crate::pinned::Pinned;
use crate::program::Program;
use crate::queue::Queue;
use crate::self_test::{Operands, Outcomes};
use std::sync::Arc;

/// The processor, opened.
#[derive(Debug)]
pub(crate) struct CpuDevice {
    name: String,
    caps: Caps,
}

impl CpuDevice {
    /// Opens the processor this program runs on.
    pub(crate) fn new() -> Self {
        let facts = CpuFacts::read();
        Self { caps: facts.caps(), name: facts.name }
    }
}

impl Device for CpuDevice {
    fn id(&self) -> DeviceId {
        DeviceId::CPU
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn free_bytes(&self) -> Option<u64> {
        facts::free_bytes()
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Buffer>> {
        Ok(Arc::new(CpuBuffer::new(DeviceId::CPU, bytes, self.caps.allocation_bytes_max)?))
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(CpuQueue))
    }

    fn pinned(&self, bytes: usize) -> Result<Pinned> {
        host::pinned(DeviceId::CPU, bytes)
    }

    fn compile(&self, _source: &str, _options: &str) -> Result<Arc<dyn Program>> {
        Err(refusal())
    }

    unsafe fn load(&self, _binary: &[u8]) -> Result<Arc<dyn Program>> {
        Err(refusal())
    }

    fn arithmetic(&self, operands: &Operands) -> Result<Outcomes> {
        Ok(SimdLevel::best().arithmetic(operands))
    }
}
