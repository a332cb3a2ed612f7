//! A queue that does each transfer at once.

use super::buffer::CpuBuffer;
use super::program::refusal;
use crate::buffer::Buffer;
use crate::error::Result;
use crate::id::DeviceId;
use crate::program::Launch;
use crate::queue::Queue;

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

    fn submit(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
