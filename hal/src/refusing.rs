//! A device that runs out of memory when it is told to, for tests of what happens then.

use crate::buffer::Buffer;
use crate::caps::Caps;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::gemm::Gemm;
use crate::id::DeviceId;
use crate::pinned::{Pinned, Transfer};
use crate::program::{Launch, Program};
use crate::queue::Queue;
use crate::self_test::{Operands, Outcomes};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device that passes everything on to another one, but refuses chosen requests for memory:
/// allocations, pinned blocks, and writes, with which drivers find out that memory which they
/// promised is not there.
#[derive(Debug)]
pub struct RefusingDevice {
    inner: Arc<dyn Device>,
    requests: Arc<Requests>,
}

/// How many requests there were, and which of them to refuse.
#[derive(Debug)]
struct Requests {
    device: DeviceId,
    state: Mutex<(usize, Range<usize>)>,
}

impl RefusingDevice {
    /// A device that refuses nothing yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        let requests = Requests { device: inner.id(), state: Mutex::new((0, 0..0)) };
        Self { inner, requests: Arc::new(requests) }
    }

    /// Counts requests from 0 again, and refuses those whose number is in `refused`.
    pub fn refuse(&self, refused: Range<usize>) {
        *self.requests.lock() = (0, refused);
    }

    /// How many requests there were since [`RefusingDevice::refuse`].
    #[must_use]
    pub fn asked(&self) -> usize {
        self.requests.lock().0
    }
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, (usize, Range<usize>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, bytes: usize) -> Result<()> {
        let mut state = self.lock();
        let number = state.0;
        state.0 += 1;
        if state.1.contains(&number) {
            let (device, reason) = (self.device, "it was told to".to_owned());
            return Err(Error::OutOfMemory { device, bytes, reason });
        }
        Ok(())
    }
}

impl Device for RefusingDevice {
    fn id(&self) -> DeviceId {
        self.inner.id()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Buffer>> {
        self.requests.next(bytes)?;
        self.inner.allocate(bytes)
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        let requests = Arc::clone(&self.requests);
        Ok(Box::new(RefusingQueue { inner: self.inner.queue()?, requests }))
    }

    fn pinned(&self, bytes: usize) -> Result<Pinned> {
        self.requests.next(bytes)?;
        self.inner.pinned(bytes)
    }

    fn compile(&self, source: &str, options: &str) -> Result<Arc<dyn Program>> {
        self.inner.compile(source, options)
    }

    unsafe fn load(&self, binary: &[u8]) -> Result<Arc<dyn Program>> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.load(binary) }
    }

    fn arithmetic(&self, operands: &Operands) -> Result<Outcomes> {
        self.inner.arithmetic(operands)
    }
}

/// A queue of a [`RefusingDevice`].
struct RefusingQueue {
    inner: Box<dyn Queue>,
    requests: Arc<Requests>,
}

impl Queue for RefusingQueue {
    fn device(&self) -> DeviceId {
        self.inner.device()
    }

    fn write(&mut self, buffer: &dyn Buffer, offset: usize, data: &[u8]) -> Result<()> {
        self.requests.next(data.len())?;
        self.inner.write(buffer, offset, data)
    }

    fn read(&mut self, buffer: &dyn Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.inner.read(buffer, offset, out)
    }

    fn write_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        self.requests.next(bytes)?;
        self.inner.write_async(buffer, offset, block, bytes)
    }

    fn read_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        block: Pinned,
        bytes: usize,
    ) -> Result<Transfer> {
        self.inner.read_async(buffer, offset, block, bytes)
    }

    fn copy(
        &mut self,
        from: &dyn Buffer,
        from_offset: usize,
        to: &dyn Buffer,
        to_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        self.inner.copy(from, from_offset, to, to_offset, bytes)
    }

    unsafe fn launch(&mut self, launch: &Launch<'_>) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.launch(launch) }
    }

    fn gemm(&mut self, gemm: &Gemm<'_>) -> Result<()> {
        self.inner.gemm(gemm)
    }

    fn record(&mut self) -> Result<Arc<dyn Event>> {
        self.inner.record()
    }

    fn wait_for(&mut self, event: &dyn Event) -> Result<()> {
        self.inner.wait_for(event)
    }

    fn submit(&mut self) -> Result<()> {
        self.inner.submit()
    }

    fn finish(&mut self) -> Result<()> {
        self.inner.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NullDevice;

    #[test]
    fn the_chosen_requests_are_refused_and_no_others() {
        let device = RefusingDevice::new(Arc::new(NullDevice::new(None)));
        let buffer = device.allocate(8).expect("nothing is refused yet");
        let mut queue = device.queue().expect("is there");
        device.refuse(1..3);
        let answers = [
            device.allocate(8).map(drop),
            queue.write(&*buffer, 0, &[1; 8]),
            device.pinned(8).map(drop),
            queue.write(&*buffer, 0, &[1; 8]),
        ];
        assert_eq!(answers.map(|answer| answer.is_ok()), [true, false, false, true]);
        assert_eq!(device.asked(), 4);
    }
}
