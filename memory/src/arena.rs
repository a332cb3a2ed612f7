//! One block of memory for all intermediate tensors of a run, at planned offsets.

mod planner;
#[cfg(test)]
mod tests;

pub use planner::{ArenaPlan, BlockPlan, Lifetime, Order};

use crate::buffer::{ALIGNMENT, Buffer, Memory};
use crate::error::Result;
use crate::pool::Pool;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A block of memory that is handed out in ranges. Clones share it; the block returns to its pool
/// when the last clone and the last range are dropped.
///
/// No byte is ever in two live buffers: a range that overlaps a live one is refused.
///
/// ```
/// let arena = lgp_memory::Arena::new(&lgp_memory::Pool::new(), 256)?;
/// let a = arena.take(0, 100).expect("nothing lives yet");
/// assert!(arena.take(64, 64).is_none(), "it would overlap");
/// drop(a);
/// assert!(arena.take(64, 64).is_some());
/// # Ok::<(), lgp_memory::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Arena(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    block: Memory,
    /// Start and end of each live range.
    taken: Mutex<BTreeMap<usize, usize>>,
}

impl Arena {
    /// An arena of `bytes` bytes from a pool.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    pub fn new(pool: &Pool, bytes: usize) -> Result<Self> {
        let block = Memory::new(pool.alloc(bytes)?);
        Ok(Self(Arc::new(Shared { block, taken: Mutex::default() })))
    }

    /// The bytes from `offset` on, unless they are outside the arena, unaligned, or partly in use.
    /// They are initialised but unspecified; dropping the buffer returns them.
    #[must_use]
    pub fn take(&self, offset: usize, len: usize) -> Option<Buffer> {
        let end = offset.checked_add(len).filter(|&end| end <= self.0.block.len())?;
        if len == 0 || !offset.is_multiple_of(ALIGNMENT) {
            return None;
        }
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // Ranges do not overlap, so the last that begins before `end` ends last.
        if taken.range(..end).next_back().is_some_and(|(_, &busy)| busy > offset) {
            return None;
        }
        taken.insert(offset, end);
        drop(taken);
        Some(Buffer::in_arena(Region { arena: self.clone(), offset }, len))
    }
}

/// A range of an arena that belongs to one buffer.
#[derive(Debug)]
pub(crate) struct Region {
    arena: Arena,
    offset: usize,
}

impl Region {
    /// The start of the range. The bytes of the range belong only to this region until it is
    /// dropped.
    pub(crate) fn start(&self) -> std::ptr::NonNull<u8> {
        self.arena.0.block.at(self.offset)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.arena.0.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.offset);
    }
}
