//! A queue that does each transfer at once.

use super::buffer::CpuBuffer;
use super::program::refusal;
use crate::backend::host::{HostEvent, part};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::event::Event;
use crate::id::DeviceId;
use crate::pinned::{Pinned, Transfer};
use crate::program::Launch;
use crate::queue::Queue;
use std::sync::Arc;

/// A queue of the processor.
pub(super) struct CpuQueue;

impl Queue for CpuQueue {
    fn device(&self) -> DeviceId {
        DeviceId::CPU
    }

    fn write(&mut self, buffer: &dyn Buffer, offset: usize, data: &[u8]) -> Result<()> {
        CpuBuffer::of(buffer, DeviceId::CPU)?.write(offset, data)
    }

    fn read(&mut self, buffer: &dyn Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        CpuBuffer::of(buffer, DeviceId::CPU)?.read(offset, out)
    }

    fn write_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        mut block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        self.write(buffer, offset, part(&mut block, bytes)?)?;
        Ok(HostEvent::over(DeviceId::CPU, block))
    }

    fn read_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        mut block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        self.read(buffer, offset, part(&mut block, bytes)?)?;
        Ok(HostEvent::over(DeviceId::CPU, block))
    }

    fn copy(
        &mut self,
        from: &dyn Buffer,
        from_offset: usize,
        to: &dyn Buffer,
        to_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let to = CpuBuffer::of(to, DeviceId::CPU)?;
        CpuBuffer::of(from, DeviceId::CPU)?.copy(from_offset, to, to_offset, bytes)
    }

    unsafe fn launch(&mut self, _launch: &Launch<'_>) -> Result<()> {
        Err(refusal())
    }

    fn record(&mut self) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(HostEvent::now(DeviceId::CPU)))
    }

    fn wait_for(&mut self, event: &dyn Event) -> Result<()> {
        HostEvent::of(event, DeviceId::CPU).map(drop)
    }

    fn submit(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
