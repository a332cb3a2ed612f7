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
mod tests {
    use super::*;
    use crate::backend::BackendKind;
    use crate::error::Error;
    use ash::vk;

    #[test]
    fn a_lost_device_answers_each_call_with_its_loss_and_opens_anew() {
        let id = DeviceId::new(BackendKind::Vulkan, 0);
        let open = || {
            let (instance, mut entries) = super::super::enumerate().ok()?;
            entries.retain(|entry| entry.unfit.is_none());
            Some((instance, (!entries.is_empty()).then(|| entries.swap_remove(0))?))
        };
        let Some((instance, entry)) = open() else {
            println!("skipped: vulkan: there is no device");
            return;
        };
        let device = VkDevice::open(id, instance, entry).expect("opens");
        let buffer = device.allocate(16).expect("fits");
        let (mut queue, blocks) =
            (device.queue().expect("is there"), [16, 16].map(|bytes| device.pinned(bytes)));
        let event = queue.record().expect("is there");
        let [one, two] = blocks.map(|block| block.expect("fits"));
        queue.write(&*buffer, 0, &[1; 16]).expect("works");
        queue.copy(&*buffer, 0, &*buffer, 8, 8).expect("is recorded and never submitted");
        let end = device.shared.failed("vkQueueSubmit")(vk::Result::ERROR_DEVICE_LOST);
        assert!(matches!(end, Error::DeviceLost { call: "vkQueueSubmit", .. }), "{end}");
        let answers = [
            device.allocate(1).map(drop),
            device.pinned(1).map(drop),
            device.queue().map(drop),
            device.compile("KERNEL void f(void) {}", "").map(drop),
            queue.write(&*buffer, 0, &[0]),
            queue.read(&*buffer, 0, &mut [0]),
            queue.write_async(&*buffer, 0, one, 16).map(drop),
            queue.read_async(&*buffer, 0, two, 16).map(drop),
            queue.copy(&*buffer, 0, &*buffer, 8, 8),
            queue.record().map(drop),
            queue.wait_for(&*event),
            event.wait(),
            event.is_done().map(drop),
            queue.submit(),
            queue.finish(),
        ];
        for (at, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer, Err(end.clone()), "call {at}");
        }
        drop((queue, event, buffer, device));
        let (instance, entry) = open().expect("was there before");
        let again = VkDevice::open(id, instance, entry).expect("opens anew");
        let (buffer, mut queue, mut back) =
            (again.allocate(4).expect("fits"), again.queue().expect("is there"), [0; 4]);
        queue.write(&*buffer, 0, &[1, 2, 3, 4]).expect("works");
        queue.read(&*buffer, 0, &mut back).expect("works");
        assert_eq!(back, [1, 2, 3, 4]);
    }
}
