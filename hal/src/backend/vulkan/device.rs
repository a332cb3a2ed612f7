//! An opened Vulkan device.

use super::buffer::VkBuffer;
use super::info::Entry;
use super::loader::Instance;
use super::pinned;
use super::program::VkProgram;
use super::queue::VkQueue;
use super::shared::Shared;
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

/// A Vulkan device with a logical device of its own.
#[derive(Debug)]
pub(super) struct VkDevice {
    name: String,
    shared: Arc<Shared>,
}

impl VkDevice {
    /// Makes a logical device.
    pub(super) fn open(id: DeviceId, instance: Instance, entry: Entry) -> Result<Self> {
        for (quirk, reason) in entry.facts.quirks.all() {
            tracing::debug!(%id, ?quirk, reason, "the driver has a quirk");
        }
        let name = entry.found.name.clone();
        Ok(Self { name, shared: Arc::new(Shared::open(id, instance, entry)?) })
    }

    fn maker(&self) -> String {
        self.shared.maker(&self.name)
    }
}

impl Device for VkDevice {
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
        self.shared.free_bytes()
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Buffer>> {
        self.shared.life.check()?;
        Ok(Arc::new(VkBuffer::new(&self.shared, bytes)?))
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        self.shared.life.check()?;
        Ok(Box::new(VkQueue::new(&self.shared, false)?))
    }

    fn timed_queue(&self) -> Result<Box<dyn Queue>> {
        self.shared.life.check()?;
        Ok(Box::new(VkQueue::new(&self.shared, true)?))
    }

    fn pinned(&self, bytes: usize) -> Result<Pinned> {
        self.shared.life.check()?;
        pinned::new(&self.shared, bytes)
    }

    fn compile(&self, source: &str, options: &str) -> Result<Arc<dyn Program>> {
        self.shared.life.check()?;
        Ok(Arc::new(VkProgram::build(&self.shared, self.maker(), source, options)?))
    }

    unsafe fn load(&self, binary: &[u8]) -> Result<Arc<dyn Program>> {
        self.shared.life.check()?;
        // SAFETY: the caller's promise is passed on.
        Ok(Arc::new(unsafe { VkProgram::load(&self.shared, self.maker(), binary) }?))
    }

    fn arithmetic(&self, operands: &Operands) -> Result<Outcomes> {
        arithmetic_by_program(self, operands)
    }
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests;
