//! An in-order queue of commands.

mod staged;

use super::buffer::VkBuffer;
use super::event::{Keep, Stamp, VkEvent};
use super::kernel::{Arguments, Kernel};
use super::pieces::pieces;
use super::pinned;
use super::program::VkProgram;
use super::record::Recorder;
use super::shared::Shared;
use crate::buffer::{Buffer, range, refuse_overlap};
use crate::error::Result;
use crate::event::Event;
use crate::id::DeviceId;
use crate::pinned::{Pinned, Transfer};
use crate::program::Launch;
use crate::queue::Queue;
use ash::vk;
use staged::{copy_in, copy_out};
use std::any::Any;
use std::sync::Arc;

/// A queue of this backend.
pub(super) struct VkQueue {
    shared: Arc<Shared>,
    recorder: Recorder,
    /// The arguments of the last launch, for their memory.
    args: Arguments,
    /// Whether events record the device's time.
    is_timed: bool,
}

impl VkQueue {
    /// Makes a queue; its events record times if it is `timed` and the device can.
    pub(super) fn new(shared: &Arc<Shared>, timed: bool) -> Result<Self> {
        let recorder = Recorder::new(shared)?;
        let is_timed = timed && shared.facts.stamp_bits > 0;
        Ok(Self { shared: Arc::clone(shared), recorder, args: Arguments::default(), is_timed })
    }

    /// The event of everything up to here.
    fn mark(&mut self, stamp: Option<Arc<Stamp>>) -> Result<VkEvent> {
        self.recorder.flush()?;
        let timeline = Arc::clone(&self.recorder.timeline);
        Ok(VkEvent { timeline, value: self.recorder.submitted(), stamp })
    }

    /// The transfer of `block` that was just recorded.
    fn started(&mut self, block: Pinned) -> Result<Transfer> {
        match self.mark(None) {
            Ok(event) => Ok(Transfer::new(block, Arc::new(event))),
            Err(error) => {
                // Without an event the host cannot know when the device is done with the block.
                std::mem::forget(block);
                Err(error)
            }
        }
    }

    /// Records one dispatch of a launch; `is_further` for one after the first.
    ///
    /// # Safety
    /// The kernel stays within its buffers, and the pipeline is the kernel's.
    unsafe fn dispatch(
        &mut self,
        kernel: &Arc<Kernel>,
        args: &Arguments,
        pipeline: vk::Pipeline,
        groups: [u32; 3],
        is_further: bool,
    ) -> Result<()> {
        let set = match args.buffers.as_slice() {
            [] => None,
            buffers => Some(self.recorder.slot()?.set(kernel.set_layout, buffers)?),
        };
        self.recorder.slot().map(drop)?;
        let keep = args.keep.iter().cloned().chain([Arc::clone(kernel) as Keep]);
        let commands = match is_further {
            true => self.recorder.admit_further(&args.accesses, keep)?,
            false => self.recorder.admit(&args.accesses, 0, keep)?,
        };
        let (device, layout) = (&self.shared.device, kernel.layout);
        // SAFETY: the caller promises that the kernel stays within its buffers. Pipeline, set and
        // scalars are of the kernel's layout, and the submission keeps what they need.
        unsafe {
            device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, pipeline);
            if let Some(set) = set {
                let point = vk::PipelineBindPoint::COMPUTE;
                device.cmd_bind_descriptor_sets(commands, point, layout, 0, &[set], &[]);
            }
            let stage = vk::ShaderStageFlags::COMPUTE;
            device.cmd_push_constants(commands, layout, stage, 0, &args.scalars);
            device.cmd_dispatch(commands, groups[0], groups[1], groups[2]);
        }
        Ok(())
    }
}

impl Queue for VkQueue {
    fn device(&self) -> DeviceId {
        self.shared.id
    }

    fn write(&mut self, buffer: &dyn Buffer, offset: usize, data: &[u8]) -> Result<()> {
        self.recorder.check()?;
        let buffer = VkBuffer::of(buffer, &self.shared)?;
        range(offset, data.len(), buffer.bytes())?;
        if data.is_empty() {
            return Ok(());
        }
        let at = buffer.start + offset;
        let access = buffer.block.access(at, data.len(), true);
        if buffer.block.start().is_some() && !self.recorder.is_pending(&access)? {
            copy_in(&buffer.block, at, data);
            return Ok(());
        }
        self.write_staged(buffer, offset, data)
    }

