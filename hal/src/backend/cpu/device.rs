//! The processor as a device.

use super::facts::{self, CpuFacts};
use super::simd::SimdLevel;
use crate::backend::host::Host;
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

/// The opened processor.
#[derive(Debug)]
pub(crate) struct CpuDevice {
    name: String,
    caps: Caps,
    host: Host,
}

impl CpuDevice {
    /// Opens the processor that this program runs on.
    pub(crate) fn new() -> Self {
        let facts = CpuFacts::read();
        let host = Host::new(DeviceId::CPU, "the processor runs the operators' Rust bodies");
        Self { caps: facts.caps(), name: facts.name, host }
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
        self.host.allocate(bytes, self.caps.allocation_bytes_max)
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        self.host.queue()
    }

    fn pinned(&self, bytes: usize) -> Result<Pinned> {
        self.host.pinned(bytes)
    }

    fn compile(&self, _source: &str, _options: &str) -> Result<Arc<dyn Program>> {
        Err(self.host.refusal())
    }

    unsafe fn load(&self, _binary: &[u8]) -> Result<Arc<dyn Program>> {
        Err(self.host.refusal())
    }

    fn arithmetic(&self, operands: &Operands) -> Result<Outcomes> {
        Ok(SimdLevel::best().arithmetic(operands))
    }
}
