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
    use super::super::event::{Timeline, VkEvent};
    use super::*;
    use crate::backend::BackendKind;
    use crate::error::Error;
    use crate::event::Event;
    use crate::program::{Arg, Launch};
    use ash::vk;

    const ID: DeviceId = DeviceId { backend: BackendKind::Vulkan, ordinal: 0 };

    fn open() -> Option<VkDevice> {
        let (instance, mut entries) = super::super::enumerate().ok()?;
        entries.retain(|entry| entry.unfit.is_none());
        let entry = (!entries.is_empty()).then(|| entries.swap_remove(0))?;
        Some(VkDevice::open(ID, instance, entry).expect("opens"))
    }

    #[test]
    fn memory_that_the_host_does_not_see_is_staged() {
        let Some(mut device) = open() else {
            println!("skipped: vulkan: there is no device");
            return;
        };
        Arc::get_mut(&mut device.shared).expect("not shared yet").hide_memory();
        let mut queue = device.queue().expect("is there");
        // Some parts and a rest, several times around the ring.
        let data: Vec<u8> = (0..(21usize << 20) + 5).map(|at| (at % 251) as u8).collect();
        let buffers = [0, 1].map(|_| device.allocate(data.len() + 9).expect("fits"));
        let mut back = vec![0; data.len()];
        for round in 0..3 {
            queue.write(&*buffers[0], 9, &data[round..]).expect("works");
            let bytes = data.len() - round;
            queue.copy(&*buffers[0], 9, &*buffers[1], round, bytes).expect("works");
            // The copy must not see this write.
            queue.write(&*buffers[0], 0, &vec![0xee; 1 << 20]).expect("works");
            queue.read(&*buffers[1], round, &mut back[..bytes]).expect("works");
            assert!(back[..bytes] == data[round..], "round {round}");
        }
        let mut small = [0; 3];
        for at in 0..5000usize {
            let value = at.to_le_bytes();
            queue.write(&*buffers[0], 3 * at, &value[..3]).expect("works");
        }
        queue.read(&*buffers[0], 3 * 4999, &mut small).expect("works");
        assert_eq!(small, [0x87, 0x13, 0]);
        crate::self_test::self_test(&device).expect("calculates");
    }

    #[test]
    fn a_device_that_does_not_answer_is_lost_and_opens_anew() {
        let Some(mut device) = open() else {
            println!("skipped: vulkan: there is no device");
            return;
        };
        let shared = Arc::get_mut(&mut device.shared).expect("not shared yet");
        shared.patience = std::time::Duration::from_millis(10);
        // No submission ever reaches this value.
        let timeline = Arc::new(Timeline::new(&device.shared).expect("is made"));
        let event = VkEvent { timeline, value: 1, stamp: None };
        let end = event.wait().expect_err("nothing happens");
        assert!(matches!(end, Error::DeviceLost { call: "vkWaitSemaphores", .. }), "{end}");
        assert_eq!(device.allocate(1).map(drop), Err(end.clone()));
        assert_eq!(event.is_done(), Err(end));
        let again = open().expect("was there before");
        crate::self_test::self_test(&again).expect("works");
    }

    #[test]
    fn many_launches_keep_their_order_over_many_submissions() {
        let Some(device) = open() else {
            println!("skipped: vulkan: there is no device");
            return;
        };
        let source = "KERNEL void step(GLOBAL u32 *to, GLOBAL const u32 *from, u32 factor) {
            u32 i = GLOBAL_ID(0);
            to[i] = from[i] * factor + i;
        }";
        let program = device.compile(source, "").expect("compiles");
        let mut queue = device.queue().expect("is there");
        let buffers = [0, 1].map(|_| device.allocate(4 * 64).expect("fits"));
        queue.write(&*buffers[0], 0, &[0; 256]).expect("works");
        let mut expected = [0u32; 64];
        for round in 0..501usize {
            let (from, to) = (&*buffers[round % 2], &*buffers[(round + 1) % 2]);
            let args = [Arg::Buffer(to), Arg::Buffer(from), Arg::U32(3)];
            let (global, local) = ([64, 1, 1], None);
            let launch = Launch { program: &*program, kernel: "step", global, local, args: &args };
            // SAFETY: one element of each buffer per work-item, and each has 64.
            unsafe { queue.launch(&launch) }.expect("fits");
            for (i, value) in (0u32..).zip(&mut expected) {
                *value = value.wrapping_mul(3).wrapping_add(i);
            }
        }
        let mut back = [0u32; 64];
        queue.read(&*buffers[1], 0, bytemuck::cast_slice_mut(&mut back)).expect("works");
        assert_eq!(back, expected);
    }

    #[test]
    fn a_kernel_beyond_the_device_s_limits_is_a_typed_error() {
        let Some(device) = open() else {
            println!("skipped: vulkan: there is no device");
            return;
        };
        let most = device.shared.facts.limits.max_push_constants_size;
        let scalars: String = (0..=most / 8).map(|at| format!(", u64 s{at}")).collect();
        let wide = format!("KERNEL void wide(GLOBAL u32 *out{scalars}) {{ out[0] = (u32)s0; }}");
        match device.compile(&wide, "") {
            Err(Error::Unsupported { what: "room for the scalars", reason, .. }) => {
                assert!(reason.contains(&format!("the device has {most}")), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn small_buffers_share_segments_and_give_their_places_back() {
        let Some(device) = open() else {
            println!("skipped: vulkan: there is no device");
            return;
        };
        // More buffers than a driver bears allocations.
        let mut buffers: Vec<_> =
            (0..6000).map(|at| device.allocate(at % 700).expect("fits")).collect();
        let mut queue = device.queue().expect("is there");
        for (at, buffer) in buffers.iter().enumerate() {
            queue.write(&**buffer, 0, &vec![at as u8; at % 700]).expect("works");
        }
        for (at, buffer) in buffers.iter().enumerate() {
            let mut back = vec![0; at % 700];
            queue.read(&**buffer, 0, &mut back).expect("works");
            assert!(back.iter().all(|byte| *byte == at as u8), "buffer {at}");
        }
        buffers.clear();
        drop(queue);
        assert!(device.allocate(1 << 20).is_ok());
    }

    #[test]
    fn a_lost_device_answers_each_call_with_its_loss_and_opens_anew() {
        let Some(device) = open() else {
            println!("skipped: vulkan: there is no device");
            return;
        };
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
        let again = open().expect("was there before");
        let (buffer, mut queue, mut back) =
            (again.allocate(4).expect("fits"), again.queue().expect("is there"), [0; 4]);
        queue.write(&*buffer, 0, &[1, 2, 3, 4]).expect("works");
        queue.read(&*buffer, 0, &mut back).expect("works");
        assert_eq!(back, [1, 2, 3, 4]);
    }
}
