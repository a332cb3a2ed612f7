//! Devices whose memory is the host's, and their queues, which execute each command at once.

use super::record::{Command, Record};
use super::{HostBuffer, HostEvent, part, pinned};
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::id::DeviceId;
use crate::life::Life;
use crate::pinned::{Pinned, Transfer};
use crate::program::Launch;
use crate::queue::Queue;
use std::any::Any;
use std::sync::Arc;

/// The common state of a device whose memory is the host's and of its queues. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    device: DeviceId,
    /// Why the device has no programs.
    no_programs: &'static str,
    /// The device is lost only on request.
    life: Arc<Life>,
    /// The executed commands, if they are recorded.
    record: Option<Record>,
}

impl Host {
    /// A device without programs, for the given reason.
    pub(crate) fn new(device: DeviceId, no_programs: &'static str) -> Self {
        Self { device, no_programs, life: Arc::default(), record: None }
    }

    /// A device that also records each command.
    pub(crate) fn recording(self) -> Self {
        Self { record: Some(Record::default()), ..self }
    }

    /// The commands executed so far; empty if they are not recorded.
    pub(crate) fn commands(&self) -> Vec<Command> {
        self.record.as_ref().map(Record::commands).unwrap_or_default()
    }

    /// Loses the device; `call` is the function that asked for it.
    pub(crate) fn lose(&self, call: &'static str) {
        let code = "loss on request".to_owned();
        self.life.end(Error::DeviceLost { device: self.device, call, code });
    }

    /// Allocates `bytes` bytes, at most `bytes_max`.
    pub(crate) fn allocate(&self, bytes: usize, bytes_max: Option<u64>) -> Result<Arc<dyn Buffer>> {
        self.life.check()?;
        let buffer = HostBuffer::new(self.device, bytes, bytes_max)?;
        self.note(Command::Allocate(bytes));
        Ok(Arc::new(buffer))
    }

    /// Makes a queue.
    pub(crate) fn queue(&self) -> Result<Box<dyn Queue>> {
        self.life.check()?;
        Ok(Box::new(HostQueue(self.clone())))
    }

    /// Allocates a block for transfers.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<Pinned> {
        pinned(self.device, bytes)
    }

    /// The error for every program.
    pub(crate) fn refusal(&self) -> Error {
        let reason = self.no_programs.to_owned();
        Error::Unsupported { device: self.device, what: "programs", reason }
    }

    fn note(&self, command: Command) {
        if let Some(record) = &self.record {
            record.note(command);
        }
    }

    fn buffer<'a>(&self, buffer: &'a dyn Buffer) -> Result<&'a HostBuffer> {
        HostBuffer::of(buffer, self.device)
    }
}

/// A queue of a device whose memory is the host's.
struct HostQueue(Host);

impl Queue for HostQueue {
    fn device(&self) -> DeviceId {
        self.0.device
    }

    fn write(&mut self, buffer: &dyn Buffer, offset: usize, data: &[u8]) -> Result<()> {
        self.0.life.check()?;
        self.0.buffer(buffer)?.write(offset, data)?;
        self.0.note(Command::Write(data.len()));
        Ok(())
    }

    fn read(&mut self, buffer: &dyn Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.0.life.check()?;
        self.0.buffer(buffer)?.read(offset, out)?;
        self.0.note(Command::Read(out.len()));
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
        Ok(HostEvent::over(self.0.device, block))
    }

    fn read_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        mut block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        self.read(buffer, offset, part(&mut block, bytes)?)?;
        Ok(HostEvent::over(self.0.device, block))
    }

    fn copy(
        &mut self,
        from: &dyn Buffer,
        from_offset: usize,
        to: &dyn Buffer,
        to_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        self.0.life.check()?;
        let to = self.0.buffer(to)?;
        self.0.buffer(from)?.copy(from_offset, to, to_offset, bytes)?;
        self.0.note(Command::Copy(bytes));
        Ok(())
    }

    unsafe fn launch(&mut self, _launch: &Launch<'_>) -> Result<()> {
        Err(self.0.refusal())
    }

    fn record(&mut self) -> Result<Arc<dyn Event>> {
        self.0.life.check()?;
        Ok(Arc::new(HostEvent::now(self.0.device)))
    }

    fn wait_for(&mut self, event: &dyn Event) -> Result<()> {
        self.0.life.check()?;
        HostEvent::of(event, self.0.device).map(drop)
    }

    fn submit(&mut self) -> Result<()> {
        self.0.life.check()?;
        self.0.note(Command::Submit);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.0.life.check()?;
        self.0.note(Command::Finish);
        Ok(())
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
