//! A CUDA stream.

use super::blas::functions::Functions;
use super::blas::handle::Handle;
use super::buffer::CudaBuffer;
use super::event::CudaEvent;
use super::library::done;
use super::program::CudaProgram;
use super::shared::Shared;
use super::stream::Stream;
use crate::buffer::{Buffer, range, refuse_overlap};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::id::DeviceId;
use crate::pinned::{Pinned, Transfer};
use crate::program::Launch;
use crate::queue::Queue;
use std::any::Any;
use std::sync::Arc;

/// A stream and its context.
pub(super) struct CudaQueue {
    shared: Arc<Shared>,
    stream: Arc<Stream>,
    /// Whether the stream's events record times.
    timed: bool,
    /// The library's handle, which takes memory of the device; a queue without products has none.
    blas: Option<Handle>,
}

impl CudaQueue {
    /// Makes a stream; its events record times if it is `timed`.
    pub(super) fn new(shared: Arc<Shared>, timed: bool) -> Result<Self> {
        let stream = Arc::new(Stream::new(Arc::clone(&shared))?);
        Ok(Self { shared, stream, timed, blas: None })
    }

    /// The queue behind `queue`, if it is one of this opened device.
    pub(super) fn of<'a>(queue: &'a mut dyn Queue, shared: &Arc<Shared>) -> Result<&'a mut Self> {
        queue
            .as_any_mut()
            .downcast_mut::<Self>()
            .filter(|own| Arc::ptr_eq(&own.shared, shared))
            .ok_or(Error::Foreign { what: "queue", device: shared.id })
    }

    /// The handle of a library of products for this stream; the device's context must be bound.
    pub(super) fn blas(&mut self, functions: Functions) -> Result<&Handle> {
        match &mut self.blas {
            Some(handle) => Ok(handle),
            none => {
                let (shared, stream) = (Arc::clone(&self.shared), Arc::clone(&self.stream));
                Ok(none.insert(Handle::new(shared, functions, stream)?))
            }
        }
    }

    /// The transfer of `block` that was just queued.
    fn started(&mut self, block: Pinned) -> Result<Transfer> {
        match self.record() {
            Ok(done) => Ok(Transfer::new(block, done)),
            Err(error) => {
                // Without an event the host cannot know when the device is done with the block.
                std::mem::forget(block);
                Err(error)
            }
        }
    }
}

impl Queue for CudaQueue {
    fn device(&self) -> DeviceId {
        self.shared.id
    }

    fn write(&mut self, buffer: &dyn Buffer, offset: usize, data: &[u8]) -> Result<()> {
        let buffer = CudaBuffer::of(buffer, &self.shared)?;
        range(offset, data.len(), buffer.bytes())?;
        if data.is_empty() {
            return Ok(());
        }
        self.shared.bind()?;
        let address = buffer.address() + offset as u64;
        // SAFETY: the range lies in the buffer; `data` lives until the stream has caught up.
        done(unsafe {
            let (from, bytes) = (data.as_ptr().cast(), data.len());
            (self.shared.driver.cuMemcpyHtoDAsync_v2)(address, from, bytes, self.stream.handle)
        })
        .map_err(self.shared.failed("cuMemcpyHtoDAsync"))?;
        self.finish()
    }

    fn read(&mut self, buffer: &dyn Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        let buffer = CudaBuffer::of(buffer, &self.shared)?;
        range(offset, out.len(), buffer.bytes())?;
        if out.is_empty() {
            return Ok(());
        }
        self.shared.bind()?;
        let address = buffer.address() + offset as u64;
        // SAFETY: the range lies in the buffer; `out` lives until the stream has caught up.
        done(unsafe {
            let (to, bytes) = (out.as_mut_ptr().cast(), out.len());
            (self.shared.driver.cuMemcpyDtoHAsync_v2)(to, address, bytes, self.stream.handle)
        })
        .map_err(self.shared.failed("cuMemcpyDtoHAsync"))?;
        self.finish()
    }

