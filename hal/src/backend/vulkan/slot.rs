//! A command buffer with what its commands take from pools; recycled once its submission is done.

use super::event::{between, stamps};
use super::shared::Shared;
use crate::error::Result;
use ash::vk;
use std::sync::Arc;
use std::time::Duration;

/// Kernels' buffers of one pool of descriptors; a slot takes as many pools as it needs.
pub(super) const DESCRIPTORS: u32 = 512;
/// Kernels of one pool of descriptors.
const SETS: u32 = 64;

/// A command buffer and its pools.
pub(super) struct Slot {
    shared: Arc<Shared>,
    pool: vk::CommandPool,
    pub(super) commands: vk::CommandBuffer,
    sets: Vec<vk::DescriptorPool>,
    /// The pool of `sets` that is being used up.
    filling: usize,
    /// The times of the first and the last command; `None` if the device records no time.
    stamps: Option<vk::QueryPool>,
}

impl Slot {
    /// Makes an empty command buffer.
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self> {
        let device = &shared.device;
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::TRANSIENT)
            .queue_family_index(shared.facts.family);
        // SAFETY: the structure lives through the call, and the device has queues of the family.
        let pool = unsafe { device.create_command_pool(&info, None) }
            .map_err(shared.failed("vkCreateCommandPool"))?;
        let mut slot = Self {
            shared: Arc::clone(shared),
            pool,
            commands: vk::CommandBuffer::null(),
            sets: Vec::new(),
            filling: 0,
            stamps: None,
        };
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is of the device and used by this thread alone.
        let made = unsafe { device.allocate_command_buffers(&info) }
            .map_err(shared.failed("vkAllocateCommandBuffers"))?;
        slot.commands = made.first().copied().unwrap_or_default();
        if shared.facts.stamp_bits > 0 {
            slot.stamps = Some(stamps(shared, 2)?);
        }
        Ok(slot)
    }

    /// Begins anew. The commands recorded before must be done.
    pub(super) fn begin(&mut self) -> Result<()> {
        let (shared, device) = (&self.shared, &self.shared.device);
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: no command of this slot is in flight, so its pools may be reset.
        unsafe {
            device
                .reset_command_pool(self.pool, vk::CommandPoolResetFlags::empty())
                .map_err(shared.failed("vkResetCommandPool"))?;
            for pool in &self.sets {
                device
                    .reset_descriptor_pool(*pool, vk::DescriptorPoolResetFlags::empty())
                    .map_err(shared.failed("vkResetDescriptorPool"))?;
            }
            device
                .begin_command_buffer(self.commands, &info)
                .map_err(shared.failed("vkBeginCommandBuffer"))?;
            if let Some(stamps) = self.stamps {
                device.cmd_reset_query_pool(self.commands, stamps, 0, 2);
            }
        }
        self.filling = 0;
        self.stamp(0);
        Ok(())
    }

    /// Ends the recording. The host, and later submissions, see what its commands wrote.
    pub(super) fn end(&mut self) -> Result<()> {
        self.barrier(
            vk::PipelineStageFlags::HOST,
            vk::AccessFlags::HOST_READ | vk::AccessFlags::HOST_WRITE,
        );
        self.stamp(1);
        // SAFETY: the command buffer is being recorded.
        unsafe { self.shared.device.end_command_buffer(self.commands) }
            .map_err(self.shared.failed("vkEndCommandBuffer"))
    }

    /// Records a barrier: later commands see the effects of earlier ones, and so does another
    /// stage with the given access.
    pub(super) fn barrier(&self, stage: vk::PipelineStageFlags, access: vk::AccessFlags) {
        let stages = vk::PipelineStageFlags::TRANSFER | vk::PipelineStageFlags::COMPUTE_SHADER;
        let writes = vk::AccessFlags::TRANSFER_WRITE | vk::AccessFlags::SHADER_WRITE;
        let reads = vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::SHADER_READ;
        let barrier = [vk::MemoryBarrier::default()
            .src_access_mask(writes)
            .dst_access_mask(writes | reads | access)];
        let (from, to, flags) = (stages, stages | stage, vk::DependencyFlags::empty());
        let commands = self.commands;
        // SAFETY: the command buffer is being recorded, on a queue that has these stages.
        unsafe {
            self.shared.device.cmd_pipeline_barrier(commands, from, to, flags, &barrier, &[], &[]);
        }
    }

    fn stamp(&self, at: u32) {
        if let Some(stamps) = self.stamps {
            let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
            // SAFETY: the command buffer is being recorded, and the query was reset in it.
            unsafe { self.shared.device.cmd_write_timestamp(self.commands, stage, stamps, at) };
        }
    }

    /// The device's time of the commands, which must be done.
    pub(super) fn took(&self) -> Option<Duration> {
        let mut ticks = [0u64; 2];
        let flags = vk::QueryResultFlags::TYPE_64;
        // SAFETY: the pool has two queries, whose results have 64 bits.
        unsafe { self.shared.device.get_query_pool_results(self.stamps?, 0, &mut ticks, flags) }
            .ok()?;
        Some(between(&self.shared, ticks[0], ticks[1]))
    }

    /// A set of descriptors with a kernel's buffers by binding.
    pub(super) fn set(
        &mut self,
        layout: vk::DescriptorSetLayout,
        buffers: &[(u32, vk::DescriptorBufferInfo)],
    ) -> Result<vk::DescriptorSet> {
        let set = loop {
            let is_new = self.filling == self.sets.len();
            if is_new {
                self.sets.push(descriptors(&self.shared)?);
            }
            let layouts = [layout];
            let info = vk::DescriptorSetAllocateInfo::default()
                .descriptor_pool(self.sets[self.filling])
                .set_layouts(&layouts);
            // SAFETY: pool and layout are of the device, and this thread alone uses the pool.
            match unsafe { self.shared.device.allocate_descriptor_sets(&info) } {
                Ok(sets) => break sets.first().copied().unwrap_or_default(),
                Err(vk::Result::ERROR_OUT_OF_POOL_MEMORY | vk::Result::ERROR_FRAGMENTED_POOL)
                    if !is_new =>
                {
                    self.filling += 1;
                }
                Err(error) => return Err(self.shared.failed("vkAllocateDescriptorSets")(error)),
            }
        };
        let writes: Vec<_> = buffers
            .iter()
            .map(|(binding, buffer)| {
                vk::WriteDescriptorSet::default()
                    .dst_set(set)
                    .dst_binding(*binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(std::slice::from_ref(buffer))
            })
            .collect();
        // SAFETY: the set is new, has these bindings, and the buffers are of the device.
        unsafe { self.shared.device.update_descriptor_sets(&writes, &[]) };
        Ok(set)
    }
}

/// Makes a pool of descriptors.
fn descriptors(shared: &Shared) -> Result<vk::DescriptorPool> {
    let sizes = [vk::DescriptorPoolSize::default()
        .ty(vk::DescriptorType::STORAGE_BUFFER)
        .descriptor_count(DESCRIPTORS)];
    let info = vk::DescriptorPoolCreateInfo::default().max_sets(SETS).pool_sizes(&sizes);
    // SAFETY: the structures live through the call.
    unsafe { shared.device.create_descriptor_pool(&info, None) }
        .map_err(shared.failed("vkCreateDescriptorPool"))
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.shared.may_free() {
            return;
        }
        let device = &self.shared.device;
        // SAFETY: no command of this slot is in flight: queues wait for theirs before they drop
        // slots. The pools own what was taken from them.
        unsafe {
            device.destroy_command_pool(self.pool, None);
            self.sets.iter().for_each(|pool| device.destroy_descriptor_pool(*pool, None));
            self.stamps.iter().for_each(|pool| device.destroy_query_pool(*pool, None));
        }
    }
}
