//! An in-order OpenCL command queue.

use super::buffer::ClBuffer;
use super::event::ClEvent;
use super::program::{ClProgram, set_args};
use super::shared::Shared;
use crate::buffer::{Buffer, range, refuse_overlap};
use crate::error::Result;
use crate::event::Event;
use crate::id::DeviceId;
use crate::pinned::{Pinned, Transfer};
use crate::program::Launch;
use crate::queue::Queue;
use opencl3::command_queue::CommandQueue;
use opencl3::types::{CL_BLOCKING, CL_NON_BLOCKING, cl_command_queue_properties, cl_mem};
use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// A command queue and its context.
pub(super) struct ClQueue {
    shared: Arc<Shared>,
    queue: CommandQueue,
}

impl ClQueue {
    /// Makes a queue with the given properties of OpenCL.
    pub(super) fn new(
        shared: Arc<Shared>,
        properties: cl_command_queue_properties,
    ) -> Result<Self> {
        // In-order is the default. The call is from OpenCL 1.2; later drivers support it too.
        let queue = CommandQueue::create_default(&shared.context, properties)
            .map_err(shared.failed("clCreateCommandQueue"))?;
        Ok(Self { shared, queue })
    }

    /// The transfer of `block` that ends with `event`.
    fn started(&self, block: Pinned, event: opencl3::event::Event) -> Result<Transfer> {
        let event = ClEvent::new(Arc::clone(&self.shared), event);
        let transfer = Transfer::new(block, Arc::new(event));
        // A wait for the event must not depend on a later submission.
        self.queue.flush().map_err(self.shared.failed("clFlush"))?;
        Ok(transfer)
    }
}

/// A second handle of a buffer, of the type that the bindings take; it does not own the buffer.
fn alias(handle: cl_mem) -> ManuallyDrop<opencl3::memory::Buffer<u8>> {
    ManuallyDrop::new(opencl3::memory::Buffer::new(handle))
}

impl Queue for ClQueue {
    fn device(&self) -> DeviceId {
        self.shared.id
    }

    fn write(&mut self, buffer: &dyn Buffer, offset: usize, data: &[u8]) -> Result<()> {
        self.shared.life.check()?;
        let buffer = ClBuffer::of(buffer, &self.shared)?;
        range(offset, data.len(), buffer.bytes())?;
        if data.is_empty() {
            return Ok(());
        }
        let mut handle = alias(buffer.handle());
        // SAFETY: the range lies in the buffer, and the blocking call does not use `data` after it
        // returns.
        unsafe { self.queue.enqueue_write_buffer(&mut handle, CL_BLOCKING, offset, data, &[]) }
            .map_err(self.shared.moved("clEnqueueWriteBuffer", data.len()))?;
        Ok(())
    }

    fn read(&mut self, buffer: &dyn Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.shared.life.check()?;
        let buffer = ClBuffer::of(buffer, &self.shared)?;
        range(offset, out.len(), buffer.bytes())?;
        if out.is_empty() {
            return Ok(());
        }
        let bytes = out.len();
        // SAFETY: the range lies in the buffer, and the blocking call has filled `out` when it
        // returns.
        unsafe {
            self.queue.enqueue_read_buffer(&alias(buffer.handle()), CL_BLOCKING, offset, out, &[])
        }
        .map_err(self.shared.moved("clEnqueueReadBuffer", bytes))?;
        Ok(())
    }

