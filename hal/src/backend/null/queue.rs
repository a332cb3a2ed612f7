//! A queue that does each transfer at once and notes it.

use super::buffer::NullBuffer;
use super::program::refusal;
use crate::backend::host::{HostEvent, part};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::event::Event;
use crate::id::DeviceId;
use crate::life::Life;
use crate::pinned::{Pinned, Transfer};
use crate::program::Launch;
use crate::queue::Queue;
use std::sync::{Arc, Mutex, PoisonError};

/// One command that the recording device carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// A buffer of this many bytes was allocated.
    Allocate(usize),
    /// This many bytes came from the host.
    Write(usize),
    /// This many bytes went to the host.
    Read(usize),
    /// This many bytes moved on the device.
    Copy(usize),
    /// A queue was submitted.
    Submit,
    /// A queue was finished.
    Finish,
}

/// The commands of one device in the order in which they were carried out.
pub(super) type Record = Arc<Mutex<Vec<Command>>>;

/// Adds a command to the record.
pub(super) fn note(record: &Record, command: Command) {
    record.lock().unwrap_or_else(PoisonError::into_inner).push(command);
}

/// A queue of the recording device.
pub(super) struct NullQueue {
    pub(super) record: Record,
    pub(super) life: Arc<Life>,
}

impl Queue for NullQueue {
    fn device(&self) -> DeviceId {
        DeviceId::NULL
    }

    fn write(&mut self, buffer: &dyn Buffer, offset: usize, data: &[u8]) -> Result<()> {
        self.life.check()?;
        NullBuffer::of(buffer, DeviceId::NULL)?.write(offset, data)?;
        note(&self.record, Command::Write(data.len()));
        Ok(())
    }

    fn read(&mut self, buffer: &dyn Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.life.check()?;
        NullBuffer::of(buffer, DeviceId::NULL)?.read(offset, out)?;
        note(&self.record, Command::Read(out.len()));
        Ok(())
    }

    fn write_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        mut block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        self.write(buffer, offset, part(&mut block, bytes)?)?;
        Ok(HostEvent::over(DeviceId::NULL, block))
    }

    fn read_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        mut block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        self.read(buffer, offset, part(&mut block, bytes)?)?;
        Ok(HostEvent::over(DeviceId::NULL, block))
    }

    fn copy(
        &mut self,
        from: &dyn Buffer,
        from_offset: usize,
        to: &dyn Buffer,
        to_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        self.life.check()?;
        let from = NullBuffer::of(from, DeviceId::NULL)?;
        from.copy(from_offset, NullBuffer::of(to, DeviceId::NULL)?, to_offset, bytes)?;
        note(&self.record, Command::Copy(bytes));
        Ok(())
    }

    unsafe fn launch(&mut self, _launch: &Launch<'_>) -> Result<()> {
        Err(refusal())
    }

    fn record(&mut self) -> Result<Arc<dyn Event>> {
        self.life.check()?;
        Ok(Arc::new(HostEvent::now(DeviceId::NULL)))
    }

    fn wait_for(&mut self, event: &dyn Event) -> Result<()> {
        self.life.check()?;
        HostEvent::of(event, DeviceId::NULL).map(drop)
    }

    fn submit(&mut self) -> Result<()> {
        self.life.check()?;
        note(&self.record, Command::Submit);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.life.check()?;
        note(&self.record, Command::Finish);
        Ok(())
    }
}
