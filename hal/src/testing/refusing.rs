//! A device that runs out of memory or is slow on request, for tests of both cases.

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::id::DeviceId;
use crate::pass_on;
use crate::pinned::{Pinned, Transfer};
use crate::program::Launch;
use crate::queue::Queue;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A device that delegates to another one, but refuses chosen requests for memory: allocations,
/// pinned blocks, and writes (at which drivers find out that promised memory does not exist). It
/// can also delay kernels.
#[derive(Debug)]
pub struct RefusingDevice {
    inner: Arc<dyn Device>,
    requests: Arc<Requests>,
}

/// The number of requests so far, and the ones to refuse.
#[derive(Debug)]
struct Requests {
    device: DeviceId,
    state: Mutex<(usize, Range<usize>)>,
    delay: Mutex<Duration>,
}

impl RefusingDevice {
    /// A device that refuses nothing yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        let requests =
            Requests { device: inner.id(), state: Mutex::new((0, 0..0)), delay: Mutex::default() };
        Self { inner, requests: Arc::new(requests) }
    }

    /// Counts requests from 0 again, and refuses those whose number is in `refused`.
    pub fn refuse(&self, refused: Range<usize>) {
        *self.requests.lock() = (0, refused);
    }

    /// Delays every launch of a kernel by this time.
    pub fn slow_down(&self, delay: Duration) {
        *self.requests.delay.lock().unwrap_or_else(PoisonError::into_inner) = delay;
    }

    /// The number of requests since [`RefusingDevice::refuse`].
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
    pass_on!(inner: id, name, caps, free_bytes, blas, compile, load, arithmetic);

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
}

/// A queue of a [`RefusingDevice`].
struct RefusingQueue {
    inner: Box<dyn Queue>,
    requests: Arc<Requests>,
}

impl Queue for RefusingQueue {
    pass_on!(inner: device, read, read_async, copy, record, wait_for, submit, finish, as_any_mut);

    fn write(&mut self, buffer: &dyn Buffer, offset: usize, data: &[u8]) -> Result<()> {
        self.requests.next(data.len())?;
        self.inner.write(buffer, offset, data)
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

    unsafe fn launch(&mut self, launch: &Launch<'_>) -> Result<()> {
        let delay = *self.requests.delay.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::sleep(delay);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.launch(launch) }
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