    fn write_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        self.shared.life.check()?;
        let buffer = ClBuffer::of(buffer, &self.shared)?;
        range(offset, bytes, buffer.bytes())?;
        let data = &block[range(0, bytes, block.len())?];
        if bytes == 0 {
            return Ok(Transfer::new(block, self.record()?));
        }
        let mut handle = alias(buffer.handle());
        // SAFETY: the range lies in the buffer, and the transfer keeps `data` unchanged until the
        // command's event completes.
        let event = unsafe {
            self.queue.enqueue_write_buffer(&mut handle, CL_NON_BLOCKING, offset, data, &[])
        }
        .map_err(self.shared.used("clEnqueueWriteBuffer", bytes))?;
        self.started(block, event)
    }

    fn read_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        mut block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        self.shared.life.check()?;
        let buffer = ClBuffer::of(buffer, &self.shared)?;
        range(offset, bytes, buffer.bytes())?;
        let part = range(0, bytes, block.len())?;
        if bytes == 0 {
            return Ok(Transfer::new(block, self.record()?));
        }
        let (handle, out) = (alias(buffer.handle()), &mut block[part]);
        // SAFETY: the range lies in the buffer, and the transfer owns `out` until the command's
        // event completes.
        let event =
            unsafe { self.queue.enqueue_read_buffer(&handle, CL_NON_BLOCKING, offset, out, &[]) }
                .map_err(self.shared.used("clEnqueueReadBuffer", bytes))?;
        self.started(block, event)
    }

    fn copy(
        &mut self,
        from: &dyn Buffer,
        from_offset: usize,
        to: &dyn Buffer,
        to_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        self.shared.life.check()?;
        let from = ClBuffer::of(from, &self.shared)?;
        let to = ClBuffer::of(to, &self.shared)?;
        range(from_offset, bytes, from.bytes())?;
        range(to_offset, bytes, to.bytes())?;
        let ((from_root, from_start), (to_root, to_start)) = (from.origin(), to.origin());
        if from_root.handle() == to_root.handle() {
            refuse_overlap(from_start + from_offset, to_start + to_offset, bytes)?;
        }
        if bytes == 0 {
            return Ok(());
        }
        let mut target = alias(to.handle());
        // SAFETY: both ranges lie in their buffers and do not overlap; the driver keeps the
        // buffers until the command is done.
        unsafe {
            self.queue.enqueue_copy_buffer(
                &alias(from.handle()),
                &mut target,
                from_offset,
                to_offset,
                bytes,
                &[],
            )
        }
        .map_err(self.shared.used("clEnqueueCopyBuffer", bytes))?;
        Ok(())
    }

    unsafe fn launch(&mut self, launch: &Launch<'_>) -> Result<()> {
        self.shared.life.check()?;
        let program = ClProgram::of(launch.program, &self.shared)?;
        launch.check_grid(self.shared.caps.work_group_max as usize)?;
        let mut kernels = program.kernels();
        let kernel = kernels.get_mut(launch.kernel).ok_or_else(|| {
            let names = crate::program::Program::kernels(program).join(", ");
            launch.refusal(format!("the program has no such kernel, only {names}"))
        })?;
        let local = launch.local.as_ref().map_or(std::ptr::null(), |local| local.as_ptr());
        // SAFETY: the caller promises that arguments and kernel fit. Grid and local size are arrays
        // of three that live through the call, which copies them. The lock on the kernels keeps the
        // arguments until the command is queued.
        unsafe {
            set_args(kernel, launch, &self.shared)?;
            self.queue.enqueue_nd_range_kernel(
                kernel.kernel.get(),
                3,
                std::ptr::null(),
                launch.global.as_ptr(),
                local,
                &[],
            )
        }
        .map_err(self.shared.launched("clEnqueueNDRangeKernel", launch))?;
        Ok(())
    }

    fn record(&mut self) -> Result<Arc<dyn Event>> {
        self.shared.life.check()?;
        // SAFETY: the list of events is empty.
        let event = unsafe { self.queue.enqueue_marker_with_wait_list(&[]) }
            .map_err(self.shared.failed("clEnqueueMarkerWithWaitList"))?;
        // A wait for the event, even on another queue, must not depend on a later submission.
        self.submit()?;
        Ok(Arc::new(ClEvent::new(Arc::clone(&self.shared), event)))
    }

    fn wait_for(&mut self, event: &dyn Event) -> Result<()> {
        self.shared.life.check()?;
        let event = ClEvent::of(event, &self.shared)?;
        // SAFETY: the event is alive and belongs to this context.
        unsafe { self.queue.enqueue_barrier_with_wait_list(&[event.event.get()]) }
            .map_err(self.shared.failed("clEnqueueBarrierWithWaitList"))?;
        Ok(())
    }

    fn submit(&mut self) -> Result<()> {
        self.shared.life.check()?;
        self.queue.flush().map_err(self.shared.failed("clFlush"))
    }

    fn finish(&mut self) -> Result<()> {
        self.shared.life.check()?;
        self.queue.finish().map_err(self.shared.waited("clFinish"))
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
