//! One block of memory for all intermediate tensors of a run, at planned offsets.

mod planner;
#[cfg(test)]
mod tests;

pub use planner::{ArenaPlan, BlockPlan, Lifetime, Order};

use crate::buffer::Buffer;
use crate::buffer::region::Regions;
use crate::error::Result;
use crate::pool::Pool;
use std::sync::Arc;

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
pub struct Arena(Arc<Regions>);

impl Arena {
    /// An arena of `bytes` bytes from a pool.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    pub fn new(pool: &Pool, bytes: usize) -> Result<Self> {
        Ok(Self(Arc::new(Regions::new(pool.alloc(bytes)?))))
    }

    /// The bytes from `offset` on, unless they are outside the arena, unaligned, or partly in use.
    /// They are initialised but unspecified; dropping the buffer returns them.
    #[must_use]
    pub fn take(&self, offset: usize, len: usize) -> Option<Buffer> {
        Some(Buffer::in_arena(self.0.take(offset, len)?, len))
    }
}
