//! The recording device itself.

use crate::backend::host::{Command, Host, HostBuffer};
use crate::buffer::Buffer;
use crate::caps::Caps;
use crate::device::Device;
use crate::error::Result;
use crate::id::DeviceId;
use crate::pinned::Pinned;
use crate::program::Program;
use crate::queue::Queue;
use crate::self_test::{Operands, Outcomes};
use std::sync::Arc;

/// A device without hardware that stores bytes and records every command.
#[derive(Debug)]
pub struct NullDevice {
    caps: Caps,
    host: Host,
}

impl NullDevice {
    /// A recording device whose largest buffer is `allocation_bytes_max`.
    #[must_use]
    pub fn new(allocation_bytes_max: Option<u64>) -> Self {
        let caps = Caps {
            vendor: "none".to_owned(),
            driver: "none".to_owned(),
            memory_bytes: allocation_bytes_max,
            allocation_bytes_max,
            alignment_bytes: HostBuffer::ALIGNMENT as u32,
            unified_memory: true,
            ..Caps::default()
        };
        let host = Host::new(DeviceId::NULL, "the recording device calculates nothing");
        Self { caps, host: host.recording() }
    }

    /// Loses the device, like a hang or a reset of hardware.
    pub fn lose(&self) {
        self.host.lose("NullDevice::lose");
    }

    /// The commands executed so far.
    #[must_use]
    pub fn commands(&self) -> Vec<Command> {
        self.host.commands()
    }
}

impl Device for NullDevice {
    fn id(&self) -> DeviceId {
        DeviceId::NULL
    }

    fn name(&self) -> &str {
        "recording device"
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Buffer>> {
        self.host.allocate(bytes, self.caps.allocation_bytes_max)
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        self.host.queue()
    }

    fn pinned(&self, bytes: usize) -> Result<Pinned> {
        self.host.pinned(bytes)
    }

    fn compile(&self, _source: &str, _options: &str) -> Result<Arc<dyn Program>> {
        Err(self.host.refusal())
    }

    unsafe fn load(&self, _binary: &[u8]) -> Result<Arc<dyn Program>> {
        Err(self.host.refusal())
    }

    fn arithmetic(&self, _operands: &Operands) -> Result<Outcomes> {
        Ok(Outcomes::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn commands_are_recorded_in_order_and_refusals_are_not() {
        let device = NullDevice::new(Some(64));
        let buffer = device.allocate(16).expect("fits");
        let mut queue = device.queue().expect("is there");
        queue.write(&*buffer, 0, &[1; 8]).expect("fits");
        queue.copy(&*buffer, 0, &*buffer, 8, 8).expect("fits");
        assert!(matches!(queue.write(&*buffer, 9, &[1; 8]), Err(Error::OutOfBounds { .. })));
        let mut out = [0; 16];
        queue.read(&*buffer, 0, &mut out).expect("fits");
        queue.submit().expect("nothing can fail");
        queue.finish().expect("nothing can fail");
        assert_eq!(out, [1; 16]);
        use Command::{Allocate, Copy, Finish, Read, Submit, Write};
        assert_eq!(device.commands(), [Allocate(16), Write(8), Copy(8), Read(16), Submit, Finish]);
        assert!(matches!(device.allocate(65), Err(Error::OutOfMemory { bytes: 65, .. })));
    }

    #[test]
    fn a_lost_device_answers_each_call_with_its_loss() {
        let device = NullDevice::new(None);
        let buffer = device.allocate(16).expect("fits");
        let mut queue = device.queue().expect("is there");
        let event = queue.record().expect("is there");
        let block = || device.pinned(16).expect("fits");
        device.lose();
        let answers = [
            device.allocate(1).map(drop),
            device.queue().map(drop),
            queue.write(&*buffer, 0, &[0]),
            queue.read(&*buffer, 0, &mut [0]),
            queue.write_async(&*buffer, 0, block(), 16).map(drop),
            queue.read_async(&*buffer, 0, block(), 16).map(drop),
            queue.copy(&*buffer, 0, &*buffer, 8, 8),
            queue.record().map(drop),
            queue.wait_for(&*event),
            queue.submit(),
            queue.finish(),
        ];
        for (at, answer) in answers.into_iter().enumerate() {
            assert!(matches!(answer, Err(Error::DeviceLost { .. })), "call {at}: {answer:?}");
        }
    }
}
