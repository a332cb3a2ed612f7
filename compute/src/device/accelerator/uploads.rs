//! Uploads that run ahead: bytes go to the device through pinned memory, in a queue of their own,
//! while kernels compute.

use super::{Accelerator, lock};
use crate::device::tensor::DeviceTensor;
use crate::error::Result;
use lgp_hal::{Event, Pinned, Queue, Transfer};
use lgp_memory::DType;
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

/// Bytes of a pinned block: so many that the start of a transfer costs little beside them.
const BLOCK_BYTES: usize = 4 << 20;
/// Pinned blocks: one is filled while the one before it is on its way, and one is spare for when
/// the host is late.
const BLOCKS: usize = 3;

/// Bytes of an upload that measures the link: several blocks.
const PROBE_BYTES: usize = 4 * BLOCK_BYTES;
/// Uploads that measure the link; the first also pins memory.
const PROBES: usize = 4;

/// The second queue of a device and its pinned blocks, which are made at the first upload.
#[derive(Default)]
pub(super) struct Uploads {
    queue: Option<Box<dyn Queue>>,
    idle: Vec<Pinned>,
    flying: VecDeque<Transfer>,
}

impl std::fmt::Debug for Uploads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uploads").field("flying", &self.flying).finish_non_exhaustive()
    }
}

/// Uploads of one run, which has the second queue for itself. Dropping it waits for the uploads on
/// their way, because their target memory may be handed out again after that.
#[derive(Debug)]
pub struct Ahead<'a> {
    accelerator: &'a Accelerator,
    uploads: MutexGuard<'a, Uploads>,
}

/// A point in the kernels' queue, or the end of an upload.
#[derive(Debug, Clone)]
pub struct Mark(Arc<dyn Event>);

impl Mark {
    /// Waits until the device has reached this point.
    ///
    /// # Errors
    /// A failure of work that was launched before.
    pub fn wait(&self) -> Result<()> {
        Ok(self.0.wait()?)
    }
}

impl Accelerator {
    /// The second queue; waits while another run has it.
    #[must_use]
    pub fn ahead(&self) -> Ahead<'_> {
        Ahead { accelerator: self, uploads: lock(&self.0.uploads) }
    }

    /// The point that the kernels' queue has reached now.
    ///
    /// # Errors
    /// A refusal of the driver.
    pub fn mark(&self) -> Result<Mark> {
        Ok(Mark(self.record()?))
    }

    /// Measures how many bytes per second go from the host to the device while nothing else runs:
    /// the best of a few uploads.
    ///
    /// # Errors
    /// Out of memory, or a refusal of the driver.
    pub fn link_bytes_per_second(&self) -> Result<f64> {
        let bytes = (self.pool().limits().segment_bytes_max / 2).min(PROBE_BYTES);
        let to = self.alloc_for("link", DType::U8, [bytes])?;
        let data = vec![1; bytes];
        let mut best = 0f64;
        for _ in 0..PROBES {
            self.finish()?;
            let (free, start) = (self.mark()?, Instant::now());
            self.ahead().upload(&free, &to, &data)?.0.wait()?;
            best = best.max(bytes as f64 / start.elapsed().as_secs_f64());
        }
        Ok(best)
    }

    /// Makes all work launched from now on wait for an upload.
    ///
    /// # Errors
    /// A refusal of the driver.
    pub fn wait_for(&self, mark: &Mark) -> Result<()> {
        Ok(self.queue().wait_for(&*mark.0)?)
    }
}

impl Ahead<'_> {
    /// Copies bytes into a tensor whose memory no command uses after `free`. Answers a mark at the
    /// end of the copy, which may not have begun yet; `bytes` may be reused at once.
    ///
    /// # Errors
    /// More bytes than the tensor has, or a refusal of the driver.
    pub fn upload(&mut self, free: &Mark, to: &DeviceTensor, bytes: &[u8]) -> Result<Mark> {
        let Self { accelerator, uploads } = self;
        let mut queue = match uploads.queue.take() {
            Some(queue) => queue,
            None => accelerator.device().queue()?,
        };
        let told = |error| accelerator.told(error, bytes.len(), "transfer");
        let mut offset = 0;
        let mut end = Mark(Arc::clone(&free.0));
        for part in bytes.chunks(BLOCK_BYTES) {
            let mut block = uploads.block(accelerator)?;
            block[..part.len()].copy_from_slice(part);
            if offset == 0 {
                queue.wait_for(&*free.0)?;
            }
            let transfer =
                queue.write_async(&**to.buffer(), offset, block, part.len()).map_err(told)?;
            end = Mark(Arc::clone(transfer.done()));
            uploads.flying.push_back(transfer);
            offset += part.len();
        }
        uploads.queue = Some(queue);
        accelerator.0.traffic.to_device(bytes.len());
        Ok(end)
    }
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        // A failed upload's mark tells its error; its block is lost.
        while let Some(transfer) = self.uploads.flying.pop_front() {
            let block = transfer.wait();
            self.uploads.idle.extend(block);
        }
    }
}

impl Uploads {
    /// A block that no transfer uses.
    fn block(&mut self, accelerator: &Accelerator) -> Result<Pinned> {
        if let Some(block) = self.idle.pop() {
            return Ok(block);
        }
        if self.flying.len() >= BLOCKS
            && let Some(oldest) = self.flying.pop_front()
        {
            return Ok(oldest.wait()?);
        }
        let block = accelerator.device().pinned(BLOCK_BYTES);
        block.map_err(|error| accelerator.told(error, BLOCK_BYTES, "staging"))
    }
}
