//! A queue's staging memory, in which the host writes what the device copies.

use super::Recorder;
use crate::backend::vulkan::memory::Block;
use crate::backend::vulkan::pool::Home;
use crate::backend::vulkan::ring::Ring;
use crate::error::Result;
use std::sync::Arc;

/// The size of the staging memory.
const BYTES: usize = 8 << 20;
/// The largest part of a transfer through staging memory: a transfer of several parts keeps host
/// and device at work at once.
pub(in crate::backend::vulkan) const PART_BYTES: usize = 2 << 20;

/// The memory, and which of it is in use.
pub(super) struct Staging {
    block: Arc<Block>,
    pub(super) ring: Ring,
}

impl Recorder {
    /// A part of the staging memory for at most [`PART_BYTES`] bytes: the block, and the part's
    /// offset in it. The part is the caller's until the submission of the next command is done.
    pub(in crate::backend::vulkan) fn stage(
        &mut self,
        bytes: usize,
    ) -> Result<(Arc<Block>, usize)> {
        if self.staging.is_none() {
            let block = Block::new(&self.shared, Home::Host, BYTES)?;
            self.staging = Some(Staging { block, ring: Ring::new(BYTES as u64) });
        }
        loop {
            if self.staging.as_ref().is_some_and(|it| it.ring.has_room(bytes as u64)) {
                // The command's slot comes before the part. It may submit, which would free a part
                // before its command runs, and where it fails a part would never be freed.
                self.slot()?;
                let Some(Staging { block, ring }) = &mut self.staging else {
                    unreachable!("it was just there");
                };
                if let Some(at) = ring.take(bytes as u64).and_then(|at| usize::try_from(at).ok()) {
                    return Ok((Arc::clone(block), at));
                }
            }
            self.flush()?;
            // Everything in the ring is of a submission now, and a part always fits an empty ring.
            let oldest = self.flights.front().map_or(self.submitted, |flight| flight.value);
            self.wait(oldest)?;
        }
    }
}