    fn read(&mut self, buffer: &dyn Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.recorder.check()?;
        let buffer = VkBuffer::of(buffer, &self.shared)?;
        range(offset, out.len(), buffer.bytes())?;
        if out.is_empty() {
            return Ok(());
        }
        // The host reads a card's memory slowly; copies of it are fast.
        if self.shared.kinds.device.is_cached {
            let at = buffer.start + offset;
            self.recorder.settle(&buffer.block.access(at, out.len(), false))?;
            copy_out(&buffer.block, at, out);
            return Ok(());
        }
        self.read_staged(buffer, offset, out)
    }

    fn write_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        self.recorder.check()?;
        let buffer = VkBuffer::of(buffer, &self.shared)?;
        range(offset, bytes, buffer.bytes())?;
        let part = range(0, bytes, block.len())?;
        match pinned::block_of(&block, &self.shared) {
            _ if bytes == 0 => {}
            Some(own) => {
                let own = Arc::clone(own);
                let target = (&buffer.block, buffer.start + offset);
                self.recorder.copy((&own, 0), target, bytes)?;
            }
            None => self.write_staged(buffer, offset, &block[part])?,
        }
        self.started(block)
    }

    fn read_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        mut block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        self.recorder.check()?;
        let buffer = VkBuffer::of(buffer, &self.shared)?;
        range(offset, bytes, buffer.bytes())?;
        let part = range(0, bytes, block.len())?;
        match pinned::block_of(&block, &self.shared) {
            _ if bytes == 0 => {}
            Some(own) => {
                let own = Arc::clone(own);
                let source = (&buffer.block, buffer.start + offset);
                self.recorder.copy(source, (&own, 0), bytes)?;
            }
            // The device has no handle of another's block, so the host copies.
            None => self.read_staged(buffer, offset, &mut block[part])?,
        }
        self.started(block)
    }

    fn copy(
        &mut self,
        from: &dyn Buffer,
        from_offset: usize,
        to: &dyn Buffer,
        to_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        self.recorder.check()?;
        let from = VkBuffer::of(from, &self.shared)?;
        let to = VkBuffer::of(to, &self.shared)?;
        range(from_offset, bytes, from.bytes())?;
        range(to_offset, bytes, to.bytes())?;
        let (source, target) = (from.start + from_offset, to.start + to_offset);
        if Arc::ptr_eq(&from.block, &to.block) {
            refuse_overlap(source, target, bytes)?;
        }
        if bytes == 0 {
            return Ok(());
        }
        self.recorder.copy((&from.block, source), (&to.block, target), bytes)
    }

    unsafe fn launch(&mut self, launch: &Launch<'_>) -> Result<()> {
        self.recorder.check()?;
        let program = VkProgram::downcast(launch.program, &self.shared)?;
        launch.check_grid(self.shared.caps.work_group_max as usize)?;
        let kernel = program.kernel(launch)?;
        let (group, groups) = kernel.places(launch)?;
        let mut args = std::mem::take(&mut self.args);
        kernel.arguments(launch, &mut args)?;
        let most = self.shared.facts.limits.max_compute_work_group_count;
        // Vulkan's own base of a dispatch must keep to the limits of a whole grid, and so cannot
        // replace the pieces' first work-groups.
        let of_pieces = groups.iter().zip(most).any(|(&count, most)| count > most);
        let pipeline = kernel.pipeline(group, of_pieces)?;
        for (at, piece) in pieces(groups, most).enumerate() {
            args.begin_at(piece.first);
            // SAFETY: the caller's promise is passed on; the pipeline is of the kernel.
            unsafe { self.dispatch(kernel, &args, pipeline, piece.groups, at > 0) }?;
        }
        args.clear();
        self.args = args;
        Ok(())
    }

    fn record(&mut self) -> Result<Arc<dyn Event>> {
        self.recorder.check()?;
        if !self.is_timed {
            return Ok(Arc::new(self.mark(None)?));
        }
        let stamp = Arc::new(Stamp::new(&self.shared)?);
        self.recorder.slot().map(drop)?;
        let commands = self.recorder.admit(&[], 0, [Arc::clone(&stamp) as Keep])?;
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: the command buffer is being recorded; the submission keeps the stamp.
        unsafe {
            self.shared.device.cmd_reset_query_pool(commands, stamp.pool, 0, 1);
            self.shared.device.cmd_write_timestamp(commands, stage, stamp.pool, 0);
        }
        Ok(Arc::new(self.mark(Some(stamp))?))
    }

    fn wait_for(&mut self, event: &dyn Event) -> Result<()> {
        self.recorder.check()?;
        let event = VkEvent::of(event, &self.shared)?;
        self.recorder.wait_for(&event.timeline, event.value)
    }

    fn submit(&mut self) -> Result<()> {
        self.recorder.check()?;
        self.recorder.flush()
    }

    fn finish(&mut self) -> Result<()> {
        self.recorder.check()?;
        self.recorder.finish()
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