    fn write_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        let buffer = CudaBuffer::of(buffer, &self.shared)?;
        range(offset, bytes, buffer.bytes())?;
        let data = &block[range(0, bytes, block.len())?];
        self.shared.bind()?;
        let address = buffer.address() + offset as u64;
        // SAFETY: the range lies in the buffer, and the transfer keeps `data` unchanged until the
        // stream has caught up.
        done(unsafe {
            let (from, bytes) = (data.as_ptr().cast(), data.len());
            (self.shared.driver.cuMemcpyHtoDAsync_v2)(address, from, bytes, self.stream.handle)
        })
        .map_err(self.shared.failed("cuMemcpyHtoDAsync"))?;
        self.started(block)
    }

    fn read_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        mut block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        let buffer = CudaBuffer::of(buffer, &self.shared)?;
        range(offset, bytes, buffer.bytes())?;
        let part = range(0, bytes, block.len())?;
        self.shared.bind()?;
        let address = buffer.address() + offset as u64;
        // SAFETY: the range lies in the buffer, and the transfer owns the block until the stream
        // has caught up.
        done(unsafe {
            let (to, bytes) = (block[part].as_mut_ptr().cast(), bytes);
            (self.shared.driver.cuMemcpyDtoHAsync_v2)(to, address, bytes, self.stream.handle)
        })
        .map_err(self.shared.failed("cuMemcpyDtoHAsync"))?;
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
        let from = CudaBuffer::of(from, &self.shared)?;
        let to = CudaBuffer::of(to, &self.shared)?;
        range(from_offset, bytes, from.bytes())?;
        range(to_offset, bytes, to.bytes())?;
        let place = |buffer: &CudaBuffer, offset: usize| -> usize {
            usize::try_from(buffer.address()).unwrap_or(usize::MAX).saturating_add(offset)
        };
        refuse_overlap(place(from, from_offset), place(to, to_offset), bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.shared.bind()?;
        let (source, target) =
            (from.address() + from_offset as u64, to.address() + to_offset as u64);
        // SAFETY: both ranges lie in their buffers and do not overlap. Freeing a buffer waits for
        // the device, so it outlives the command.
        done(unsafe {
            let driver = &self.shared.driver;
            (driver.cuMemcpyDtoDAsync_v2)(target, source, bytes, self.stream.handle)
        })
        .map_err(self.shared.failed("cuMemcpyDtoDAsync"))
    }

    unsafe fn launch(&mut self, launch: &Launch<'_>) -> Result<()> {
        let program = CudaProgram::of(launch.program, &self.shared)?;
        self.shared.bind()?;
        // SAFETY: the stream belongs to this device, whose context is bound; the caller promises
        // the rest.
        unsafe { program.launch(launch, &self.stream) }
    }

    fn record(&mut self) -> Result<Arc<dyn Event>> {
        self.shared.bind()?;
        Ok(Arc::new(CudaEvent::record(Arc::clone(&self.shared), &self.stream, self.timed)?))
    }

    fn wait_for(&mut self, event: &dyn Event) -> Result<()> {
        let event = CudaEvent::of(event, &self.shared)?;
        self.shared.bind()?;
        // SAFETY: stream and event are alive and of the bound context.
        done(unsafe { (self.shared.driver.cuStreamWaitEvent)(self.stream.handle, event.handle, 0) })
            .map_err(self.shared.failed("cuStreamWaitEvent"))
    }

    fn submit(&mut self) -> Result<()> {
        // A stream starts its commands without a submission.
        self.shared.bind()
    }

    fn finish(&mut self) -> Result<()> {
        self.shared.bind()?;
        // SAFETY: the stream is alive, and its context bound.
        done(unsafe { (self.shared.driver.cuStreamSynchronize)(self.stream.handle) })
            .map_err(self.shared.failed("cuStreamSynchronize"))
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
