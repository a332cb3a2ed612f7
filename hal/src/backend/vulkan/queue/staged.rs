//! Transfers between the host's bytes and buffers: by the host itself, and through staging memory.

use super::VkQueue;
use crate::backend::vulkan::buffer::VkBuffer;
use crate::backend::vulkan::memory::Block;
use crate::backend::vulkan::record::PART_BYTES;
use crate::error::Result;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Parts of a read in flight at once: the host empties one while the device fills the other.
const PARTS_READ: usize = 2;

impl VkQueue {
    /// Writes through staging memory.
    pub(super) fn write_staged(&mut self, to: &VkBuffer, offset: usize, data: &[u8]) -> Result<()> {
        for (at, part) in (0..).step_by(PART_BYTES).zip(data.chunks(PART_BYTES)) {
            let (block, place) = self.recorder.stage(part.len())?;
            copy_in(&block, place, part);
            let target = (&to.block, to.start + offset + at);
            self.recorder.copy((&block, place), target, part.len())?;
            if part.len() == PART_BYTES {
                // The device copies this part while the host writes the next.
                self.recorder.flush()?;
            }
        }
        Ok(())
    }

    /// Reads through staging memory.
    pub(super) fn read_staged(
        &mut self,
        from: &VkBuffer,
        offset: usize,
        out: &mut [u8],
    ) -> Result<()> {
        let mut parts: VecDeque<(u64, Arc<Block>, usize, Range<usize>)> = VecDeque::new();
        let mut at = 0;
        while at < out.len() || !parts.is_empty() {
            let is_full = parts.len() == PARTS_READ || at == out.len();
            if let Some((value, block, place, part)) = parts.pop_front_if(|_| is_full) {
                self.recorder.wait(value)?;
                copy_out(&block, place, &mut out[part]);
                continue;
            }
            let part = at..out.len().min(at + PART_BYTES);
            // The ring hands out a part's bytes again only after all others.
            let (block, place) = self.recorder.stage(part.len())?;
            let source = (&from.block, from.start + offset + at);
            self.recorder.copy(source, (&block, place), part.len())?;
            self.recorder.flush()?;
            at = part.end;
            parts.push_back((self.recorder.submitted(), block, place, part));
        }
        Ok(())
    }
}

/// Writes into a block of mapped memory that no command accesses.
pub(super) fn copy_in(block: &Block, at: usize, data: &[u8]) {
    // SAFETY: the range lies in the block, which the host sees, and no command accesses it.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), view(block, at), data.len()) };
}

/// Reads from a block of mapped memory that no command writes to.
pub(super) fn copy_out(block: &Block, at: usize, out: &mut [u8]) {
    // SAFETY: the range lies in the block, which the host sees, and no command writes to it.
    unsafe { std::ptr::copy_nonoverlapping(view(block, at), out.as_mut_ptr(), out.len()) };
}

/// The host's view of a byte of a block.
fn view(block: &Block, at: usize) -> *mut u8 {
    match block.start() {
        Some(start) => start.as_ptr().wrapping_add(at),
        None => unreachable!("the caller chose a block of mapped memory"),
    }
}
